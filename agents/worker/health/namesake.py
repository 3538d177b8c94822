"""Two workers with one name: the second one ends, and names the first.

Kafka lets the newer of two members with one static name replace the older, which joins again and
replaces the newer, and so on: both open their shards again and again and get nowhere. A group keeps
the client id of the first member that took a name, also when others replace it later. So each
process has a client id of its own, which says where it runs and since when.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from typing import NamedTuple, Self

from confluent_kafka import KafkaException

from ....errors import EngineError
from ....formats.events.decode import utc
from ...kafka.cluster import Cluster

WITHIN_SECONDS = 60.0
STRANGE = 3  # changes of the member id within that time, if the first is surely another process
ALIKE = 9  # if the first may be gone: this worker may be the first itself, restarted
PREFIX = "hush"
log = logging.getLogger("hushstream.worker")


class Identity(NamedTuple):
    """The origin of a process, as encoded in its client id."""

    started: int  # seconds since 1970
    tag: str
    host: str

    @classmethod
    def own(cls) -> Self:
        """Make the identity of this process."""
        tag = f"{os.getpid()}-{secrets.token_hex(4)}"
        return cls(int(time.time()), tag, os.uname().nodename)

    @classmethod
    def read(cls, client_id: str) -> Self | None:
        """Read a client id; None: another program or an earlier version wrote it."""
        prefix, _, rest = client_id.partition(".")
        started, tag, host = (*rest.split(".", 2), "", "", "")[:3]
        known = prefix == PREFIX and started.isdecimal() and len(started) < 12
        return cls(int(started), tag, host) if known and tag else None

    @property
    def client_id(self) -> str:
        """The client id that encodes this identity."""
        return f"{PREFIX}.{self.started}.{self.tag}.{self.host}"

    @property
    def lives(self) -> bool:
        """Whether the process certainly runs on this machine; False: unknown."""
        number = self.tag.partition("-")[0]
        if "-" not in self.tag or not number.isdecimal() or int(number) in (0, 1, os.getpid()):
            return False  # in a container, a restarted process often has the same id
        try:
            os.kill(int(number), 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            return False
        return True


class Namesake:
    """Notices that another process uses the name of this worker.

    Args:
        instance: name of this worker in the group; None: it has none, so no other can share it.
    """

    def __init__(
        self, cluster: Cluster, group: str, member: str, instance: str | None, identity: Identity
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._member = member
        self._instance = instance
        self._identity = identity
        self._changes: deque[float] = deque(maxlen=ALIKE)

    def others(self) -> bool:
        """Whether the group has members under other names; blocks.

        Raises:
            RightError: this user may not describe it.
            KafkaException: the cluster does not answer.
        """
        mine = self._identity.client_id
        for one in self._cluster.groups.members(self._group):
            if one.client_id != mine and (one.instance is None or one.instance != self._instance):
                return True
        return False

    def changed(self) -> None:
        """Note that the group has given this worker another member id.

        A single change has many causes: this process was suspended, or a rebalance overtook it.
        Repeated changes mean that another process uses the name.

        Raises:
            EngineError: another process had the name before.
        """
        now = time.monotonic()
        self._changes.append(now)
        recent = sum(now - moment < WITHIN_SECONDS for moment in self._changes)
        if self._instance is None or recent < STRANGE:
            return
        try:
            found = self._cluster.groups.members(self._group)
        except KafkaException:
            return  # the next change asks again
        for one in found:
            if one.instance == self._instance:
                self._judge(Identity.read(one.client_id), one.host, recent)

    def _other(self, first: Identity | None) -> bool:
        """Whether the first holder of the name is surely not a process that this one replaced."""
        return first is None or first.host != self._identity.host or first.lives

    def _judge(self, first: Identity | None, address: str, recent: int) -> None:
        if first is not None and first.tag == self._identity.tag:
            log.warning(
                "another worker has started under the name %r and takes its partitions from this "
                "one: end it, or give it a name of its own (--member)", self._member)  # fmt: skip
        elif self._other(first) or recent >= ALIKE:
            told = f"on {address}" if first is None else (
                f"on {first.host} ({address}) since {utc(first.started * 1_000_000)}"
            )  # fmt: skip
            raise EngineError(
                f"another worker has the name {self._member!r}, first taken {told}: the two would "
                "take each other's partitions for ever, so this one ends; give each worker a name "
                "of its own (--member), also on different machines"
            )
