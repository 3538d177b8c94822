"""The client of a schema registry: a schema by its id, with all that it refers to."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError, needs
from ...topics.config.clients import registry_options
from ...topics.config.model import RegistrySettings
from ...topics.schemas.schema import MAX_TEXT, Schema, Verdict

with needs("registry"):
    import attrs  # noqa: F401 - confluent_kafka hides a failed import of it
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

MOST_REFERENCES = 64
MISSING = (40401, 40402, 40403)  # subject, version or schema, in the registry's own words
TOO_MUCH = Schema("none", "")  # stands for one that is too large, and fits no format


class UnclearAnswer(Exception):
    """A registry's answer is not one; the text is ours, because an answer may quote anything."""


class RegistryClient:
    """A client of a schema registry; one thread uses it.

    Args:
        settings: with an address.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        try:
            self._client = SchemaRegistryClient(registry_options(settings))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"registry: certificates or key cannot be used ({type(error).__name__})"
            ) from error

    @property
    def asked(self) -> SchemaRegistryClient:
        """The client underneath, for what is asked of subjects."""
        return self._client

    def fetch(self, number: int) -> Schema | Verdict:
        """Ask for a schema by its id.

        Args:
            number: the id.

        Returns:
            The schema, or that there is none.

        Raises:
            Exception: there is no clear answer, whatever the reason: ask again later.
        """
        try:
            found = self._client.get_schema(number)
        except SchemaRegistryError as error:
            # A proxy's page for an unknown address is no answer of a registry.
            if error.http_status_code == 404 and error.error_code in MISSING:
                return Verdict.UNKNOWN
            raise
        references: dict[str, str] = {}
        kind, text = _checked(found)
        try:
            self._refer(found, references)
        except _TooMuch:
            return TOO_MUCH
        schema = Schema(kind, text, tuple(references.items()))
        return schema if schema.size <= MAX_TEXT else TOO_MUCH

    def _refer(self, found: Any, into: dict[str, str], depth: int = 0) -> None:
        """Fetch what a schema refers to, depth first: what is needed comes before what needs it."""
        if depth > MOST_REFERENCES:
            raise _TooMuch
        for one in found.references or ():
            if one.name in into:
                continue
            if len(into) >= MOST_REFERENCES:
                raise _TooMuch
            version = self._client.get_version(one.subject, one.version, deleted=True)
            _, text = _checked(version.schema)
            self._refer(version.schema, into, depth + 1)
            into.setdefault(one.name, text)


class _TooMuch(Exception):
    """A schema refers to more than is read."""


def _checked(found: Any) -> tuple[str, str]:
    """Type and text of a schema.

    Raises:
        UnclearAnswer: the answer has none.
    """
    kind, text = getattr(found, "schema_type", None) or "AVRO", getattr(found, "schema_str", None)
    if not isinstance(text, str) or not text or not isinstance(kind, str):
        raise UnclearAnswer("the registry's answer holds no schema")
    return kind, text
