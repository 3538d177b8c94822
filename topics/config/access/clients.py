"""Connection settings as options of the two Kafka clients."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from ..model import Kafka, RegistrySettings


def librdkafka_options(kafka: Kafka) -> dict[str, Any]:
    """Return the settings of clients built on librdkafka.

    Raises:
        ConfigError: the password's file cannot be read, or there is no password.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": kafka.security_protocol,
        # The library would write a line to stderr for each attempt to connect. A failure is raised,
        # and its caller reports it once.
        "log_level": 0,
    }
    if _sasl(kafka):
        options["sasl.mechanisms"] = kafka.sasl_mechanism
        options |= _tokens(kafka) if by_token(kafka) else _password(kafka)
    if _tls(kafka):
        named = {
            "ssl.ca.location": kafka.ssl_cafile,
            "ssl.certificate.location": kafka.ssl_certfile,
            "ssl.key.location": kafka.ssl_keyfile,
            "ssl.key.password": _key_password(kafka) or None,
        }
        options |= {name: value for name, value in named.items() if value is not None}
        verify = "https" if kafka.ssl_check_hostname else "none"
        options["ssl.endpoint.identification.algorithm"] = verify
    return options


def _password(kafka: Kafka) -> dict[str, Any]:
    return {"sasl.username": kafka.sasl_username, "sasl.password": password(kafka)}


def _tokens(kafka: Kafka) -> dict[str, Any]:
    named = {
        "method": "oidc",
        "client.id": kafka.sasl_username,
        "client.secret": password(kafka),
        "token.endpoint.url": kafka.sasl_token_url,
        "scope": kafka.sasl_token_scope,
        "extensions": kafka.sasl_token_extensions,
    }
    options = {f"sasl.oauthbearer.{name}": value for name, value in named.items() if value}
    if kafka.sasl_token_cafile is not None:
        options["https.ca.location"] = kafka.sasl_token_cafile
    return options


def by_token(kafka: Kafka) -> bool:
    """Return whether clients authenticate by a token, which they obtain elsewhere."""
    return _sasl(kafka) and kafka.sasl_mechanism == "OAUTHBEARER"


def aiokafka_options(kafka: Kafka) -> dict[str, Any]:
    """Return the keyword arguments of aiokafka's clients, without a token provider.

    Raises:
        ConfigError: a file cannot be read, or there is no password.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "security_protocol": kafka.security_protocol,
        "request_timeout_ms": kafka.request_timeout // 1000,
    }
    if _sasl(kafka):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        if not by_token(kafka):
            options["sasl_plain_username"] = kafka.sasl_username
            options["sasl_plain_password"] = password(kafka)
    if _tls(kafka):
        options["ssl_context"] = ssl_context(kafka)
    return options


def ssl_context(kafka: Kafka) -> ssl.SSLContext:
    """Return the TLS settings as a context of the standard library.

    Raises:
        ConfigError: a certificate or key cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_cafile)
        context.check_hostname = kafka.ssl_check_hostname
        if kafka.ssl_certfile:
            context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile, _key_password(kafka))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"kafka: certificates or key cannot be used ({error})") from error
    return context


def password(kafka: Kafka) -> str:
    """Return the SASL password from the environment or its file.

    Raises:
        ConfigError: there is no password, or its file cannot be read.
    """
    if kafka.sasl_password is not None:
        return str(kafka.sasl_password)
    if kafka.sasl_password_file is None:
        raise ConfigError("kafka: no password; set HUSH_KAFKA__SASL_PASSWORD or sasl_password_file")
    return _text(kafka.sasl_password_file, "kafka.sasl_password_file")


def _key_password(kafka: Kafka) -> str | None:
    if kafka.ssl_key_password is not None:
        return str(kafka.ssl_key_password)
    if kafka.ssl_key_password_file is None:
        # Not None: OpenSSL would ask for a password at the terminal.
        return "" if kafka.ssl_keyfile else None
    return _text(kafka.ssl_key_password_file, "kafka.ssl_key_password_file")


def _text(path: str, setting: str) -> str:
    """Read a secret of one line."""
    try:
        found = Path(path).read_text("utf-8-sig").strip()
    except OSError as error:
        raise ConfigError(f"{setting} cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{setting} cannot be read: {path} is not UTF-8") from None
    if not found:
        raise ConfigError(f"{setting}: {path} is empty")
    return found


def registry_options(registry: RegistrySettings) -> dict[str, Any]:
    """Return the settings of confluent-kafka's client of a schema registry.

    Raises:
        ConfigError: the password's file cannot be read.
    """
    options: dict[str, Any] = {
        "url": registry.url,
        "timeout": registry.timeout / 1e6,
        "max.retries": 0,  # a worker itself waits and retries, and logs it
        "ssl.ca.location": registry.ssl_cafile,
        "ssl.certificate.location": registry.ssl_certfile,
        "ssl.key.location": registry.ssl_keyfile,
    }
    if registry.username is not None:
        options["basic.auth.user.info"] = f"{registry.username}:{_registry_password(registry)}"
    return {name: value for name, value in options.items() if value is not None}


def _registry_password(registry: RegistrySettings) -> str:
    if registry.password is not None:
        return str(registry.password)
    return _text(registry.password_file or "", "registry.password_file")


def _sasl(kafka: Kafka) -> bool:
    return kafka.security_protocol.startswith("SASL")


def _tls(kafka: Kafka) -> bool:
    return kafka.security_protocol.endswith("SSL")
