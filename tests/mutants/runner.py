"""Runs the tests of one mutant at a time in a copy of the tree.

A copy is a folder ``hushstream`` in a temporary folder. That folder comes first in the search for
modules, so the tests in the copy import the copy. Each run is a process of its own, forked from one
that has loaded the libraries but nothing of the product.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from itertools import count
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Literal

import pytest

from ..tree import ROOT
from .catalogue import Mutant

LEFT_OUT = ("__pycache__", "build", "dist", "out", "docs", "research", "*.egg-info")
LIBRARIES = (
    "aiohttp",
    "aiokafka",
    "confluent_kafka",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "hypothesis.strategies",
    "msgspec",
    "numpy",
    "prometheus_client",
    "pyarrow",
    "pytest",
    "rich.progress",
    "rocksdict",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.stats",
)
WRONG_COPY = 70
Outcome = Literal["killed", "survived", "broken", "stopped"]


def processes() -> ForkServerContext:
    """The context for test processes: one that has loaded the libraries, with one thread each."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LIBRARIES))
    return context


class Copy:
    """A copy of the tree in ``folder``, for one mutant after the other.

    Args:
        folder: empty folder.
        context: context that starts the processes.
        timeout: time limit for the tests of one mutant in seconds.
    """

    def __init__(self, folder: Path, context: ForkServerContext, timeout: float) -> None:
        self._root = folder / "hushstream"
        self._log = folder / "log"
        self._context = context
        self._timeout = timeout
        self._times = count(1_000_000_000)
        shutil.copytree(ROOT, self._root, ignore=shutil.ignore_patterns(".*", *LEFT_OUT))

    def try_out(self, mutant: Mutant) -> Outcome:
        """Whether the tests of a mutant find it.

        A mutant is broken if it does not apply or its tests do not start. It is stopped if its
        tests take too long. Neither outcome says anything about the tests.
        """
        path = self._root / mutant.file
        text, times = path.read_text("utf-8"), path.stat()
        try:
            changed = mutant.applied(text)
        except ValueError:
            return "broken"
        try:
            path.write_text(changed, "utf-8")
            os.utime(path, (next(self._times),) * 2)  # so that no other text's bytecode fits
            code = self.run(mutant.tests, seconds=self._timeout)
        finally:
            path.write_text(text, "utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that bytecode fits again
        if code is None:
            return "stopped"
        if code == pytest.ExitCode.TESTS_FAILED:
            return "killed"
        return "survived" if code == pytest.ExitCode.OK else "broken"

    def run(
        self, tests: tuple[str, ...], every: bool = False, seconds: float | None = None
    ) -> int | None:
        """The exit code of pytest; None if it had to be stopped.

        Args:
            tests: node ids of pytest.
            every: whether to go on after a failure.
            seconds: time limit in seconds; None: no limit.
        """
        process = self._context.Process(
            target=_pytest, args=(self._root, self._log, tests, every), daemon=True
        )
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            return None
        return process.exitcode

    def said(self) -> str:
        """The output of the last run."""
        return self._log.read_text("utf-8", errors="replace")


def _pytest(root: Path, log: Path, tests: tuple[str, ...], every: bool) -> None:
    """Run tests of a copy in this process, which then ends with pytest's exit code."""
    with log.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(root)
    # This function came from the checkout; the tests that it runs are those of the copy.
    for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "hushstream")]:
        del sys.modules[name]
    sys.path[:] = [str(root.parent), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    os.environ["PYTHONPATH"] = str(root.parent)  # for processes that the tests start
    sys.dont_write_bytecode = False  # otherwise each mutant compiles the whole tree again
    options = ["-q", "-p", "no:cacheprovider"]
    options += ["--hypothesis-profile=found"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # loaded before, on purpose
    code = pytest.main([*options, *([] if every else ["-x"]), *tests])
    product = getattr(sys.modules.get("hushstream"), "__file__", None)
    if product is not None and Path(product).resolve() != (root / "__init__.py").resolve():
        code = WRONG_COPY
    sys.stdout.flush()
    os._exit(int(code))
