"""Schemas of releases in the registry: registered by an administrator, looked up by `hush check`.

A worker does neither, since the ledger pins what it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import EngineError, needs
from ...formats.entries import FORMATS
from ...formats.values.codec import MOST_ID
from ...topics.config.model import RegistrySettings
from ..deployment.model import Deployment, Pipeline
from ..deployment.published.schema_pins import Subject, codec_of, subjects, verify_pinned
from .client import RegistryClient

with needs("registry"):
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

CONFLICT = 409
REFUSED = (401, 403)
MISSING = 404

Ask = Callable[[SchemaRegistryClient, str, Schema], int]


def register(settings: RegistrySettings, deployment: Deployment) -> Deployment:
    """Register the schemas of pipelines that need them, and store their numbers; safe to repeat.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
        EngineError: the registry gives no clear answer, refuses, or knows another schema.
    """
    return _with_numbers(settings, deployment, _register)


def verify_numbers(settings: RegistrySettings, pinned: Deployment) -> None:
    """Check that the registry has no pinned schema under another number, without registering.

    Missing schemas are skipped, since `register` may restore them.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
        EngineError: the registry gives no clear answer, or knows another number.
    """
    numbers = {
        one.name: p.codec.records[one.header].number
        for p in pinned.pipelines
        for one in subjects(p)
    }

    def known(client: SchemaRegistryClient, subject: str, schema: Schema) -> int:
        try:
            return _known(client, subject, schema)
        except SchemaRegistryError as error:
            if error.http_status_code != MISSING:
                raise
            return numbers[subject]

    verify_pinned(_with_numbers(settings, pinned, known), pinned)


def look_up(settings: RegistrySettings, deployment: Deployment) -> int:
    """Check that the registry knows every pinned schema, by subject and number; return how many.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
        EngineError: the registry gives no clear answer, refuses, or knows something else.
    """
    verify_pinned(_with_numbers(settings, deployment, _known), deployment)
    return sum(len(subjects(p)) for p in deployment.pipelines)


def _with_numbers(settings: RegistrySettings, deployment: Deployment, ask: Ask) -> Deployment:
    with RegistryClient(settings).asked as client:

        def numbered(p: Pipeline) -> Pipeline:
            return replace(p, codec=codec_of(p, _numbers(client, p, ask)))

        return deployment.each(numbered)


def _register(client: SchemaRegistryClient, subject: str, schema: Schema) -> int:
    return int(client.register_schema(subject, schema))


def _known(client: SchemaRegistryClient, subject: str, schema: Schema) -> int:
    return int(client.lookup_schema(subject, schema).schema_id or -1)


def _numbers(client: SchemaRegistryClient, p: Pipeline, ask: Ask) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for one in subjects(p):
        number = _asked(client, one, ask)
        if not 0 <= number <= MOST_ID:
            raise EngineError(f"subject {one.name!r}: the schema registry names no usable id")
        if numbers.setdefault(one.header, number) != number:
            raise EngineError(
                f"subject {one.name!r}: the schema registry has two ids for one schema, "
                f"{numbers[one.header]} and {number}; a row has the same bytes in both topics, so "
                "set release.latest = false, or let the registry give ids by content"
            )
    return numbers


def _asked(client: SchemaRegistryClient, one: Subject, ask: Ask) -> int:
    where = f"pipeline {one.pipeline!r}, subject {one.name!r}"
    try:
        return ask(client, one.name, Schema(one.text, FORMATS[one.encoding].registered))
    except SchemaRegistryError as error:
        status = error.http_status_code
        # The registry's text may quote anything; the subject and number asked for are public.
        if status == CONFLICT:
            why = (
                "the registry knows another schema under this subject, with which ours is not "
                "compatible: give the pipeline a new name or another release.topic"
            )
        elif status in REFUSED:
            why = f"the registry refuses (HTTP {status}): check registry.username and its rights"
        elif status == MISSING:
            why = "the registry does not know our schema under this subject: run `hush topics`"
        else:
            why = f"the registry gives no clear answer (HTTP {status}, code {error.error_code})"
        raise EngineError(f"{where}: {why}") from None
    except Exception as error:  # whatever the connection raises
        raise EngineError(
            f"{where}: the schema registry gives no clear answer ({type(error).__name__}); "
            "release.encoding needs registry.url"
        ) from None
