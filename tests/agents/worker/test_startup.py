"""Starting: one worker for each folder, whatever happens to it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import hushstream.agents.worker.admission as admission
import pytest
from confluent_kafka import KafkaError, KafkaException
from hushstream.agents.worker import startup
from hushstream.agents.worker.admission import prepare
from hushstream.agents.worker.startup import Probes, lock_folder
from hushstream.errors import EngineError, KeyOutageError, LedgerError, OutageError
from hushstream.topics.config.load import Config, load

HOLD = """
import sys, time
from pathlib import Path
from hushstream.agents.worker.startup import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_modules_of_a_worker_load_no_library_that_only_some_settings_need():
    """Each of them would add tenths of a second of CPU time to every start."""
    loaded = "import sys, hushstream.cli.worker; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "hushstream.agents.worker.startup" in modules
    assert not modules & {"scipy", "shapely", "pandas", "sqlglot", "numba", "numpy.f2py"}


def test_a_folder_is_one_workers_until_its_process_ends(tmp_path: Path):
    folder = tmp_path / "state" / "w"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        try:
            with (
                pytest.raises(
                    EngineError, match=rf"another worker uses .*w \(process {other.pid}\):"
                ),
                lock_folder(folder),
            ):
                raise AssertionError("it has started")
            (folder / "lock").write_text("")  # as an earlier version leaves it
            with (
                pytest.raises(EngineError, match=r"another worker uses .*w: "),
                lock_folder(folder),
            ):
                raise AssertionError("it has started")
        finally:
            other.kill()  # as a crash would
        other.wait()
    with lock_folder(folder):
        pass


class Cluster:
    """A cluster that answers, but whose partitions have no leader."""

    def __init__(self, *_: object) -> None:
        """Connect to nothing."""

    def wait(self, told: object) -> None:
        """Answer at once."""

    def brokers(self) -> int:
        """The number of brokers that one could be cut off from."""
        return 1


LEADERLESS = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


@pytest.fixture
def hours(monkeypatch):
    """A clock on which a sleep of one second takes ten."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 10 * seconds

    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(admission.time, "sleep", sleep)
    monkeypatch.setattr(admission, "Cluster", Cluster)
    return now


@pytest.mark.parametrize(
    ("error", "seconds", "why"),
    [
        (LEADERLESS, 300, "stopped answering: .*eader.* \\(waited for 300 s\\)"),
        (OutageError("c-0 could not be read"), 300, "c-0 could not be read \\(waited for 300 s\\)"),
        (KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)), 60, "uthoriz"),
        (LedgerError("broken"), 0, "broken"),
    ],
)
def test_a_start_waits_as_long_as_any_outage_says_so_once_a_minute_and_ends(
    hours, monkeypatch, caplog, error, seconds, why
):
    def admit(*_: object) -> None:
        raise error

    monkeypatch.setattr(admission, "admit", admit)
    config = load(Path(__file__).parents[3] / "topics" / "config" / "template.toml", environ={})
    with caplog.at_level("WARNING"), pytest.raises((EngineError, LedgerError), match=why):
        prepare(config, patience=300.0)
    assert seconds <= hours[0] <= seconds + 20
    said = [r.getMessage() for r in caplog.records if "the start is waiting" in r.getMessage()]
    assert len(said) == (seconds // 60 + 1 if seconds else 0)


def test_a_start_waits_for_a_vault_that_is_away_and_says_that_it_waits_for_a_key(
    hours, monkeypatch, caplog
):
    failing = [KeyOutageError("secret.key.command (vault) ended with 2")]

    def admit(*_: object) -> str:
        if failing:
            raise failing.pop()
        return "ready"

    monkeypatch.setattr(admission, "admit", admit)
    config = load(Path(__file__).parents[3] / "topics" / "config" / "template.toml", environ={})
    with caplog.at_level("WARNING"):
        assert prepare(config, patience=300.0) == "ready"
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("the start is waiting for a key, for up to 300 s: secret.key.command")


def test_an_outage_while_tables_of_topics_are_read_is_waited_for(hours, monkeypatch):
    """The configuration is read again: it may have changed when the cluster is back."""
    monkeypatch.setattr(admission, "admit", lambda config, *_: config.kafka.bootstrap)
    path = Path(__file__).parents[3] / "topics" / "config" / "template.toml"
    answers = [OutageError("t-0 could not be read"), LEADERLESS]

    def whole() -> Config:
        if answers:
            raise answers.pop(0)
        return load(path, environ={}, flags={"kafka.bootstrap": "read:1"})

    assert prepare(load(path, environ={}), patience=300.0, whole=whole) == "read:1"
    assert not answers


def test_probes_live_and_are_not_ready_before_there_is_a_worker():
    probes = Probes()
    answers = {path: page() for path, page in probes.pages().items()}
    assert {path: code for path, (code, _) in answers.items()} == {"/live": 200, "/ready": 503}


def free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        found = [held.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
                 for _ in range(number)]  # fmt: skip
        return [one.getsockname()[1] for one in found]


def test_probes_are_served_while_tables_of_topics_are_read(monkeypatch: pytest.MonkeyPatch):
    """So are metrics: a scrape that failed would mean that the worker is down."""
    port, inner = free_ports(2)
    path = Path(__file__).parents[3] / "topics" / "config" / "template.toml"
    ports = {"engine.public_port": str(port), "engine.operator_port": str(inner)}
    config = load(path, environ={}, flags=ports)

    def whole() -> Config:
        with urlopen(f"http://127.0.0.1:{port}/live", timeout=20) as answer:
            assert answer.status == 200
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            said = answer.read().decode().splitlines()
            assert [one for one in said if not one.startswith("#")] == ["hush_ready 0.0"]
        with urlopen(f"http://127.0.0.1:{inner}/internal/metrics", timeout=20) as answer:
            assert (answer.status, answer.read()) == (200, b"")
        return load(path, environ={}, flags={"kafka.bootstrap": "read:1"})

    monkeypatch.setattr(startup, "prepare", lambda *_, whole, **__: whole())
    made: Any = startup.admitted(config, "", Probes(), whole)
    assert (made.kafka.bootstrap, made.engine) == ("read:1", config.engine)
    for served in (f"{port}/live", f"{inner}/internal/metrics"):
        with pytest.raises(URLError):
            urlopen(f"http://127.0.0.1:{served}", timeout=20)


def test_a_process_that_cannot_stop_ends_with_4():
    program = "from hushstream.agents.worker import startup; startup._leave(); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "the worker did not stop within 40 s" in done.stderr


COMPILE = """
import asyncio, sys, time
from hushstream.agents.worker import startup
from hushstream.agents.worker.lines.log_lines import set_up
set_up(20, False)
startup.SLOW_SECONDS = 0.1
startup.warm = lambda *_: time.sleep(600)  # as a compiler, it hears no signal
asyncio.run(startup.warmed(None, None))
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
def test_a_signal_while_loops_are_compiled_ends_the_process_at_once(number: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-c", COMPILE], stderr=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stderr is not None
        assert "compiling the loops of this version" in worker.stderr.readline()
        worker.send_signal(number)
        assert worker.wait(120) == 0
        assert "stopped before the start" in worker.stderr.read()


def test_the_folder_of_a_worker_from_before_is_closed_to_other_users(tmp_path: Path):
    table = tmp_path / "worker" / "genesis" / "log" / "0"
    table.mkdir(parents=True)
    (table / "000012.sst").write_bytes(b"exact")
    for path in (tmp_path / "worker", *(tmp_path / "worker").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with lock_folder(tmp_path / "worker"):
        found = [path.stat().st_mode for path in (tmp_path / "worker").rglob("*")]
        assert not any(mode & 0o077 for mode in found) and len(found) == 5
