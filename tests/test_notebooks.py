"""The documentation's notebooks run from top to bottom against a real broker."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hushstream.deploy.broker import Broker
from hushstream.offline.simulate import simulate
from hushstream.topics.config.load import loads

from .reading.test_client import Topic
from .recorded.pipelines import COMMON, HEAD, SECRET, SETTINGS, WINDOW, rows

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
CASES = {"releases": "histogram-sums", "maps": "phdstream"}


def sources(name: str) -> Iterator[str]:
    """The code cells of a notebook."""
    body = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    assert (body["nbformat"], body["nbformat_minor"]) == (4, 5)
    for cell in body["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # outputs of one machine do not belong to the text
            yield "".join(cell["source"])


def run(name: str) -> tuple[dict[str, Any], list[Any]]:
    """Run all cells in one namespace; return the names and the outputs of cells."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for source in sources(name):
        tree = ast.parse(source)
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
            exec(compile(tree, name, "exec"), names)  # noqa: S102
            shown.append(eval(compile(ast.Expression(last.value), name, "eval"), names))  # noqa: S307
        else:
            exec(compile(tree, name, "exec"), names)  # noqa: S102
    return names, shown


@pytest.fixture
def pipeline(
    request: Any, broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Publish a case's releases under its own name, in the topic that readers use."""
    import matplotlib

    matplotlib.use("Agg")
    name, case = unique("shown"), CASES[request.param]
    text = HEAD.format(partitioner="none") + COMMON.format(name=name, window=WINDOW)
    _, engine = simulate(loads(text + SETTINGS[case], environ={}), rows(), "trips", SECRET)
    topic = f"hush.{name}.releases.v1"
    Topic(broker, topic).send(engine.outs[topic])
    monkeypatch.setenv("HUSH_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HUSH_PIPELINE", name)
    return name


@pytest.mark.parametrize("pipeline", ["releases"], indirect=True)
def test_releases_as_a_data_frame(pipeline: str) -> None:
    names, shown = run("releases")
    assert len(shown) == 4 and all(len(one) for one in shown)
    assert names["key"] == "zone" and len(names["sizes"]) == 8
    assert len(names["mine"]) > 1 and names["ax"].get_title() == "zone = z1"
    assert names["totals"]["stddev"].gt(0).all()


@pytest.mark.parametrize("pipeline", ["maps"], indirect=True)
def test_a_map_and_its_points(pipeline: str) -> None:
    names, shown = run("maps")
    assert len(shown) == 3
    assert names["newest"].trigger == 4 and len(names["points"]) > 10
    assert len(names["geojson"]["features"]) == len(names["newest"].rows) > 5


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(CASES)
