"""Numba's cache: with any damage to its files, a process ends with the right answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hushstream import compiled
from hushstream.compiled import MARK, marked, unmark

MODULE = """
import numpy as np
from hushstream.compiled import compiled

@compiled
def added(values, factor):
    total = values[0] - values[0]
    for one in values:
        total += one * factor
    return total
"""
RUN = """
import logging, sys
logging.basicConfig(level=logging.INFO)
import numpy as np, loops
for kind in (np.int64, np.float64):
    print(loops.added(np.arange(10, dtype=kind), 3))
print(sum(loops.added.stats.cache_hits.values()))
"""


def environment(folder: Path) -> dict[str, str]:
    """An environment with the loops, an own cache, and the product that this process tests."""
    tested = Path(compiled.__file__).parents[1]
    path = os.pathsep.join([str(folder), str(tested)])
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": path}


@pytest.fixture
def run(tmp_path: Path):
    """Run the loops in their own process; return its answers, its cache hits and its log."""
    (tmp_path / "loops.py").write_text(MODULE)
    environ = environment(tmp_path)

    def once(program: str = RUN) -> tuple[list[str], str, str]:
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True,
                              text=True, timeout=300, check=False)  # fmt: skip
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        *answers, hits = done.stdout.split()
        return answers, hits, done.stderr

    return once


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nb[ic]"))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    path.write_bytes(content)


RIGHT = ["135", "135.0"]


@pytest.mark.thorough
def test_damaged_files_are_dropped_and_compiled_anew(run, tmp_path: Path):
    assert run()[:2] == (RIGHT, "0")
    kept = files(tmp_path / "cache")
    assert [p.suffix for p in kept] == [".nbc", ".nbc", ".nbi"]
    answers, hits, said = run()
    assert (answers, hits) == (RIGHT, "2") and "checksum" not in said
    for place, path in zip((7, -1, kept[2].stat().st_size // 2), kept, strict=True):
        assert path.stat().st_mode & 0o777 == 0o600
        flip(path, place)
        answers, hits, said = run()
        assert answers == RIGHT and int(hits) < 2
        assert said.count("does not match its checksum") == 1 and path.name in said
    assert run()[1] == "2"
    for path in kept:  # truncated, or left by another version
        path.write_bytes(path.read_bytes()[:-32])
    assert run()[:2] == (RIGHT, "0")


@pytest.mark.thorough
def test_code_of_another_signature_or_source_is_not_run(run, tmp_path: Path):
    """Two processes may use one name for two signatures, and one may end before its data."""
    run()
    first, second, index = files(tmp_path / "cache")
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert run()[:2] == (RIGHT, "0")
    old = first.read_bytes()
    source = tmp_path / "loops.py"
    source.write_text(MODULE.replace("one * factor", "one * factor + 1"))
    changed = ["145", "145.0"]
    assert run()[:2] == (changed, "0")
    first.write_bytes(old)
    assert run()[:2] == (changed, "1") and index.exists()


SLOW = """
import logging, sys
logging.basicConfig(level=logging.INFO)
from pathlib import Path
import numpy as np
from hushstream.agents.worker import startup

def load(deployment):
    import loops
    print(loops.added(np.arange(10), 3), loops.added(np.arange(10.0), 3))

startup.SLOW_SECONDS = -1.0
startup._load = load
startup.warm(None, Path("."))
print(0)
"""


def test_a_start_that_is_slow_to_load_does_not_say_that_it_has_compiled(run, tmp_path: Path):
    compiled_, loaded = "compiled the loops of this version in ", "loaded compiled loops in "
    answers, _, said = run(SLOW)
    assert answers == RIGHT and compiled_ in said and loaded not in said
    answers, _, said = run(SLOW)
    assert answers == RIGHT and loaded in said and compiled_ not in said


def test_files_that_others_may_write_are_not_run(run, tmp_path: Path):
    run()
    files(tmp_path / "cache")[0].chmod(0o666)
    assert run()[:2] == (RIGHT, "1")


@pytest.mark.thorough
def test_processes_may_share_a_folder(run, tmp_path: Path):
    """The first process writes, and none reads half a file."""
    environ = environment(tmp_path)
    many = [subprocess.Popen([sys.executable, "-c", RUN], env=environ, stdout=subprocess.PIPE,
                             text=True) for _ in range(3)]  # fmt: skip
    for one in many:
        assert one.communicate(timeout=300)[0].split()[:2] == RIGHT and one.returncode == 0
    assert run()[0] == RIGHT


WARM = """
import sys, time
from pathlib import Path
from hushstream.compiled import marked
with marked(Path(sys.argv[1]), [Path(sys.argv[1])]):
    print("loading", flush=True)
    time.sleep(600)
"""


def loading(folder: Path) -> subprocess.Popen[str]:
    other = subprocess.Popen(
        [sys.executable, "-c", WARM, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "loading\n"
    return other


def broken_off(folder: Path) -> None:
    with loading(folder) as other:
        other.send_signal(signal.SIGSEGV)
        other.wait(60)


def test_all_is_dropped_where_two_starts_did_not_get_through(tmp_path: Path, caplog):
    folder, code = tmp_path / "made" / "cache", tmp_path / "made" / "cache" / "sub" / "f.1.nbc"
    with loading(folder) as other:
        code.parent.mkdir()
        code.write_text("wrong, and sealed")
        with marked(folder, [folder]):  # this start may still succeed
            assert code.exists() and len(list(folder.glob(f"{MARK}*"))) == 2
        assert folder.stat().st_mode & 0o777 == 0o700
        other.send_signal(signal.SIGSEGV)
        other.wait(60)
    broken_off(folder)
    assert code.exists() and "dropped" not in caplog.text
    with marked(folder, [folder]):
        assert not code.exists() and "all of its cache is dropped" in caplog.text
    assert list(folder.iterdir()) == [code.parent]


def test_one_start_that_was_killed_drops_nothing(tmp_path: Path, caplog):
    """A process was killed while it loaded, on a machine of many workers; a success clears that."""
    (tmp_path / "f.nbi").write_text("fine")
    for _ in range(2):
        broken_off(tmp_path)
        with marked(tmp_path, [tmp_path]):
            assert (tmp_path / "f.nbi").exists()
        assert [p.name for p in tmp_path.iterdir()] == ["f.nbi"]
    assert "dropped" not in caplog.text


def test_an_end_on_purpose_drops_nothing(tmp_path: Path):
    (tmp_path / "f.nbi").write_text("fine")
    for _ in range(2):
        with marked(tmp_path, [tmp_path]):
            unmark()
            assert [p.name for p in tmp_path.iterdir()] == ["f.nbi"]
    for _ in range(2):
        assert (tmp_path / "f.nbi").exists()
        with pytest.raises(OSError, match="broken"), marked(tmp_path, [tmp_path]):
            raise OSError("broken")
    with marked(tmp_path, [tmp_path]):
        assert not (tmp_path / "f.nbi").exists()


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with marked(tmp_path / "file", [tmp_path]):
        time.sleep(0)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
