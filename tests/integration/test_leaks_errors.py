"""Unforeseen errors are reported by type and place, because their texts may quote a record.

Covers: agents/worker/lines/redaction.py
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
from hushstream.agents.kafka.progress import Progress
from hushstream.agents.worker.health.state import Health
from hushstream.agents.worker.lines import redaction
from hushstream.agents.worker.worker import Worker
from hushstream.cli.group import main
from hushstream.errors import HushError
from hushstream.mechanisms.keys import Keys

from .test_leaks import COUNT, RARE, USER, folder, leaks

__all__ = ["folder"]  # a fixture


def unforeseen() -> Exception:
    """A bug in our code that a record triggers, with an error text that quotes it."""
    try:
        Keys.of([{"user": USER}])  # type: ignore[list-item]
    except TypeError as error:
        cause = error
    try:
        raise RuntimeError(f"cannot handle {USER} {RARE}: {COUNT}") from cause
    except RuntimeError as error:
        error.__traceback__ = cause.__traceback__
        return error


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], io.StringIO]]:
    """The log of a worker at a level, formatted as by the command line."""
    handlers = []
    logger = logging.getLogger("hushstream")
    before = logger.level

    def at(level: int) -> io.StringIO:
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        handler.setFormatter(redaction.Formatter("%(levelname)s %(message)s"))
        handlers.append(handler)
        logging.getLogger().addHandler(handler)
        logger.setLevel(level)
        return out

    yield at
    logger.setLevel(before)
    for handler in handlers:
        logging.getLogger().removeHandler(handler)


def bare_worker() -> Worker:
    worker = Worker.__new__(Worker)
    worker.error, worker.stopped, worker.health = (
        None,
        asyncio.Event(),
        Health(list, 60, Progress("an answer")),
    )
    return worker


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_worker_names_type_and_place_of_a_bug_and_not_its_text(lines, level):
    out, worker, error = lines(level), bare_worker(), unforeseen()
    worker.fail(error)
    assert worker.error is error and worker.stopped.is_set()
    text = out.getvalue()
    assert leaks(text) == []
    assert re.search(r"RuntimeError at hushstream\.mechanisms\.keys:\d+ ", text)
    assert "-v" in text and "Traceback" not in text


def test_a_worker_tells_everything_at_level_debug(lines):
    out = lines(logging.DEBUG)
    bare_worker().fail(unforeseen())
    assert USER in out.getvalue() and "Traceback" in out.getvalue()


def test_a_worker_tells_the_text_of_our_own_errors(lines):
    for level in (logging.INFO, logging.DEBUG):
        out = lines(level)
        bare_worker().fail(HushError("the ledger is gone"))
        assert out.getvalue() == "ERROR the ledger is gone\n"
    assert "no module x (ImportError outside" in redaction.told(ImportError("no module x"))
    assert "/a/b: No space left on device (OSError" in redaction.told(
        OSError(errno.ENOSPC, "No space left on device", "/a/b")
    )
    assert "user-7" not in redaction.told(OSError("user-7"))


def test_errors_in_logs_of_libraries_are_veiled(lines):
    """Faust logs what made a service crash; asyncio logs errors of tasks that were not awaited."""
    out, error = lines(logging.INFO), unforeseen()
    faust = logging.getLogger("mode.services")
    faust.error("Crashed reason=%r", error, exc_info=error)
    faust.error("crashed: %(reason)s", {"reason": error})
    loop = asyncio.new_event_loop()
    task = loop.create_future()
    task.set_exception(error)
    faust.error("lost %r", task)
    assert task.exception() is error  # otherwise the loop would log it again
    redaction.on_loop_error(
        loop, {"message": "never retrieved", "exception": error, "future": task}
    )
    loop.close()
    with redaction.hooks():
        thread = threading.Thread(target=lambda: (_ for _ in ()).throw(error))
        thread.start()
        thread.join()
    text = out.getvalue()
    assert leaks(text) == [] and "Traceback" not in text
    assert text.count("RuntimeError at hushstream.") == 4
    assert len(text.splitlines()) == 5


def test_clients_that_a_failed_worker_leaves_do_not_hide_its_reason(lines):
    loop = asyncio.new_event_loop()
    for level, seen in ((logging.INFO, 0), (logging.DEBUG, 1)):
        out = lines(level)
        redaction.on_loop_error(loop, {"message": "Unclosed AIOKafkaProducer", "producer": None})
        assert out.getvalue().count("Unclosed") == seen
    loop.close()


def test_the_command_line_does_not_quote_a_bug(folder, capsys, monkeypatch):
    monkeypatch.setattr("hushstream.cli.version.code_version", Mock(side_effect=unforeseen()))
    with pytest.raises(SystemExit) as left:
        main(["-v", "version"])
    printed = capsys.readouterr()
    assert left.value.code == 1 and USER in printed.err and "Traceback" in printed.err
    with pytest.raises(SystemExit) as left:
        main(["version"])
    printed = capsys.readouterr()
    assert left.value.code == 1
    assert leaks(printed.out + printed.err) == []
    assert "hush: unexpected error: RuntimeError at hushstream." in printed.err


BUG = """
import logging, sys, threading
from hushstream.cli import version
from hushstream.cli.group import main

def bug():
    try:
        raise ValueError("canaryuser canarykey 4391")
    except ValueError as error:
        logging.getLogger("mode.services").error("Crashed reason=%r", error, exc_info=error)
        def again():
            raise error
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()
        raise

version.code_version = bug
main([*sys.argv[1:], "version"])
"""


def test_a_process_with_a_bug_says_where_and_not_what():
    """Started as in production, with the handlers and hooks of the command line."""
    quiet, loud = (
        subprocess.run([sys.executable, "-c", BUG, *words], capture_output=True, text=True)
        for words in ((), ("-v",))
    )
    assert quiet.returncode == loud.returncode == 1
    assert leaks(quiet.stdout + quiet.stderr) == []
    assert quiet.stderr.count("ValueError at hushstream.cli.version:") == 1
    assert "Crashed reason=ValueError" in quiet.stderr and "a thread failed" in quiet.stderr
    assert loud.stderr.count("canaryuser") >= 3 and "Traceback" in loud.stderr
