"""A rehearsed release: both distributions are built, and the checkout stays unchanged.

Covers: client/_version.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from .tree import ROOT

CHANGED = ("client/_version.py", "CHANGELOG.md")


def _rehearse(version: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "release.py"), version]
    command += ["--dry-run", "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def _tracked() -> dict[str, str]:
    return {name: (ROOT / name).read_text("utf-8") for name in CHANGED}


class Rehearsal(NamedTuple):
    """A successful rehearsal: its folder, its output, and the checkout before it."""

    out: Path
    said: str
    before: dict[str, str]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    before, out = _tracked(), tmp_path_factory.mktemp("release")
    done = _rehearse("97.0.1", out)
    assert done.returncode == 0, done.stderr
    return Rehearsal(out, done.stdout, before)


@pytest.mark.thorough
def test_a_dry_run_builds_everything_and_changes_nothing(rehearsed: Rehearsal) -> None:
    assert _tracked() == rehearsed.before
    out = rehearsed.out
    names = {path.name for path in out.iterdir()}
    assert names == {
        "hushstream-97.0.1-py3-none-any.whl",
        "hushstream-97.0.1.tar.gz",
        "hushstream_client-97.0.1-py3-none-any.whl",
        "hushstream_client-97.0.1.tar.gz",
        "hushstream-97.0.1.cdx.json",
        "SHA256SUMS",
    }
    bill = json.loads((out / "hushstream-97.0.1.cdx.json").read_text("utf-8"))
    assert bill["metadata"]["component"]["version"] == "97.0.1"
    pins = re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements.lock").read_text("utf-8"), re.M)
    assert pins and {one["name"] for one in bill["components"]} == set(pins)
    assert "-> 97.0.1" in rehearsed.said
    sums = (out / "SHA256SUMS").read_text("utf-8")
    assert all(name in sums for name in names - {"SHA256SUMS"})
    assert sums in rehearsed.said


def test_wheel_and_source_archive_hold_the_same_modules(rehearsed: Rehearsal) -> None:
    for name in ("hushstream", "hushstream_client"):
        with zipfile.ZipFile(rehearsed.out / f"{name}-97.0.1-py3-none-any.whl") as wheel:
            built = {entry.removeprefix(f"{name}/") for entry in wheel.namelist()}
            version = wheel.read(f"{name}-97.0.1.dist-info/METADATA").decode()
        with tarfile.open(rehearsed.out / f"{name}-97.0.1.tar.gz") as archive:
            source = {entry.removeprefix(f"{name}-97.0.1/") for entry in archive.getnames()}
        modules = {entry for entry in built if entry.endswith((".py", ".toml", ".lock"))}
        assert len(modules) > 5
        assert modules | {"LICENSE"} <= source
        assert "\nVersion: 97.0.1\n" in version


@pytest.mark.parametrize(
    ("version", "said"),
    [("1.2", "three numbers"), ("v1.2.3", "three numbers"), ("0.0.9", "must not be below")],
)
def test_a_version_that_cannot_be_is_refused(version: str, said: str, tmp_path: Path) -> None:
    done = _rehearse(version, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_archives_of_another_release_are_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "hushstream-0.0.1.tar.gz").touch()
    done = _rehearse("97.0.1", tmp_path)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
