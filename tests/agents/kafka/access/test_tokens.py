"""Tokens for aiokafka's clients: shared, renewed in time, and without secrets in errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError
from hushstream.agents.kafka.access.tokens import PROVIDER, Tokens, client_options
from hushstream.errors import ConfigError
from hushstream.topics.config.model import Kafka
from hushstream.topics.config.toml.values import Secret

from ....servers.tokens import Issuer, issuing

SECRET = "a-canary"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing({"me": SECRET}) as made:
        yield made


def _kafka(issuer: Issuer) -> Kafka:
    return Kafka(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_username="me",
        sasl_password=Secret(SECRET),
        sasl_token_url=issuer.url,
        sasl_token_scope="kafka write",
        sasl_token_extensions="logicalCluster=lkc-1,identityPoolId=pool-2",
    )


def test_clients_of_one_connection_share_a_token(issuer: Issuer) -> None:
    kafka = _kafka(issuer)
    first, second = (client_options(kafka)[PROVIDER] for _ in range(2))

    async def both() -> list[str]:
        return await asyncio.gather(first.token(), second.token())

    one, other = asyncio.run(both())
    assert one == other and one.endswith(".")
    assert issuer.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka write"]}]
    assert first.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


def test_a_token_is_renewed_before_it_ends(issuer: Issuer) -> None:
    issuer.lasts = 0.1  # so it is renewed after the least time
    tokens = Tokens(_kafka(issuer))

    first, end = asyncio.run(tokens.token()), time.monotonic() + 150
    while asyncio.run(tokens.token()) == first:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, {}, SECRET.encode()), "it answers HTTP 401"),
        ((200, {}, SECRET.encode()), "the answer is not JSON"),
        ((200, {}, b'{"access_token": "a b"}'), "holds no access_token"),
        ((200, {}, b"[]"), "holds no access_token"),
        ((302, {"Location": "/elsewhere"}, b""), "it answers HTTP 302"),
    ],
)
def test_without_a_token_the_broker_counts_as_away(
    issuer: Issuer, answer: tuple[int, dict[str, str], bytes], told: str
) -> None:
    issuer.answer = answer
    tokens = Tokens(_kafka(issuer))
    for _ in range(2):  # the second call sees the first one's failure
        with pytest.raises(KafkaConnectionError, match=told) as error:
            asyncio.run(tokens.token())
        assert SECRET not in str(error.value) and issuer.url in str(error.value)


def test_nothing_listens() -> None:
    kafka = replace(_kafka(Issuer({})), sasl_token_url="http://127.0.0.1:9/token")
    with pytest.raises(KafkaConnectionError, match="Connection refused"):
        asyncio.run(Tokens(kafka).token())


def test_authorities_that_cannot_be_read(issuer: Issuer, tmp_path: Path) -> None:
    kafka = replace(_kafka(issuer), sasl_token_cafile=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="sasl_token_cafile"):
        Tokens(kafka)


def test_other_mechanisms_need_no_provider() -> None:
    assert PROVIDER not in client_options(Kafka())
