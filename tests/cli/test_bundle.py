"""A bundle for Kafka Connect has jars, properties and commands, but no secret of the cluster."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hushstream.cli import bundle
from hushstream.deploy.jars import JDBC, read_lock

from ..recorded.pipelines import text_of
from .bench import typed

SECURED = """[kafka]
bootstrap = "broker:9093"
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_username = "shop"
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of one jar, in a folder in place of the cache."""
    home = tmp_path / "cache"
    home.mkdir()
    (home / "sink-1.jar").write_bytes(b"jar")
    (home / "old-1.jar").write_bytes(b"old")
    digest = hashlib.sha256(b"jar").hexdigest()
    path = tmp_path / "jdbc.lock"
    path.write_text(f"{digest} 3 example:sink:1\n")
    monkeypatch.setattr(bundle, "JDBC", path)
    monkeypatch.setattr(bundle, "fetch", lambda lock: home if lock == path else Path("/none"))
    return path


def test_a_bundle_holds_everything_and_no_secret(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH_KAFKA__SASL_PASSWORD", "much-hidden")
    config, folder = tmp_path / "hush.toml", tmp_path / "sink"
    config.write_text(SECURED + text_of("histogram-sums"))
    words = ["connect", "histogram-sums", "-c", str(config)]
    code, out, err = typed(*words)
    assert code == 0 and "taken as text: zone" in err and "--integer zone" in err
    code, _, err = typed(*words, "--bundle", str(folder))
    assert code == 0, err
    assert [one.name for one in (folder / "plugins" / "jdbc").iterdir()] == ["sink-1.jar"]
    assert (folder / "sink.properties").read_text() == out
    worker = (folder / "worker.properties").read_text()
    assert "bootstrap.servers=broker:9093" in worker and "TLS or SASL" in worker
    assert f"plugin.path={folder}/plugins" in worker
    page = (folder / "README.md").read_text()
    assert f"{folder}/worker.properties {folder}/sink.properties" in page
    texts = [one.read_text() for one in folder.glob("*.*")]
    assert not any("much-hidden" in text for text in texts)
    code, _, err = typed(*words, "--bundle", str(folder))  # its passwords are not overwritten
    assert code == 2 and "there is a bundle already" in err


def test_a_folder_that_cannot_be_written_is_refused(lock: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = tmp_path / "hush.toml"
    config.write_text('[kafka]\nbootstrap = "b:1"\n' + text_of("histogram-sums"))
    words = [
        "connect",
        "histogram-sums",
        "-c",
        str(config),
        "--bundle",
        str(tmp_path / "file" / "sink"),
    ]
    code, _, err = typed(*words)
    assert code == 2 and "Not a directory" in err


def test_the_shipped_lock_has_the_sink_and_the_driver() -> None:
    names = [jar.filename for jar in read_lock(JDBC)]
    assert any(name.startswith("debezium-connector-jdbc-") for name in names)
    assert any(name.startswith("postgresql-") for name in names)
