"""A schema registry: two schemas, one unknown id, and times at which it does not answer."""

from __future__ import annotations

import io
import json
from functools import cache
from random import Random
from typing import Any

import fastavro
from hushstream.agents.registry.asking import Asking
from hushstream.agents.registry.refusals import IdRefused
from hushstream.formats.schemas.schema import Schema, Verdict

from . import world

UNKNOWN = 7  # an id that no schema has
WAYS = ("silent", "ill", "strange")
"""Kinds of outage: no connection, the registry's own errors, or a proxy's page for everything."""


def _text(*fields: tuple[str, str]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Event", "fields": listed})


USER, PAGE, TIME = ("user", "string"), ("page", "string"), ("t", "long")
TEXTS = {1: ("avro", _text(USER, PAGE, TIME)),
         2: ("avro", _text(("fare", "double"), TIME, USER, PAGE))}  # fmt: skip
"""Encoding and text by id, as `tests.judge.framed` takes them."""


@cache
def _parsed(number: int) -> Any:
    return fastavro.parse_schema(json.loads(TEXTS[number][1]))


def framed(body: dict[str, Any], random: Random) -> bytes:
    """A record under one of the schemas; one in twelve has an unknown id."""
    number = random.choice((1, 2))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed(number), {"fare": 1.5, **body})
    number = UNKNOWN if random.random() < 1 / 12 else number
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


class Unwell(Exception):
    """An error of the registry itself."""

    http_status_code = 503


class Registry:
    """Stands for `agents.registry.client.RegistryClient`."""

    def fetch(self, number: int) -> Schema | Verdict:
        """Return a schema by its id."""
        self._reach()
        if number not in TEXTS:
            return Verdict.UNKNOWN
        return Schema("AVRO", TEXTS[number][1])

    def probe(self, number: int) -> None:
        """Raise an error unless the registry answers."""
        self._reach()

    @staticmethod
    def _reach() -> None:
        way = world.current().registry
        if way == "silent":
            raise ConnectionError("no connection")
        if way == "ill":
            raise Unwell
        if way == "strange":
            raise IdRefused(404)


def asking_of(settings: Any, wake: Any) -> Asking:
    """Stand for `agents.registry.asking.asking_of`."""
    return Asking(Registry(), settings.outage_timeout, wake)
