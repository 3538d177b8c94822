"""The client: which responses of a registry are answers, and which are not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError
from hushstream.agents.registry.asking import MOST_ID, Asking
from hushstream.agents.registry.client import MOST_REFERENCES, TOO_MUCH, RegistryClient
from hushstream.agents.registry.refusals import IdRefused
from hushstream.errors import ConfigError
from hushstream.formats.schemas.schema import MAX_TEXT, Schema, Verdict
from hushstream.topics.config.access.clients import registry_options
from hushstream.topics.config.model import RegistrySettings

Pages = dict[str, tuple[int, str]]


@pytest.fixture
def served() -> Iterator[tuple[str, Pages]]:
    """Serve a registry of prepared pages."""
    pages: Pages = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = pages.get(self.path.split("?")[0], (404, "<html>lost</html>"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()
    thread.join(5)


def page(**body: Any) -> tuple[int, str]:
    return 200, json.dumps(body)


def test_a_schema_comes_with_all_that_it_refers_to(served: tuple[str, Pages]) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = page(schemaType="PROTOBUF", schema="m", references=[
        {"name": "a.proto", "subject": "a", "version": 1},
        {"name": "b.proto", "subject": "b", "version": 2}])  # fmt: skip
    pages["/subjects/a/versions/1"] = page(subject="a", id=2, version=1, schema="A", references=[
        {"name": "b.proto", "subject": "b", "version": 2}])  # fmt: skip
    pages["/subjects/b/versions/2"] = page(subject="b", id=3, version=2, schema="B")
    client = RegistryClient(RegistrySettings(url=url))
    assert client.fetch(1) == Schema("PROTOBUF", "m", (("b.proto", "B"), ("a.proto", "A")))


def test_a_schema_without_a_type_is_avro_and_a_missing_one_is_unknown(
    served: tuple[str, Pages],
) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = page(schema="{}")
    pages["/schemas/ids/2"] = (404, json.dumps({"error_code": 40403, "message": "no"}))
    client = RegistryClient(RegistrySettings(url=url))
    assert client.fetch(1) == Schema("AVRO", "{}")
    assert client.fetch(2) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        (404, "<html>no such page</html>"), (404, json.dumps({"error_code": 404})),
        (500, "{}"), (401, ""), (200, "<html>please log in</html>"), (200, "[]"), (200, "{}"),
        (200, '{"schema": 7}'), (200, '{"schema": ""}'), (200, '{"schema": "{}", "schemaType": 7}'),
    ],
)  # fmt: skip
def test_anything_else_is_no_answer(served: tuple[str, Pages], answer: tuple[int, str]) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = answer
    with pytest.raises(Exception):  # noqa: B017 - any error leads to a retry
        RegistryClient(RegistrySettings(url=url)).fetch(1)


def test_what_is_too_large_or_refers_to_too_much_fits_no_format(
    served: tuple[str, Pages],
) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = page(schema="x" * (MAX_TEXT + 1))
    chain = [{"name": f"r{n}", "subject": f"r{n}", "version": 1} for n in range(200)]
    pages["/schemas/ids/2"] = page(schema="x", references=chain)
    for n in range(MOST_REFERENCES + 1):
        pages[f"/subjects/r{n}/versions/1"] = page(subject="r", id=9, version=1, schema="y")
    client = RegistryClient(RegistrySettings(url=url))
    assert client.fetch(1) == client.fetch(2) == TOO_MUCH


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_a_schema_that_refers_to_a_deleted_one_is_unknown(
    served: tuple[str, Pages], code: int
) -> None:
    url, pages = served
    one = {"name": "r", "subject": "r", "version": 1}
    pages["/schemas/ids/1"] = page(schema="x", references=[one])
    pages["/subjects/r/versions/1"] = (404, json.dumps({"error_code": code, "message": ""}))
    assert RegistryClient(RegistrySettings(url=url)).fetch(1) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        (404, "<html>no such page</html>"), (404, json.dumps({"error_code": 404})),
        (400, "{}"), (403, ""), (409, "{}"), (422, json.dumps({"error_code": 42201})),
        (200, "{}"), (200, '{"schema": ""}'), (200, '{"schema": 7}'),
        (200, '{"schema": "{}", "schemaType": 7}'),
    ],
)  # fmt: skip
def test_what_may_be_said_of_one_id_is_told_apart(
    served: tuple[str, Pages], answer: tuple[int, str]
) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = answer
    with pytest.raises(IdRefused) as raised:
        RegistryClient(RegistrySettings(url=url)).fetch(1)
    assert raised.value.http_status_code == answer[0]


@pytest.mark.parametrize("status", [401, 407, 408, 429, 500, 503])
def test_what_is_said_of_the_client_or_the_moment_is_no_refusal(
    served: tuple[str, Pages], status: int
) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = (status, "{}")
    with pytest.raises(SchemaRegistryError):
        RegistryClient(RegistrySettings(url=url)).fetch(1)


def test_a_probe_asks_anew(served: tuple[str, Pages]) -> None:
    url, pages = served
    pages["/schemas/ids/1"] = page(schema="{}")
    client = RegistryClient(RegistrySettings(url=url))
    client.fetch(1)
    client.probe(1)
    pages["/schemas/ids/1"] = (404, json.dumps({"error_code": 40403, "message": "no"}))
    client.probe(1)  # an error in the registry's own words is an answer
    assert client.fetch(1) == Schema("AVRO", "{}")
    for answer in ((503, "{}"), (404, "<html>lost</html>"), (401, "{}"), (200, "{}")):
        pages["/schemas/ids/1"] = answer
        with pytest.raises(Exception):  # noqa: B017 - any error, but no answer
            client.probe(1)


def test_a_text_that_is_none_fits_no_format(served: tuple[str, Pages]) -> None:
    """Half of a surrogate pair raised `UnicodeEncodeError`, which was taken for an outage."""
    url, pages = served
    pages["/schemas/ids/1"] = (200, '{"schema": "\\ud800"}')
    assert RegistryClient(RegistrySettings(url=url)).fetch(1) == TOO_MUCH


def test_a_worker_goes_on_past_every_answer_about_one_id(served: tuple[str, Pages]) -> None:
    """Over HTTP: for any answer about one id, the worker goes on and finds the other ids."""
    url, pages = served
    pages["/schemas/ids/1"] = page(schema="{}")
    pages[f"/schemas/ids/{MOST_ID}"] = (404, json.dumps({"error_code": 40403, "message": "no"}))
    said = {2: (404, '{"error_code": 404}'), 3: (400, ""), 4: (403, "{}"), 5: (422, "{}"),
            6: (200, '{"schema": ""}')}  # fmt: skip
    pages.update({f"/schemas/ids/{number}": answer for number, answer in said.items()})

    async def run() -> dict[int, Schema | Verdict]:
        made = Asking(RegistryClient(RegistrySettings(url=url)), 20_000_000, lambda: None)
        task = asyncio.create_task(made.run())
        while not task.done():
            found = {number: made.ask("events", 0, number) for number in (1, *said)}
            if Verdict.PENDING not in found.values():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return found
            await asyncio.sleep(0.02)
        task.result()
        raise AssertionError("it ended")

    assert asyncio.run(run()) == {1: Schema("AVRO", "{}")} | dict.fromkeys(said, Verdict.UNKNOWN)


def test_files_that_cannot_be_read_are_named_without_their_content(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificates or key"):
        RegistryClient(RegistrySettings(url="https://x", ssl_cafile=str(tmp_path / "none")))
    settings = RegistrySettings(url="https://x", username="u", password_file=str(tmp_path / "no"))
    with pytest.raises(ConfigError, match="password_file"):
        registry_options(settings)
    (tmp_path / "no").write_text("pass word\n")
    assert registry_options(settings)["basic.auth.user.info"] == "u:pass word"
