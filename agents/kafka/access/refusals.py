"""Refusals of the cluster: missing rights, and failed authentication.

Errors of confluent-kafka become our own, which name operation, resource and user; `clients` does so
for aiokafka.
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
# With TLS 1.3, a client has finished its part before the broker judges the handshake, so a refusal
# comes as a transport error.
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
        The rights; empty if the topic does not exist, or the broker does not report rights.
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
    """Whether an error concerns only the group, which clients with assignments do not use."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def locked_out(kafka: Kafka, heard: Iterable[KafkaError]) -> EngineError | None:
    """Make an error of a failed sign-in or handshake; None if there was none.

    Args:
        heard: errors from the client's callback, oldest first.
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
    """Say that the port may speak another protocol; empty if nothing suggests it."""
    if any(OTHER_PROTOCOL.search(str(error.str())) for error in heard):
        return (
            f"something does, but not as kafka.security_protocol says ({kafka.security_protocol})"
        )
    return ""


def of_token(error: KafkaError) -> bool:
    """Whether there is no token; librdkafka reports this every ten seconds, and asks no broker."""
    return NO_TOKEN in str(error.str())


def passing(heard: Iterable[KafkaError]) -> bool:
    """Whether the errors may be transient: an absent identity provider is an outage."""
    said = [str(error.str()) for error in heard if of_token(error)]
    return bool(said) and all(AWAY.search(one) for one in said)


def _plain(error: KafkaError) -> str:
    """Strip the leading address and the trailing duration from a text of librdkafka."""
    said = re.sub(r"^\w+://\S+: ", "", str(error.str()))
    return re.sub(r" \(after \d+ms in state \w+\)$", "", said)


class Permits:
    """The rights of a user, as reported by the cluster.

    Args:
        role: the client's role; empty: not known.
    """

    def __init__(self, admin: AdminClient, kafka: Kafka, role: str) -> None:
        self._admin, self._kafka, self._role = admin, kafka, role

    def demand(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Check that this user has rights on topics; missing topics are skipped.

        Args:
            wanted: operations by topic.

        Raises:
            RightError: some rights are missing; the message names all of them.
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
        """Raise our own error if a client's error is a refused right.

        Args:
            name: name of the topic or other resource.

        Raises:
            RightError: the right was refused.
        """
        refused = refusal(self._kafka, error.args[0], operation, name, self._role)
        if refused is not None:
            raise refused from None

    def result(self, future: Any, operation: str, name: str) -> Any:
        """Wait for an answer; raise our own error if a right was refused.

        Raises:
            RightError: the right was refused.
        """
        try:
            return future.result()
        except KafkaException as error:
            self.refuse(error, operation, name)
            raise
