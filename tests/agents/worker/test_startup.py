"""Starting: one worker for each folder, whatever it does next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hushstream.agents.worker.startup import lock_folder
from hushstream.errors import EngineError

HOLD = """
import sys, time
from pathlib import Path
from hushstream.agents.worker.startup import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_one_workers_until_its_process_ends(tmp_path: Path):
    folder = tmp_path / "state" / "w"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with (
            pytest.raises(EngineError, match="another worker uses the folder"),
            lock_folder(folder),
        ):
            raise AssertionError("it has started")
        other.kill()  # as a crash would
        other.wait()
    with lock_folder(folder):
        pass


def test_a_process_that_cannot_stop_ends_with_4():
    program = "from hushstream.agents.worker import startup; startup._leave(); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "the worker did not stop within 40 s" in done.stderr
