"""Attributes and lookups in plan and simulation: they foretell what workers will release.

Covers: offline/simulate.py, planning/records.py, cli/planning/plan.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.model import Pipeline
from hushstream.cli.planning.plan import describe
from hushstream.formats.events.decode import RawRecord
from hushstream.offline import simulate as simulating
from hushstream.offline.engine import OfflineEngine
from hushstream.offline.simulate import simulate
from hushstream.planning.records import read_records
from hushstream.topics.config.load import Config, loads

from ..cli.bench import typed
from ..judge.worlds import HORIZONS, INPUT, PIPELINE
from ..support import DAY, ORIGIN, SECRET

USERS = """
[[input]]
name = "users"
topic = "users"
unit = "id"
attributes_of = "events"
partitioner = "murmur2"
time = { format = "record" }
"""
TABLE = "page,kind\np0,front\np1,news\np2,news\n"
COUNTRY = 'derive.country = { attribute = "home.country", otherwise = "none" }'
ORIGINS = """derive.country = { of_unit = true, otherwise = "abroad", cases = [
    { where = [{ field = "home.country", equals = "DE" }], then = "home" },
    { where = [{ field = "score", above = 0.5 }], then = "fond" },
] }"""
KIND = """derive.country = { field = "page", lookup = "pages.csv", take = "kind",
    otherwise = "none" }""".replace("\n   ", "")
ROW = '{ field = "page", lookup = "pages.csv", take = "kind"'
CHOICE = f"""derive.country = {{ otherwise = "none", cases = [
    {{ where = [{ROW}, equals = "news" }}, {{ field = "page", none_of = ["p2"] }}], \
then = "news" }},
    {{ where = [{ROW}, equals = "front" }}], then = "front" }},
] }}"""
REST = f'{{ any = [{ROW}, none_of = ["front"] }}, {ROW}, present = false }}] }}'
SHORT = KIND.replace("otherwise", "text = [{ start = 1, length = 1 }], otherwise")
NATURAL = 'public_keys = "natural"'
CASES = {
    "attribute": ('["country", "page"]', COUNTRY),
    "attribute alone": ('["country"]', COUNTRY),
    "listed": ('["country"]', COUNTRY + '\npublic_keys = [["DE"], [7], ["none"], ["XX"]]'),
    "cases": ('["page", "country"]', ORIGINS),
    "natural cases": ('["country"]', f"{ORIGINS}\n{NATURAL}"),
    "lookup": ('["country"]', f"{KIND}\n{NATURAL}"),
    "lookup and more": ('["country", "shop"]', KIND),
    "natural lookup cases": ('["country"]', f"{CHOICE}\n{NATURAL}"),
    "lookup short": ('["country", "shop"]', SHORT),
    "lookup where": ('["country", "shop"]', f"{KIND}\nwhere = [{REST}]"),
}  # fmt: skip
STATED = {
    f"u{n}": {"home": {"country": ("DE", "FR", 7, None)[n % 4]}, "score": n / 40}
    for n in range(40) if n % 5
}  # fmt: skip


def text(case: str, folder: Path) -> str:
    (folder / "pages.csv").write_text(TABLE)
    key, more = CASES[case]
    made = INPUT.format(units=1, cells=2, partitioner="murmur2", unit='"user"') + USERS
    made += PIPELINE.format(
        name="p", key=key, window=HORIZONS[4], epsilon=4, delta="0.001", more=more, mechanism="",
    )  # fmt: skip
    return made.replace('schedule = "external"\n', "")


def config(case: str, folder: Path) -> Config:
    return loads(text(case, folder), environ={}, folder=folder)


def rows() -> list[dict[str, Any]]:
    """Records that contain the attributes of their units, as in a sample."""
    random = Random(7)
    made = []
    for _ in range(1500):
        user = f"u{random.randrange(40)}"
        page, time = f"p{random.randrange(4)}", ORIGIN + random.randrange(2 * DAY)
        made.append({"user": user, "page": page, "shop": random.choice(["a", 7]), "t": time}
                    | STATED.get(user, {}))  # fmt: skip
    return made


def stated() -> list[RawRecord]:
    """The topic of attributes; each unit first has an outdated statement."""
    told = [{"id": user, "home": {"country": "old"}, "score": 1} for user in STATED]
    told += [{"id": user, **one} for user, one in STATED.items()]
    return [
        RawRecord(n, 0, one["id"].encode(), json.dumps(one).encode()) for n, one in enumerate(told)
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_simulation_releases_what_a_worker_does(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Byte for byte, if each record of the sample has its unit's attributes from the topic."""
    made: list[tuple[Any, ...]] = []

    def noted(*given: Any, **options: Any) -> OfflineEngine:
        made.append(given)
        return OfflineEngine(*given, **options)

    monkeypatch.setattr(simulating, "OfflineEngine", noted)
    settings = config(case, tmp_path)
    reports, engine = simulate(settings, rows(), "events", SECRET)
    ((_, names, secret, raw, entries),) = made
    released = worker(settings, names, secret, raw[("events", 0)], entries)
    topic = engine.outs["hush.p.releases.v1"]
    assert [(one.key, one.value) for one in topic] == [(one.key, one.value) for one in released]
    keys = {json.dumps(json.loads(one.value or b"{}").get("key")) for one in topic}
    assert len(keys) > 3 and reports["p"].counts["accepted"] > 100
    assert not reports["p"].unusable


def worker(
    settings: Config, names: Any, secret: bytes, raw: Sequence[RawRecord], entries: Any
) -> Sequence[Any]:
    """A worker's releases for the records without attributes, with a topic that states them."""
    log, beside = [], stated()
    for one in raw:
        body = json.loads(one.value or b"{}")
        plain = {name: body[name] for name in ("user", "page", "shop", "t")}
        log.append(one._replace(value=json.dumps(plain).encode()))
    clock = [
        (place, msgspec.structs.replace(one, offsets=one.offsets | {"users": [len(beside)]})
         if hasattr(one, "offsets") else one)
        for place, one in entries
    ]  # fmt: skip
    places = {("events", 0): log, ("users", 0): beside}
    engine = OfflineEngine(compile_config(settings), names, secret, places, clock)
    engine.run()
    return engine.outs["hush.p.releases.v1"]


def compiled(settings: Config) -> Pipeline:
    (pipeline,) = compile_config(settings).pipelines
    return pipeline


def plain(folder: Path, key: str, more: str) -> Config:
    CASES["plain"] = key, more
    return config("plain", folder)


OF_RECORD = ORIGINS.replace("of_unit = true, ", "").replace("home.country", "land")
PAIRS = {
    "attribute": ("attribute", '["land", "page"]', ""),
    "cases": ("cases", '["page", "country"]', OF_RECORD),
    "natural cases": ("natural cases", '["country"]', f"{OF_RECORD}\n{NATURAL}"),
    "lookup": ("lookup and more", '["land", "shop"]', ""),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_plan_charges_joined_columns_as_columns_of_the_record(pair: str, tmp_path: Path):
    case, key, more = PAIRS[pair]
    one, other = compiled(config(case, tmp_path)), compiled(plain(tmp_path, key, more))
    told = [describe(one), describe(other)]
    for body in told:
        for name in ("config_hash", "key"):
            body.pop(name, None)
    assert told[0] == told[1]


@pytest.mark.parametrize("case", CASES)
def test_a_sample_of_a_plan_has_the_keys_of_the_release(case: str, tmp_path: Path):
    settings = config(case, tmp_path)
    path = tmp_path / "sample.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    made = compile_config(settings)
    (source,), (pipeline,) = made.streams, made.pipelines
    records = read_records(pipeline, source, pipeline.fields.columns, path)
    found = Counter(records.keys[number] for number in records.key.tolist())
    wanted = Counter(
        json.dumps(key_of(case, row), separators=(",", ":")).encode() for row in rows()
    )
    if case == "listed":
        del wanted[b'["FR"]']
    if case == "lookup where":
        wanted = Counter({key: n for key, n in wanted.items() if b"front" not in key})
    assert found == wanted and len(found) > 2


def key_of(case: str, row: dict[str, Any]) -> list[Any]:
    """The key of one record."""
    land, score = row.get("home", {}).get("country"), row.get("score", 0)
    if "lookup" in case:
        country: Any = {"p0": "front", "p1": "news", "p2": "news"}.get(row["page"], "none")
        country = country[0] if case == "lookup short" and country != "none" else country
        if case == "natural lookup cases" and row["page"] == "p2":
            country = "none"
    elif "cases" in case:
        country = "home" if land == "DE" else "fond" if score > 0.5 else "abroad"
    else:
        country = "none" if land is None else land
    columns = {"country": country, **row}
    return [columns[name] for name in json.loads(CASES[case][0])]


@pytest.mark.parametrize("case", ["natural cases", "lookup"])
def test_a_plan_says_that_cases_of_attributes_are_public_by_nature(case: str, tmp_path: Path):
    (tmp_path / "hush.toml").write_text(text(case, tmp_path))
    code, out, _ = typed("plan", "--config", str(tmp_path / "hush.toml"))
    said = " ".join(out.replace("│", " ").split())
    assert code == 0 and "all 3 keys of country, public by nature" in said
