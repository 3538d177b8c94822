"""The lock of Kafka's jars: what is accepted, and what never is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hushstream.deploy import jars
from hushstream.errors import BrokerError

COORDINATE = "org.example:kafka_2.13:1.0"


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local Maven repository with one artifact; no other source can be reached."""
    path = tmp_path / "m2" / "org" / "example" / "kafka_2.13" / "1.0" / "kafka_2.13-1.0.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"the genuine one")
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    return path


def _lock(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "lock"
    path.write_text(f"# test\n{hashlib.sha256(content).hexdigest()} {len(content)} {COORDINATE}\n")
    return path


def test_the_shipped_lock_names_the_whole_broker() -> None:
    lock = jars.read_lock()
    assert jars.kafka_version(lock) == "4.3.1"
    assert len(lock) == len({jar.filename for jar in lock}) == 46
    assert "://" not in jars.LOCK.read_text()


def test_an_artifact_is_installed_and_repaired(local: Path, tmp_path: Path) -> None:
    lock, folder = _lock(tmp_path, b"the genuine one"), tmp_path / "jars"
    jars.fetch(folder, lock, quiet=True)
    installed = folder / "kafka_2.13-1.0.jar"
    assert installed.read_bytes() == b"the genuine one"
    installed.write_bytes(b"the tampered 1!")
    jars.fetch(folder, lock, quiet=True)
    assert installed.read_bytes() == b"the genuine one"


def test_another_content_is_never_used(local: Path, tmp_path: Path) -> None:
    local.write_bytes(b"the tampered 1!")
    with pytest.raises(BrokerError, match="not the locked one"):
        jars.fetch(tmp_path / "jars", _lock(tmp_path, b"the genuine one"), quiet=True)
    assert not list((tmp_path / "jars").iterdir())
    assert not list(tmp_path.glob(".part-*"))


def test_a_malformed_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("# fine\nabc 12 org.example:x:1\n")
    with pytest.raises(BrokerError, match="lock:2: expected"):
        jars.read_lock(tmp_path / "lock")
