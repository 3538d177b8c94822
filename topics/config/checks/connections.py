"""Contradictions in connections: Kafka, a schema registry, and the engine's own ports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from urllib.parse import urlsplit

from ..model import Config, Engine, Kafka
from ..toml.read import Problem


def of_kafka(kafka: Kafka) -> Iterator[Problem]:
    sasl = kafka.security_protocol.startswith("SASL")
    tls = kafka.security_protocol.endswith("SSL")
    for name in _named("sasl_", kafka):
        if not sasl:
            yield Problem(("kafka", name), "needs security_protocol = SASL_PLAINTEXT or SASL_SSL")
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password",
                 "ssl_key_password_file"):  # fmt: skip
        if getattr(kafka, name) is not None and not tls:
            yield Problem(("kafka", name), "needs security_protocol = SSL or SASL_SSL")
    for name in ("sasl_mechanism", "sasl_username"):
        if getattr(kafka, name) is None and sasl:
            yield Problem(("kafka", "security_protocol"), f"{kafka.security_protocol} needs {name}")
    if (kafka.ssl_certfile is None) != (kafka.ssl_keyfile is None):
        given = "ssl_certfile" if kafka.ssl_certfile else "ssl_keyfile"
        yield Problem(("kafka", given), "ssl_certfile and ssl_keyfile go together")
    yield from _tokens(kafka)


def _named(prefix: str, kafka: Kafka) -> list[str]:
    """Given settings whose names begin with ``prefix``."""
    found = [f.name for f in fields(kafka) if f.name.startswith(prefix)]
    return [name for name in found if getattr(kafka, name) is not None]


def _tokens(kafka: Kafka) -> Iterator[Problem]:
    if kafka.sasl_mechanism != "OAUTHBEARER":
        for name in _named("sasl_token_", kafka):
            yield Problem(("kafka", name), "needs sasl_mechanism = OAUTHBEARER")
    elif kafka.sasl_token_url is None:
        yield Problem(("kafka", "sasl_mechanism"), "OAUTHBEARER needs sasl_token_url")
    elif not _keeps_secrets(kafka.sasl_token_url):
        rule = (
            "must be an https:// address (http:// on this machine alone), without credentials, its "
            "port from 1 to 65535"
        )
        yield Problem(("kafka", "sasl_token_url"), rule)


def _keeps_secrets(url: str) -> bool:
    """Whether traffic to an address is encrypted or stays on this machine."""
    if not _is_address(url):
        return False
    found = urlsplit(url)
    return found.scheme == "https" or found.hostname in ("localhost", "127.0.0.1", "::1")


def of_registry(config: Config) -> Iterator[Problem]:
    registry = config.registry
    for place, source in enumerate(config.input):
        if source.format != "json" and registry.url is None:
            yield Problem(("input", place, "format"), f'"{source.format}" needs registry.url')
    for place, pipeline in enumerate(config.pipeline):
        encoding = pipeline.release.encoding
        if encoding != "json" and registry.url is None:
            where = ("pipeline", place, "release", "encoding")
            yield Problem(where, f'"{encoding}" needs registry.url')
    addresses = (registry.url or "").split(",")
    if registry.url is not None and not all(map(_is_address, addresses)):
        rule = (
            "must be http:// or https:// addresses, separated by commas, without credentials, each "
            "port from 1 to 65535"
        )
        yield Problem(("registry", "url"), rule)
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if getattr(registry, name) is not None and "https://" not in (registry.url or ""):
            yield Problem(("registry", name), "needs an https:// address")
    if (registry.ssl_certfile is None) != (registry.ssl_keyfile is None):
        given = "ssl_certfile" if registry.ssl_certfile else "ssl_keyfile"
        yield Problem(("registry", given), "ssl_certfile and ssl_keyfile go together")
    secret = registry.password is not None or registry.password_file is not None
    if registry.username is None and secret:
        yield Problem(("registry", "username"), "is missing: a password needs one")
    if registry.username is not None and not secret:
        wanted = "needs a password: set HUSH_REGISTRY__PASSWORD or password_file"
        yield Problem(("registry", "username"), wanted)


def _is_address(text: str) -> bool:
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        return False
    plain = found.scheme in ("http", "https") and "@" not in found.netloc
    return plain and bool(found.hostname) and port != 0


def of_engine(engine: Engine) -> Iterator[Problem]:
    public = engine.public_host, engine.public_port
    if engine.public_port and public == (engine.operator_host, engine.operator_port):
        yield Problem(("engine", "operator_port"), "must differ from public_port")
    if engine.replication_factor == 0:
        yield Problem(("engine", "replication_factor"), "must be -1 or at least 1, not 0")
    if engine.snapshots and not _is_store(engine.snapshots):
        rule = "must be an s3://, gs://, az:// or file:/// address, without credentials"
        yield Problem(("engine", "snapshots"), rule)


def _is_store(text: str) -> bool:
    """Whether a text is the address of an object store: a bucket, or an absolute folder."""
    found = urlsplit(text)
    if found.query or found.fragment or "@" in found.netloc:
        return False
    if found.scheme == "file":
        return not found.netloc and len(found.path) > 1
    return found.scheme in ("s3", "gs", "az") and bool(found.netloc)
