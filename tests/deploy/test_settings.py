"""Settings of the local node: only loopback, and ports outside the range of outgoing ones."""

from __future__ import annotations

import socket
from pathlib import Path

from hushstream.deploy.settings import (
    PORTS,
    cluster_id,
    free_port,
    port_is_free,
    properties,
    server_settings,
)


def test_it_listens_on_the_loopback_alone_and_overrides_win() -> None:
    settings = server_settings(1234, 5678, Path("/data"), {"num.io.threads": "9"})
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1234,CONTROLLER://127.0.0.1:5678"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["num.io.threads"] == "9"
    assert "log.dirs=/data\n" in properties(settings)


def test_properties_escape_backslashes() -> None:
    assert properties({"log.dirs": "C:\\data"}) == "log.dirs=C:\\\\data\n"


def test_a_taken_port_is_not_free() -> None:
    port = free_port()
    assert port in PORTS
    with socket.create_server(("127.0.0.1", port)):
        assert not port_is_free(port)
    assert port_is_free(port)


def test_cluster_ids_never_look_like_options() -> None:
    ids = {cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(i) == 22 and i[0].isalpha() for i in ids)
