"""A folder with a configuration and a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.topics.config.access.secret import write_new_key

from .bench import CONFIG


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hush.toml").write_text(CONFIG)
    write_new_key(tmp_path / "hush.key")
    monkeypatch.chdir(tmp_path)
    return tmp_path
