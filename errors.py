"""One error tree for the whole product.

::

    HushError
     ├── ParameterError       a public parameter is out of range; names it and its value
     ├── ContractError        a caller broke the contract of a mechanism (shapes, order, horizon)
     ├── ConfigError          a configuration file or setting is wrong (topics)
     ├── ExtraError           an optional part is not installed; names it (deploy, agents)
     ├── RecordError          one input record is bad; it goes to the dead-letter topic (topics)
     ├── LedgerError          the ledger is missing, broken or does not fit the state (agents)
     ├── EngineError          the engine cannot go on safely; the worker stops (agents)
     │    ├── OutageError     the cluster, or one partition, does not answer (agents)
     │    │    └── KeyOutageError  the command that prints a key fails or is late (topics)
     │    ├── RightError      the cluster refuses a right; names operation and resource (agents)
     │    ├── RewoundError    logs are behind what is known to have been in them (agents)
     │    ├── TrimmedError    a log no longer holds the position that is wanted (agents)
     │    ├── DamagedError    a local table cannot be read; its changelog has it (agents)
     │    └── SnapshotError   a snapshot of a table cannot be written or used; likewise (agents)
     └── BrokerError          the local broker cannot be fetched, started or stopped (deploy)

Messages name the parameter and its value, never a payload, a key or a count of private records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

MOST_TOLD = 3
"""Resources that the message of a refused right names."""


class HushError(Exception):
    """Base of every error that Hushstream raises on purpose."""


class ParameterError(HushError, ValueError):
    """A public parameter is out of range.

    >>> raise ParameterError("epsilon", -1, "must be positive")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    hushstream.errors.ParameterError: epsilon = -1: must be positive
    """

    def __init__(self, name: str, value: object, rule: str) -> None:
        super().__init__(f"{name} = {value!r}: {rule}")
        self.name = name
        self.value = value
        self.rule = rule


class ContractError(HushError):
    """A caller broke the contract between a mechanism and its runner."""


class ConfigError(HushError):
    """A configuration is wrong; the message names the line and the setting."""


class ExtraError(HushError):
    """An optional part of the product is not installed. ``extra`` names it."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed: pip install 'hushstream[{extra}]'")
        self.module = module
        self.extra = extra


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn a failed import in the block into an `ExtraError` that names ``hushstream[extra]``."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExtraError(error.name or "a module", extra) from error


class RecordError(HushError):
    """One input record is bad. ``reason`` is a public word, never the payload."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class LedgerError(HushError):
    """The ledger is missing, broken, or belongs to something else."""


class EngineError(HushError):
    """The engine cannot go on without risking the guarantee; the worker stops."""


class OutageError(EngineError):
    """The cluster does not answer, or a partition has no leader: it may come back."""


class KeyOutageError(OutageError):
    """The command that prints a secret key fails or takes too long: its vault may come back."""


class RightError(EngineError):
    """The cluster refuses this user a right.

    Args:
        missing: what is refused: operation, kind and name of the resource.
        user: who was refused, in words.
        role: the role in which it acted; empty: not known.

    >>> raise RightError([("READ", "topic", "taxis")], "user 'w'", "worker")
    Traceback (most recent call last):
    ...
    hushstream.errors.RightError: no right READ on topic 'taxis' for user 'w', who acts as worker: \
an administrator of the cluster grants it; `hush topics --print` lists the rights of each role
    """

    def __init__(self, missing: Sequence[tuple[str, str, str]], user: str, role: str = "") -> None:
        by_name: dict[tuple[str, str], list[str]] = {}
        for operation, kind, name in missing:
            by_name.setdefault((kind, name), []).append(operation)
        each = [f"{', '.join(o)} on {k} {n!r}" for (k, n), o in by_name.items()]
        more = f" and more on {len(each) - MOST_TOLD} others" if len(each) > MOST_TOLD else ""
        said = "; ".join(each[:MOST_TOLD]) + more
        acts = f", who acts as {role}" if role else ""
        super().__init__(
            f"no right {said} for {user}{acts}: an administrator of the cluster grants it; "
            "`hush topics --print` lists the rights of each role"
        )
        self.missing = tuple(missing)


class RewoundError(EngineError):
    """A log is behind what is known of it: the cluster was rewound, restored or mirrored.

    Whatever was released after that moment would be released a second time with other contents,
    so nothing may go on. ``evidence`` says which log, and names no offset of a raw topic.
    """

    def __init__(self, evidence: str) -> None:
        super().__init__(
            f"{evidence}: this cluster, or this topic, was restored, copied or rewound to an "
            "earlier moment. Nothing is released from it: return to the cluster that has the "
            "newest logs, or begin a new deployment (another deployment.name); see "
            '"Disaster recovery" in docs/operations.md'
        )
        self.evidence = evidence


class TrimmedError(EngineError):
    """A log no longer holds the position from which it is to be read."""


class DamagedError(EngineError):
    """Files of a local table are damaged or missing; it can be restored from its changelog."""


class SnapshotError(EngineError):
    """A snapshot of a table cannot be written or used: its changelog has all that it holds."""


class BrokerError(HushError):
    """The local broker cannot be fetched, started or stopped; the message says what to do."""
