"""Folders and files for one user alone: made private, and made private again if they were open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hushstream.errors import ConfigError
from hushstream.topics.private_files import could_be_made, private_file, private_folder, unseen


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def opened(folder: Path) -> Path:
    (folder / "a" / "b").mkdir(parents=True)
    for path in (folder, folder / "a", folder / "a" / "b"):
        path.chmod(0o755)
        (path / "table.sst").write_bytes(b"exact")
    return folder


def test_a_new_folder_and_the_parents_that_it_needs_are_for_this_user_alone(tmp_path):
    private_folder(tmp_path / "data" / "worker")
    assert mode(tmp_path / "data") == mode(tmp_path / "data" / "worker") == 0o700


def test_a_folder_from_before_is_tightened_with_all_that_is_in_it(tmp_path):
    folder = opened(tmp_path / "worker")
    outside = tmp_path / "outside"
    outside.write_text("public")
    (folder / "link").symlink_to(outside)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    private_folder(folder)
    found = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    assert {mode(path) for path in found if path.is_dir()} == {0o700}
    assert {mode(path) for path in found if path.is_file()} == {0o600}
    assert mode(outside) == 0o644


def test_the_folder_alone_where_what_is_below_is_anothers(tmp_path):
    folder = opened(tmp_path / "broker")
    private_folder(folder, whole=False)
    assert mode(folder) == 0o700 and mode(folder / "a") == 0o755


def test_a_volume_that_a_group_shares_keeps_the_rights_of_that_group(tmp_path):
    folder = opened(tmp_path / "volume")
    folder.chmod(0o2775)
    (folder / "table.sst").chmod(0o664)
    private_folder(folder)
    assert mode(folder) == 0o2770 and mode(folder / "table.sst") == 0o660
    assert mode(folder / "a" / "b" / "table.sst") == 0o640


def test_another_ones_open_folder_is_refused_with_what_to_do(tmp_path, monkeypatch):
    folder = opened(tmp_path / "worker")

    def refused(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(ConfigError, match=rf"chmod -R go-rwx {folder}`"):
        private_folder(folder)


def test_a_file_system_that_keeps_no_rights_is_refused(tmp_path, monkeypatch):
    folder = opened(tmp_path / "worker")
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)
    with pytest.raises(ConfigError, match="keeps no rights; mount it"):
        private_folder(folder)


def test_a_closed_folder_of_whomever_is_left_as_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "worker"
    private_folder(folder)
    monkeypatch.delattr(Path, "chmod")
    private_folder(folder)


def test_a_file_is_made_or_tightened_and_keeps_what_is_in_it(tmp_path):
    path = tmp_path / "p.parquet"
    private_file(path)
    assert mode(path) == 0o600
    path.write_text("rows")
    path.chmod(0o666)
    private_file(path)
    assert (mode(path), path.read_text()) == (0o600, "rows")


def test_what_is_made_within_the_block_is_unseen_and_what_comes_later_is_not(tmp_path):
    with unseen():
        (tmp_path / "within").touch()
    (tmp_path / "after").touch()
    assert (mode(tmp_path / "within"), mode(tmp_path / "after")) == (0o600, 0o644)


def test_a_folder_that_cannot_be_made_is_refused_before_and_when_it_is_made(tmp_path):
    (tmp_path / "file").write_text("")
    for make in (could_be_made, private_folder):
        with pytest.raises(ConfigError, match=r"cannot be made: .*; name another one"):
            make(tmp_path / "file" / "deep" / "er")
    could_be_made(tmp_path / "new" / "er")
    assert not (tmp_path / "new").exists()
