"""The commands as typed: output, refusals, exit codes.

Covers: cli/trigger.py, cli/version.py
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from aiokafka.errors import RequestTimedOutError
from confluent_kafka import KafkaError, KafkaException
from hushstream.cli import group as cli
from hushstream.cli.group import exit_code, hush, main
from hushstream.errors import (
    ConfigError,
    ContractError,
    EngineError,
    LedgerError,
    ParameterError,
)

from .bench import CONFIG, ROWS, free_port, typed, write

COMMANDS = {
    "init", "check", "version", "plan", "simulate", "worker", "topics", "trigger", "releases",
    "ledger", "replay", "broker",
}  # fmt: skip


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
        assert line.endswith(".") and line in typed("--help")[1], name  # nothing is truncated


LOADED = """
import sys
from hushstream.cli.group import main
try: main(sys.argv[1:])
finally: print(*sys.modules, file=sys.stderr)
"""


def loaded(*words: str) -> set[str]:
    """Modules that a process has loaded after running a command."""
    command = [sys.executable, "-c", LOADED, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout
    return set(done.stderr.split())


HEAVY = {"numpy", "asyncio", "confluent_kafka", "aiokafka", "faust", "msgspec"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [("--help", HEAVY | {"rich"}), ("version", HEAVY), ("version --json", HEAVY)],
)
def test_help_and_the_version_load_no_other_command_and_no_heavy_library(
    words: str, heavy: set[str]
) -> None:
    modules = loaded(*words.split())
    assert not modules & heavy
    ours = {m for m in modules if m.startswith("hushstream.")}
    assert {m.split(".")[1] for m in ours} == {"agents", "cli", "errors"} and len(ours) < 16


def test_a_check_loads_no_library_of_the_worker(tmp_path: Path) -> None:
    typed("init", str(tmp_path))
    modules = loaded("check", "-c", str(tmp_path / "hush.toml"), "--offline")
    assert "confluent_kafka" in modules  # it can compare with a cluster
    assert not modules & {"faust", "mode", "aiohttp", "numba", "pandas", "matplotlib"}


@pytest.mark.thorough
@pytest.mark.parametrize(("set_before", "threads"), [(None, "1"), ("3", "3")])
def test_a_worker_computes_products_on_one_thread_unless_it_is_told_otherwise(set_before, threads):
    environ = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    environ |= {} if set_before is None else {"OPENBLAS_NUM_THREADS": set_before}
    told = "import os, sys; from hushstream.cli.group import main\n"
    told += "assert 'numpy' not in sys.modules; sys.argv[1:] = ['worker', '--help']\n"
    told += "try: main()\nfinally: print(os.environ['OPENBLAS_NUM_THREADS'], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and done.stderr.split() == [threads]


def test_version():
    code, out, _ = typed("version")
    assert code == 0 and out.startswith("hushstream ")
    code, out, _ = typed("version", "--json")
    assert set(json.loads(out)) == {"version", "python"}


@pytest.mark.parametrize("words", [["--version"], ["-v", "--version", "plan", "--nonsense"]])
def test_the_version_is_an_option_too(words):
    code, out, err = typed(*words)
    assert (code, out, err) == typed("version") and code == 0
    assert "--version" in typed("--help")[1]


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
    (["simulate", "file.xlsx"], ".csv"),
    (["simulate", "empty.jsonl"], "empty.jsonl: no record"),
    (["simulate", "good.jsonl", "--input", "other"], "events"),
    (["simulate"], "Missing argument"),
    (["releases", "other"], "pages"),
    (["dead-letters", "pages", "--reason", "mising_unit"], "did you mean missing_unit?"),
    (["dead-letters", "pages", "--late", "--reason", "null"], "there is late, future"),
    (["trigger", "--pipeline", "pages"], 'schedule = "external"'),
    (["trigger", "--at"], "requires an argument"),
    (["worker", "--processes", "many"], "integer"),
    (["worker", "--member", "../x"], "is no name of a worker"),
    (["check", "--member", "a b"], "is no name of a worker"),
    (["topics", "--json=1"], "does not take a value"),
    (["plan", "--set", "pipeline.pages.triggers.every=1s"], 'every = "10s" or longer'),
    (["sql", "SELECT page, COUNT(*) FROM events GROUP BY page", "--name", "pages"], "--name pages"),
    (["init", "hush.key"], "hush.key cannot be a folder"),
    (["init", "new.toml"], "new.toml would be a folder: name the one that hush.toml goes into"),
    (["trigger"], 'no pipeline has schedule = "external"'),
    (["trigger", "--pipeline", "page"], "'page' is unknown; expected one of pages"),
    (["trigger", "--at", "tomorrow"], "--at: 'tomorrow' is not an ISO time"),
    (["releases", "pages", "--parquet", "absent/x.parquet"], "no folder absent"),
    (["map", "pages", "--out", "absent/x.geojson"], "no folder absent"),
    (["connect", "pages", "--url", "postgres"], "jdbc:postgresql://"),
    (["connect", "pages", "--bundle", "hush.key"], "name another folder"),
    (["sink", "parquet:hush.key"], "name another folder"),
    (["ledger", "sum", "absent.jsonl"], "absent.jsonl: file not found"),
    (["topics", "--genesis", "zz", "--print"], "'zz' is no genesis id: write the digits"),
    (["topics", "--genesis", "0A"], "'0A' is no genesis id"),
    (["topics", "--genesis", ""], "'' is no genesis id"),
    (["plot", "pages", "--window", "yesterday"], "must be an ISO time such as"),
    (["releases", "pages", "--window", "yesterday"], "must be an ISO time such as"),
    (["releases", "pages", "--since", "yesterday"], "must be an ISO time such as"),
    (["map", "pages", "--window", "yesterday"], "must be an ISO time such as"),
    (["points", "pages", "--earlier", "--window", "yesterday"], "must be an ISO time such as"),
    (["replay", "pages", "--window", "yesterday"], "--window: 'yesterday' is not an ISO time"),
    (["dead-letters", "pages", "--replay", "--late"], "what came late comes later still"),
    (["check", "--bootstrap", "localhost:99999"], "names port 99999: write one from 1 to 65535"),
    (["demo", "--bootstrap", "localhost:99999"], "names port 99999: write one from 1 to 65535"),
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


def test_a_terminal_shows_errors_in_whole_words(monkeypatch):
    text = "pipeline[0].budget.epsilon: " + "word " * 30 + "end\nand a second line"
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.fitting(text, "hush: ") == text  # no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    lines = f"hush: {cli.fitting(text, 'hush: ')}".split("\n")
    assert max(map(len, lines)) <= 40 and lines[-1] == "and a second line"
    assert " ".join(" ".join(lines).split()) == " ".join(f"hush: {text}".split())
    assert all(line.startswith("  ") for line in lines[1:-1])


@pytest.mark.parametrize(
    "error,code", [(KeyboardInterrupt(), 130), (click.Abort(), 130), (BrokenPipeError(), 141)]
)
def test_interruptions(monkeypatch, error, code):
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli.hush, "main", broken)
    assert typed("version")[0] == code


def process(*words: str, **more: Any) -> tuple[int, str]:
    """The exit code and standard error of a process."""
    command = [sys.executable, "-m", "hushstream", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, **more)
    return done.returncode, done.stderr.decode()


PRINTS = [("--help",), ("version",), ("plan",), ("plan", "--json"), ("simulate", "rows.jsonl")]


@pytest.mark.parametrize("words", PRINTS, ids=" ".join)
def test_a_reader_that_leaves_and_a_disk_that_is_full_are_told_apart(folder, words):
    write(folder / "rows.jsonl", ROWS)
    read, write_end = os.pipe()
    os.close(read)
    code, said = process(*words, stdout=write_end)
    os.close(write_end)
    progress = r"the file needs 4 triggers of 1 window|simulating|[0-4]/4 triggers"
    assert (code, re.sub(progress, "", said).strip(" ━0:\n")) == (141, "")
    with Path("/dev/full").open("w") as full:
        code, said = process(*words, stdout=full)
    assert code == 1 and "hush: No space left on device (OSError at hushstream." in said


@pytest.mark.parametrize("command", ["plan -c none.toml", "nothing"])
def test_an_exit_code_does_not_depend_on_standard_error(folder, command):
    for how in (">&-", ">/dev/full"):
        done = subprocess.run(["sh", "-c", f'"$0" -m hushstream {command} 2{how}', sys.executable])
        assert done.returncode == 2, how


def test_output_in_ascii_escapes_what_it_cannot_say(folder):
    unit = "pipeline.pages.unit_name=gr\u00f6\u00dfe"
    command = [sys.executable, "-m", "hushstream", "plan", "--set", unit]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, stdout=-1)
    assert done.returncode == 0 and b"gr\\xf6\\xdfe" in done.stdout


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
        (0, EngineError("of its own"), 4),  # a requested end hides no failure
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

    monkeypatch.setattr("hushstream.cli.version.code_version", slow)
    with pytest.raises(SystemExit) as left:
        main(["version"])
    said = capsys.readouterr().err
    assert left.value.code == 4
    assert "Kafka did not answer as it should" in said and "unexpected" not in said


LOADING = """
import os, signal, sys, time, types
import hushstream.cli.group as group

def load(name):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

group.importlib = types.SimpleNamespace(import_module=load)
group.main()
"""


@pytest.mark.parametrize("command,code", [("worker", 0), ("replay", -signal.SIGTERM)])
def test_a_signal_while_a_command_is_loaded(command: str, code: int) -> None:
    """A stopped service has succeeded; a stopped check has not passed."""
    words = [sys.executable, "-c", LOADING, command]
    assert subprocess.run(words, timeout=120, check=False).returncode == code
