"""Object stores of this machine: folders, and a server that speaks S3."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import localbucket

BUCKET = "tables"


class Bucket:
    """One bucket of a server; its objects are files.

    Attributes:
        url: address of a prefix in the store.
        folder: folder of the objects.
        environ: environment through which a client finds the server.
    """

    def __init__(self, root: Path, port: int) -> None:
        self.url = f"s3://{BUCKET}/some/prefix"
        self.folder = root / BUCKET / "some" / "prefix"
        self.environ = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def objects(self) -> list[Path]:
        """All objects, by name."""
        return sorted(one for one in self.folder.rglob("*") if one.is_file())


@contextmanager
def bucket(root: Path) -> Iterator[Bucket]:
    """Serve an empty bucket on its own port."""
    (root / BUCKET).mkdir(parents=True)
    logging.getLogger("localbucket").setLevel(logging.ERROR)

    class Handler(localbucket.S3Handler):  # type: ignore[misc]
        data_root = root

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            """Handle DeleteObjects, which the server lacks; leave other requests to the server."""
            if urlsplit(self.path).query != "delete":
                super().do_POST()
                return
            result = ElementTree.Element("DeleteResult")
            for one in ElementTree.fromstring(self._read_body()).iter():
                if one.tag.endswith("Key"):
                    key = one.text or ""
                    self._object_path(BUCKET, key).unlink(missing_ok=True)
                    deleted = ElementTree.SubElement(result, "Deleted")
                    ElementTree.SubElement(deleted, "Key").text = key
            self._send_xml(result)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    serving.start()
    try:
        yield Bucket(root, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
