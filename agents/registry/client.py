"""The client of a schema registry: a schema by its id, with all that it refers to."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError, needs
from ...formats.schemas.schema import MAX_TEXT, Schema, Verdict
from ...topics.config.access.clients import registry_options
from ...topics.config.model import RegistrySettings
from .refusals import WHOLE, IdRefused

with needs("registry"):
    import attrs  # noqa: F401 - confluent_kafka hides a failed import of it
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

MOST_REFERENCES = 64
MISSING = (40401, 40402, 40403)  # the registry's codes for a missing subject, version or schema
TOO_MUCH = Schema("none", "")  # stands for a schema that is too large or no text; it fits no format


class RegistryClient:
    """A client of a schema registry; several threads may use it, but only one may probe.

    Raises:
        ConfigError: a certificate, a key or the password cannot be read.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        try:
            options = registry_options(settings)
            self._client = SchemaRegistryClient(options)
            self._prober = SchemaRegistryClient(options)  # with its own cache
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"registry: certificates or key cannot be used ({type(error).__name__})"
            ) from error

    @property
    def asked(self) -> SchemaRegistryClient:
        """The underlying client, for requests about subjects."""
        return self._client

    def fetch(self, number: int) -> Schema | Verdict:
        """Ask for a schema by its id.

        Raises:
            IdRefused: the answer has no schema, or the registry refuses it or one of its
                references.
            Exception: there is no clear answer; ask again later.
        """
        try:
            found = self._client.get_schema(number)
            kind, text = _checked(found)
            references: dict[str, str] = {}
            self._refer(found, references)
            schema = Schema(kind, text, tuple(references.items()))
            return schema if schema.size <= MAX_TEXT else TOO_MUCH
        except (_TooMuch, UnicodeEncodeError):  # half of a surrogate pair is no text
            return TOO_MUCH
        except SchemaRegistryError as error:
            if _is_missing(error):
                return Verdict.UNKNOWN
            status = error.http_status_code
            if 400 <= status < 500 and status not in WHOLE:
                raise IdRefused(status) from None
            raise

    def probe(self, number: int) -> None:
        """Ask for an id again, to learn whether the registry answers; "not found" is an answer.

        Raises:
            Exception: there is no clear answer.
        """
        self._prober.clear_caches()
        try:
            _checked(self._prober.get_schema(number))
        except SchemaRegistryError as error:
            if not _is_missing(error):
                raise

    def _refer(self, found: Any, into: dict[str, str], depth: int = 0) -> None:
        """Fetch the references of a schema, depth first, so that each precedes its users."""
        if depth > MOST_REFERENCES:
            raise _TooMuch
        for one in found.references or ():
            if one.name in into:
                continue
            if len(into) >= MOST_REFERENCES or sum(map(len, into.values())) > MAX_TEXT:
                raise _TooMuch
            version = self._client.get_version(one.subject, one.version, deleted=True)
            _, text = _checked(version.schema)
            self._refer(version.schema, into, depth + 1)
            into.setdefault(one.name, text)


class _TooMuch(Exception):
    """A schema refers to more than is read."""


def _is_missing(error: SchemaRegistryError) -> bool:
    """Whether the registry itself says that an id is missing; a proxy's error page does not."""
    return bool(error.http_status_code == 404 and error.error_code in MISSING)


def _checked(found: Any) -> tuple[str, str]:
    """Type and text of a schema."""
    kind, text = getattr(found, "schema_type", None) or "AVRO", getattr(found, "schema_str", None)
    if not isinstance(text, str) or not text or not isinstance(kind, str):
        raise IdRefused(200)
    return kind, text
