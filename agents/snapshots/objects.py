"""An object store, by its address; its errors are reported by type, never by text."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from ...errors import ConfigError, SnapshotError

REQUEST_SECONDS = 60.0  # for one object, including retries
CONNECT_SECONDS = 5


class Objects:
    """Objects by name, below one prefix.

    Args:
        url: address: ``s3://bucket/prefix``, likewise ``gs`` and ``az``, or ``file:///folder``.
            Clouds take credentials from the environment, or from the machine.

    Raises:
        ConfigError: it names no store.
    """

    def __init__(self, url: str) -> None:
        from obstore.store import from_url  # here: it is 15 MB, and few deployments use it

        local = url.startswith("file:")
        options: dict[str, Any] = {"mkdir": True}
        if not local:
            client = {
                "timeout": f"{REQUEST_SECONDS:g}s",
                "connect_timeout": f"{CONNECT_SECONDS}s",
                # With options, the library no longer reads this variable itself.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"),
            }
            options = {"client_options": client, "retry_config": {"max_retries": 3}}
        try:
            self._store = from_url(url, **options)
        except Exception as error:
            raise ConfigError(
                f"engine.snapshots = {url!r} names no object store ({type(error).__name__})"
            ) from None

    async def put(self, name: str, data: bytes) -> None:
        """Write an object, whole or not at all.

        Raises:
            SnapshotError: the store does not take it.
        """
        import obstore

        with _told("written"):
            async with asyncio.timeout(REQUEST_SECONDS):
                await obstore.put_async(self._store, name, data, use_multipart=False)

    async def get(self, name: str, most: int, seconds: float = REQUEST_SECONDS) -> bytes | None:
        """Read an object; None: there is none.

        Args:
            most: most bytes; a larger object is refused unread.
            seconds: time after which it is given up.

        Raises:
            SnapshotError: the store does not give it.
        """
        import obstore

        with _told("read"):
            async with asyncio.timeout(seconds):
                try:
                    found = await obstore.get_async(self._store, name)
                except FileNotFoundError:
                    return None
                if found.meta["size"] > most:
                    raise SnapshotError("an object is longer than what was written")
                return bytes(await found.bytes_async())

    async def names(self, folder: str) -> list[str]:
        """List the objects in a folder, and in those within.

        Raises:
            SnapshotError: the store does not answer.
        """
        import obstore

        found: list[str] = []
        with _told("listed"):
            async with asyncio.timeout(REQUEST_SECONDS):
                async for some in obstore.list(self._store, folder):
                    found += [str(one["path"]) for one in some]
        return found

    async def delete(self, name: str) -> None:
        """Delete an object, which may be gone already.

        Raises:
            SnapshotError: the store refuses.
        """
        import obstore

        with _told("deleted"), contextlib.suppress(FileNotFoundError):
            async with asyncio.timeout(REQUEST_SECONDS):
                await obstore.delete_async(self._store, name)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:  # each cloud and refusal has its own type
        raise SnapshotError(f"an object cannot be {what} ({type(error).__name__})") from None
