"""The start of a worker: every check that must come before the first record is read."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import HTTPServer
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import compiled
from ...compiled import marked, saved, unmark
from ...errors import EngineError
from ...formats.events.columns import LEAST
from ...formats.events.raw import RawRecord
from ...mechanisms.columns import Batch, empty_units
from ...mechanisms.contract import Mechanism
from ...mechanisms.keys import Keys
from ...mechanisms.pairs import split
from ...mechanisms.parts.bounds.bounding import Bound
from ...mechanisms.parts.bounds.lifetime import Cap
from ...topics.config.load import Config
from ...topics.private_files import private_file, private_folder, unseen
from ..deployment.model import Deployment
from ..kafka.batches.record_columns import RecordColumns
from ..stages.bound.codec import UnitCodec, distinct
from ..stages.bound.open_sessions import close, take
from ..stages.bound.purses import PurseCodec
from ..stages.ingest.unit_digests import UnitDigests
from ..state.layout import DIGEST, UNIT_WIDTH, sortable, units_of
from ..state.rows.columns import RowColumns, pick, put_in
from ..state.rows.sparse import pack, unpack
from ..state.rows.table import HeldTable
from ..state.units.packed import Digests, NewRows, PackedRows, read_blocks
from .admission import owing, prepare
from .health.http import Page, health_page, metrics_page, serve_local, serve_operator, serve_public
from .health.systemd import Notifier
from .lines.redaction import on_loop_error
from .metrics import waiting_series
from .resident import watch
from .setup import WorkerSetup
from .worker import Worker

log = logging.getLogger("hushstream")

SIGNALS = signal.SIGINT, signal.SIGTERM
LEAVE_SECONDS = 40.0  # twice the time within which the parts of a worker must stop
EXIT_ENGINE = 4
COMPILED = "compiled"  # folder of numba's cache, within a worker's
Whole = Callable[[], Config]
SLOW_SECONDS = 3.0  # loading a complete cache takes less


def run_worker(
    config: Config, member: str = "", pages: Path | None = None, whole: Whole | None = None
) -> None:
    """Run one worker process until SIGINT or SIGTERM.

    Args:
        member: stable name of this worker in the consumer group; empty: it has none.
        pages: socket at which all pages are served to the process that started this one, instead of
            the configured addresses.
        whole: reads the configuration with its tables of topics; None: it has them.

    Raises:
        BaseException: the error that made the worker stop.
    """
    _collect_rarely()
    ended = watch()
    stopping = threading.Timer(LEAVE_SECONDS, _leave)
    stopping.daemon = True
    before = signal.signal(signal.SIGTERM, _stopped)  # until the worker can stop by itself
    try:
        asyncio.run(_run(config, member, stopping, pages, whole))
    finally:
        ended.set()
        stopping.cancel()
        signal.signal(signal.SIGTERM, before)


def _leave() -> None:
    """Kill a process that does not stop: it would keep its partitions without serving them."""
    log.error("the worker did not stop within %g s; its process ends", LEAVE_SECONDS)
    os._exit(EXIT_ENGINE)


def _stopped(*_: object) -> None:
    """End the process: nothing has begun yet that would have to be undone."""
    log.info("stopped before the start")
    raise SystemExit(0)


def _collect_rarely() -> None:
    """Collect garbage rarely: records are short-lived and have no cycles."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


async def _run(
    config: Config,
    member: str,
    stopping: threading.Timer,
    pages: Path | None,
    whole: Whole | None,
) -> None:
    probes = Probes()
    if pages is not None:
        config = replace(config, engine=replace(config.engine, public_port=0, operator_port=0))
        serve_local(pages, {**probes.pages(), **probes.metrics()})
    notifier = Notifier(probes.ready, probes.live)
    notifier.start()
    try:
        plan = admitted(config, member, probes, whole)
        with lock_folder(plan.data_dir):
            await _serve(plan, stopping, probes)
    finally:
        notifier.stop()


class Probes:
    """The answers of `/live` and `/ready`, also before there is a worker.

    Attributes:
        worker: the worker; None while the start waits for a cluster.
    """

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self._before = waiting_series()

    def live(self) -> bool:
        """Whether every task makes progress."""
        return self.worker is None or self.worker.health.live()

    def ready(self) -> bool:
        """Whether the worker serves."""
        return self.worker is not None and self.worker.health.ready()

    def pages(self) -> dict[str, Page]:
        """Health pages by path."""
        return {"/live": health_page(self.live), "/ready": health_page(self.ready)}

    def metrics(self) -> dict[str, Page]:
        """Both pages of metrics by path; before there is a worker, it is not ready."""
        return {
            "/metrics": lambda: self._all("public"),
            "/internal/metrics": lambda: self._all("operator"),
        }

    def _all(self, whose: str) -> tuple[int, bytes]:
        if self.worker is None:
            return metrics_page(self._before)() if whose == "public" else (200, b"")
        return metrics_page(getattr(self.worker, whose).series)()


def admitted(
    config: Config, member: str, probes: Probes, whole: Whole | None = None
) -> WorkerSetup:
    """Wait until the cluster answers, for `kafka.outage_timeout`; decide whether to start.

    Args:
        probes: pages to serve meanwhile, since an orchestrator restarts a silent process.
        whole: the same as for `run_worker`.

    Raises:
        ConfigError, LedgerError, EngineError: something does not fit, or nothing answers.
    """
    engine, servers = config.engine, list[HTTPServer]()

    def waiting() -> None:
        if servers:
            return
        metrics = probes.metrics()
        with contextlib.suppress(EngineError):  # taken: reported when the worker serves its own
            if engine.public_port:
                pages = {"/metrics": metrics["/metrics"], **probes.pages()}
                servers.append(serve_public(engine, pages))
            if engine.operator_port:
                pages = {"/internal/metrics": metrics["/internal/metrics"]}
                servers.append(serve_operator(engine, pages))

    def read() -> Config:
        assert whole is not None
        waiting()
        return replace(whole(), engine=engine)

    try:
        return prepare(
            config, member, config.kafka.outage_timeout / 1e6, waiting=waiting,
            whole=None if whole is None else read,
        )  # fmt: skip
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a worker's folder; the lock ends with the process, even when that is killed.

    This must come first: a second worker on the same folder would fence the first one's shards, and
    only then fail on their tables.

    Args:
        folder: the folder, created if missing; an existing one loses the rights of other users.

    Raises:
        EngineError: another process holds it.
        ConfigError: the rights of other users in it cannot be taken away.
    """
    private_folder(folder)
    private_file(folder / "lock")
    with (folder / "lock").open("r+") as held:  # its holder's process id stays readable
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            found = held.read(20).strip()
            who = f" (process {found})" if found.isdecimal() else ""
            raise EngineError(
                f"another worker uses the folder {folder}{who}: give each worker a name of its own "
                "(--member), or another engine.data_dir"
            ) from None
        held.truncate(0)
        held.write(f"{os.getpid()}\n")
        held.flush()
        yield


async def _serve(plan: WorkerSetup, stopping: threading.Timer, probes: Probes) -> None:
    config, member = plan.config, plan.member
    worker = probes.worker = Worker(plan)
    engine = config.engine
    # Serve pages before anything runs: a probe must get an answer while tables are restored.
    servers = []
    if engine.public_port:
        pages = {"/metrics": metrics_page(worker.public.series), **probes.pages()}
        servers.append(serve_public(engine, pages))
    if engine.operator_port:
        page = {"/internal/metrics": metrics_page(worker.operator.series)}
        servers.append(serve_operator(engine, page))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(on_loop_error)
    name = f"worker {member}".rstrip()
    log.info("%s of deployment %s, process %d", name, plan.names.base, os.getpid())
    if plan.owed:
        log.warning("%s", owing(plan.owed))
    try:
        await warmed(plan.deployment, plan.data_dir)
        for number in SIGNALS:
            loop.add_signal_handler(number, worker.stopped.set)
        # Tables hold exact counts, and RocksDB creates files that everyone may read. Not earlier:
        # the cache of compiled loops beside the package must stay readable for all its users.
        with unseen():
            await worker.run(stopping.start)
        log.info("stopped")
    finally:
        for server in servers:
            server.shutdown()


async def warmed(deployment: Deployment, data_dir: Path) -> None:
    """Run `warm` in a thread; a signal ends the process meanwhile, and a long wait is logged.

    The compiler cannot be interrupted and may take minutes on a busy machine, longer than a service
    manager waits. Nothing has begun yet that would have to be undone, so the process just ends.
    """
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _leave_early)
    saying = loop.call_later(
        SLOW_SECONDS, log.info, "compiling the loops of this version, or loading them"
    )
    try:
        await asyncio.to_thread(warm, deployment, data_dir)
    finally:
        saying.cancel()


def _leave_early() -> None:
    unmark()
    log.info("stopped before the start")
    os._exit(0)


def warm(deployment: Deployment, data_dir: Path) -> None:
    """Compile every loop that the inputs of a deployment need, or load it from numba's cache.

    Args:
        data_dir: the worker's folder, for the cache if the package's own folder is read-only.
    """
    begun, before = time.monotonic(), saved()
    with marked(*cache_folders(data_dir)):
        _load(deployment)
    if (took := time.monotonic() - begun) > SLOW_SECONDS:
        said = "compiled the loops of this version in %.0f s; the next start finds them"
        log.info(said if saved() > before else "loaded compiled loops in %.0f s", took)


def cache_folders(data_dir: Path) -> tuple[Path, list[Path]]:
    """Choose where compiled code is kept: beside the modules if that folder is writable.

    Args:
        data_dir: the worker's folder, for a private cache if the package's folder is read-only.

    Returns:
        The folder for marks, and the folders with the compiled files.

    Raises:
        EngineError: the folder in ``data_dir`` belongs to another user.
    """
    package = Path(compiled.__file__).parent
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given is None and os.access(package, os.W_OK):
        folders = [package / name for name in ("agents", "formats", "mechanisms")]
        return package / "__pycache__", folders
    folder = Path(given) if given else data_dir / COMPILED
    if not given:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder.chmod(0o700)
        except PermissionError:
            raise EngineError(
                f"the folder {folder} belongs to another user, whose code would be run: delete it"
            ) from None
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
    return folder, [folder]


def _load(deployment: Deployment) -> None:
    # Empty records suffice: a loop is compiled for the types of its arguments.
    blank = [RawRecord(n, 0, None, b"{}") for n in range(LEAST)]
    for source in deployment.streams:
        units = source.decoder.decode(blank).unit
        UnitDigests(bytes(32), source.partitioner, source.partitions, 0).look(units)
    from ..kafka.batches.pack import packed
    from ..kafka.batches.scan import scan

    scan(memoryview(bytes(61)))
    packed(RecordColumns.of({b"": None}), 0, 100)
    split(Keys.of([b'["",""]']))
    _warm_units(deployment.pipelines[0].mechanism)
    if any(p.traits.sparse for p in deployment.pipelines):
        unpack(pack(np.zeros(1, np.int32), np.ones((1, 1), np.int64)), 1)
        from ...mechanisms.parts.isotonic import pooled  # here: compiled loops load slowly

        pooled(np.zeros((1, 1)), np.empty((1, 1)))
    if any(p.sessions is not None for p in deployment.pipelines):
        one, none = Keys.of([b"k"]), np.zeros(1, np.intp)
        rows, _ = take(Keys.of([b""]), none, one, none, np.zeros(1, np.int64), 1)
        close(rows, 0, 1)


def _warm_units(mechanism: Mechanism) -> None:
    """Compile the loops over rows of units, with more rows than a new table has room for."""
    digests = np.zeros((5_000, 16), np.uint8)
    digests.view(np.uint64)[:, 0] = np.arange(len(digests))
    keys, _ = distinct(digests, units_of(0) + sortable(0))
    codec = UnitCodec(mechanism.traits)
    none = Keys(np.empty(0, np.uint8), np.zeros(5_001, np.int64))
    rows = codec.encode(codec.decode(none))
    purses = PurseCodec(Cap(1))
    purses.take(purses.put(purses.take(none, 0, None)._replace(mine=rows), 0, codec.blank), 0, 0)
    _warm_bound(mechanism.traits.lanes)
    table = HeldTable(UNIT_WIDTH)
    table.put(RowColumns(pick(keys, np.arange(1)), pick(rows, np.arange(1))))
    table.put(RowColumns(keys, rows))
    found = table.look(keys).values
    put_in(found, np.arange(1), pick(found, np.arange(1)))
    table.rows()
    _warm_blocks(keys.packed().reshape(-1, UNIT_WIDTH)[:, -DIGEST:], rows)


def _warm_blocks(digests: NDArray[np.uint8], rows: Keys) -> None:
    """Compile the loops over sorted rows of units, and over blocks of them."""
    asked = Digests.of(digests)
    packed = PackedRows.none().merged(NewRows(asked, rows))
    packed = read_blocks(packed.blocks()[0], 0)
    place, size = np.empty((2, len(digests)), np.int64)
    packed.find(asked, asked.order, place, size)
    packed.gather(asked.order, place, rows.offsets, np.empty(len(rows.data), np.uint8))
    packed.replace(asked, asked.order, rows, np.zeros(len(digests), np.bool_))


def _warm_bound(lanes: int) -> None:
    """Compile the loops of a bound."""
    none, value = np.zeros(0, np.intp), np.zeros((0, 0), np.int64)
    batch = Batch(Keys.of([]), none, none, value, none.astype(np.int8), none.astype(np.int32))
    Bound("records", 1, (1,) * lanes).apply(empty_units(1, lanes, 1), batch, none)
