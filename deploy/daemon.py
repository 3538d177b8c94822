"""``hush broker start|stop|status``: a local broker that runs on its own until it is stopped.

``broker.json`` in its data folder records process id and port. A process counts as the broker only
if its command line names that folder, so that a reused process id is never signalled.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from ..errors import BrokerError
from .broker import Broker, serves
from .places import data_dir
from .process import command_of, end_process
from .settings import HOST, port_is_free

DEFAULT_PORT = 9092


class BrokerState(msgspec.Struct, frozen=True):
    """The state of a local broker.

    ``state`` is ``stopped``, ``running`` (it answers) or ``starting`` (a process without answers).
    """

    state: str
    data: str
    bootstrap: str | None = None
    pid: int | None = None
    log: str | None = None


class _Record(msgspec.Struct, frozen=True):
    pid: int
    port: int


def default_data() -> Path:
    """Data folder of the local broker of this user."""
    return data_dir() / "broker"


def status(data: Path | None = None) -> BrokerState:
    """Return the state of the broker of folder ``data``: whether it runs, and where."""
    folder = _folder(data)
    record = _read(folder)
    if record is None or not _is_ours(record, folder):
        return BrokerState("stopped", str(folder))
    bootstrap = _address(record)
    return _told(folder, record, "running" if serves(bootstrap, 10.0) else "starting")


def start(data: Path | None = None, port: int | None = None) -> BrokerState:
    """Start the broker of folder ``data`` unless it runs, and wait until it serves.

    Args:
        data: data folder; by default one per user.
        port: TCP port for clients; by default the last one used, at first 9092.

    Raises:
        BrokerError: the port is taken, the broker runs on another port, or it did not start.
    """
    folder = _folder(data)
    before = status(folder)
    if before.state != "stopped":
        _check_same_port(before, port)
        return before
    record = _read(folder)
    port = port or (record.port if record else DEFAULT_PORT)
    if not port_is_free(port):
        raise BrokerError(
            f"port {port} of {HOST} is in use by another program; start with --port PORT"
        )
    broker = Broker(folder, port, detached=True).start()
    started = _Record(broker.pid or 0, port)
    _write(folder, started)
    return _told(folder, started, "running")


def stop(data: Path | None = None, *, timeout: float = 20.0) -> bool:
    """Stop the broker of folder ``data``, keeping its data; return whether one was running."""
    folder = _folder(data)
    record = _read(folder)
    return record is not None and end_process(record.pid, _mark(folder), timeout)


def remove(data: Path | None = None) -> None:
    """Stop the broker and delete its data folder with all topics in it."""
    folder = _folder(data)
    if folder.exists() and not (folder / "server.properties").is_file():
        raise BrokerError(f"{folder} is not a broker's folder: not deleted")
    stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _folder(data: Path | None) -> Path:
    return (data or default_data()).expanduser().resolve()


def _address(record: _Record) -> str:
    return f"{HOST}:{record.port}"


def _told(folder: Path, record: _Record, state: str) -> BrokerState:
    log = str(folder / "broker.log")
    return BrokerState(state, str(folder), _address(record), record.pid, log)


def _mark(folder: Path) -> str:
    return str(folder / "server.properties")


def _is_ours(record: _Record, folder: Path) -> bool:
    return _mark(folder) in command_of(record.pid)


def _check_same_port(running: BrokerState, port: int | None) -> None:
    if port is not None and running.bootstrap != f"{HOST}:{port}":
        raise BrokerError(
            f"the broker of {running.data} runs at {running.bootstrap}; stop it first to move it"
        )


def _read(folder: Path) -> _Record | None:
    try:
        return msgspec.json.decode((folder / "broker.json").read_bytes(), type=_Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write(folder: Path, record: _Record) -> None:
    part = folder / "broker.json.part"
    part.write_bytes(msgspec.json.encode(record))
    part.replace(folder / "broker.json")
