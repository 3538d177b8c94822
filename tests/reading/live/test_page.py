"""The page in a real browser: values, following, both colour schemes, a telephone, a keyboard.

Skipped where there is no Chromium; Debian's package is called `chromium`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hushstream import read_releases
from hushstream.deploy.broker import Broker
from hushstream.reading.live.board import Board
from hushstream.reading.live.server import PageServer, serve
from hushstream.topics.config.model import Kafka

from ... import chromium
from .showcase import Made, create, send, showcase
from .test_board import estimates, tell
from .test_tail import until

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="needs Chromium: apt-get install chromium"
)
CHARTS = "document.querySelectorAll('.panel svg.chart').length"
DRAWN = "[...document.querySelectorAll('.panel')].every((p) => p.querySelector('.newest > *'))"
EMPTY = "document.querySelectorAll('.panel.empty').length"


@dataclass
class Shown:
    """A deployment on a page; one release is held back."""

    made: Made
    bootstrap: str
    held: list[tuple[str, Any]]
    board: Board
    server: PageServer
    browser: chromium.Browser

    def title(self, case: str) -> str:
        """Selector of the panel of a case."""
        place = list(self.made.pipelines).index(case) + 1
        return f"#pipeline-{place}"

    def fresh(self, width: int = 1100, scheme: str = "light") -> chromium.Browser:
        """Reload the page and wait for all pictures."""
        self.browser.size(width)
        self.browser.scheme(scheme)
        self.browser.open(self.server.url)
        self.browser.until(f"{CHARTS} >= 9 && {DRAWN} && {EMPTY} === 0")
        return self.browser


@pytest.fixture(scope="module")
def shown(broker: Broker) -> Iterator[Shown]:
    # With fewer rides the newest window's list may have only one page of keys.
    made = showcase(f"page{time.time_ns() % 10**8}", scale=5)
    create(broker.bootstrap, made)
    tell(broker.bootstrap, made, made.ledger)
    topic = made.topics["histogram"]
    last = max(out.timestamp or 0 for out in made.releases[topic])
    every = [(t, out) for t, outs in made.releases.items() for out in outs]
    held = [(t, out) for t, out in every if t == topic and out.timestamp == last]
    send(broker.bootstrap, (one for one in every if one not in held))
    board = Board(Kafka(bootstrap=broker.bootstrap), made.deployment)
    board.start()
    server = serve(board, "127.0.0.1", 0)
    browser = chromium.Browser()
    try:
        # A panel is drawn with its first release, which may be older than `newest`.
        until(lambda: len(board.names) == len(made.pipelines) and all_read(board))
        yield Shown(made, broker.bootstrap, held, board, server, browser)
    finally:
        browser.close()
        board.end()
        server.shutdown()
        server.server_close()


def all_read(board: Board) -> bool:
    """Whether each topic was read to its end."""
    return all(one["health"]["words"][:7] != "Reading" for one in board.summary()["pipelines"])


def newest(shown: Shown, case: str) -> list[dict[str, Any]]:
    rows = read_releases(shown.bootstrap, shown.made.pipelines[case], which="latest").to_pylist()
    last = max(row["window_start"] for row in rows)
    return [row for row in rows if row["window_start"] == last]


def texts(browser: chromium.Browser, selector: str) -> list[str]:
    found = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    return list(browser.eval(found))


def number(text: str) -> float:
    return float(text.split("±")[0].replace(",", "").replace("−", "-"))


def decimals(text: str) -> int:
    return len(text.split("±")[0].partition(".")[2])


@pytest.mark.thorough
def test_keys_are_those_that_readers_get(shown: Shown) -> None:
    browser, panel = shown.fresh(), shown.title("histogram")
    rows = sorted(newest(shown, "histogram"), key=lambda row: -row["count"])
    keys = texts(browser, f"{panel} .keys tbody .key")
    assert len(keys) == min(len(rows), 12) > 3
    counts = {row["zone"]: row["count"] for row in rows}
    told = [number(text) for text in texts(browser, f"{panel} .keys tbody .number")]
    assert [round(counts[key]) for key in keys] == [round(n) for n in told]
    assert told == sorted(told, reverse=True)
    assert browser.eval(f"document.querySelectorAll('{panel} .keys .whisker').length") == len(keys)


@pytest.mark.parametrize(
    "case",
    [pytest.param("privhp", marks=pytest.mark.thorough), "phdstream", "pak", "tops", "topl"],
)
def test_the_table_behind_a_picture_has_every_number(shown: Shown, case: str) -> None:
    browser, panel = shown.fresh(), shown.title(case)
    rows = newest(shown, case)
    if case == "topl":
        shares = [float(t.rstrip(" %")) for t in texts(browser, f"{panel} .newest td:nth-child(3)")]
        assert len(shares) == 32 and 99 < sum(shares) < 101
        last = max(rows, key=lambda row: row["trigger"])
        moved = f"{panel} .movement td:nth-child(3)"
        told = texts(browser, moved)[0]  # rounded to the digits that the error allows
        assert abs(number(told) - last["mean"]) <= 0.500001 * 10 ** -decimals(told)
        return
    name = "sum" if case in ("pak", "tops") else "count"
    value = f"{panel} .newest td:nth-child(2)"
    told = [number(text) for text in texts(browser, value)]
    wanted = [row[name] for row in rows]
    assert len(told) == min(len(wanted), 200)
    largest = sorted(wanted, reverse=True)[: len(told)]
    for one, other in zip(sorted(told, reverse=True), largest, strict=True):
        assert abs(one - other) <= 0.5 or abs(one / other - 1) < 1e-3


def test_a_new_release_appears_without_a_reload(shown: Shown) -> None:
    browser, panel = shown.fresh(), shown.title("histogram")
    browser.eval("window.marker = 'the same page'")
    before = texts(browser, f"{panel} .what")[0]
    send(shown.bootstrap, iter(shown.held))
    told = json.dumps(before)
    browser.until(f"document.querySelector('{panel} .what').textContent !== {told}")
    assert browser.eval("window.marker") == "the same page"
    assert "histogram" in browser.until("document.getElementById('news').textContent")
    # More than one release was held back; for a moment the page may have only some of them.
    counts = {row["zone"]: row["count"] for row in newest(shown, "histogram")}
    until(lambda: estimates(shown.board, shown.made.pipelines["histogram"]) == counts)
    test_keys_are_those_that_readers_get(shown)


def test_filter_paging_values_windows_and_releases(shown: Shown) -> None:
    browser, panel = shown.fresh(), shown.title("histogram")
    keys = f"[...document.querySelectorAll('{panel} .keys .key')].map((e) => e.textContent)"
    first = browser.eval(keys)
    browser.eval(f"document.querySelector('{panel} .pager button:last-child').click()")
    browser.until(f"({keys})[0] !== {json.dumps(first[0])}")
    search = f"document.querySelector('{panel} input[type=search]')"
    browser.eval(f"{search}.value = 'EAST'; {search}.dispatchEvent(new Event('input'))")
    browser.until(f"({keys}).length && ({keys}).every((key) => /east/i.test(key))")
    select = f"[...document.querySelectorAll('{panel} select')]"
    browser.eval(f"{search}.value = ''; {search}.dispatchEvent(new Event('input'))")
    browser.eval(f"{select}[2].value = 'mean_fare'; {select}[2].dispatchEvent(new Event('change'))")
    head = f"document.querySelector('{panel} .figure h3').textContent"
    browser.until(f"{head} === 'Largest values of mean_fare'")
    what = f"document.querySelector('{panel} .what').textContent"
    release = browser.eval(what)
    browser.eval(f"{select}[0].selectedIndex = 2; {select}[0].dispatchEvent(new Event('change'))")
    browser.until(f"{what} !== {json.dumps(release)} && {what}.startsWith('Release 12 of 12')")
    browser.eval(f"{select}[1].selectedIndex = 5; {select}[1].dispatchEvent(new Event('change'))")
    browser.until(f"{what}.startsWith('Release 7 of 12')")


@pytest.mark.spread(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_pictures_stand_out_in_both_schemes(shown: Shown, scheme: str) -> None:
    browser = shown.fresh(scheme=scheme)
    least = {"body": 7, ".what": 4.5, ".note": 4.5, ".badge": 4.5, "svg .tick": 4.5, ".line": 3,
             ".whisker": 3, ".key": 4.5, ".reach": 4.5, "a": 4.5}  # fmt: skip
    script = """(selector) => {
      const parse = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map((n) => n / 255)
        .map((n) => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4)
        .reduce((s, n, i) => s + n * [0.2126, 0.7152, 0.0722][i], 0);
      const e = document.querySelector('.panel ' + selector) ?? document.querySelector(selector);
      const style = getComputedStyle(e);
      const drawn = style.fill === 'none' ? style.stroke : style.fill;
      const ink = e.ownerSVGElement ? drawn : style.color;
      let under = e;
      while (parse(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
      const [a, b] = [light(parse(ink)), light(parse(getComputedStyle(under).backgroundColor))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }"""
    browser.each(script, list(least), lambda one, ratio: _stands_out(one, ratio, least[one]))
    ground = browser.eval("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(", "))) < 150) == (scheme == "dark")


def _stands_out(selector: str, ratio: float, least: float) -> None:
    assert ratio >= least, selector


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_needs_no_horizontal_scrolling(shown: Shown, width: int) -> None:
    browser = shown.fresh(width)
    assert browser.eval("document.documentElement.scrollWidth") <= width
    wide = browser.eval(
        "[...document.querySelectorAll('.panel *, .overview *')].filter((e) => "
        "!e.closest('.unseen') && !e.closest('details')"
        " && e.getBoundingClientRect().right > innerWidth + 0.5)"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


@pytest.mark.thorough
def test_the_keyboard_reaches_and_moves_everything(shown: Shown) -> None:
    browser = shown.fresh()
    browser.press("Tab")
    assert browser.eval("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        browser.press("Tab")
        seen.add(browser.eval("document.activeElement.tagName.toLowerCase()"))
    assert {"a", "select", "input", "button", "svg", "summary"} <= seen
    assert browser.eval("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    panel = shown.title("histogram")
    browser.eval(f"document.querySelectorAll('{panel} .key')[2].focus()")
    key = browser.eval("document.activeElement.textContent")
    browser.press("Enter")
    browser.until(
        f"document.querySelector('{panel} .chosen .key').textContent === {json.dumps(key)}"
    )
    browser.until(f"document.activeElement.textContent === {json.dumps(key)}")
    for case in ("histogram", "phdstream", "pak", "topl"):
        chart = f"{shown.title(case)} svg.chart"
        browser.eval(f"document.querySelector('{chart}').focus()")
        said = f"document.querySelector('{chart}').parentElement.querySelector('.said').textContent"
        assert browser.eval(said) == ""
        browser.press("ArrowLeft")
        last = browser.until(said)
        browser.press("Home")
        assert browser.until(said) != last


def test_a_screen_reader_finds_words_for_every_picture(shown: Shown) -> None:
    browser = shown.fresh()
    lacking = browser.eval(
        "[...document.querySelectorAll('svg')].filter((e) => "
        "e.getAttribute('aria-hidden') !== 'true' && !(e.getAttribute('role') === 'img'"
        " && e.getAttribute('aria-label').length > 20))"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert lacking == []
    behind = browser.eval(
        "[...document.querySelectorAll('.figure svg.chart')].every((e) => "
        "e.closest('.figure').querySelectorAll('details table tbody tr').length > 0)"
    )
    assert behind
    unnamed = browser.eval(
        "[...document.querySelectorAll('select, input')].filter((e) => !e.closest('label')).length"
    )
    assert unnamed == 0
    assert browser.eval("document.querySelectorAll('h1').length") == 1


def test_nothing_is_asked_of_another_host_and_nothing_goes_wrong(shown: Shown) -> None:
    browser = shown.fresh()
    hosts = {urlsplit(url).netloc for url in browser.requested if not url.startswith("about:")}
    assert hosts == {urlsplit(shown.server.url).netloc}
    assert browser.errors == []
