"""The archive of classes: a broker starts with it, without it, and with a foreign one.

Covers: deploy/many_brokers.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hushstream.deploy import broker as module
from hushstream.deploy import class_archive, many_brokers
from hushstream.deploy.broker import Broker, classpath_of_kafka
from hushstream.deploy.jars import fetch
from hushstream.deploy.java import find_java
from hushstream.deploy.many_brokers import make_class_archive
from hushstream.errors import BrokerError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for the test, which already has Kafka."""
    jars = fetch(quiet=True)
    monkeypatch.setattr(module, "fetch", lambda **_: jars)
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.thorough
def test_an_archive_is_made_once_used_and_replaced_by_none_of_another_runtime(cache: Path):
    old = cache / "classes-0000000000000000.jsa"
    old.write_bytes(b"another runtime's")
    os.utime(old, (0, 0))
    made = make_class_archive()
    assert made is not None and made.parent == cache and made.stat().st_size > 10_000_000
    assert not old.exists()
    before = made.stat().st_mtime_ns
    assert make_class_archive() == made and made.stat().st_mtime_ns == before
    java, classpath = find_java(), classpath_of_kafka(quiet=True)
    assert class_archive.options(java, classpath) == [f"-XX:AOTCache={made}"]
    assert not class_archive.options(java, classpath + os.pathsep + "more.jar")
    with Broker(quiet=True) as running:
        assert str(made) in Path(f"/proc/{running.pid}/maps").read_text()


@pytest.mark.thorough
def test_a_broker_starts_although_its_archive_is_spoilt(cache: Path):
    java, classpath = find_java(), classpath_of_kafka(quiet=True)
    class_archive.place(java, classpath).write_bytes(b"spoilt")
    with Broker(quiet=True) as running:
        assert running.status == "running"


def test_what_java_says_is_told_where_it_makes_none(tmp_path: Path, cache: Path):
    with pytest.raises(BrokerError, match="made no archive of classes"):
        class_archive.make(find_java(), ["-XX:NoSuchFlag"], "a.jar", tmp_path / "missing")
    assert not list(cache.glob("classes-*")) and not list(cache.glob(".part-*"))


def test_an_old_java_makes_none(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many_brokers, "java_version", lambda _: class_archive.LEAST - 1)
    assert make_class_archive() is None
    assert not list(cache.glob("classes-*"))
