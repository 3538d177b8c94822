"""Private names: all those in use are looked up, and a missing one is named in an error.

Covers: agents/kafka/private/__init__.py, agents/kafka/private/of_faust.py
Covers: agents/kafka/private/of_aiokafka.py, agents/kafka/private/of_faust_assignor.py
"""

from __future__ import annotations

import asyncio
import importlib
import re
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import NoOffsetForPartitionError
from aiokafka.protocol.group import LeaveGroupRequest
from faust.assignor import partition_assignor
from faust.assignor.client_assignment import ClientMetadata, CopartitionedAssignment
from hushstream.agents.kafka.private import (
    check,
    of_aiokafka,
    of_aiokafka_producer,
    of_faust,
    of_faust_assignor,
)
from hushstream.agents.kafka.transport import register
from hushstream.errors import EngineError

from ...tree import ROOT, sources

FOREIGN = re.compile(r"[\w\])]\._(?!_)\w+")
OWN = re.compile(r"\b(?:self|cls|fresh)\._|sys\._|os\._|KafkaError\._|\._(?:replace|asdict)$")


MODULES = (
    ("aiokafka", of_aiokafka),
    ("aiokafka", of_aiokafka_producer),
    ("faust-streaming", of_faust),
    ("faust-streaming", of_faust_assignor),
)


class Library:
    """A stand-in for a library whose attributes are private."""

    _annotated: int

    def __init__(self) -> None:
        self._kept = [self._called() for _ in range(1)]

    def _called(self) -> int:
        return 0


def test_everything_that_is_needed_is_there() -> None:
    for library, module in MODULES:
        check(library, module.NEEDED)
    assert sum(len(module.NEEDED) for _, module in MODULES) > 14


@pytest.mark.parametrize("name", ["_annotated", "_kept", "_called"])
def test_attributes_of_classes_and_of_instances_are_found(name: str) -> None:
    check("aiokafka", [(Library, (name,))])


def test_a_missing_name_is_told_with_its_library_and_version() -> None:
    said = f"aiokafka {version('aiokafka')} has no Library._gone"
    with pytest.raises(EngineError, match=re.escape(said)):
        check("aiokafka", [(Library, ("_kept", "_gone"))])


@pytest.mark.parametrize(("library", "module"), MODULES)
def test_a_version_without_a_name_ends_the_import(library: str, module, monkeypatch) -> None:
    owner, names = module.NEEDED[0]
    monkeypatch.setattr(f"{check.__module__}._names", lambda _: iter(()))
    monkeypatch.delattr(owner, names[0], raising=False)
    with pytest.raises(EngineError, match=f"{library} {version(library)} has no .*{names[0]}"):
        importlib.reload(module)


def test_no_other_module_of_the_engine_reaches_into_a_library() -> None:
    wrong = []
    for path, text in sources().items():
        if path.startswith(("agents/kafka/", "agents/worker/", "agents/clock/")):
            code = re.sub(r'""".*?"""', "", text, flags=re.S)
            found = [
                m.group()
                for m in FOREIGN.finditer(code)
                if not OWN.search(code[max(m.start() - 9, 0) : m.end()])
            ]
            if found and not path.startswith("agents/kafka/private/"):
                wrong.append((path, found))
    assert wrong == []


def test_both_libraries_are_capped() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.search(r'"aiokafka>=[\d.]+,<[\d.]+"', text)
    assert re.search(r'"faust-streaming==[\d.]+"', text)


def test_a_fetcher_asks_less_often_while_nothing_comes_and_at_once_when_something_waits(
    monkeypatch,
):
    now = [100.0]
    monkeypatch.setattr(of_aiokafka.time, "monotonic", lambda: now[0])
    fetcher = object.__new__(of_aiokafka.Fetcher)
    fetcher._fetch_max_wait_ms, fetcher._records = 100, {}
    of_aiokafka.wait_patiently(SimpleNamespace(_fetcher=fetcher))
    assert fetcher._fetch_max_wait_ms == 100  # it may be waiting for its first position
    now[0] += of_aiokafka.QUIET_SECONDS + 1
    assert fetcher._fetch_max_wait_ms == of_aiokafka.LONG_MS
    fetcher._records["fetched, not taken"] = 1  # the next request does not name this partition
    assert fetcher._fetch_max_wait_ms == 100
    fetcher._records.clear()
    assert fetcher._fetch_max_wait_ms == 100
    now[0] += of_aiokafka.QUIET_SECONDS + 1
    assert fetcher._fetch_max_wait_ms == of_aiokafka.LONG_MS
    of_aiokafka.wait_patiently(SimpleNamespace(_fetcher=fetcher))  # a second call changes nothing
    assert fetcher._fetch_max_wait_ms == of_aiokafka.LONG_MS
    steady = object.__new__(of_aiokafka.Fetcher)
    steady._fetch_max_wait_ms, steady._records = 100, {}
    of_aiokafka.wait_patiently(SimpleNamespace(_fetcher=steady), of_aiokafka.FIXED_MS)
    now[0] += of_aiokafka.QUIET_SECONDS + 1
    assert steady._fetch_max_wait_ms == of_aiokafka.FIXED_MS


def test_a_patient_fetcher_asks_once_for_each_pause() -> None:
    """What one request found would else let it ask again every tenth of a second."""
    fetcher = object.__new__(of_aiokafka.Fetcher)
    vars(fetcher).update(_fetch_max_wait_ms=100, _records={}, _prefetch_backoff=0.1)
    client = SimpleNamespace(_fetcher=fetcher)
    of_aiokafka.wait_patiently(client)
    of_aiokafka.pause(client, 1.0)
    assert fetcher._prefetch_backoff == 1.0
    of_aiokafka.pause(client, 0.0)
    assert fetcher._prefetch_backoff == 0.1
    of_aiokafka.pause(SimpleNamespace(), 1.0)  # a client without a fetcher


def test_a_second_error_of_a_partition_does_not_end_fetching() -> None:
    """Both requests for its position find none; the library's fetcher fails at the second."""
    fetcher, tp = object.__new__(of_aiokafka.Fetcher), TopicPartition("t", 0)
    vars(fetcher).update(_fetch_max_wait_ms=100, _records={}, _prefetch_backoff=0.1)
    first, second = (NoOffsetForPartitionError(tp) for _ in range(2))
    fetcher._set_error(tp, first)
    with pytest.raises(AssertionError):
        fetcher._set_error(tp, second)
    of_aiokafka.wait_patiently(SimpleNamespace(_fetcher=fetcher))
    fetcher._set_error(tp, second)
    with pytest.raises(NoOffsetForPartitionError) as raised:
        fetcher._records[tp].check_raise()
    assert raised.value is first


def test_a_consumer_whose_fetching_has_failed_counts_as_closed() -> None:
    async def failing() -> None:
        raise AssertionError("as the library does")

    async def run() -> None:
        working = asyncio.ensure_future(asyncio.Event().wait())
        failed = asyncio.ensure_future(failing())
        await asyncio.wait([failed])
        for task, expected in ((working, False), (failed, True)):
            fetcher = SimpleNamespace(_closed=False, _fetch_task=task)
            consumer = SimpleNamespace(_closed=False, _fetcher=fetcher)
            assert of_aiokafka.closed(consumer) is expected
        failed.exception()
        working.cancel()

    asyncio.run(run())


def test_a_named_member_leaves_its_group_by_its_own_id() -> None:
    """The library would stay in the group. A new owner of the name has another member id."""
    sent: list[object] = []

    async def run() -> None:
        coordinator: Any = GroupCoordinator.__new__(GroupCoordinator)
        vars(coordinator).update(
            _closing=asyncio.get_running_loop().create_future(),
            _coordination_task=asyncio.ensure_future(asyncio.sleep(0)),
            _heartbeat_task=None, _commit_refresh_task=None, _group_instance_id="one-abc",
            _rejoin_needed_fut=asyncio.get_running_loop().create_future(),
            generation=3, member_id="one-abc-123", group_id="g",
        )  # fmt: skip

        async def send(request: object) -> None:
            sent.append(request)

        coordinator._send_req = send
        client = SimpleNamespace(_coordinator=coordinator)
        await of_aiokafka.leave_group(client)
        await coordinator.close()  # as its client does when it stops

    asyncio.run(run())
    (request,) = sent
    assert isinstance(request, LeaveGroupRequest)
    assert (request._group, request._member_id) == ("g", "one-abc-123")


def assigned(**members: tuple[set[int], set[int]]) -> dict[str, tuple[set[int], set[int]]]:
    """The assignment for members with active and standby partitions: three partitions, one copy."""
    given = {
        name: CopartitionedAssignment(set(has), set(stands), {"t"})
        for name, (has, stands) in members.items()
    }
    made = of_faust_assignor.WarmAssignor({"t"}, given, 3, 1).get_assignment()
    return {name: (one.actives, one.standbys) for name, one in made.items()}


@pytest.mark.parametrize("mine", [0, 1, 2])
def test_a_member_that_comes_back_gets_what_it_stands_by_for(mine: int) -> None:
    """This holds for each partition of the member with two; no other partition moves."""
    other, last = sorted({0, 1, 2} - {mine})
    found = assigned(back=(set(), {mine}), full=({mine, other}, {last}), rest=({last}, set()))
    assert {name: has for name, (has, _) in found.items()} == {
        "back": {mine}, "full": {other}, "rest": {last},
    }  # fmt: skip
    assert sorted(n for _, stands in found.values() for n in stands) == [0, 1, 2]


def test_a_slow_consumer_thread_is_no_error_of_the_log() -> None:
    said: list[str] = []
    made = of_faust.HookedThread.__new__(of_faust.HookedThread)
    vars(made).update(log=SimpleNamespace(error=said.append), last_wakeup_at=1.0)
    asyncio.run(asyncio.wait_for(made._keepalive2(), 1.0))
    assert not said


def test_without_a_claim_faust_decides() -> None:
    found = assigned(new=(set(), set()), full=({0, 1}, {2}), rest=({2}, {0, 1}))
    assert [len(has) for has, _ in found.values()] == [1, 1, 1] and found["rest"][0] == {2}
    alone = assigned(one=({0, 1, 2}, set()))
    assert alone == {"one": ({0, 1, 2}, set())}


def test_a_claim_is_what_a_member_tells_its_group() -> None:
    async def run() -> bytes:
        app = of_faust.FailingApp("t", broker="kafka://127.0.0.1:1", web_enabled=False)
        of_faust_assignor.claim(app.assignor, [("t", 2)])
        assert partition_assignor.CopartitionedAssignor is of_faust_assignor.WarmAssignor
        return bytes(app.assignor.metadata({"t"}).user_data)

    register()
    told = ClientMetadata.loads(asyncio.run(run()))
    assert told.assignment.standbys == {"t": [2]} and not told.assignment.actives
