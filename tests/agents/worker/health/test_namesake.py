"""Two workers with one name: the second ends and names the first, which continues."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from typing import Any

import hushstream.agents.worker.health.namesake as module
import pytest
from confluent_kafka import KafkaException
from hushstream.agents.kafka.groups import Member
from hushstream.agents.worker.health.namesake import Identity, Namesake
from hushstream.errors import EngineError

from ....integration.local import Local, local
from ....integration.test_outage import DAY, ORIGIN, TOML, publish
from ....support import messages

FIRST = Identity(1_764_043_200, "0a0b0c0d", "host-a.example")
SECOND = Identity(1_764_046_800, "aabbccdd", "host-b")
LATER = Identity(1_764_050_400, "11223344", "host-a.example")


class Group:
    """The coordinator's record of one static name."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.asked = 0

    @property
    def groups(self) -> Group:
        return self

    def members(self, group: str) -> list[Member]:
        assert group == "g"
        self.asked += 1
        other = Member(LATER.client_id, "another", "10.0.0.8", 1)
        return [other, Member(self.client_id, "w-1234", "10.0.0.7", 1)]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: at[0])
    return at


def namesake(group: Any, identity: Identity, instance: str | None = "w-1234") -> Namesake:
    return Namesake(group, "g", "w", instance, identity)


def times(one: Namesake, number: int) -> None:
    for _ in range(number):
        one.changed()


def test_a_process_is_told_by_its_client_id() -> None:
    for one in (FIRST, SECOND, Identity.own()):
        assert Identity.read(one.client_id) == one
    assert Identity.own().tag != Identity.own().tag
    for other in ("", "hush", "faust-1.17", "rdkafka", "hush.x.tag.host", "hush.12", "hush.1."):
        assert Identity.read(other) is None


def test_the_second_names_host_and_time_of_the_first(now) -> None:
    second = namesake(Group(FIRST.client_id), SECOND)
    times(second, 2)
    with pytest.raises(EngineError) as caught:
        second.changed()
    for part in ("'w'", "host-a.example (10.0.0.7)", "since 2025-11-25T04:00:00Z", "--member"):
        assert part in str(caught.value)


def test_the_first_says_so_and_goes_on(now, caplog) -> None:
    first = namesake(Group(FIRST.client_id), FIRST)
    with caplog.at_level(logging.WARNING):
        times(first, 20)
    assert "another worker has started under the name 'w'" in messages(caplog.records)[0]


def test_one_on_the_same_machine_may_be_the_first_after_a_restart_and_is_given_time(now) -> None:
    later = namesake(Group(FIRST.client_id), LATER)
    times(later, 8)
    with pytest.raises(EngineError, match="this one ends"):
        later.changed()


def test_one_on_the_same_machine_that_runs_is_the_first(now) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        first = FIRST._replace(tag=f"{other.pid}-{FIRST.tag}")
        assert first.lives
        second = namesake(Group(first.client_id), LATER)
        times(second, 2)
        with pytest.raises(EngineError, match="since 2025-11-25T04:00:00Z"):
            second.changed()
        other.kill()
        other.wait()
        assert not first.lives  # it was restarted, and may be this process
        times(namesake(Group(first.client_id), LATER), 8)


@pytest.mark.parametrize("tag", ["0a0b0c0d", "-1", "x-1", "0-a", "1-a", "9" * 40 + "-a"])
def test_of_some_nobody_knows_whether_they_run(tag: str) -> None:
    assert not FIRST._replace(tag=tag).lives


def test_a_process_does_not_take_itself_for_another() -> None:
    assert Identity.own().tag.startswith(f"{os.getpid()}-")
    assert not Identity.own().lives


def test_an_earlier_version_says_nothing_of_itself(now) -> None:
    second = namesake(Group("faust-1.17"), SECOND)
    times(second, 2)
    with pytest.raises(EngineError, match=r"first taken on 10.0.0.7: the two"):
        second.changed()


def test_what_passes_is_no_namesake(now) -> None:
    """A suspended worker, a rebalance that came before its answer, or a cluster without one."""
    group = Group(FIRST.client_id)
    one = namesake(group, SECOND)
    for _ in range(50):
        now[0] += 31.0
        one.changed()
    assert group.asked == 0
    unnamed = namesake(group, SECOND, None)
    times(unnamed, 20)
    assert group.asked == 0

    class Away(Group):
        def members(self, group: str) -> list[Member]:
            raise KafkaException("away")

    times(namesake(Away(""), SECOND), 20)


def test_others_of_a_group_are_those_with_another_name_and_another_process(monkeypatch) -> None:
    group = Group(FIRST.client_id)
    assert namesake(group, SECOND).others()  # the member "another"
    mine = Member(SECOND.client_id, None, "10.0.0.7", 1)
    before = Member(FIRST.client_id, "w-1234", "10.0.0.7", 1)  # this worker before its restart
    monkeypatch.setattr(group, "members", lambda name: [mine, before])
    assert not namesake(group, SECOND).others()
    assert namesake(group, SECOND, None).others()


@pytest.mark.broker
def test_of_two_workers_with_one_name_the_second_ends_and_the_first_releases(
    empty_broker, tmp_path
):
    with local(tmp_path / "a", empty_broker.bootstrap, TOML, {"events": 1}) as run:
        publish(run, 0)
        run.start("w")
        run.wait_ready(["w"])
        folder = tmp_path / "b"
        folder.mkdir()
        shutil.copy(run.folder / "hush.key", folder)
        other = Local(folder, empty_broker.bootstrap, TOML, {"events": 1})
        second = other.start("w")
        began = time.monotonic()
        assert second.wait(150), other.tail("w")
        print(f"the second ended after {time.monotonic() - began:.0f} s")
        assert second.returncode == 4
        last = other.log("w").read_text().splitlines()[-1]
        assert "another worker has the name 'w', first taken on" in last and " since 20" in last
        assert run.workers["w"].returncode is None
        assert "another worker has started under the name" in run.log("w").read_text()
        run.trigger(ORIGIN + DAY // 2)
        run.wait_released(run.wait_triggers(1))
        assert run.stop("w") == 0
