"""Tokens for the sign-in of aiokafka's clients; librdkafka gets its own by the same settings.

A client asks its identity provider by client credentials (RFC 6749, section 4.4). All clients of a
process share one token, and ask for the next one before it ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from ....errors import ConfigError
from ....topics.config.access.clients import aiokafka_options, by_token, password
from ....topics.config.model import Kafka

PROVIDER = "sasl_oauth_token_provider"
SECONDS = 10.0  # of one request
LEAST_SECONDS = 1.0  # between two requests at least
SHARE = 0.8  # share of a token's lifetime after which the next one is requested
MOST_BYTES = 1 << 20


def client_options(kafka: Kafka) -> dict[str, Any]:
    """Return the keyword arguments of aiokafka's clients, with a provider of tokens if needed.

    Raises:
        ConfigError: a file cannot be read, or there is no password.
    """
    options = aiokafka_options(kafka)
    if by_token(kafka):
        options[PROVIDER] = provider(kafka)
    return options


_providers: dict[Kafka, Tokens] = {}


def provider(kafka: Kafka) -> Tokens:
    """Return the provider that all clients of a connection share.

    Raises:
        ConfigError: the secret or the authorities' certificates cannot be read.
    """
    if kafka not in _providers:
        _providers[kafka] = Tokens(kafka)
    return _providers[kafka]


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the secret is for the configured address only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that a redirection is an error."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens of one client; safe for several threads.

    Raises:
        ConfigError: the secret or the authorities' certificates cannot be read.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._url = str(kafka.sasl_token_url)
        named = f"{kafka.sasl_username}:{password(kafka)}"
        self._login = base64.b64encode(named.encode()).decode()
        scope = {"scope": kafka.sasl_token_scope} if kafka.sasl_token_scope else {}
        fields = {"grant_type": "client_credentials", **scope}
        self._body = urllib.parse.urlencode(fields).encode()
        pairs = (kafka.sasl_token_extensions or "").split(",")
        self._extensions = dict(pair.split("=", 1) for pair in pairs if pair)
        try:
            context = ssl.create_default_context(cafile=kafka.sasl_token_cafile)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"kafka.sasl_token_cafile cannot be used ({error})") from error
        secure = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(secure, _Stay)
        self._lock = threading.Lock()
        self._token = ""
        self._until = self._again = -1.0  # monotonic times, seconds
        self._failed: str = ""

    async def token(self) -> str:
        """Return a token that has not expired.

        Raises:
            KafkaConnectionError: there is none; a client then treats its broker as away, and
                retries.
        """
        return await asyncio.to_thread(self._current)

    def extensions(self) -> dict[str, str]:
        """The extensions that are sent to the broker with a token."""
        return self._extensions

    def _current(self) -> str:
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._renew(now)
            return self._token

    def _renew(self, now: float) -> None:
        if now < self._again:  # hundreds of clients may ask at the same time
            raise KafkaConnectionError(self._failed)
        try:
            self._token, lasts = self._ask()
        except (OSError, ValueError) as error:
            self._again = time.monotonic() + LEAST_SECONDS
            self._failed = f"no token from {self._url}: {_plain(error)}"
            raise KafkaConnectionError(self._failed) from None
        self._until = now + max(SHARE * lasts, LEAST_SECONDS)

    def _ask(self) -> tuple[str, float]:
        """Request a token; return it and its lifetime in seconds."""
        head = {
            "Authorization": f"Basic {self._login}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        request = urllib.request.Request(self._url, self._body, head, method="POST")
        with self._opener.open(request, timeout=SECONDS) as answer:
            told = json.loads(answer.read(MOST_BYTES))
        token = told.get("access_token") if isinstance(told, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("the answer holds no access_token")
        lasts = told.get("expires_in", 0)
        return token, float(lasts) if isinstance(lasts, int | float) else 0.0


def _plain(error: Exception) -> str:
    """Describe a failure without any text from the other side."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"it answers HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "the answer is not JSON"
    return str(error)
