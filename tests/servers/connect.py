"""Kafka Connect in the broker's version, with Debezium's JDBC sink; and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from hushstream.deploy.jars import JDBC, fetch, read_lock
from hushstream.deploy.java import find_java
from hushstream.deploy.process import Child
from hushstream.deploy.settings import HOST, free_port

HERE = Path(__file__).parent
USER = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


class Connect:
    """A standalone worker of Kafka Connect.

    Args:
        folder: folder for its log and offsets.
        worker: properties of the worker; address and folders are added.
        sink: properties of the connector.
    """

    def __init__(self, folder: Path, worker: str, sink: str) -> None:
        self.log = folder / "connect.log"
        plugins = folder / "plugins" / "jdbc"
        plugins.mkdir(parents=True)
        home = fetch(lock=JDBC, quiet=True)
        for jar in read_lock(JDBC):  # and none that an older lock left
            (plugins / jar.filename).symlink_to(home / jar.filename)
        mine = {
            "listeners": f"http://{HOST}:{free_port()}",
            "offset.storage.file.filename": str(folder / "offsets"),
            "plugin.path": str(plugins.parent),
        }
        text = worker + "".join(f"{name}={value}\n" for name, value in mine.items())
        (folder / "worker.properties").write_text(text)
        (folder / "sink.properties").write_text(sink)
        jars = fetch(lock=HERE / "connect.lock", quiet=True)
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        flags = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        files = [str(folder / "worker.properties"), str(folder / "sink.properties")]
        command = [str(find_java()), *flags, "-cp", f"{jars}/*", main, *files]
        self._child = Child(command, self.log)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.send(9)
        self._child.wait(150)


class Postgres:
    """A PostgreSQL cluster on a free port, in a folder that is deleted at its end."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(
            prefix="hush-postgres-", ignore_cleanup_errors=True
        )
        self._folder = Path(self._place.name)
        self._port = free_port()

    @staticmethod
    def missing() -> str:
        """Why it cannot run here; empty if it can."""
        absent = [
            name for name in ("initdb", "pg_ctl", "psql") if shutil.which(_program(name)) is None
        ]
        return f"PostgreSQL is not installed ({', '.join(absent)})" if absent else ""

    @property
    def url(self) -> str:
        """The JDBC address."""
        return f"jdbc:postgresql://{HOST}:{self._port}/postgres"

    def _run(self, name: str, words: Sequence[str]) -> str:
        done = subprocess.run(
            [_program(name), *words], user=USER, cwd=self._folder, capture_output=True, text=True,
            timeout=300, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, statement: str) -> list[list[str]]:
        """Rows of a query, as texts; NULL is empty."""
        words = ["-h", HOST, "-p", str(self._port), "-U", "hush", "-At", "-F", "\t"]
        out = self._run("psql", [*words, "-c", statement, "postgres"])
        return [line.split("\t") for line in out.splitlines()]

    def __enter__(self) -> Self:
        self._folder.chmod(0o755)
        if USER:
            shutil.chown(self._folder, USER)
        data = str(self._folder / "data")
        self._run("initdb", ["-D", data, "-U", "hush", "-A", "trust", "--no-sync"])
        options = f"-p {self._port} -h {HOST} -k {self._folder} -F"
        log = str(self._folder / "postgres.log")
        self._run("pg_ctl", ["-D", data, "-o", options, "-l", log, "-w", "start"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run("pg_ctl", ["-D", str(self._folder / "data"), "-m", "immediate", "stop"])
        self._place.cleanup()


def _program(name: str) -> str:
    """A program on the path, or in the folder of Debian's packages."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else name)


def wait_for(
    done: Callable[[], object], what: str, said: Callable[[], str], timeout: float = 300.0
) -> None:
    """Wait until a call returns something true.

    Args:
        done: condition, called repeatedly.
        what: name of the awaited event, for the message.
        said: function that returns the rest of the message.
        timeout: time limit in seconds.
    """
    until = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < until, f"{what} did not come:\n{said()}"
        time.sleep(0.5)
