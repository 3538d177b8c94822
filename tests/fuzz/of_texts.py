"""Targets: configurations, statements, regions, surveys."""

from __future__ import annotations

import json
import random
import re
import tomllib
from fractions import Fraction
from pathlib import Path

from hushstream.agents.deployment.compile import compile_config
from hushstream.client.survey import ReportError, Survey
from hushstream.errors import HushError
from hushstream.mechanisms.spatial.region import Region
from hushstream.topics.config.load import loads
from hushstream.topics.config.pipelines.public import read_regions
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query

from ..support import INPUT, PIPELINE
from .mutate import mutant
from .of_events import VALUED
from .target import Target


def toml() -> Target:
    """Configurations: a `Config`, or an error that says where."""
    base = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    corpus = [
        (base + PIPELINE.format(name="p", mechanism="", more=more)).encode()
        for more in (VALUED, 'public_keys = [["a"], ["b"]]', "epoch = '7d'")
    ]

    def run(data: bytes) -> None:
        config = loads(data.decode("utf-8", "replace"), environ={})
        compile_config(config, {})

    return Target(corpus, run, (HushError,))


def statements() -> Target:
    """Damaged statements: settings, or words on what is wrong."""
    path = Path(__file__).parents[1] / "topics" / "sql" / "statements.toml"
    listed = tomllib.loads(path.read_text("utf-8"))["statement"]
    source = QuerySource("orders", "shop-orders", ("user",), "created")

    def run(data: bytes) -> None:
        read_query(data.decode("utf-8", "replace"), [source])

    def mutate(draw: random.Random, corpus: list[bytes]) -> bytes:
        """Damaged bytes, or shuffled words of two statements."""
        if draw.random() < 0.3:
            return mutant(draw, corpus)
        words = [word for _ in "ab" for word in _SQL.findall(draw.choice(every))]
        for _ in range(draw.randint(1, 4)):
            at, by = draw.randint(0, len(words)), draw.randint(0, len(words))
            words[at : at + draw.randint(0, 2)] = words[by : by + draw.randint(0, 3)]
        return b" ".join(words)

    every = [one["sql"].encode() for one in listed]
    read = [one["sql"].encode() for one in listed if "becomes" in one]
    return Target(read, run, (HushError,), mutate)


_SQL = re.compile(rb"'[^']*'|\w+|\S")


def regions() -> Target:
    """Regions as GeoJSON: a `Region`, or a problem with its location."""
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    shapes = [
        {"type": "Polygon", "coordinates": [ring]},
        {"type": "MultiPolygon", "coordinates": [[ring], [[[x + 2, y] for x, y in ring]]]},
        {"type": "FeatureCollection", "features": [
            {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}]},
    ]  # fmt: skip

    def run(data: bytes) -> None:
        domain = {"region": "{" + data.decode("utf-8", "replace")[1:]}
        problems = read_regions({"pipeline": [{"mechanism": {"domain": domain}}]}, Path())
        assert bool(problems) != isinstance(domain.get("region"), Region)

    return Target([json.dumps(shape).encode() for shape in shapes], run, ())


def surveys() -> Target:
    """Surveys, as devices read them."""
    text = Survey(Fraction(1), Fraction(10), "salt").to_json()
    raw = text.encode() if isinstance(text, str) else text
    return Target(
        [raw], lambda data: Survey.from_json(data.decode()), (ReportError, UnicodeDecodeError)
    )
