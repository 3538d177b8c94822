"""Pictures of dashboards show the shipped dashboards and their data."""

from __future__ import annotations

import copy
import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hushstream.reading.live.server import serve

from ..reading.live.test_server import filled
from . import __main__ as program
from . import answers, browser, infinity

BOARDS = {name: json.loads((program.SHIPPED / name).read_text("utf-8")) for name in program.NAMES}
MISSING = [name for name, path in program.NEEDED.items() if path is None]
BEGIN = 1_700_000_000.0
SMALLEST = 9.0  # pixels of a text that people can read
MANY = {"Releases": 6, "Loss alarms": 8}  # values of two pipelines

thorough = pytest.mark.thorough
needs_all = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.mark.parametrize("module", [answers, infinity, program], ids=lambda m: m.__name__)
def test_examples(module: Any) -> None:
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


@pytest.mark.parametrize("name", program.SHOWN)
def test_the_pictures_of_the_docs_show_the_shipped_dashboards(name: str) -> None:
    """After a change of a dashboard, run `make dashboards`."""
    text = (program.SHIPPED / name).read_text("utf-8")
    assert browser.shown(program.picture(name)) == browser.digest(text)


def test_the_lock_names_hashes_and_no_registry() -> None:
    told = json.loads((browser.SOURCES / "package-lock.json").read_text("utf-8"))
    modules = {path: one for path, one in told["packages"].items() if path}
    assert len(modules) > 300
    assert all(one["integrity"].startswith("sha512-") for one in modules.values())
    assert not any("resolved" in one for one in modules.values())
    asked = json.loads((browser.SOURCES / "package.json").read_text("utf-8"))
    assert told["packages"][""]["dependencies"] == asked["dependencies"]


def test_components_are_of_the_grafana_that_compose_runs() -> None:
    compose = (program.ROOT / "docker-compose.yml").read_text("utf-8")
    assert f"image: grafana/grafana:{browser.version()}\n" in compose


def made(board: dict[str, Any], value: float) -> dict[str, Any]:
    """A page's contents: constant series, as many as two pipelines have."""

    def series(panel: dict[str, Any], query: str) -> list[dict[str, Any]]:
        times = [BEGIN, BEGIN + 5]
        return [
            answers.Series(
                query, f"payments outcome {query}{n}", {}, times, [value, value]
            )._asdict()
            for n in range(MANY.get(panel["title"], 2))
        ]

    found = {
        panel["id"]: [one for target in panel["targets"] for one in series(panel, target["refId"])]
        for panel in board["panels"]
    }
    times = {"from": BEGIN, "to": BEGIN + 60, "step": 5}
    return {"board": board, "found": found, "caption": "-", **times}


@pytest.fixture(scope="module")
def pages() -> Iterator[browser.Pages]:
    with browser.Pages() as found:
        yield found


TEXTS = """(panel) => {
  const walk = document.createTreeWalker(
    document.querySelector(`[data-panel="${panel}"]`), NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) found.push(walk.currentNode.data.trim());
  return found;
}"""
FAULTS = """(smallest) => {
  const cut = (text, panel) => {
    const range = document.createRange();
    range.selectNodeContents(text);
    const { right } = range.getBoundingClientRect();
    for (let e = text; e !== panel; e = e.parentElement)
      if (getComputedStyle(e).overflowX === 'hidden' && right > e.getBoundingClientRect().right + 1)
        return true;
    return false;
  };
  return [...document.querySelectorAll('[data-panel]')].flatMap((panel) => {
  const box = panel.getBoundingClientRect();
  return [...panel.querySelectorAll('*')]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => [e, parseFloat(getComputedStyle(e).fontSize), e.getBoundingClientRect()])
    .filter(([e, size, r]) =>
      size < smallest || r.right > box.right + 1 || r.left < box.left - 1 || cut(e, panel))
    .map(([e, size]) => `${panel.dataset.panel}: ${e.textContent} (${size})`);
  });
}"""
HUE = """([panel, text]) => getComputedStyle(
  [...document.querySelectorAll(`[data-panel="${panel}"] *`)]
    .find((e) => e.childElementCount === 0 && e.textContent === text)).color"""


def ask(pages: browser.Pages, script: str, value: Any) -> Any:
    """Call a function of the page."""
    return pages.browser.eval(f"({script})({json.dumps(value)})")


def faults(pages: browser.Pages) -> list[str]:
    """Texts that are too small to read, cut off, or outside their panel."""
    return list(ask(pages, FAULTS, SMALLEST))


@thorough
@needs_all
@pytest.mark.parametrize("name", ["releases.json", "operator.json"])
def test_each_panel_shows_its_title_and_its_series(pages: browser.Pages, name: str) -> None:
    pages.browser.errors.clear()
    pages.show(made(BOARDS[name], 0.5))
    for panel in BOARDS[name]["panels"]:
        found = ask(pages, TEXTS, panel["id"])
        assert panel["title"] in found and "No data" not in found
        assert {"payments outcome A0", "payments outcome A1"} <= set(found)
    assert pages.browser.errors == [] and faults(pages) == []


@thorough
@needs_all
def test_a_text_that_cannot_be_read_is_seen(pages: browser.Pages) -> None:
    told = made(BOARDS["releases.json"], 0.5)
    told["board"] = copy.deepcopy(told["board"])
    told["board"]["panels"][0]["gridPos"]["w"] //= 2
    pages.show(told)
    assert faults(pages)


@thorough
@needs_all
def test_values_have_the_units_and_colours_of_the_dashboard(pages: browser.Pages) -> None:
    board = BOARDS["releases.json"]
    told = made(board, 0.05)
    panels = {panel["title"]: panel["id"] for panel in board["panels"]}
    told["found"][panels["Releases"]][0] |= {"name": "zones refused", "values": [0.0, 1.0]}
    told["found"][panels["Cap for each unit: delta"]][0]["values"] = [1e-5, 1e-5]
    told["found"][panels["Versions"]] = []
    pages.show(told)

    def said(title: str) -> set[str]:
        return set(ask(pages, TEXTS, panels[title]))

    assert {"5", "%"} <= said("Budget remaining")
    assert "1e-5" in said("Cap for each unit: delta")
    assert {"50", "ms"} <= said("Since the last scheduled trigger")
    assert "No data" in said("Versions")
    red = ask(pages, HUE, [panels["Releases"], "1"])
    assert red == ask(pages, HUE, [panels["Budget remaining"], "5"])
    assert red != ask(pages, HUE, [panels["Releases"], "0.0500"])


@thorough
@needs_all
def test_released_values_stand_in_a_table(pages: browser.Pages) -> None:
    board = BOARDS["values.json"]
    live = filled("histogram-sums")
    server = serve(live, "127.0.0.1", 0)
    try:
        found = infinity.answers(server.url, board)
    finally:
        live.end()
        server.shutdown()
        server.server_close()
    pages.browser.errors.clear()
    ends = {"from": 1_551_398_400, "to": 1_551_460_000, "step": 5, "caption": "-"}
    pages.show({"board": board, "found": found} | ends)
    table, trend = (ask(pages, TEXTS, panel["id"]) for panel in board["panels"])
    head = ["Key", "Value", "Deviation", "Low", "High", "Release"]
    first = ["z1", "135", "16.9", "102", "168", "4"]
    at = table.index("Key")
    assert table[at : at + 12] == head + first
    assert "Value" in trend and "High" not in trend  # the error bar has no name
    assert pages.browser.errors == [] and faults(pages) == []


@thorough
@needs_all
@pytest.mark.broker
def test_no_panel_of_a_real_deployment_is_empty(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.dashboards", "--minutes=1.2", f"--into={tmp_path}"]
    done = subprocess.run(words, cwd=program.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == set(done.stdout.split())
    assert len(done.stdout.split()) == len(program.NAMES) == 3
