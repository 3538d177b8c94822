"""Keys that are forgotten, on a real broker: each epoch has one key, until it is released.

The judge has the first state of the ratchet and checks that every release had the noise of its
epoch's one key.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hushstream.agents.clock import genesis as admin
from hushstream.agents.worker.admission import prepare
from hushstream.deploy.broker import Broker
from hushstream.errors import EngineError, OutageError
from hushstream.formats.events.decode import utc
from hushstream.mechanisms.noise import Charge
from hushstream.mechanisms.noise.ratchet import Ratchet
from hushstream.offline.replay import replay
from hushstream.topics.config.access import ratchet_file
from hushstream.topics.config.access.ratchet_file import create, read

from ..judge.topics import deployment as judgement
from ..topics.config.access.test_escrow import auditor
from .local import Local

HOUR = 3_600_000_000
PATIENCE = 180.0
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
CRASH = Path(__file__).with_name("ratchet_crash.py")
TOML = """
[deployment]
name = "forgets"
[secret]
ratchet = "{ratchet}"
escrow_key_file = "auditor.pem"
[engine]
cells_partitions = 2
session_timeout = "3s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "murmur2"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
public_keys = [["a"], ["b"], ["c"], ["d"]]
window = {{ length = "1h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "30m" }}
schedule = "external"
budget = {{ epsilon = 1.0, delta = 1e-6 }}
mechanism = {{ kind = "histogram", budget = 4 }}
forget_keys = true
[[pipeline]]
name = "days"
input = "events"
key = ["page"]
public_keys = [["a"], ["b"], ["c"], ["d"]]
window = {{ length = "2d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "1h" }}
schedule = "external"
budget = {{ epsilon = 1.0, delta = 1e-6 }}
mechanism = {{ kind = "histogram", budget = 4 }}
forget_keys = true
"""

pytestmark = pytest.mark.broker


class Forgetful(Local):
    """A deployment whose first ratchet the test keeps; workers soon move past it."""

    first: Path
    root: Ratchet
    epochs = 0

    @property
    def file(self) -> Path:
        return self.folder / "hush.ratchet"

    def epoch(self) -> None:
        """Send the next hour's records and request its two triggers."""
        begin = ORIGIN + self.epochs * HOUR
        values = [{"user": f"u{n}", "page": "abcd"[n % 3], "t": begin + n} for n in range(90)]
        self.publish("events", values)
        self.epochs += 1
        self.trigger(ORIGIN + self.epochs * HOUR)

    def charges(self) -> list[Charge]:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                ledger = admin.read_ledger(self.cluster, "forgets")
                break
            except OutageError:  # a partition has no leader for a moment
                assert time.monotonic() < until
                time.sleep(0.5)
        return [Charge(r.seq, name, epoch) for (name, epoch), r in ledger.charges.items()]

    def kept(self, file: Path | None = None) -> set[tuple[str, int]]:
        """The charged epochs that still have a key."""
        held = read(file or self.file)
        return {c[1:] for c in self.charges() if held.of(c) is not None}

    def settled(self) -> bool:
        """Whether everything that was requested has been released and forgotten."""
        done = len(self.charges()) == self.epochs + 1
        return done and self.kept() == {("days", 0)}

    def wait_kept(self, wanted: Collection[tuple[str, int]], file: Path | None = None) -> None:
        """Wait until exactly these charged epochs have keys."""
        until = time.monotonic() + PATIENCE
        while self.kept(file) != set(wanted):
            assert time.monotonic() < until, (self.kept(file), self.tail("w"))
            time.sleep(0.3)

    def check(self) -> None:
        """Check that each epoch has one key, and that nothing is left of forgotten ones."""
        triggers = self.triggers()
        self.wait_released(triggers)
        found = judgement(self.bootstrap, self.toml, self.secret, state=self.first)
        assert all(one.triggers and not one.objections for one in found.values()), found
        held, charges = read(self.file), self.charges()
        forgotten = [c for c in charges if held.of(c) is None]
        disk = b"".join(p.read_bytes() for p in self.folder.rglob("*") if p.is_file())
        keys = {self.root.of(c) or b"" for c in forgotten}
        keys |= {key for _, key in steps(self.root, held.step)}
        assert not [key for key in keys if key in disk or key.hex().encode() in disk]
        assert all(held.of(c) == self.root.of(c) for c in charges if c not in forgotten)
        without = replay(self.config())
        assert without.agrees and without.compared, without.problems
        assert bool(without.left_out) == bool(forgotten)
        whole = replay(self.config(), escrow_key=self.first.with_name("auditor.key"))
        assert whole.agrees and not whole.left_out, (whole.problems, whole.left_out)
        assert whole.compared > without.compared or not forgotten


def steps(root: Ratchet, end: int) -> list[tuple[int, bytes]]:
    """The keys of the steps before ``end``."""
    return [(n, bytes(root.forward(n, [], lambda one: False).key)) for n in range(end)]


@contextmanager
def forgetful(folder: Path, broker: Broker) -> Iterator[Forgetful]:
    away, here = folder / "away", folder / "here"
    for one in (away, here):
        one.mkdir()
    root = create(here / "hush.ratchet")
    shutil.copy(here / "hush.ratchet", away / "first")
    auditor(away, "auditor")
    shutil.copy(away / "auditor.pem", here / "auditor.pem")
    made = Forgetful(here, broker.bootstrap, TOML.format(ratchet=root.name), {"events": 1})
    made.first, made.root = away / "first", root
    try:
        made.begin()
        yield made
    finally:
        made.close()


@pytest.mark.thorough
def test_keys_go_as_releases_go_on_and_a_new_machine_gets_the_present_state(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with forgetful(tmp_path, empty_broker) as run:
        assert {p.own_key for p in run.deployment.pipelines} == {run.root.name}
        run.start("w")
        run.wait_ready(["w"])
        for _ in range(2):
            run.epoch()
            run.wait_released(run.wait_triggers(3 * run.epochs))
        run.wait_kept([("days", 0)])
        run.check()
        assert run.stop("w") == 0
        # The day's key outlives its ratchet's step, a crash, and the move to another machine.
        other = run.folder / "b"
        other.mkdir()
        shutil.copy(run.file, other / "hush.ratchet")
        run.environ = lambda member: (
            {"HUSH_SECRET__RATCHET_FILE": "b/hush.ratchet", "HUSH_SECRET__ESCROW_FILE": "b/escrow"}
            if member == "b"
            else {}
        )
        run.start("b")
        run.wait_ready(["b"])
        run.epoch()
        run.wait_released(run.wait_triggers(9))
        run.wait_kept([("days", 0)], other / "hush.ratchet")
        behind = read(run.file)
        assert behind.step < read(other / "hush.ratchet").step  # no worker has run here
        run.start("w")  # and none has to: this machine catches up by itself
        run.wait_ready(["w"])
        run.epoch()
        run.wait_released(run.wait_triggers(12))
        for file in (run.file, other / "hush.ratchet"):
            run.wait_kept([("days", 0)], file)
        run.kill("b")
        run.check()
        assert run.stop("w") == 0
        refused(run)


def refused(run: Forgetful) -> None:
    """A worker without the ratchet, or with one ahead of the cluster, does not start."""
    assert prepare(run.config()).ratchet is not None
    held = read(run.file)
    ahead = held.forward(held.step + 9, [], lambda one: False)
    lacking = replace(ahead, step=held.step, kept={})
    for wrong, said in ((ahead, "the cluster was set back"), (lacking, "was forgotten")):
        run.file.unlink()
        ratchet_file._write(run.file, wrong, 0o600)
        with pytest.raises(EngineError, match=said):
            prepare(run.config())
    run.file.unlink()
    plain = run.toml.read_text()
    run.toml.write_text(plain.replace("forget_keys = true\n", ""))
    with pytest.raises(EngineError, match="its own noise key"):
        prepare(run.config())
    run.toml.write_text(plain)
    assert replay(run.config(), escrow_key=run.first.with_name("auditor.key")).agrees


POINTS = range(1, 26)  # a step with its escrow takes at most this many calls
FEW = (5, 9)


@pytest.mark.parametrize(
    "points", [FEW, pytest.param(POINTS, marks=pytest.mark.thorough)], ids=["few", "all"]
)
def test_a_crash_at_any_point_of_a_step_leaves_one_key_for_each_open_epoch(
    empty_broker: Broker, tmp_path: Path, points: Collection[int]
) -> None:
    with forgetful(tmp_path, empty_broker) as run:
        crashed = 0
        for point in points:
            run.prefix = lambda member, point=point: [sys.executable, str(CRASH), str(point)]
            child = run.start("w")
            run.epoch()
            until = time.monotonic() + PATIENCE
            while not child.wait(0.3) and not run.settled():
                assert time.monotonic() < until, run.tail("w")
            if child.returncode is None:  # a whole step has fewer calls
                run.kill("w")
                continue
            assert child.returncode == -9, run.errors("w")
            run.workers.pop("w")
            crashed += 1
            # At any interruption, the file is whole and has every key that is still needed.
            held, released = read(run.file), {m[:2] for m in run.manifests() if m[2] == 2}
            for one in run.charges():
                start = utc(ORIGIN + one.epoch * HOUR)
                if one.pipeline == "days" or ("pages", start) not in released:
                    assert held.of(one) == run.root.of(one) is not None, (point, one)
        run.prefix = lambda member: []
        run.start("w")
        run.wait_ready(["w"])
        run.epoch()
        run.wait_released(run.wait_triggers(3 * run.epochs))
        run.wait_kept([("days", 0)])
        assert crashed >= min(len(points), 12)
        run.check()
