"""A deployment in a folder, rows for it, and commands typed and interrupted."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from hushstream.cli.group import main

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


ROWS = [{"user": f"u{i}", "page": f"p{i % 2}", "t": 1_551_398_400_000_000 + i} for i in range(400)]


def typed(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of one command line."""
    out = CliRunner().invoke(click.Command("x", callback=lambda: main(list(words))), [])
    if out.exception is not None and not isinstance(out.exception, SystemExit):
        raise out.exception
    return out.exit_code, out.stdout, out.stderr


def interrupted(process: subprocess.Popen[str]) -> int:
    """Interrupt a process until it ends: a library in C may swallow a signal."""
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("five interrupts did not end the process")


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
