"""Fixtures of the whole suite: a real Apache Kafka for each test process, started when needed."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from _pytest.runner import runtestprotocol
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hushstream.deploy import settings as ports
from hushstream.deploy.broker import Broker
from hypothesis import Phase, settings

from .servers.formatted import formatted

# The same examples every time, and no deadline, because the machine may be busy.
settings.register_profile("suite", deadline=None, derandomize=True)
# For a run that asks only whether a test fails, and needs no smallest example.
settings.register_profile(
    "found", settings.get_profile("suite"), phases=(Phase.explicit, Phase.generate)
)
# For the gate; before a release, everything runs.
settings.register_profile("gate", settings.get_profile("suite"), max_examples=25)
settings.load_profile("suite")

# A suite in the background of a shell ignores interrupts, and so does every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each process of a parallel run has ports of its own. Otherwise another process could take a port
# while a killed broker is down, or while a test relies on its silence.
PLACE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PLACES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
ports.PORTS = ports.PORTS[PLACE % PLACES :: PLACES]

LONGEST = ("test_chaos", "test_generations", "test_outage", "test_schedules", "test_encodings",
           "test_leaderless", "test_upgrade", "test_held_release", "test_disaster", "test_growth",
           "test_sample", "test_mechanisms", "test_surveys", "test_trigger", "test_integration",
           "test_grown", "test_lost", "test_gone", "test_page", "test_site", "test_reading",
           "test_package")  # fmt: skip
FORKED = "tests/schedules/"
MIXED = 0.75  # share of a run in which the tests that wait for a broker begin
NOTICED = 0.005  # seconds; a shorter phase is not among the slowest tests either
BROKER_FIXTURES = {"broker", "empty_broker", "own_broker"}
SHARED = {
    "group.min.session.timeout.ms": "1000",
    # No test kills it, so rare heartbeats are enough, and an idle broker needs half as much CPU.
    "broker.heartbeat.interval.ms": "3000",
    "broker.session.timeout.ms": "12000",
}


def pytest_configure(config: pytest.Config) -> None:
    """Let the gate fork workers, copy formatted folders, and try fewer examples by default."""
    if config.option.markexpr != "not thorough":
        return
    os.environ["STARTED"] = "forked" if sys.platform == "linux" else ""
    Broker._format = formatted  # type: ignore[method-assign]
    if not config.option.hypothesis_profile:
        settings.load_profile("gate")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Exempt modules and tests from garbage collection, now and later: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a broker and tests that the gate leaves out, and order all tests."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("broker")
        if item.get_closest_marker("spread"):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for (_, name), ones in cases.items():
        _thin(name, ones)
    items[:] = _ordered(items)


def _thin(name: str, ones: list[pytest.Item]) -> None:
    """Leave every n-th case of a function to the gate, from a different start for each function."""
    (step,) = ones[0].get_closest_marker("spread").args
    begin = crc32(name.encode()) % min(step, len(ones))
    for place, item in enumerate(ones):
        if place % step != begin:
            item.add_marker("thorough")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Before pytest's last line, print what was skipped and how long the gate took."""
    yield
    told = Counter(str(one.longrepr[2]) for one in terminalreporter.stats.get("skipped", ()))
    if told:
        reasons = (f"{n} × {why.removeprefix('Skipped: ')}" for why, n in told.most_common())
        terminalreporter.write_line(f"skipped: {'; '.join(reasons)}")
    if began := os.environ.get("GATE_BEGAN"):
        terminalreporter.write_line(f"gate: {time.time() - float(began):.0f} s")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a module whose tests share a fixture within one process of a parallel run.

    Each process would make such a fixture again, and its tests may build on each other. xdist's own
    groups (`xdist_group`) do not work: pytest 9 ignores the ids that xdist changes.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if path.startswith(FORKED):  # all in one process, which takes seconds to import
                return FORKED
            return path if shares(config.rootpath / path) else nodeid

        # For each test, xdist searches everything that a process has run and everything collected.
        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            nodeid = self.registered_collections[node][item_index]
            scope, units = self._split_scope(nodeid), self.assigned_work[node]
            units[scope][nodeid] = True
            if all(units[scope].values()):
                del units[scope]
            self._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            scope, unit = self.workqueue.popitem(last=False)
            self.assigned_work[node][scope] = unit
            node.send_runtest_some([self._places[name] for name, done in unit.items() if not done])

        @cached_property
        def _places(self) -> dict[str, int]:
            return {name: place for place, name in enumerate(self.collection or ())}

    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report set-up and end of a test only if they failed, were skipped or took noticeable time.

    A parallel run sends each report to the main process, which costs as much as a short test.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    said = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**said)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > NOTICED:
            report.keywords = {}  # no plugin here reads the keywords, and they are most of a report
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**said)
    return True


@cache
def shares(path: Path) -> bool:
    """Whether tests of a module use a fixture that is made once for the module."""
    return path.suffix == ".py" and 'scope="module"' in path.read_text("utf-8")


def _ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Begin with long tests, and mix tests that wait for a broker with tests that compute.

    So no core of a parallel run is idle. At the end, hundreds of short tests keep all cores busy.
    """
    first: list[pytest.Item] = []
    waiting: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        marked = item.get_closest_marker("slow") or item.get_closest_marker("broker")
        (first if item.path.stem in LONGEST else waiting if marked else others).append(item)
    first.sort(key=lambda item: LONGEST.index(item.path.stem))
    share = MIXED if PLACES > 1 else 0.0  # a single process makes a module's fixtures only once
    placed = [(n * share / len(waiting), item) for n, item in enumerate(waiting)]
    placed += [(n / len(others), item) for n, item in enumerate(others)]
    return first + [item for _, item in sorted(placed, key=lambda pair: pair[0])]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running broker, shared: use unique names (`unique`), and never stop or kill it."""
    with Broker(quiet=True, overrides=SHARED) as running:
        yield running


@pytest.fixture
def empty_broker(broker: Broker) -> Broker:
    """The shared broker without topics of earlier tests: use any names."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    until = time.monotonic() + 60
    while left := [name for name in client.list_topics().topics if name[:2] != "__"]:
        assert time.monotonic() < until, left
        for gone in client.delete_topics(left).values():
            with contextlib.suppress(KafkaException):  # it is being deleted already
                gone.result()
    return broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A running broker for this test alone, which may stop, kill and restart it."""
    with Broker(quiet=True) as running:
        yield running


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a function that makes unique names for topics, groups and ids."""
    suffix = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{suffix}"
