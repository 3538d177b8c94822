"""The registry is checked against the ledger before anything is registered."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError
from hushstream.agents.deployment.published.schema_pins import codec_of, subjects
from hushstream.agents.registry import subjects as module
from hushstream.agents.registry.subjects import verify_numbers
from hushstream.errors import EngineError
from hushstream.topics.config.model import RegistrySettings
from hushstream.topics.releases import ROW

from ..deployment.published.test_schema_pins import NUMBERS, made


@dataclass
class Registry:
    """A registry that knows some subjects and refuses to register any."""

    known: dict[str, int] = field(default_factory=dict)

    @property
    @contextmanager
    def asked(self) -> Any:
        yield self

    def lookup_schema(self, subject: str, schema: Any) -> Any:
        if subject not in self.known:
            raise SchemaRegistryError(404, 40401, "none")
        return type("Known", (), {"schema_id": self.known[subject]})

    def register_schema(self, subject: str, schema: Any) -> int:
        raise AssertionError(subject)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    found = Registry()
    monkeypatch.setattr(module, "RegistryClient", lambda settings: found)
    return found


def test_pinned_numbers_are_verified_and_nothing_is_registered(registry: Registry) -> None:
    pinned = made().each(lambda p: replace(p, codec=codec_of(p, NUMBERS)))
    settings = RegistrySettings(url="http://x")
    every = subjects(pinned.pipelines[0])
    verify_numbers(settings, pinned)  # nothing is known yet, and may be registered
    registry.known = {one.name: NUMBERS[one.header] for one in every}
    verify_numbers(settings, pinned)
    registry.known = {one.name: 77 for one in every if one.header == ROW}
    with pytest.raises(EngineError, match="as 77, the ledger pinned 7"):
        verify_numbers(settings, pinned)
