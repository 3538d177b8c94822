"""The page in a real browser, for boards made by hand, without a broker.

Skipped where there is no Chromium; Debian's package is called `chromium`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.reading.live.board import Board, Watched
from hushstream.reading.live.budget import spent
from hushstream.reading.live.declared import declared
from hushstream.reading.live.history import History
from hushstream.reading.live.server import serve
from hushstream.topics.config.model import Kafka
from hushstream.topics.releases import Row, Value

from ... import chromium
from ...topics.test_assembly import Released
from .test_budget import sharing
from .test_declared import compiled, seen
from .test_history import released
from .test_page import texts

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="needs Chromium: apt-get install chromium"
)


EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def evil_board() -> Board:
    """A pipeline with a script as one key, and very many other keys."""
    one = released("histogram-plain")[-1]
    rows = [Row("", str(n), "p", one.window, one.trigger, True, {"zone": f"z{n}"},
                {"count": Value(n, 1.0, n - 2.0, n + 2.0)}) for n in range(100_000)]  # fmt: skip
    value: dict[str, Value | None] = {"count": Value(10**9, 5.0, 10**9 - 10.0, 10**9 + 10.0)}
    rows.append(Row("", "evil", "p", one.window, one.trigger, True, {"zone": EVIL}, value))
    history = History()
    history.add(Released(tuple(rows), one.manifests))
    board = Board(Kafka(bootstrap="127.0.0.1:1"), EVIL)
    board._panels["histogram-plain"] = Watched(seen(compiled("histogram-plain")), history=history)
    return board


def test_a_key_is_text_and_never_markup() -> None:
    board = evil_board()
    server = serve(board, "127.0.0.1", 0)
    browser = chromium.Browser()
    try:
        browser.open(server.url)
        browser.until("document.querySelectorAll('.keys .key').length === 12")
        assert texts(browser, ".keys .key")[0] == EVIL
        assert texts(browser, "#deployment")[0] == EVIL
        assert "100,001 released keys" in texts(browser, ".note")[0]
        assert browser.eval("window.hacked") is None
        assert browser.eval("document.querySelectorAll('main script, main img').length") == 0
        assert browser.errors == []
    finally:
        browser.close()
        board.end()
        server.shutdown()
        server.server_close()


@pytest.mark.spread(2)
@pytest.mark.parametrize("width", [360, 1100])
def test_a_shared_budget_and_a_cap_are_told_as_promised(width: int) -> None:
    made = sharing('per_unit = { epsilon = 8, delta = 1e-4, period = "30d" }\n')
    board = Board(Kafka(bootstrap="127.0.0.1:1"), "d")
    board._ledger = made
    board._panels = {name: Watched(one) for name, one in declared(made).items()}
    server = serve(board, "127.0.0.1", 0)
    browser = chromium.Browser()
    try:
        browser.size(width)
        browser.open(server.url)
        browser.until("document.querySelectorAll('.budget .cap').length === 2")
        whole = spent(made, board._panels["a"].pipeline, None)["shared"]
        for told in texts(browser, ".budget .together"):
            assert told.startswith("Shared budget people, of a and b together: ε=1, δ=1e−6")
            assert "4 epochs charged" in told and "(their sum: ε=4)" in told
            assert f"ε={whole['total']:.2f} in all" in told
        spends = texts(browser, "#overview td:nth-child(4)")
        assert spends == [f"ε={whole['total']:.2f} spent"] * 2
        assert set(texts(browser, ".budget .cap")) == {
            "Cap for each unit: no unit in a period of 30d loses more than ε=8, δ=0.0001, by a and "
            "b together; what would exceed it is left out."
        }
        assert browser.eval("document.documentElement.scrollWidth") <= width
        assert browser.errors == []
    finally:
        browser.close()
        board.end()
        server.shutdown()
        server.server_close()


MARKS = """Promise.all([import('/charts.js'), import('/text.js')]).then(([charts, text]) =>
  [[40.8, 40.9], [40.84, 40.86], [0, 1e-7], [1e9, 1e9 + 50], [-3e-9, 2e-9], [1234.5, 1234.6]]
    .map(([low, high]) => charts.marked(charts.ticks(low, high, 5)))
    .concat([text.apart([40.81, 40.84, 40.9], 2), text.apart([1, 1], 2)]))"""


def test_marks_differ_and_nothing_is_awaited_after_the_last_trigger() -> None:
    board = Board(Kafka(bootstrap="127.0.0.1:1"), "d")
    pipeline = seen(compiled("pak"))
    one = released("pak")[-1]
    assert one.final
    history = History()
    history.add(Released((), one.manifests))
    board._panels = {"pak": Watched(pipeline, history=history)}
    server = serve(board, "127.0.0.1", 0)
    browser = chromium.Browser()
    try:
        browser.open(server.url)
        browser.until("document.querySelectorAll('.newest .quiet').length")
        assert texts(browser, ".newest .quiet") == ["No slot was released in this window."]
        *axes, legend, same = browser.eval(MARKS)
        for marks in (*axes, legend):
            assert len(set(marks)) == len(marks) >= 3, marks
        assert axes[0][0] == "40.80" and legend == ["40.81", "40.84", "40.9"]
        assert same == ["1", "1"] and browser.errors == []
    finally:
        browser.close()
        board.end()
        server.shutdown()
        server.server_close()


@pytest.mark.thorough
def test_the_page_says_that_its_server_is_gone_and_comes_back() -> None:
    board = evil_board()
    server = serve(board, "127.0.0.1", 0)
    port = server.server_address[1]
    browser = chromium.Browser()
    try:
        browser.open(server.url)
        browser.until("document.querySelectorAll('.keys .key').length === 12")
        board.end()
        server.shutdown()
        server.server_close()
        words = "document.getElementById('link-words').textContent"
        browser.until(f"{words}.startsWith('This page has lost its server')")
        assert len(texts(browser, ".keys .key")) == 12
        board = evil_board()
        server = serve(board, "127.0.0.1", int(port))
        browser.until(f"{words} === 'Connecting to Kafka.'")
    finally:
        browser.close()
        board.end()
        server.shutdown()
        server.server_close()


@pytest.mark.thorough
def test_the_pictures_of_the_documentation_are_small() -> None:
    folder = Path(__file__).parents[3] / "docs" / "images"
    sizes = {path.name: path.stat().st_size for path in folder.glob("live-*.png")}
    assert sizes and max(sizes.values()) < 200_000, sizes
