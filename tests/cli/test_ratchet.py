"""``hush ratchet``: the file that it writes, and output without any key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hushstream.cli.group import hush
from hushstream.errors import ConfigError
from hushstream.mechanisms.noise import Charge
from hushstream.topics.config.access.ratchet_file import RatchetFile, read

from ..agents.worker.test_forgetting import TOML


def run(*words: str) -> str:
    result = CliRunner().invoke(hush, ["ratchet", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_a_ratchet_is_made_once_and_shown_without_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "hush.ratchet"
    said = run("new", str(path))
    made = read(path)
    assert f'ratchet = "{made.name}"' in said and made.key.hex() not in said
    with pytest.raises(ConfigError, match="never overwritten"):
        run("new", str(path))
    assert read(path) == made
    (tmp_path / "hush.toml").write_text(f'[secret]\nratchet = "{made.name}"\n')
    RatchetFile(path).forget(5, [Charge(2, "p", 7), Charge(3, "p", 8)], lambda one: one.epoch == 7)
    config = ["-c", str(tmp_path / "hush.toml")]
    said = run("show", *config)
    assert f"ratchet {made.name}" in said and "from ledger record 5 on" in said
    assert "pipeline p: also of epochs 8\n" in said
    held = read(path)
    told = run("show", "--json", *config)
    assert json.loads(told) == {"ratchet": made.name, "step": 5, "kept": {"p": [8]}}
    offline = ["check", "--offline", "--json", *config]
    (tmp_path / "hush.key").write_text("0123456789abcdef" * 4)
    (tmp_path / "hush.key").chmod(0o600)
    pipelines = f'[secret]\nratchet = "{made.name}"\n' + TOML
    (tmp_path / "hush.toml").write_text(pipelines)
    checked = CliRunner().invoke(hush, offline)
    assert checked.exit_code == 0 and f'"ratchet {made.name}"' in checked.output
    path.write_bytes(path.read_bytes()[:-9])
    checked = CliRunner().invoke(hush, offline)
    assert checked.exit_code == 2 and "the ratchet is damaged" in checked.output
    for secret in (held.key, *held.kept.values()):
        assert secret.hex() not in said + told


def test_a_ratchet_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file or directory.*name a file in a folder"):
        run("new", str(tmp_path / "absent" / "hush.ratchet"))
