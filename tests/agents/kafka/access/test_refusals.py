"""Messages for refusals of a cluster: which right is missing, on what, for whom."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors as aio
from confluent_kafka import KafkaError, KafkaException
from hushstream.agents.kafka.access.refusals import (
    lacking,
    locked_out,
    mistaken,
    of_group,
    of_token,
    passing,
    refusal,
    user_of,
)
from hushstream.agents.kafka.patience import aio_refusal
from hushstream.cli.group import main
from hushstream.errors import RightError
from hushstream.topics.config.model import Kafka

PLAIN = Kafka()
SCRAM = Kafka(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="me")
MUTUAL = Kafka(security_protocol="SSL", ssl_certfile="me.pem", ssl_keyfile="me.key")


def told(allowed: list[str] | None, code: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if code is not None:
        future.set_exception(KafkaException(KafkaError(code)))
    else:
        named = None if allowed is None else [SimpleNamespace(name=name) for name in allowed]
        future.set_result(SimpleNamespace(authorized_operations=named))
    return future


def test_a_user_is_named_by_how_it_signs_in() -> None:
    assert [user_of(k) for k in (SCRAM, MUTUAL, PLAIN)] == [
        "user 'me'", "the user of certificate me.pem", "a client that does not sign in"
    ]  # fmt: skip


def test_a_refused_right_names_operation_resource_user_and_role() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    error = refusal(SCRAM, denied, "READ", "trips", "auditor")
    assert isinstance(error, RightError) and error.missing == (("READ", "topic", "trips"),)
    assert "no right READ on topic 'trips' for user 'me', who acts as auditor" in str(error)
    assert "role:" not in str(error) and "\n" not in str(error)
    assert refusal(SCRAM, KafkaError(KafkaError._TIMED_OUT), "READ", "trips") is None
    assert refusal(SCRAM, None, "READ", "trips") is None


def test_a_long_list_of_rights_is_shortened() -> None:
    error = RightError([("WRITE", "topic", f"t{n}") for n in range(9)] + [("READ", "topic", "t0")],
                       "user 'me'")  # fmt: skip
    assert "WRITE, READ on topic 't0'; WRITE on topic 't1'" in str(error)
    assert "and more on 6 others" in str(error) and "t8" not in str(error)
    assert len(error.missing) == 10


def test_only_what_the_broker_denies_is_lacking() -> None:
    wanted = {"t": ["READ", "WRITE"]}
    both = [("READ", "topic", "t"), ("WRITE", "topic", "t")]
    assert lacking("t", told(["READ", "DESCRIBE"]), wanted) == both[1:]
    assert lacking("t", told([]), wanted) == both
    assert lacking("t", told(None), wanted) == []  # a broker that does not tell rights
    assert lacking("t", told([], KafkaError.TOPIC_AUTHORIZATION_FAILED), wanted) == both
    assert lacking("t", told([], KafkaError.UNKNOWN_TOPIC_OR_PART), wanted) == []


@pytest.mark.parametrize(
    "error,words",
    [
        (aio.TopicAuthorizationFailedError({"b", "a"}), "READ on topic 'a'; READ on topic 'b'"),
        (aio.TopicAuthorizationFailedError("a"), "READ on topic 'a'"),
        (aio.GroupAuthorizationFailedError("g"), "READ on group 'g'"),
        (aio.TransactionalIdAuthorizationFailed("i"), "WRITE on transactional id 'i'"),
        (aio.ClusterAuthorizationFailedError(), "IDEMPOTENT_WRITE on cluster"),
    ],
)
def test_errors_of_aiokafka_become_the_same(error: aio.KafkaError, words: str) -> None:
    found = aio_refusal(error, "worker")
    assert found is not None and words in str(found) and "worker" in str(found)


def test_other_errors_of_aiokafka_are_left_alone() -> None:
    assert aio_refusal(aio.NotLeaderForPartitionError()) is None
    assert aio_refusal(TimeoutError()) is None


def test_a_group_that_nobody_joins_stops_no_reader() -> None:
    assert of_group(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert not of_group(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_a_failed_sign_in_is_told_without_addresses_and_durations() -> None:
    text = "sasl_ssl://127.0.0.1:9/bootstrap: SASL error: wrong (after 3ms in state AUTH_REQ)"
    heard = [KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(KafkaError._AUTHENTICATION, text)]
    error = locked_out(SCRAM, heard)
    assert error is not None
    assert str(error) == ("Kafka at localhost:9092 does not let user 'me' in: SASL error: wrong")
    assert locked_out(SCRAM, heard[:1]) is None


@pytest.mark.parametrize(
    "error", [KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)),
              aio.GroupAuthorizationFailedError("g")],
)  # fmt: skip
def test_a_refusal_from_anywhere_ends_with_4(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hushstream.cli.group.hush.main", fail)
    with pytest.raises(SystemExit) as ended:
        main([])
    said = capsys.readouterr().err
    assert ended.value.code == 4
    assert "right" in said and "hush topics --print" in said and len(said.splitlines()) == 1


def test_a_broker_that_wants_a_certificate_says_so_as_an_error_of_transport() -> None:
    alert = KafkaError(
        KafkaError._TRANSPORT,
        "ssl://b:1/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert "
        "certificate required: SSL alert number 116 (after 4ms in state APIVERSION_QUERY)",
    )
    error = locked_out(Kafka(security_protocol="SSL"), [alert])
    assert error is not None and "set ssl_certfile and ssl_keyfile" in str(error)
    unknown = KafkaError(KafkaError._TRANSPORT, "tlsv1 alert unknown ca: SSL alert number 48")
    theirs = locked_out(MUTUAL, [unknown])
    assert theirs is not None and "me.pem" in str(theirs) and "set ssl" not in str(theirs)
    assert locked_out(MUTUAL, [KafkaError(KafkaError._TRANSPORT, "Disconnected")]) is None


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect to server", True),
        ("Could not resolve host: id.example", True),
        ("Connection timed out after 10001 milliseconds", True),
        ('{"error": "invalid_client"}', False),
        ("Response is not JSON encoded: (n/a)", False),
    ],
)
def test_only_a_provider_of_tokens_that_is_away_may_come_back(said: str, passes: bool) -> None:
    none = KafkaError(
        KafkaError._AUTHENTICATION, f"Failed to acquire SASL OAUTHBEARER token: {said}"
    )
    assert of_token(none) and passing([none]) == passes
    assert not passing([]) and locked_out(SCRAM, [none]) is not None


@pytest.mark.parametrize(
    "text",
    [
        "sasl_ssl://h:1/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by "
        "peer: connecting to a PLAINTEXT broker listener? (after 4ms in state SSL_HANDSHAKE)",
        "h:1/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
        "security.protocol configuration (connecting to a SSL listener?) or broker version",
    ],
)
def test_another_protocol_is_told(text: str) -> None:
    error = KafkaError(KafkaError._TRANSPORT, text)
    assert "kafka.security_protocol says (SASL_SSL)" in mistaken(SCRAM, [error])
    assert mistaken(SCRAM, [KafkaError(KafkaError._TRANSPORT, "Connection refused")]) == ""
    assert locked_out(SCRAM, [error]) is None  # so may a broker that is starting
