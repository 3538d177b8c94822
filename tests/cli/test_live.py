"""`hush live` as typed: it needs no key, no table and no internal topic.

Covers: cli/seeing.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from hushstream.deploy.broker import Broker

from ..reading.live.showcase import showcase, write
from .bench import interrupted, typed

# If one of these were needed, the import would fail.
BARRED = "import sys; sys.modules |= dict.fromkeys(('rocksdict', 'faust', 'aiokafka')); "
MAIN = "from hushstream.cli.seeing import live; live.main(standalone_mode=False)"


def test_it_shows_public_topics_to_whoever_may_read_them(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    made = showcase(unique("live"), ("pak",), scale=1)
    write(broker.bootstrap, made)
    command = [sys.executable, "-c", BARRED + MAIN, "--bootstrap", broker.bootstrap]
    command += ["--deployment", made.deployment, "--port", "0"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        found = re.match(
            rf"(http://127\.0\.0\.1:\d+/) shows the releases of {made.deployment};", line
        )
        assert found is not None, line
        until = time.monotonic() + 150
        while True:
            with urlopen(found[1] + "summary.json", timeout=120) as answer:
                told = json.load(answer)
            if told["pipelines"] and told["pipelines"][0]["windows"]:
                break
            assert time.monotonic() < until, told
            time.sleep(0.2)
        assert told["link"]["good"] and told["pipelines"][0]["name"] == made.pipelines["pak"]
        assert list(tmp_path.iterdir()) == []
    finally:
        interrupted(running)
        _, errors = running.communicate(timeout=120)
    assert "Traceback" not in errors or "KeyboardInterrupt" in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "70000"),
        (["--windows", "0"], "windows"),
        (["--bootstrap", "127.0.0.1:1"], "hush.toml"),
    ],
)
def test_what_it_cannot_do_is_said(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed("live", *words)
    assert code == 2 and said in err


def test_an_address_that_cannot_be_had_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed("live", "--bootstrap", "127.0.0.1:1", "--deployment", "d",
                         "--bind", "no such host")  # fmt: skip
    assert code == 4 and "--bind" in err
