"""Runs through faults in pieces: each goes on where the last one stopped, and all are judged."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

import _faults  # noqa: E402
import _pieces  # noqa: E402
import chaos  # noqa: E402
from _chaos import Monkey  # noqa: E402
from _faults import Harsh  # noqa: E402
from _load import HOUR, ORIGIN, Load, Visits  # noqa: E402
from _pieces import FILE, Gauge, Past, begun, rotate  # noqa: E402
from _six import Six  # noqa: E402

NOW = ORIGIN + 77 * HOUR
NAMES = SimpleNamespace(requests="requests", base="six.abc")


class Local:
    """A deployment without a broker: workers are names, and end as ``codes`` say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, NAMES
        self.workers: dict[str, Any] = {}
        self.settings: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.done: list[str] = []

    def start(self, name: str) -> None:
        self.done.append(f"start {name}")
        self.workers[name] = SimpleNamespace(returncode=None, pid=1)

    def stop(self, name: str, timeout: float = 0) -> int:
        self.done.append(f"stop {name}")
        del self.workers[name]
        return self.codes.get(name, 0)

    def wait_ready(self, names: list[str], timeout: float) -> None:
        assert set(names) == set(self.workers)

    def starting(self) -> bool:
        return False

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def data(self, name: str) -> Path:
        return self.folder / "state" / name

    def trigger(self, at: int) -> None:
        self.done.append("trigger")

    def close(self) -> None:
        self.done.append("close")


class Broker:
    """A broker that is only stopped; it notes which workers ran then."""

    bootstrap = "nowhere"

    def __init__(self, folder: Path) -> None:
        self.data, self.stopped = folder, 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path)


@pytest.fixture
def monkeys(local: Local) -> Iterator[Callable[..., Any]]:
    made: list[Monkey] = []

    def one(kind: type[Monkey] = Monkey, seed: int = 1, **more: Any) -> Monkey:
        made.append(kind(local, None, random.Random(seed), gap=0.001, **more))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for monkey in made:
        monkey._watch.close()


def options(*words: str) -> Any:
    parser = chaos.arguments()
    found = parser.parse_args(words)
    return begun(parser, found), found


def test_the_next_piece_has_the_options_of_the_first(tmp_path, capsys):
    keep = ("--keep", str(tmp_path))
    past, _ = options(*keep, "--six", "--speed", "0.1", "--seed", "7", "--brokers", "3", "--pause")
    past.save(tmp_path)
    again, found = options(*keep, "--resume", "--minutes", "5")
    assert again == past and not found.pause and found.minutes == 5
    assert (found.six, found.speed, found.seed, found.brokers) == (True, 0.1, 7, 3)
    options(*keep, "--resume", "--six", "--speed", "0.1")
    past.judged = {"lost": 0}
    wrong = {
        "began with --speed 0.1": [*keep, "--resume", "--speed", "0.2"],
        "add --resume": [*keep, "--pause"],
        "need --keep": ["--pause"],
        "no run to resume": ["--keep", str(tmp_path / "other"), "--resume"],
    }
    for said, words in wrong.items():
        with pytest.raises(SystemExit):
            options(*words)
        assert said in capsys.readouterr().err
    past.save(tmp_path)
    with pytest.raises(SystemExit):
        options(*keep, "--resume")
    assert "was judged" in capsys.readouterr().err


def test_it_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    Past(sent=5).save(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(_pieces.os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        Past(sent=6).save(tmp_path)
    assert Past.read(tmp_path).sent == 5


def test_workers_go_on_except_removed_ones_and_figures_add_up(local, monkeys):
    first, load = monkeys(Harsh, kinds={}), SimpleNamespace(now=NOW, sent=9)
    first.begin(2)
    first._fresh()
    first.counts.update(kill=2)
    first.effects.update({"old folders": 1})
    first.died.append("worker w1 ended")
    first.unwell.append("worker w2")
    first.random.choice = lambda names: "w2"  # type: ignore[method-assign]
    first._remove()
    past = Past()
    past.take(first, load)
    past.save(local.folder)
    local.workers.clear()
    local.done.clear()
    past, second = Past.read(local.folder), monkeys(Harsh, kinds={})
    past.give(second)
    second.begin(2)
    assert local.done == ["start w1", "start w3"]
    second._fresh()
    second._fresh()
    assert local.done[2:] == ["start w2", "start w4"]  # the removed one first
    second.counts.update(kill=1, wipe=1)
    past.take(second, load)
    assert (past.workers, past.removed) == (4, [])
    assert (past.counts, past.effects) == ({"kill": 3, "wipe": 1}, {"old folders": 1})
    found = past.figures()
    assert (found["died"], found["unwell"], found["events"]) == (["worker w1 ended"], 1, 9)


def test_a_worker_that_does_not_stop_cleanly_before_a_pause_has_died(local, monkeys):
    monkey = monkeys()
    monkey.begin(2)
    local.codes["w2"] = -9
    monkey.leave()
    assert not local.workers
    assert monkey.died == ["worker w2 was stopped and ended with -9"]


def test_tables_outlive_their_separate_disks(local, monkeys, monkeypatch):
    disks: set[Path] = set()

    def run(command: list[Any], check: bool) -> None:
        place = Path(command[-1])
        if command[0] == "mount":
            assert place not in disks and not [*place.iterdir()]
            disks.add(place)
        else:
            disks.remove(place)
            for file in place.iterdir():  # its contents go with it
                file.unlink()

    monkeypatch.setattr(_faults.subprocess, "run", run)
    monkeypatch.setattr(_faults.Path, "is_mount", lambda place: place in disks)
    table = local.data("w1") / "table"
    for piece in range(3):
        monkey = monkeys(Harsh, kinds={"full": 1})
        monkey.names = min(piece, 1)
        monkey.begin(1)
        assert len(disks) == 1 and table.exists() == (piece > 0)
        assert [p.name for p in (local.folder / "state").iterdir()] == ["w1"]
        table.write_text("rows")
        monkey.leave()
        assert not disks and table.read_text() == "rows"
        assert [p.name for p in (local.folder / "state").iterdir()] == ["w1"]
    for _ in range(2):  # the first of these pieces is killed
        killed = monkeys(Harsh, kinds={"full": 1})
        killed._mount(local.data("w1"))
        assert len(disks) == 1 and table.read_text() == "rows"
    killed.leave()
    assert not disks and table.read_text() == "rows"


def test_copies_of_tables_are_numbered_on_and_clocks_are_right_again(local, monkeys):
    for n in (9, 10):
        (local.folder / "copies" / str(n)).mkdir(parents=True)
    (local.folder / "w1.shift").write_bytes(b"\1" * 8)
    monkey = monkeys(Harsh, kinds={})
    monkey.begin(1)
    assert not (local.folder / "w1.shift").exists()
    local.data("w1").mkdir(parents=True)
    monkey._copy(local.data("w1"))
    assert [c.name for c in monkey._copies] == ["9", "10", "11"]


@pytest.mark.parametrize("kind", [Visits, Six])
def test_event_time_goes_on_and_units_of_two_pieces_differ(kind, local, monkeypatch):
    loads = [kind.__new__(kind) for _ in range(2)]
    for seed, load in enumerate(loads):
        Load.__init__(load, local, seed, 100, 0.0, NOW, 50)  # type: ignore[arg-type]
        assert load.now == NOW and load.sent == 50
    if kind is Visits:  # the same users come again and again
        return
    sent: list[bytes] = []
    producer = SimpleNamespace(produce=lambda topic, value, **_: sent.append(value))
    for load in loads:
        monkeypatch.setattr(load, "_value", lambda body: json.dumps(body).encode())
        load._trip(producer)
        load._trip(producer)
    assert len({json.loads(value)["user"] for value in sent}) == 4


def test_logs_begin_anew(tmp_path):
    logs = [tmp_path / "w1.log", tmp_path / "brokers" / "2" / "broker.log"]
    segment = tmp_path / "brokers" / "2" / "kafka" / "visits-0" / "0.log"
    for file in (*logs, segment):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("first")
    rotate(tmp_path)
    assert not any(log.exists() for log in logs) and segment.exists()
    assert all(Path(f"{log}.1").read_text() == "first" for log in logs)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=1000.0, monotonic=lambda: made.now)
    monkeypatch.setattr(_pieces, "time", made)
    return made


def test_growth_is_measured_at_even_intervals_over_all_pieces(local, times, monkeypatch):
    for topic, size in {"six.abc.cells-0": 3, "visits-0": 5}.items():
        (local.folder / "kafka" / topic).mkdir(parents=True)
        (local.folder / "kafka" / topic / "0.log").write_bytes(b"x" * size * _pieces.MIB)
    memory = SimpleNamespace(rss=0)
    process = SimpleNamespace(memory_info=lambda: memory, num_fds=lambda: 40)
    monkeypatch.setattr(_pieces.psutil, "Process", lambda pid: process)
    past = Past()
    for _ in range(2):
        gauge = Gauge(local, [local.folder / "kafka"], past.samples)  # type: ignore[arg-type]
        assert not gauge.look()  # no worker runs
        local.start("w1")
        local.start("w2")
        (local.data("w1")).mkdir(parents=True, exist_ok=True)
        (local.data("w1") / "table").write_bytes(b"x" * _pieces.MIB)
        (local.data("w1") / "filler").write_bytes(b"x" * 9 * _pieces.MIB)
        for second in range(301):
            memory.rss = (100 + len(past.samples)) * _pieces.MIB
            assert gauge.look() == (second % 30 == 0), second
            times.now += 1
        local.workers.clear()
        times.now += 5000  # the pause does not count
    assert [s["at"] for s in past.samples] == [30.0 * n for n in range(22)]
    growth = past.figures()["growth"]
    assert past.samples[-1] == {
        "at": 630.0, "rss": 121, "files": 40, "state": 0.5, "internal": 3, "topics": 8
    }  # fmt: skip
    assert growth["rss"]["last"] - growth["rss"]["second"] == pytest.approx(10.5, abs=1)
    assert growth["rss"]["slope"] == pytest.approx(120, rel=0.01)
    assert growth["state"]["ratio"] == 1
    assert past.figures()["minutes"] == 10.5


def test_a_worker_that_ends_meanwhile_is_measured_later(local, times, monkeypatch):
    def gone(pid: int) -> None:
        raise _pieces.psutil.NoSuchProcess(pid)

    past = Past()
    gauge = Gauge(local, [], past.samples)  # type: ignore[arg-type]
    local.start("w1")
    monkeypatch.setattr(_pieces.psutil, "Process", gone)
    assert not gauge.look() and past.samples == []


def test_two_pieces_are_one_run(tmp_path, monkeypatch, local, monkeys):
    """Without a broker: what the first piece left is where the second begins."""
    broker, loads, seeds = Broker(tmp_path / "broker"), list[Any](), list[int]()

    class Sent(Visits):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            loads.append(given)

        def run(self) -> None:
            self.sent += 100

    @contextmanager
    def serving(folder: Path, bootstrap: str, text: str, *_: Any) -> Iterator[Local]:
        (folder / "hush.toml").write_text(text)
        yield local

    def made(plan: Any, run: Any, broker: Any, seed: int, gap: float) -> Monkey:
        seeds.append(seed)
        monkey = monkeys(seed=seed, kinds={"nothing": 1})
        monkey.inject = lambda kind: None
        return monkey

    def judged(run: Any, *_: Any) -> dict[str, Any]:
        run.workers.clear()
        return {"lost": 0}

    def broken(run: Any, monkey: Monkey, *_: Any) -> None:
        run.workers.clear()
        monkey.unwell.append("worker w1")
        raise OSError("judge")

    for name, other in {"local": serving, "made": made, "finish": judged, "Visits": Sent}.items():
        monkeypatch.setattr(chaos, name, other)
    monkeypatch.setattr(chaos, "Gauge", lambda *_: SimpleNamespace(look=lambda: True))
    pace = chaos.Pace(3, speed=3600.0)
    past, _ = options("--keep", str(tmp_path))
    found = chaos.chaos(pace, 5, tmp_path, broker, past=past, pause=True)  # type: ignore[arg-type]
    assert "lost" not in found and "trigger" not in local.done and broker.stopped == 1
    assert local.done[-3:] == ["stop w1", "stop w2", "close"]
    assert (found["points"], found["pieces"], found["faults"]) == (3, 1, {"nothing": 3})
    text = (tmp_path / "hush.toml").read_text()
    keys = (tmp_path / "auditor.key").read_bytes()
    past = Past.read(tmp_path)
    assert past.now > ORIGIN and past.sent == 100 and past.workers == 2
    with monkeypatch.context() as patch, pytest.raises(OSError, match="judge"):
        patch.setattr(chaos, "finish", broken)
        chaos.chaos(pace, 5, tmp_path, broker, past=past)  # type: ignore[arg-type]
    past, pace = Past.read(tmp_path), pace._replace(points=0)
    found = chaos.chaos(pace, 5, tmp_path, broker, past=past)  # type: ignore[arg-type]
    assert (found["points"], found["pieces"], found["events"]) == (6, 3, 300)
    assert (found["unwell"], found["complaints"]) == (1, ["worker w1"])
    assert (found["lost"], found["faults"], broker.stopped) == (0, {"nothing": 6}, 1)
    assert seeds == [5, 6, 7] and loads[0][1] == 5 and loads[1][1] == 6
    assert loads[0][4:] == (ORIGIN, 0) and loads[1][4] > ORIGIN and loads[1][5] == 100
    assert (tmp_path / "hush.toml").read_text() == text
    assert (tmp_path / "auditor.key").read_bytes() == keys
    assert json.loads((tmp_path / FILE).read_bytes())["judged"] == {"lost": 0}
