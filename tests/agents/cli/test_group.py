"""The commands, as a person types them: what they print, what they refuse, how they end.

Covers: agents/cli/init.py, agents/cli/options.py, agents/cli/planning/plan.py, agents/cli/topics.py
Covers: agents/cli/planning/diff.py
Covers: agents/cli/trigger.py
Covers: agents/cli/worker.py, agents/offline/files.py
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from aiokafka.errors import RequestTimedOutError
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from hushstream.agents.cli import group as cli
from hushstream.agents.cli import worker as worker_module
from hushstream.agents.cli.group import exit_code, hush, main
from hushstream.agents.cli.options import moment
from hushstream.agents.cli.worker import _supervise, _without_processes
from hushstream.errors import (
    ConfigError,
    ContractError,
    EngineError,
    LedgerError,
    ParameterError,
)
from hushstream.topics.config.model import Engine
from hushstream.topics.config.secret import write_new_key

CONFIG = """
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "pages"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
budget = { epsilon = 8.0, delta = 1e-4, limit_epsilon = 80.0 }
[secret]
noise_key_file = "hush.key"
"""
COMMANDS = {
    "init", "check", "version", "plan", "simulate", "worker", "topics", "trigger", "releases",
    "ledger", "replay", "broker",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hush.toml").write_text(CONFIG)
    write_new_key(tmp_path / "hush.key")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of one command line."""
    out = CliRunner().invoke(click.Command("x", callback=lambda: main(list(words))), [])
    if out.exception is not None and not isinstance(out.exception, SystemExit):
        raise out.exception
    return out.exit_code, out.stdout, out.stderr


def test_every_command_is_there_and_explains_itself():
    code, out, _ = typed("--help")
    assert code == 0
    listed = set(hush.list_commands(click.Context(hush)))
    assert listed >= COMMANDS
    for name in listed:
        assert name in out
        code, text, _ = typed(name, "--help")
        assert code == 0 and "Usage:" in text and len(text.splitlines()) > 3


def test_the_list_of_commands_says_what_each_command_says():
    context = click.Context(hush, terminal_width=80)
    for name, (_, line) in cli.COMMANDS.items():
        command = hush.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.split()[0] == line.split()[0], name
        assert line.endswith(".") and line in typed("--help")[1], name  # nothing is cut off


def test_help_loads_no_command_and_no_heavy_library():
    loaded = "import sys; from hushstream.agents.cli.group import main\ntry: main(['--help'])\n"
    loaded += "finally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert done.returncode == 0 and "Commands:" in done.stdout
    modules = set(done.stderr.split())
    assert not modules & {"numpy", "asyncio", "confluent_kafka", "aiokafka", "faust", "rich"}
    ours = {m for m in modules if m.startswith("hushstream.")}
    assert {m.split(".")[1] for m in ours} == {"agents", "errors"} and len(ours) < 10


@pytest.mark.parametrize(("set_before", "threads"), [(None, "1"), ("3", "3")])
def test_a_worker_computes_products_on_one_thread_unless_it_is_told_otherwise(set_before, threads):
    environ = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    environ |= {} if set_before is None else {"OPENBLAS_NUM_THREADS": set_before}
    told = "import os, sys; from hushstream.agents.cli.group import main\n"
    told += "assert 'numpy' not in sys.modules; sys.argv[1:] = ['worker', '--help']\n"
    told += "try: main()\nfinally: print(os.environ['OPENBLAS_NUM_THREADS'], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and done.stderr.split() == [threads]


def test_version():
    code, out, _ = typed("version")
    assert code == 0 and out.startswith("hushstream ")
    code, out, _ = typed("version", "--json")
    assert set(json.loads(out)) == {"version", "python"}


def test_init_writes_a_valid_deployment_with_a_private_key(tmp_path, monkeypatch):
    code, out, _ = typed("init", str(tmp_path / "new"))
    assert code == 0 and "hush.toml" in out
    key = tmp_path / "new" / "hush.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() not in out
    assert len(bytes.fromhex(key.read_text().strip())) == 32
    monkeypatch.chdir(tmp_path / "new")
    assert typed("check", "--offline")[0] == 0
    assert typed("plan")[0] == 0
    text = (tmp_path / "new" / "hush.toml").read_text()
    code, _, err = typed("init", ".")
    assert code == 2 and "already exists" in err
    assert (tmp_path / "new" / "hush.toml").read_text() == text


def test_init_keeps_a_key_that_is_there(tmp_path):
    write_new_key(tmp_path / "hush.key")
    before = (tmp_path / "hush.key").read_text()
    assert typed("init", str(tmp_path))[0] == 0
    assert (tmp_path / "hush.key").read_text() == before


def test_check_offline(folder):
    code, out, _ = typed("check", "--offline")
    assert code == 0 and "ok" in out
    code, out, _ = typed("check", "--offline", "--json")
    body = json.loads(out)
    assert code == 0 and body["ok"] and {f["level"] for f in body["findings"]} == {"ok"}
    (folder / "hush.key").unlink()
    code, out, _ = typed("check", "--offline")
    assert code == 2 and "FAIL" in out  # as a worker would end
    code, out, _ = typed("check", "--offline", "--json")
    assert code == 2 and not json.loads(out)["ok"]


def test_a_key_that_others_may_read_is_refused(folder):
    (folder / "hush.key").chmod(0o644)
    code, out, _ = typed("check", "--offline")
    assert code == 2 and "600" in out


def test_plan_says_what_will_be_paid(folder):
    code, out, _ = typed("plan")
    assert code == 0
    for word in ("pages", "ε=8", "δ=0.0001", "80", "noise of count", "one user"):
        assert word in out
    code, out, _ = typed("plan", "--json")
    (body,) = json.loads(out)["pipelines"]
    assert (body["pipeline"], body["epsilon"], body["triggers"]) == ("pages", 8.0, 4)
    assert body["noise"]["count"] > 0 and body["mu2"] > 0 and "histogram" in body


FOLLOWER = """until = 2031-01-05T00:00:00Z
[[pipeline]]
name = "pages-2"
follows = "pages"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "12h" }
triggers = { every = "6h" }
budget = { epsilon = 2.0, delta = 1e-4, limit_epsilon = 20.0 }
[secret]"""


def test_plan_tells_old_terms_from_new_ones(folder):
    old = (folder / "hush.toml").read_text()
    (folder / "old.toml").write_text(old)
    assert "nothing differs" in typed("plan", "--diff", "old.toml")[1]
    (folder / "hush.toml").write_text(old.replace("[secret]", FOLLOWER))
    code, out, _ = typed("plan", "--diff", "old.toml")
    assert code == 0
    for word in ("pages → pages-2", "budget.epsilon", "2031-01-05T00:00:00Z", "N × 8 + M × 2"):
        assert word in out, out
    told = json.loads(typed("plan", "--diff", "old.toml", "--json")[1])["pipelines"]
    assert [(one["pipeline"], one["against"]) for one in told] == [
        ("pages", "pages"), ("pages-2", "pages")]  # fmt: skip
    assert "follows pages from 2031-01-05" in typed("plan")[1]
    (folder / "hush.toml").write_text(old.replace("epsilon = 8.0, d", "epsilon = 4.0, d"))
    assert 'follows = "pages"' in typed("plan", "--diff", "old.toml")[1]


def test_settings_of_flags_and_environment_reach_the_plan(folder, monkeypatch):
    tight = json.loads(typed("plan", "--json", "--set", "pipeline.pages.budget.epsilon=1")[1])
    monkeypatch.setenv("HUSH_PIPELINE__PAGES__BUDGET__EPSILON", "2")
    middle = json.loads(typed("plan", "--json")[1])
    noise = [one["pipelines"][0]["noise"]["count"] for one in (tight, middle)]
    assert [one["pipelines"][0]["epsilon"] for one in (tight, middle)] == [1.0, 2.0]
    assert noise[0] > noise[1]


ROWS = [{"user": f"u{i}", "page": f"p{i % 2}", "t": 1_551_398_400_000_000 + i} for i in range(400)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "arrow", "feather"])
def test_simulate_reads_files_of_every_kind(folder, kind):
    path = folder / f"data.{kind}"
    write(path, ROWS)
    code, out, err = typed("simulate", str(path), "--json", "--seed", "s")
    assert code == 0, err
    body = json.loads(out)["pages"]
    (window,) = body["windows"]
    assert (window["keys"], window["released"], window["records"]) == (2, 2, 400)
    assert body["counts"]["accepted"] == 400
    assert typed("simulate", str(path), "--json", "--seed", "s")[1] == out
    assert typed("simulate", str(path), "--json", "--seed", "other")[1] != out
    code, out, _ = typed("simulate", str(path))
    assert code == 0 and "released" in out


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    elif path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(map(str, r.values())) for r in rows)]
        path.write_text("\n".join(lines))
    else:
        import pyarrow as pa

        table = pa.Table.from_pylist(rows)
        opened = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table)


def test_simulate_counts_what_is_bad(folder):
    write(folder / "d.jsonl", [*ROWS, {"user": "u"}, {"user": "u", "page": "", "t": ROWS[0]["t"]}])
    counts = json.loads(typed("simulate", "d.jsonl", "--json")[1])["pages"]["counts"]
    assert counts["invalid:missing_time"] == 1 and counts["invalid:empty_key"] == 1
    assert counts["seen"] == 400


def test_topics_are_printed_without_a_cluster(folder):
    code, out, _ = typed("topics", "--print", "--bootstrap", f"127.0.0.1:{free_port()}")
    assert code == 0
    for word in ("hush.ledger.v1", "hush.pages.releases.v1", "hush.pages.dlq", "retention.ms=-1",
                 "cleanup.policy=compact", "transactional-id", "READ", "auditor:"):  # fmt: skip
        assert word in out
    code, out, _ = typed("topics", "--print", "--json", "--bootstrap", "127.0.0.1:1")
    body = json.loads(out)
    assert set(body) == {"topics", "group", "transactional_ids", "reads", "rights"}
    assert set(body["rights"]) == {"administrator", "worker", "auditor", "reader", "producer"}
    assert body["reads"] == ["events"]
    internal = {t["name"]: t["internal"] for t in body["topics"]}
    public = ["hush.owners.v1", "hush.pages.releases.v1", "hush.pages.latest.v1"]
    assert [name for name, hidden in internal.items() if not hidden] == public


def test_rights_are_printed_for_a_role_in_the_form_of_a_tool(folder):
    code, out, _ = typed("topics", "--format", "kafka-acls", "--role", "reader",
                         "--user", "reader=CN=dash", "--genesis", "0a")  # fmt: skip
    assert code == 0 and "GENESIS" not in out
    assert "--allow-principal User:CN=dash" in out and "--operation Write" not in out
    code, out, _ = typed("topics", "--format", "strimzi", "--cluster", "main")
    bodies = [body for body in yaml.safe_load_all(out) if body]
    assert {b["kind"] for b in bodies} == {"KafkaTopic", "KafkaUser"}
    assert all(b["metadata"]["labels"] == {"strimzi.io/cluster": "main"} for b in bodies)
    assert not any("GENESIS" in b["spec"].get("topicName", "") for b in bodies)
    code, out, _ = typed("topics", "--format", "strimzi", "--genesis", "0a", "--print")
    assert any(b["spec"].get("topicName") == "hush.0a.clock" for b in yaml.safe_load_all(out) if b)
    code, _, err = typed("topics", "--user", "boss=me")
    assert code == 2 and "administrator" in err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


WRONG = [
    (["nothing"], "No such command"),
    (["plan", "--nonsense"], "No such option"),
    (["plan", "-c", "absent.toml"], "absent.toml"),
    (["plan", "--set", "engine"], "SETTING=VALUE"),
    (["plan", "--set", "engine.beat_intervall=1s"], "beat_interval"),
    (["plan", "--set", "pipeline.pages.budget.epsilon=-1"], "epsilon"),
    (["plan", "--set", "pipeline.pages.budget.epsilon=nan"], "epsilon"),
    (["plan", "--set", "pipeline.pages.mechanism.kind=histogramm"], "histogram"),
    (["plan", "--set", "pipeline.pages.triggers.every=7h"], "every"),
    (["simulate", "absent.csv"], "file not found"),
    (["simulate", "file.parquet"], ".csv"),
    (["simulate", "empty.jsonl"], "no record"),
    (["simulate", "good.jsonl", "--input", "other"], "events"),
    (["simulate"], "Missing argument"),
    (["releases", "other"], "pages"),
    (["trigger", "--pipeline", "pages"], 'schedule = "external"'),
    (["trigger", "--at"], "requires an argument"),
    (["worker", "--processes", "many"], "integer"),
    (["topics", "--json=1"], "does not take a value"),
]


@pytest.mark.parametrize("words,hint", WRONG, ids=[" ".join(w) for w, _ in WRONG])
def test_what_is_wrong_is_refused_with_code_2_and_says_what_to_do(folder, words, hint):
    (folder / "empty.jsonl").write_text("")
    write(folder / "good.jsonl", ROWS)
    code, _, err = typed(*words)
    assert code == 2
    assert hint in err
    assert "Traceback" not in err


def test_an_unknown_setting_in_the_file_names_the_line(folder):
    (folder / "hush.toml").write_text(CONFIG.replace("unit_name", "unit_nam"))
    code, _, err = typed("plan")
    line = 1 + CONFIG.split("\n").index('unit_name = "user"')
    assert code == 2 and "unit_name" in err and re.search(rf"\b{line}\b", err)


def test_no_cluster_is_an_engine_error_that_names_the_address(folder, monkeypatch):
    monkeypatch.setattr(
        "hushstream.agents.kafka.cluster.Cluster.__init__.__defaults__", (0.1, "", None)
    )
    address = f"127.0.0.1:{free_port()}"
    code, out, _ = typed("check", "--bootstrap", address, "--json")
    failed = [f["text"] for f in json.loads(out)["findings"] if f["level"] == "fail"]
    assert code == 4 and address in failed[0] and "hush broker start" in failed[0]
    code, _, err = typed("ledger", "show", "--bootstrap", address)
    assert code == 4 and address in err


@pytest.mark.parametrize(
    "error,code",
    [
        (ConfigError("x"), 2),
        (ParameterError("epsilon", 0, "must be positive"), 2),
        (LedgerError("x"), 3),
        (EngineError("x"), 4),
        (ContractError("x"), 4),
    ],
)
def test_exit_codes(monkeypatch, error, code):
    assert exit_code(error) == code

    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.hush, "main", broken)
    found, out, err = typed("version")
    assert found == code and out == "" and err == f"hush: {error}\n"


@pytest.mark.parametrize(
    "error,code", [(KeyboardInterrupt(), 130), (click.Abort(), 130), (BrokenPipeError(), 0)]
)
def test_interruptions(monkeypatch, error, code):
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.hush, "main", broken)
    assert typed("version")[0] == code


def test_times_of_requests():
    assert moment("2019-03-01") == moment("2019-03-01T00:00Z") == 1_551_398_400_000_000
    assert moment("2019-03-01T01:00+01:00") == 1_551_398_400_000_000
    assert moment(None) > 1_551_398_400_000_000
    with pytest.raises(click.BadParameter, match="ISO time"):
        moment("tomorrow")


def test_children_of_a_worker_get_its_options_but_not_its_number():
    words = [
        "worker",
        "--processes",
        "3",
        "-c",
        "x",
        "--member=m",
        "--processes=2",
        "--member",
        "n",
    ]
    assert _without_processes(words) == ["worker", "-c", "x"]


def test_alerts_are_yaml_and_know_the_schedule(folder):
    code, out, _ = typed("alerts")
    assert code == 0 and '{pipeline="pages"}[' in out
    assert "> 32400) unless" in out  # 1.5 times six hours
    code, as_json, _ = typed("alerts", "--json")
    assert code == 0 and yaml.safe_load(out) == json.loads(as_json)


def test_an_interrupt_inside_a_library_or_a_clean_up_is_an_interrupt(monkeypatch, capsys):
    def struck(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise SystemError("returned a result with an exception set")  # noqa: B904

    monkeypatch.setattr(cli.hush, "main", struck)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 130 and capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("code", "error", "ends"),
    [
        (143, SystemError("returned a result with an exception set"), 143),
        (0, SystemError("returned a result with an exception set"), 0),
        (143, EngineError("the clean-up failed too"), 143),
        (0, EngineError("of its own"), 4),  # an end that was asked for hides no failure
    ],
)
def test_an_end_that_a_signal_asked_for_inside_a_library_keeps_its_code(
    monkeypatch, code, error, ends
):
    def struck(*_: object, **__: object) -> None:
        try:
            raise SystemExit(code)
        except SystemExit:
            raise error  # noqa: B904

    monkeypatch.setattr(cli.hush, "main", struck)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == ends


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError._TIMED_OUT)), RequestTimedOutError()],
    ids=["librdkafka", "aiokafka"],
)
def test_a_slow_broker_is_not_an_unexpected_error(error, capsys, monkeypatch):
    def slow(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hushstream.agents.cli.init.code_version", slow)
    with pytest.raises(SystemExit) as left:
        main(["version"])
    said = capsys.readouterr().err
    assert left.value.code == 4
    assert "Kafka did not answer as it should" in said and "unexpected" not in said


LOADING = """
import os, signal, sys, time, types
import hushstream.agents.cli.group as group

def load(name):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

group.importlib = types.SimpleNamespace(import_module=load)
group.main()
"""


@pytest.mark.parametrize("command,code", [("worker", 0), ("replay", -signal.SIGTERM)])
def test_a_signal_while_a_command_is_loaded(command: str, code: int) -> None:
    """A service that is asked to stop has done so; a check that is stopped has not passed."""
    words = [sys.executable, "-c", LOADING, command]
    assert subprocess.run(words, timeout=120, check=False).returncode == code


def test_a_signal_while_processes_are_started_stops_those_that_were(monkeypatch, tmp_path) -> None:
    started: list[Any] = []

    class Child:
        returncode: int | None = None

        def __init__(self, *_: Any, **__: Any) -> None:
            started.append(self)
            signal.raise_signal(signal.SIGTERM)  # before anybody knows of this child

        def poll(self) -> int | None:
            return self.returncode

        wait = poll

        def send_signal(self, number: int) -> None:
            self.returncode = -number

    monkeypatch.setattr(worker_module.subprocess, "Popen", Child)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert _supervise(Engine(public_port=0, operator_port=0), 3, "m", tmp_path) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert [child.returncode for child in started] == [-signal.SIGTERM]
