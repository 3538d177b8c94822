"""The noise key: its possible sources, who may read it, and errors that never show it."""

from __future__ import annotations

import base64
import json
import stat
import sys
import time
from pathlib import Path

import pytest
from hushstream.cli.group import exit_code
from hushstream.deploy.process import command_of
from hushstream.errors import ConfigError, HushError, KeyOutageError
from hushstream.topics.config.access.secret import (
    decode_key,
    noise_key,
    own_keys,
    read_key,
    signing_key,
    write_new_key,
)
from hushstream.topics.config.canonical import config_hash
from hushstream.topics.config.load import Config, loads
from hushstream.topics.signatures import SigningKey

KEY = bytes(range(100, 132))


PIPELINE = """
[deployment]
name = "d"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { format = "record" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
window = { length = "1d" }
triggers = { every = "1h" }
budget = { epsilon = 1.0, delta = 1e-6 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return loads("", folder=tmp_path, environ={})


def _write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_pipeline_may_have_a_key_of_its_own_in_a_file_beside_the_configuration(
    tmp_path: Path,
) -> None:
    text = PIPELINE + 'noise_key_file = "second.key"\n'
    with_one = loads(text, folder=tmp_path, environ={})
    assert own_keys(loads(PIPELINE, folder=tmp_path, environ={})) == {}
    with pytest.raises(ConfigError, match=r"second\.key: no noise key found"):
        own_keys(with_one)
    _write(tmp_path / "second.key", KEY.hex().encode(), 0o644)
    with pytest.raises(ConfigError, match="others have access"):
        own_keys(with_one)
    (tmp_path / "second.key").chmod(0o600)
    assert own_keys(with_one) == {"p": KEY}
    (plain,), (own,) = loads(PIPELINE, environ={}).pipeline, with_one.pipeline
    assert config_hash(with_one, own) == config_hash(loads(PIPELINE, environ={}), plain)


def test_environment_goes_before_named_file_before_configured_file(
    config: Config, tmp_path: Path
) -> None:
    other = bytes(reversed(KEY))
    _write(tmp_path / "hush.key", KEY.hex().encode())
    named = _write(tmp_path / "named.key", other.hex().encode())
    assert noise_key(config, {}) == KEY
    assert noise_key(config, {"HUSH_NOISE_KEY_FILE": str(named)}) == other
    both = {"HUSH_NOISE_KEY": KEY.hex(), "HUSH_NOISE_KEY_FILE": str(named)}
    assert noise_key(config, both) == KEY


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex().encode() + b"\n",
        base64.b64encode(KEY),
        base64.urlsafe_b64encode(KEY).rstrip(b"="),
        KEY,
    ],
)
def test_keys_as_they_may_be_written(text: bytes) -> None:
    assert decode_key(text, "x") == KEY


@pytest.mark.parametrize("text", [b"", b"canary", KEY[:31], KEY.hex().encode()[:-2], b"\0" * 32])
def test_what_is_no_key_is_refused_without_showing_it(text: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_key(text, "the key")
    assert "canary" not in str(caught.value)
    assert str(caught.value).startswith("the key: ")


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666])
def test_a_file_that_others_can_use_is_refused(mode: int, tmp_path: Path) -> None:
    path = _write(tmp_path / "k", KEY, mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_a_file_of_the_owner_or_readable_by_a_group_will_do(mode: int, tmp_path: Path) -> None:
    assert read_key(_write(tmp_path / "k", KEY, mode)) == KEY


def test_a_missing_key_says_what_to_do(config: Config) -> None:
    with pytest.raises(ConfigError, match="hush init"):
        noise_key(config, {})


@pytest.mark.parametrize("text", [KEY.hex(), KEY.hex().upper(), base64.b64encode(KEY).decode()])
def test_a_key_in_place_of_the_name_of_its_file_is_not_shown(config: Config, text: str) -> None:
    """A message about a missing file would have told it to everyone who reads the log."""
    for environ in ({"HUSH_NOISE_KEY_FILE": text}, {"HUSH_SIGNING_KEY_FILE": text}):
        read = noise_key if "HUSH_NOISE_KEY_FILE" in environ else signing_key
        with pytest.raises(ConfigError, match="holds a key, which is not shown") as raised:
            read(config, environ)
        assert text not in str(raised.value) and raised.value.__cause__ is None
    with pytest.raises(ConfigError, match="holds a key, which is not shown"):
        read_key(Path("/run/secrets") / text)


def test_new_keys_are_private_different_and_never_overwritten(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    write_new_key(first)
    write_new_key(second)
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert read_key(first) != read_key(second)
    with pytest.raises(ConfigError, match="never overwritten"):
        write_new_key(first)


def _prints(program: str, folder: Path, timeout: str = "30s") -> Config:
    """A configuration whose key is the output of a Python program."""
    command = json.dumps([sys.executable, "-c", program])
    text = f'[secret]\nkey = {{ command = {command}, timeout = "{timeout}" }}\n'
    return loads(text, folder=folder, environ={})


def test_a_command_goes_before_the_configured_file(tmp_path: Path) -> None:
    _write(tmp_path / "hush.key", bytes(reversed(KEY)))
    config = _prints(f"print('{KEY.hex()}')", tmp_path)
    assert noise_key(config, {}) == KEY
    assert noise_key(config, {"HUSH_NOISE_KEY": bytes(reversed(KEY)).hex()}) != KEY


@pytest.mark.parametrize(
    ("program", "kind", "told"),
    [
        ("print('canary'); raise SystemExit(7)", KeyOutageError, "ended with 7; run it by hand"),
        ("import sys; sys.exit('canary')", KeyOutageError, "ended with 1"),
        ("print('canary'); raise SystemExit(126)", ConfigError, "ended with 126"),
        ("print('canary'); raise SystemExit(127)", ConfigError, "ended with 127"),
        ("print('canary')", ConfigError, "must hold 32 bytes"),
        ("print(' ')", ConfigError, "printed nothing"),
        (f"print('{bytes(32).hex()}')", ConfigError, "not a random key"),
    ],
)
def test_a_command_that_fails_is_named_and_its_output_is_not(
    program: str,
    kind: type[HushError],
    told: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A vault that is away may come back (exit code 4); what is no key stays none (2)."""
    with pytest.raises(kind, match=told) as caught:
        noise_key(_prints(program, tmp_path), {})
    assert exit_code(caught.value) == (2 if kind is ConfigError else 4)
    shown = str(caught.value) + "".join(capfd.readouterr())
    assert "secret.key.command" in shown and "canary" not in shown


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    child = f"import os, time; open({str(left)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    for seconds in (1, 4, 16, 30):  # a slow machine may not have started it by then
        with pytest.raises(KeyOutageError, match=f"no key within {seconds}s"):
            noise_key(_prints(program, tmp_path, f"{seconds}s"), {})
        if left.exists() and left.read_text():
            break
    pid, until = int(left.read_text()), time.monotonic() + 150
    while str(left) in command_of(pid):
        assert time.monotonic() < until, "the child was left behind"
        time.sleep(0.05)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    config = loads('[secret]\nkey = { command = ["no-such-vault"] }', folder=tmp_path, environ={})
    with pytest.raises(ConfigError, match=r"no-such-vault.*cannot be run: No such file"):
        noise_key(config, {})


@pytest.mark.parametrize("command", ["[]", '[""]', '"vault read"'])
def test_a_command_is_a_list_that_names_a_program(command: str) -> None:
    with pytest.raises(ConfigError, match=r"secret\.key\.command"):
        loads(f"[secret]\nkey = {{ command = {command} }}", environ={})


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    text = f'[secret]\nkey = {{ command = ["echo", "$HOME", "{KEY.hex()}"] }}'
    with pytest.raises(ConfigError, match="must hold"):
        noise_key(loads(text, folder=tmp_path, environ={}), {})


def test_the_signing_key_comes_as_the_noise_key_does_and_none_is_made_up(tmp_path: Path) -> None:
    assert signing_key(loads("", folder=tmp_path, environ={}), {}) is None
    text = '[secret]\nsigning_key_file = "sign.key"\n'
    config = loads(text, folder=tmp_path, environ={})
    with pytest.raises(ConfigError, match="no signing key found"):
        signing_key(config, {})
    file = _write(tmp_path / "sign.key", KEY.hex().encode())
    made = signing_key(config, {})
    assert made is not None and made.public == SigningKey(KEY).public
    other = bytes(reversed(KEY))
    named = _write(tmp_path / "named.key", other.hex().encode())
    for environ, wanted in [
        ({"HUSH_SIGNING_KEY_FILE": str(named)}, other),
        ({"HUSH_SIGNING_KEY_FILE": str(named), "HUSH_SIGNING_KEY": KEY.hex()}, KEY),
        ({"HUSH_NOISE_KEY": other.hex()}, KEY),
    ]:
        found = signing_key(config, environ)
        assert found is not None and found.public == SigningKey(wanted).public
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="others have access to the signing key; run `chmod 600"):
        signing_key(config, {})


def test_a_command_may_print_the_signing_key(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, "-c", f"print('{KEY.hex()}')"])
    text = f"[secret]\nsigning_key = {{ command = {command} }}\n"
    made = signing_key(loads(text, folder=tmp_path, environ={}), {})
    assert made is not None and made.public == SigningKey(KEY).public
    silent = json.dumps([sys.executable, "-c", ""])
    config = loads(f"[secret]\nsigning_key = {{ command = {silent} }}\n", environ={})
    with pytest.raises(ConfigError, match=r"^secret\.signing_key\.command .* printed nothing"):
        signing_key(config, {})
