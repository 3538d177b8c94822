"""The ratchet's file: a crash at any point of a step loses no key and leaves no old one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from hushstream.errors import ConfigError, EngineError
from hushstream.mechanisms.noise import Charge, Ratchet
from hushstream.topics.config.access import ratchet_file
from hushstream.topics.config.access.escrow import Escrow, open_escrow
from hushstream.topics.config.access.ratchet_file import (
    RatchetFile,
    create,
    ratchet_of,
    read,
    replace,
)
from hushstream.topics.config.load import loads

from .test_escrow import auditor
from .test_secret import PIPELINE

FIRST, SECOND, THIRD = Charge(2, "p", 1), Charge(4, "p", 2), Charge(7, "p", 3)
CALLS = ("fsync", "replace", "link", "unlink", "write", "fchmod", "open")


class Crash(BaseException):
    """A power failure: no later code runs."""


def never(charge: Charge) -> bool:
    return False


def secrets_in(folder: Path) -> bytes:
    """All bytes on the disk."""
    return b"\n".join(p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file())


def crashes(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[int]:
    """Repeat an action, each time with a crash one system call later."""
    at, seen = 0, [0]
    real = {name: getattr(os, name) for name in CALLS}

    def counted(name: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            seen[0] += 1
            if seen[0] == at:
                if name == "write":  # half of it reached the disk
                    real["write"](args[0], args[1][: len(args[1]) // 2])
                raise Crash
            return real[name](*args, **named)

        return call

    while True:
        at, seen[0] = at + 1, 0
        with monkeypatch.context() as patched:
            for name in CALLS:
                patched.setattr(ratchet_file.os, name, counted(name))
            try:
                act()
            except Crash:
                pass
            else:
                return
        yield at


def test_a_crash_at_any_point_leaves_all_of_the_old_or_all_of_the_new_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hush.ratchet"
    root = create(path)
    wanted = {one: root.of(one) for one in (FIRST, SECOND, THIRD)}
    before = root.forward(3, [FIRST], never)
    after = before.forward(5, [SECOND], FIRST.__eq__)
    forgotten = [before.key, before.kept[FIRST]]

    def begin() -> None:
        for left in tmp_path.iterdir():
            left.unlink()
        ratchet_file._write(path, before, 0o600)

    begin()
    count = 0
    for _ in crashes(monkeypatch, lambda: RatchetFile(path).forget(5, [SECOND], FIRST.__eq__)):
        count += 1
        held = read(path)  # raises if it is damaged
        assert (held.step, set(held.kept)) in [(3, {FIRST}), (5, {SECOND})]
        assert held.of(SECOND) == wanted[SECOND] and held.of(THIRD) == wanted[THIRD]
        if held.step == 3:
            assert held.of(FIRST) == wanted[FIRST]
        RatchetFile(path).forget(5, [SECOND], FIRST.__eq__)  # the next start
        assert [p.name for p in tmp_path.iterdir()] == ["hush.ratchet"] and read(path) == after
        assert not any(key.hex().encode() in secrets_in(tmp_path) for key in forgotten)
        begin()
    assert count > 12  # all calls of a step were tried


def test_old_content_is_overwritten_under_whatever_name_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open handle or a leftover second name of the old file then reads zeros."""
    path = tmp_path / "hush.ratchet"
    create(path)
    with path.open("rb") as old:
        RatchetFile(path).forget(5, [SECOND], never)
        assert set(old.read()) == {0}
    for name in (".hush.ratchet.new", ".hush.ratchet.old"):
        left = tmp_path / name
        left.write_bytes(b"an earlier key")
        with left.open("rb") as file:
            RatchetFile(path).forget(5, [SECOND], never)
            assert set(file.read()) == {0} and not left.exists()


def test_a_second_name_of_what_is_in_force_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    made = create(path)
    os.link(path, tmp_path / ".hush.ratchet.old")
    RatchetFile(path).forget(0, [], never)
    assert read(path) == made and len(list(tmp_path.iterdir())) == 1


def test_keys_of_epochs_that_are_over_are_gone_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    root = create(path)
    file = RatchetFile(path)
    assert (file.name, file.step, file.kept) == (root.name, 0, [])
    held = file._held
    file.forget(5, [FIRST, SECOND], FIRST.__eq__)
    assert set(held.key) == {0}  # wiped in memory
    for one in (file, RatchetFile(path)):
        assert one.key(SECOND) == root.of(SECOND) and one.key(THIRD) == root.of(THIRD)
        assert (one.step, one.kept, one.known(FIRST)) == (5, [SECOND], None)
        with pytest.raises(EngineError, match="noise key of epoch 1 was forgotten"):
            one.key(FIRST)


def test_workers_that_share_a_file_take_it_on_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    root = create(path)
    one, other = RatchetFile(path), RatchetFile(path)
    one.forget(8, [FIRST, SECOND, THIRD], FIRST.__eq__)
    assert other.known(FIRST) is not None  # until its own turn
    other.forget(5, [FIRST, SECOND], FIRST.__eq__)  # its ledger is older
    for file in (one, other, RatchetFile(path)):
        assert (file.step, file.kept) == (8, [SECOND, THIRD])
        assert file.key(SECOND) == root.of(SECOND) and file.known(FIRST) is None


def test_an_older_copy_of_the_file_takes_no_key_away(tmp_path: Path) -> None:
    """The copy yields the same keys, and a running worker continues from its own state."""
    path = tmp_path / "hush.ratchet"
    root = create(path)
    old = path.read_bytes()
    file = RatchetFile(path)
    file.forget(5, [SECOND], never)
    path.write_bytes(old)
    assert RatchetFile(path).key(SECOND) == file.key(SECOND) == root.of(SECOND)
    file.forget(8, [THIRD], never)
    assert (file.step, file.kept) == (8, [SECOND, THIRD]) and read(path).kept == file._held.kept
    path.unlink()
    file.forget(9, [], THIRD.__eq__)
    assert set(read(path).kept) == {SECOND}


def test_keys_are_sealed_before_they_go_and_at_every_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, public = auditor(tmp_path, "a")
    folder = tmp_path / "worker"
    folder.mkdir()
    path, sealed = folder / "hush.ratchet", tmp_path / "hush.escrow"
    root = create(path)
    escrow = Escrow(sealed, public)
    every = [FIRST, SECOND]
    for _ in crashes(monkeypatch, lambda: RatchetFile(path, escrow).forget(5, every, never)):
        if read(path).step == 5:
            assert set(open_escrow(sealed, secret)[root.name]) == set(every)
    found = open_escrow(sealed, secret)[root.name]
    assert found == {one: root.of(one) for one in every}
    RatchetFile(path, escrow).forget(8, [THIRD], lambda one: True)
    assert open_escrow(sealed, secret)[root.name][THIRD] == root.of(THIRD)


def test_a_disk_that_refuses_stops_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hush.ratchet"
    create(path)
    file = RatchetFile(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ratchet_file.os, "replace", full)
    with pytest.raises(EngineError, match=r"cannot be forgotten \(No space left"):
        file.forget(5, [SECOND], never)
    assert file.step == 0 and file.key(SECOND)


def test_rights_are_kept_and_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    RatchetFile(path).forget(5, [], never)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others have access to the ratchet"):
        read(path)


def test_what_is_no_ratchet_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    with pytest.raises(
        ConfigError, match=r"found; `hush ratchet new` creates the first one; further"
    ):
        read(path)
    made = create(path)
    with pytest.raises(ConfigError, match="never overwritten"):
        create(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ConfigError, match="damaged"):
            read(path)
    path.write_bytes(whole)
    other = Ratchet.new(bytes(range(32)))
    file = RatchetFile(path)
    replace(path, changed(other))
    with pytest.raises(ConfigError, match="another ratchet"):
        file.forget(5, [], never)
    assert other.name != made.name


def test_the_configuration_names_the_ratchet(tmp_path: Path) -> None:
    forgets = PIPELINE + "forget_keys = true\n"
    with pytest.raises(ConfigError, match=r"needs secret\.ratchet"):
        loads(forgets, folder=tmp_path, environ={})
    made = create(tmp_path / "hush.ratchet")
    secret = f'[secret]\nratchet = "{made.name}"\n'
    with pytest.raises(ConfigError, match="leave out noise_key_file"):
        loads(secret + forgets + 'noise_key_file = "a"\n', folder=tmp_path, environ={})
    assert ratchet_of(loads(secret + PIPELINE, folder=tmp_path, environ={})) is None
    found = ratchet_of(loads(secret + forgets, folder=tmp_path, environ={}))
    assert found is not None and found.name == made.name
    with pytest.raises(ConfigError, match=r"and secret\.ratchet names " + "ab" * 16):
        ratchet_of(loads(f'[secret]\nratchet = "{"ab" * 16}"\n' + forgets, folder=tmp_path,
                         environ={}))  # fmt: skip
    _, public = auditor(tmp_path, "a")
    more = secret + f'escrow_key_file = "{public.name}"\n' + forgets
    sealing = ratchet_of(loads(more, folder=tmp_path, environ={}))
    assert sealing is not None
    sealing.forget(5, [SECOND], never)
    assert (tmp_path / "hush.escrow").exists()
