"""Another version on a running deployment, then this one, then the other one again.

Each version runs in its own processes, with its folder first on their path.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from hushstream.agents.clock import genesis, ledger
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.clock.ledger import FORMAT, SHARED
from hushstream.agents.worker import admission
from hushstream.deploy.broker import Broker
from hushstream.offline.replay import replay

from ..judge.topics import deployment as judgement
from .local import Local, local

ROOT = Path(__file__).resolve().parents[2]
EARLIER = "d2da724"
"""The commit to use if there is no tag; it has the format of this version."""
HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01
TOML = """
[deployment]
name = "up"
[engine]
cells_partitions = 2
units_partitions = 2
session_timeout = "6s"
transaction_timeout = "10s"
[[input]]
name = "events"
topic = "events"
unit = "user"
partitioner = "none"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "1h" }
schedule = "external"
budget = { epsilon = 8.0, delta = 1e-4 }
mechanism = { kind = "histogram" }
"""
REFUSED = 4
LATER = f"this deployment has reached format {SHARED + 1}, but this version of Hushstream knows"

pytestmark = pytest.mark.broker


class Versions:
    """Workers of several versions on one deployment, with a few triggers under each.

    Args:
        run: the deployment.
    """

    def __init__(self, run: Local) -> None:
        self.run = run
        self.triggers = 0
        self._path = ""
        run.environ = lambda member: {"PYTHONPATH": self._path} if self._path else {}

    def start(self, path: Path | None) -> None:
        """Start a worker of the version in a folder, or of this one; all use the same tables."""
        self._path = str(path or "")
        self.run.settings["engine.data_dir"] = str(self.run.folder / "tables")
        self.run.start("w")

    def fire(self) -> None:
        """Publish, trigger, and wait for all releases."""
        at = ORIGIN + self.triggers * HOUR
        self.triggers += 1
        users = range(300)
        self.run.publish("events", [{"user": f"u{n}", "page": "a", "t": at} for n in users])
        self.run.trigger(at + HOUR)
        self.run.wait_released(self.run.wait_triggers(self.triggers))

    def serve(self, path: Path | None) -> None:
        """Two triggers, a crash after the first, and an orderly stop."""
        self.start(path)
        self.fire()
        self.run.kill("w")
        self.start(path)
        self.fire()
        assert self.run.stop("w") == 0, self.run.tail("w")

    def refused(self, path: Path | None, words: str) -> None:
        """A worker ends before it has written anything, with a message of one line."""
        before = self.written()
        self.start(path)
        self.ended(words)
        assert self.written() == before

    def ended(self, words: str) -> None:
        """The last worker ends by itself."""
        child = self.run.workers.pop("w")
        assert child.wait(300), self.run.tail("w")
        last = [line for line in self.run.tail("w").splitlines() if line.startswith("hush:")][-1]
        assert child.returncode == REFUSED and words in last, self.run.tail("w")

    def topics(self, path: Path | None) -> subprocess.CompletedProcess[str]:
        """Run `hush topics` of a version."""
        command = [sys.executable, "-m", "hushstream", "topics", "-c", str(self.run.toml)]
        command += ["--bootstrap", self.run.bootstrap]
        env = ["/usr/bin/env", f"PYTHONPATH={path or ''}"]
        return subprocess.run(
            [*env, *command], check=False, timeout=300, capture_output=True, text=True
        )

    def written(self) -> tuple[dict[tuple[str, int], int], dict[str, bytes]]:
        """Ends of all partitions, with transaction markers, and every file of the tables."""
        cluster = self.run.cluster
        ours = {t: n for t, n in cluster.topics().items() if not t.startswith("__")}
        found = {t: cluster.offsets.ends(t, n) for t, n in ours.items()}
        ends = {(t, n): end for t, all_ in found.items() for n, end in enumerate(all_)}
        files = sorted(p for p in (self.run.folder / "tables").rglob("*") if p.is_file())
        return ends, {str(p): p.read_bytes() for p in files}

    def compare(self) -> None:
        """Replay by this version, and the judge, agree with every released byte."""
        outcome = replay(self.run.config())
        assert outcome.agrees and outcome.compared, outcome.problems
        judged = judgement(self.run.bootstrap, self.run.toml, self.run.secret)
        assert judged["pages"].triggers == self.triggers and not judged["pages"].objections


def told(*words: str) -> subprocess.CompletedProcess[bytes]:
    """The output of git about this repository."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)


def named(folder: Path, version: str) -> Path:
    """A folder that gives this version another name in processes that have it on their path."""
    made = folder / f"hushstream-{version}.dist-info"
    made.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: hushstream\nVersion: {version}\n"
    (made / "METADATA").write_text(text)
    return folder


def sources(folder: Path) -> Path | None:
    """The last version before this one, or `EARLIER`; None if the history does not have it."""
    tag = told("describe", "--tags", "--abbrev=0", "HEAD~1").stdout.decode().strip()
    made = told("archive", "--format=tar", tag or EARLIER)
    if made.returncode:
        return None
    with tarfile.open(fileobj=BytesIO(made.stdout)) as all_:
        all_.extractall(folder / "hushstream", filter="data")
    return folder


def back_and_forth(versions: Versions, other: Path) -> None:
    """The other version, this one, and the other one again, over the same topics and tables."""
    for path in (other, None, other, None):
        versions.serve(path)
        versions.compare()
    assert read_ledger(versions.run.cluster, "up").format == FORMAT


@pytest.mark.thorough
def test_a_version_of_the_same_format_goes_before_this_one_and_after_it(
    empty_broker: Broker, tmp_path: Path
):
    other = named(tmp_path / "other", "9.8.7")
    with local(tmp_path / "run", empty_broker.bootstrap, TOML, {"events": 2}) as run:
        back_and_forth(Versions(run), other)
        assert {t.code_version for t in run.triggers()} == {"9.8.7"}  # of the one charge


@pytest.mark.thorough
def test_the_sources_of_an_earlier_version_go_before_this_one_and_after_it(
    empty_broker: Broker, tmp_path: Path
):
    other = sources(tmp_path / "earlier")
    if other is None:
        pytest.skip("the history of this copy does not reach back to an earlier version")
    with local(tmp_path / "run", empty_broker.bootstrap, TOML, {"events": 2}) as run:
        back_and_forth(Versions(run), other)


@pytest.mark.thorough
def test_after_a_later_format_this_version_ends_and_has_written_nothing(
    empty_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    later = tmp_path / "later"
    later.mkdir()
    text = f"import hushstream.agents.clock.ledger as ledger\nledger.FORMAT = {SHARED + 1}\n"
    (later / "sitecustomize.py").write_text(text)
    with local(tmp_path / "run", empty_broker.bootstrap, TOML, {"events": 2}) as run:
        versions = Versions(run)
        versions.serve(None)
        versions.refused(later, f"has format {FORMAT}, and workers of this version write")
        versions.start(None)
        versions.fire()  # the format has not been raised yet
        raised = versions.topics(later)
        assert raised.returncode == 0, raised.stderr
        run.publish("events", [{"user": "u", "page": "a", "t": ORIGIN}])
        versions.ended(LATER)  # the clock's owner was fenced and reads the ledger again
        versions.refused(None, LATER)
        before = versions.written()
        again = versions.topics(None)
        assert again.returncode == REFUSED and LATER in again.stderr
        assert versions.written() == before
        for module in (ledger, genesis, admission):  # this process reads the ledger as well
            monkeypatch.setattr(module, "FORMAT", SHARED + 1)
        versions.serve(later)
        versions.compare()
