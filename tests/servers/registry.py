"""A real schema registry on the loopback interface: Apicurio, with its Confluent-compatible API."""

from __future__ import annotations

import os
import tarfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from hushstream.deploy.jars import fetch
from hushstream.deploy.java import find_java, java_version
from hushstream.deploy.process import Child
from hushstream.deploy.settings import HOST, free_port

LOCK = Path(__file__).with_name("registry.lock")
LEAST_JAVA = 21
DONE = ".whole"


def unpacked() -> Path:
    """The registry's folder, fetched and unpacked once for each user."""
    folder = fetch(lock=LOCK, quiet=True)
    home = folder / "home"
    if not (home / DONE).exists():
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
        (home / DONE).touch()
    return home


class SchemaRegistry:
    """A registry whose schemas live in memory, or in a file that survives `kill`.

    Args:
        folder: folder for its log and file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Address of the Confluent-compatible API."""
        return f"http://{HOST}:{self._port}/apis/ccompat/v7"

    @property
    def port(self) -> int:
        """Port of the server."""
        return self._port

    def start(self, timeout: float = 300.0) -> Self:
        """Start it, and wait until it answers."""
        java = find_java()
        assert java_version(java) >= LEAST_JAVA, f"the registry needs Java {LEAST_JAVA} or later"
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self._port,
            "quarkus.management.host": HOST,
            "quarkus.management.port": free_port(),  # its build requires this port
            # Otherwise schemas that were registered half a second before a kill are lost.
            "apicurio.datasource.url": f"jdbc:h2:file:{self._folder / 'schemas'};WRITE_DELAY=0",
        }
        words = [f"-D{name}={value}" for name, value in settings.items()]
        jar = unpacked() / "quarkus-run.jar"
        flags = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [str(java), *flags, *words, "-jar", str(jar)]
        self._child = Child(command, self._folder / "registry.log")
        until = time.monotonic() + timeout
        while not self._answers():
            said = (self._folder / "registry.log").read_text(errors="replace")[-3000:]
            assert time.monotonic() < until and self._child.returncode is None, said
            time.sleep(0.3)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=20) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """End it like a crash."""
        if self._child is not None:
            self._child.send(9)
            self._child.wait(150)
            self._child = None

    def __enter__(self) -> Self:
        os.makedirs(self._folder, exist_ok=True)
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
