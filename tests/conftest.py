"""Fixtures of the whole suite: a real Apache Kafka per test process, started when first needed."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
from hushstream.deploy.broker import Broker
from hypothesis import Phase, settings

# The same examples every time, and no deadline: the machine may be busy.
settings.register_profile("suite", deadline=None, derandomize=True)
# For a run that asks only whether a test fails: nobody needs the smallest example.
settings.register_profile(
    "found", settings.get_profile("suite"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("suite")

# In the background of a shell a suite ignores interrupts, and so does every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BROKER_FIXTURES = {"broker", "own_broker"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker, and keep such a module within one process of a parallel run."""
    for item in items:
        if BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("broker")
        if item.get_closest_marker("broker"):
            item.add_marker(pytest.mark.xdist_group(f"broker-{item.path.stem}"))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running broker, shared: use names of your own (`unique`), never stop or kill it."""
    with Broker(quiet=True) as running:
        yield running


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A running broker of this test alone, which may stop it, kill it and start it again."""
    with Broker(quiet=True) as running:
        yield running


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a function that makes a name nobody else uses: for topics, groups, ids."""
    suffix = uuid.uuid4().hex[:8]
    return lambda name: f"{name}-{suffix}"
