"""Refusals of the cluster: a right that is missing, or a client that it does not let in.

What confluent-kafka tells of it becomes an error of ours, which names the operation, the resource
and the user; `clients` does so for aiokafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from ....errors import EngineError, RightError
from ....topics.config.model import Kafka

DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
LOCKED_OUT = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
# What a broker answers to a handshake comes as an error of transport, since with TLS 1.3 a client
# has finished its own part by then.
ALERT = re.compile(r"alert (?:certificate|bad certificate|unknown ca|access denied|handshake)")
NO_CERTIFICATE = re.compile(r"alert (?:certificate required|bad certificate|handshake)")
OTHER_PROTOCOL = re.compile(r"connecting to an? (?:PLAINTEXT|SSL|SASL)\w* (?:broker )?listener\?")
NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "
AWAY = re.compile(NO_TOKEN + r"(?:Failed to connect|Could not resolve|.*[Tt]ime|.*[Cc]onnection)")


def user_of(kafka: Kafka) -> str:
    """Name the user of a connection, in words."""
    if kafka.sasl_username is not None:
        return f"user {kafka.sasl_username!r}"
    if kafka.ssl_certfile is not None:
        return f"the user of certificate {kafka.ssl_certfile}"
    return "a client that does not sign in"


def refusal(
    kafka: Kafka, error: KafkaError | None, operation: str, name: str, role: str = ""
) -> RightError | None:
    """Make an error of a refused right; None for any other error.

    Args:
        role: the client's role; empty: not known.
    """
    kind = None if error is None else DENIED.get(error.code())
    return None if kind is None else RightError([(operation, kind, name)], user_of(kafka), role)


def lacking(
    topic: str, told: Future[Any], wanted: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, str]]:
    """List rights that a user lacks on a topic: operation, kind and name.

    Args:
        told: the broker's description of it, with the operations that the user may do.
        wanted: operations by topic.

    Returns:
        Nothing where the topic does not exist, or the broker does not tell rights.
    """
    try:
        allowed = told.result().authorized_operations
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return []
        allowed = []
    known = None if allowed is None else {operation.name for operation in allowed}
    return [(o, "topic", topic) for o in wanted[topic] if known is not None and o not in known]


def of_group(error: KafkaError) -> bool:
    """Whether an error concerns the group alone, which clients that are assigned do not use."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def locked_out(kafka: Kafka, heard: Iterable[KafkaError]) -> EngineError | None:
    """Make an error of a failed sign-in or handshake; None if there was none.

    Args:
        heard: errors that the client reported by itself, oldest first.
    """
    for error in heard:
        said = str(error.str())
        if error.code() in LOCKED_OUT or ALERT.search(said):
            more = ""
            if kafka.ssl_certfile is None and NO_CERTIFICATE.search(said):
                more = "; it wants a certificate of its clients: set ssl_certfile and ssl_keyfile"
            told = f"does not let {user_of(kafka)} in: {_plain(error)}{more}"
            return EngineError(f"Kafka at {kafka.bootstrap} {told}")
    return None


def mistaken(kafka: Kafka, heard: Iterable[KafkaError]) -> str:
    """Say that what answers may speak another protocol; empty if nothing hints at it."""
    if any(OTHER_PROTOCOL.search(str(error.str())) for error in heard):
        return (
            f"something does, but not as kafka.security_protocol says ({kafka.security_protocol})"
        )
    return ""


def of_token(error: KafkaError) -> bool:
    """Whether there is no token: librdkafka says so once in ten seconds, and no broker is asked."""
    return NO_TOKEN in str(error.str())


def passing(heard: Iterable[KafkaError]) -> bool:
    """Whether what was heard may pass: the identity provider is away, which is an outage."""
    said = [str(error.str()) for error in heard if of_token(error)]
    return bool(said) and all(AWAY.search(one) for one in said)


def _plain(error: KafkaError) -> str:
    """The text of librdkafka without the address before it and the duration after it."""
    said = re.sub(r"^\w+://\S+: ", "", str(error.str()))
    return re.sub(r" \(after \d+ms in state \w+\)$", "", said)


class Permits:
    """Rights of a user, as the cluster tells them.

    Args:
        role: the client's role; empty: not known.
    """

    def __init__(self, admin: AdminClient, kafka: Kafka, role: str) -> None:
        self._admin, self._kafka, self._role = admin, kafka, role

    def demand(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Check that this user has rights on topics; what does not exist is passed over.

        Args:
            wanted: operations by topic.

        Raises:
            RightError: it lacks some; all of them are named.
        """
        if not wanted:
            return
        asked = self._admin.describe_topics(
            TopicCollection(list(wanted)), include_authorized_operations=True
        )
        missing = [found for topic, told in asked.items() for found in lacking(topic, told, wanted)]
        if missing:
            raise RightError(missing, user_of(self._kafka), self._role)

    def refuse(self, error: KafkaException, operation: str, name: str) -> None:
        """Raise an error of ours if a client's error is that of a refused right.

        Args:
            name: name of the topic, or of what else was refused.

        Raises:
            RightError: it is one.
        """
        refused = refusal(self._kafka, error.args[0], operation, name, self._role)
        if refused is not None:
            raise refused from None

    def result(self, future: Any, operation: str, name: str) -> Any:
        """Wait for an answer, and raise an error of ours where a right was refused.

        Raises:
            RightError: the right was refused.
        """
        try:
            return future.result()
        except KafkaException as error:
            self.refuse(error, operation, name)
            raise
