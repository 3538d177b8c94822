"""Object stores: a folder and a server that speaks S3; errors name only the kind of failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hushstream.agents.snapshots.objects import Objects
from hushstream.errors import ConfigError, SnapshotError

from .stores import bucket


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/store"
        return
    with bucket(tmp_path) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made.url


def test_objects_are_written_listed_read_and_deleted(url: str) -> None:
    async def run() -> None:
        store = Objects(url)
        assert await store.get("a/head", 10) is None
        assert await store.names("a") == []
        await store.put("a/head", b"1")
        await store.put("a/head", b"22")
        await store.put("a/x/000000", b"part")
        await store.put("b/head", b"other")
        assert await store.get("a/head", 10) == b"22"
        assert sorted(await store.names("a")) == ["a/head", "a/x/000000"]
        await store.delete("a/x/000000")
        await store.delete("a/x/000000")  # it is gone already
        assert await store.names("a") == ["a/head"]

    asyncio.run(run())


def test_an_object_that_is_too_long_is_not_read(url: str) -> None:
    async def run() -> None:
        store = Objects(url)
        await store.put("a", b"123")
        assert await store.get("a", 3) == b"123"
        with pytest.raises(SnapshotError, match="longer"):
            await store.get("a", 2)

    asyncio.run(run())


def test_a_store_that_is_away_is_an_error_without_its_text(monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    async def run() -> None:
        store = Objects("s3://nowhere/secret-prefix")
        with pytest.raises(SnapshotError, match=r"cannot be read \(\w+\)$") as told:
            await store.get("head", 10)
        assert "secret" not in str(told.value)

    asyncio.run(run())


def test_an_address_of_no_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no object store"):
        Objects("nothing://there")
