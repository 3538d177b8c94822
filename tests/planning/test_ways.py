"""Alternatives, in words that fit a screen and in lines that can be pasted.

Covers: planning/sentences.py
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.planning.search import Answer, Search
from hushstream.planning.sentences import no_way, other_kind
from hushstream.planning.ways import conclusions, heading, of_query, show_ways, written
from rich.console import Console

from .visits import INPUT, answer, config, read, write

__all__ = ["answer"]  # a fixture


@pytest.mark.thorough
def test_a_way_can_be_pasted(answer: Answer) -> None:
    way = answer.ways[1]
    lines = written("histogram", way)
    head = ["budget = { epsilon = 1.0, delta = 1e-6 }", 'window.origin = "2019-03-01T00:00:00Z"']
    head += [] if "key" in way.variant.changes else ['key = ["page", "age"]']
    text = INPUT[: INPUT.index("key =")] + "\n".join([*head, *lines])
    (p,) = config(text).pipeline
    assert p.window == way.variant.settings.window and p.key == way.variant.settings.key
    assert p.triggers == way.variant.settings.triggers


def test_what_a_query_states_is_a_comment_in_what_can_be_pasted(answer: Answer) -> None:
    changes = {"key": '["page"]', "window.length": '"28d"', "triggers.every": '"28d"'}
    way = answer.ways[1]._replace(settings={})
    way = way._replace(variant=way.variant._replace(changes=changes))
    sql = "SELECT page, COUNT(*) FROM visits GROUP BY page, {}(t, INTERVAL '1' DAY)"
    lines = written("histogram", way, of_query(sql.format("Tumble")))
    assert lines[:3] == [
        '# in the query: key = ["page"]', '# in the query: window.length = "28d"',
        'triggers.every = "28d"',
    ]  # fmt: skip
    shop = "SELECT shop, COUNT(*) FROM visits GROUP BY shop"
    assert written("histogram", way, of_query(shop))[1] == 'window.length = "28d"'
    assert written("histogram", way, of_query(None))[0] == 'key = ["page"]'


@pytest.mark.thorough
def test_settings_beside_a_table_are_written_one_by_one(answer: Answer) -> None:
    way = answer.ways[1]._replace(settings={"domain": {"depth": 3}, "k": 64, "noise": "gauss"})
    lines = written("privhp", way)
    assert lines[-2:] == ["mechanism.k = 64", 'mechanism.noise = "gauss"']
    head = [*INPUT[: INPUT.index("key =")].splitlines(), "budget = { epsilon = 1, delta = 1e-6 }"]
    window = 'window = { length = "1h", origin = "2019-03-01T00:00:00Z" }'
    axes = '[{ name = "x", low = 0, high = 1 }, { name = "y", low = 0, high = 1 }]'
    space = f'mechanism.domain = {{ depth = 3, split = "binary", axes = {axes} }}'
    rest = ['mechanism.kind = "privhp"', space, 'triggers.every = "1h"', window]
    (p,) = config("\n".join([*head, *lines[-2:], *rest])).pipeline
    assert (p.mechanism.parameters.k, p.mechanism.parameters.noise) == (64, "gauss")


def test_a_way_that_changes_nothing_says_so(answer: Answer) -> None:
    way = answer.ways[1]._replace(settings={"domain": {"depth": 3}})
    same = way._replace(variant=way.variant._replace(changes={}))
    console = Console(width=80, record=True, file=io.StringIO())
    show_ways(console, "map", "privhp", answer._replace(ways=(way, same)))
    first, second = console.export_text().split("to write")[1:]
    assert first.startswith(", in place of what the pipeline has:")
    assert "best as it is" not in first and second.startswith(": nothing, it is best as it is")


def test_fewer_than_three_ways_come_with_the_reason(answer: Answer, tmp_path: Path) -> None:
    text = INPUT.replace(', "age"', "").replace('"1h"', '"24h"').replace('"30m"', '"24h"')
    made, records = read(
        write(tmp_path / "visits.csv", rows=16), text.replace("epsilon = 1.0", "epsilon = 16.0")
    )
    (source,) = compile_config(made).inputs
    found = Search(source.pipelines[0], made.pipeline[0], records).answer(tmp_path / "visits.csv")
    assert found.missing == (
        "There is no way with the same ε, with less detail. A window longer than 1d was not tried, "
        "as the file spans 22h30m. It would hold more units, so that more could be seen. Coarser "
        "keys were not tried, as nothing tells how to join values of page. A column of fewer "
        "values (regions instead of places) needs fewer units.",
        "There is no way with the same detail, with a larger ε. No larger ε was tried: 20 is the "
        "most.",
    )
    tried = no_way("x", [(way.variant, 0.3 + i / 10) for i, way in enumerate(answer.ways)], 0.25)
    words = ", ".join(way.variant.words for way in answer.ways)
    assert tried == (
        f"There is no way with x: {words} would have an error of 30% at best, where it is 25% as "
        "asked for."
    )
    good = answer._replace(ways=answer.ways[1:], missing=(tried,))
    assert tried in conclusions(good) and tried not in conclusions(answer)


def test_a_person_reads_it_in_80_columns(answer: Answer) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    show_ways(console, "pages", "histogram", answer)
    lines = console.export_text().splitlines()
    pasted = [line for line in lines if "mechanism = {" in line]
    assert all(len(line) <= 80 for line in lines if line not in pasted)
    text = " ".join(" ".join(lines).split())
    parts = ("1. as it is asked for", "HOPELESS", "seen", "off", "lost", "be public")
    for part in (heading(answer), "cost ε = 1, δ = 1e-06 for each unit, anew every 1h", *parts):
        assert part in text, part


def test_another_mechanism_is_judged_by_the_same_measure() -> None:
    assert other_kind("tops", 0.88, "pak", 1.33).endswith(
        "133% after that. That is not enough either."
    )
    assert other_kind("tops", 0.3, "pak", 1.33).endswith("after that. That is enough.")
    assert other_kind("tops", 0.3, "pak", 0.4).endswith("pak has 40% after that.")
    assert "no smaller error: over 1,000% before" in other_kind("tops", 1e9, "pak", 2.0)
