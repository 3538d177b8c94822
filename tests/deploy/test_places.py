"""Folders of one user: the platform's own, or what the environment says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hushstream.deploy.places import cache_dir, data_dir


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUSH_CACHE", "downloads")
    monkeypatch.setenv("HUSH_DATA", "~/servers")
    assert cache_dir() == tmp_path / "downloads"
    assert data_dir() == (Path.home() / "servers").resolve()


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have folders of their own")
def test_otherwise_the_platform_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUSH_CACHE", "HUSH_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "hushstream"
    assert data_dir() == tmp_path / ".local" / "share" / "hushstream"
