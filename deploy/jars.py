"""Download of Apache Kafka, once per user; every use verifies every jar against the shipped lock.

A lock (``kafka.lock``; ``jdbc.lock`` for Kafka Connect) holds Maven coordinates and SHA-256
digests, but no addresses: the Maven client decides where an artifact comes from, and the digest
decides whether it is accepted. ``python -m hushstream.deploy.jars COORDINATE…`` prints a new lock.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..errors import BrokerError, needs
from .places import cache_dir

with needs("local"):
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL, default_maven_repo
    from jgo.maven import MavenContext, PythonResolver

LOCK = Path(__file__).with_name("kafka.lock")
JDBC = Path(__file__).with_name("jdbc.lock")  # Debezium's JDBC sink and PostgreSQL's driver
ATTEMPTS = 3
CONNECTIONS = 6

Tick = Callable[[int], None]


class Jar(NamedTuple):
    """One locked artifact: hexadecimal SHA-256, size in bytes, ``group:artifact:version``.

    Other than plain jars have two more parts: ``group:artifact:version:packaging:classifier``.
    """

    sha256: str
    size: int
    coordinate: str

    @property
    def filename(self) -> str:
        """Name within the cache; the group is left out, as in Kafka's own distribution."""
        _, artifact, version, *other = self.coordinate.split(":")
        packaging, classifier = other or ("jar", "")
        return "-".join(filter(None, (artifact, version, classifier))) + f".{packaging}"


def read_lock(path: Path = LOCK) -> list[Jar]:
    """Return the jars of a lock file: lines ``sha256 bytes coordinate``, ``#`` starts a comment.

    Raises `BrokerError` for any other line.
    """
    jars = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        if len(fields) != 3 or len(fields[0]) != 64 or fields[2].count(":") not in (2, 4):
            raise BrokerError(f"{path}:{number}: expected `sha256 bytes group:artifact:version`")
        jars.append(Jar(fields[0], int(fields[1]), fields[2]))
    return jars


def kafka_version(jars: Sequence[Jar]) -> str:
    """Return the version of the broker itself among ``jars``.

    >>> kafka_version(read_lock())
    '4.3.1'
    """
    return next(j.coordinate.split(":")[2] for j in jars if ":kafka_2.13:" in j.coordinate)


def is_intact(jar: Jar, path: Path) -> bool:
    """Return whether ``path`` exists and has exactly the locked size and digest."""
    if not path.is_file() or path.stat().st_size != jar.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def fetch(folder: Path | None = None, lock: Path = LOCK, *, quiet: bool = False) -> Path:
    """Return a folder that holds every jar of ``lock``, verified; download what is missing.

    Several processes may call this at once: a jar appears under its name only when it is whole and
    verified. Every call verifies the files on disk again (45 MB, about 50 ms).

    Args:
        folder: folder for the jars; by default one in the user's cache, named by version.
        lock: the lock file: the broker's, or that of other jars if a folder is given.
        quiet: hide the progress bar.

    Raises:
        BrokerError: a download failed, or an artifact is not the locked one.
    """
    jars = read_lock(lock)
    own = lock == LOCK
    title = f"Apache Kafka {kafka_version(jars)}" if own else lock.stem
    folder = folder or cache_dir() / (f"kafka-{kafka_version(jars)}" if own else lock.stem)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in jars if not is_intact(jar, folder / jar.filename)]
    if missing:
        with _scratch(folder) as scratch, _progress(title, missing, quiet) as tick:
            _download(missing, scratch, folder, tick)
    return folder


def _download(jars: Sequence[Jar], scratch: Path, folder: Path, tick: Tick) -> None:
    context = _context(scratch, tick)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda jar: _install(jar, context, folder, tick), jars))


def _install(jar: Jar, context: MavenContext, folder: Path, tick: Tick) -> None:
    source = _resolve(jar, context)
    if not is_intact(jar, source):
        raise BrokerError(f"{jar.coordinate}: the file found is not the locked one; not used")
    part = context.repo_cache / f"{jar.filename}.verified"
    shutil.copyfile(source, part)
    part.replace(folder / jar.filename)
    if not source.is_relative_to(context.repo_cache):
        tick(jar.size)  # found in a local Maven repository: nothing was downloaded


def _resolve(jar: Jar, context: MavenContext) -> Path:
    group, artifact, version, *other = jar.coordinate.split(":")
    packaging, classifier = other or ("jar", "")
    wanted = context.project(group, artifact).at_version(version).artifact(classifier, packaging)
    for attempt in range(ATTEMPTS):
        try:
            return Path(wanted.resolve())
        except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
            if wanted.cached_path is not None:
                wanted.cached_path.unlink(missing_ok=True)  # a torn download
            if attempt == ATTEMPTS - 1:
                raise BrokerError(
                    f"{jar.coordinate} cannot be downloaded ({error}); check the network, or set "
                    f"a mirror in jgo's configuration file, section [repositories]"
                ) from error
    raise AssertionError("unreachable")


def _context(scratch: Path, tick: Tick) -> MavenContext:
    mirrors = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}

    @contextmanager
    def report(name: str, size: int) -> Iterator[Tick]:
        yield tick

    return MavenContext(
        resolver=PythonResolver(progress_callback=report),
        repo_cache=scratch,
        local_repos=[default_maven_repo()],
        remote_repos=mirrors,
        timeout=30,
    )


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))  # same file system
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _progress(title: str, jars: Sequence[Jar], quiet: bool) -> Iterator[Tick]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        console.print(f"fetching {title} ({len(jars)} jars), once per user", highlight=False)
        yield lambda size: None
        return
    with Progress(*columns, TransferSpeedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(f"fetching {title}", total=sum(jar.size for jar in jars))
        yield lambda size: progress.update(task, advance=size)


def make_lock(coordinates: Sequence[str], scratch: Path) -> list[Jar]:
    """Resolve ``coordinates`` with all run-time dependencies, and digest every jar."""
    context = MavenContext(repo_cache=scratch)
    wanted = [context.create_dependency(coordinate) for coordinate in coordinates]
    inputs, others = context.resolver.resolve(wanted)
    needed = [*inputs, *(d for d in others if d.scope in ("compile", "runtime"))]
    jars = []
    for found in needed:
        data = Path(found.artifact.resolve()).read_bytes()
        coordinate = f"{found.groupId}:{found.artifactId}:{found.version}"
        jars.append(Jar(hashlib.sha256(data).hexdigest(), len(data), coordinate))
    return sorted(jars, key=lambda jar: jar.coordinate)


def main(coordinates: Sequence[str]) -> None:
    """Print a lock for ``coordinates``."""
    scratch: AbstractContextManager[str] = tempfile.TemporaryDirectory()
    with scratch as folder:
        print(f"# {' '.join(coordinates)}: SHA-256, bytes and Maven coordinate of every jar.")
        for jar in make_lock(coordinates, Path(folder)):
            print(*jar)


if __name__ == "__main__":
    main(sys.argv[1:])
