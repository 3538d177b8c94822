"""A file of visits to pages, and the search over it, for tests of the planner."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hushstream.agents.deployment.compile import compile_config, value_columns
from hushstream.planning.records import Records, read_records
from hushstream.planning.search import Answer, Search
from hushstream.topics.config.load import Config, loads

HOUR = 3_600_000_000
START = 1_551_398_400_000_000
INPUT = """
[[input]]
name = "visits"
topic = "visits"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "visits"
key = ["page", "age"]
window = { length = "1h", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "30m" }
budget = { epsilon = 1.0, delta = 1e-6 }
mechanism = { kind = "histogram", budget = 4, adaptive_weight = 0, delay = 0 }
""".replace(", delay = 0", "")


def config(text: str = INPUT) -> Config:
    return loads(text, environ={})


def write(path: Path, rows: int = 6_000, hours: int = 24, pages: int = 8) -> Path:
    """Write visits to pages by users aged 20…59; every user visits once."""
    lines = ["user,page,age,t,spare"]
    for i in range(rows):
        time = START + i * hours * HOUR // rows
        lines.append(f"u{i},p{i % pages},{20 + i // pages * 7 % 40},{time},x")
    path.write_text("\n".join(lines))
    return path


def read(path: Path, text: str = INPUT) -> tuple[Config, Records]:
    made = config(text)
    (source,) = compile_config(made).inputs
    (p,) = source.pipelines
    return made, read_records(p, source, tuple(value_columns(made.pipeline[0])), path)


@cache
def answered(folder: Path) -> Answer:
    made, records = read(write(folder / "visits.csv"))
    (source,) = compile_config(made).inputs
    ticks: list[int] = []
    search = Search(source.pipelines[0], made.pipeline[0], records, lambda: ticks.append(1))
    answer = search.answer(folder / "visits.csv")
    assert 0 < len(ticks) <= search.ticks()
    return answer


@pytest.fixture(scope="session")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return answered(tmp_path_factory.mktemp("search"))
