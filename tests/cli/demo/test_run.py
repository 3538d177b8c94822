"""The demo as its own process, with a real Kafka: results, and nothing left behind.

Covers: cli/demo/command.py, cli/demo/plot.py, cli/demo/report.py
Covers: cli/demo/watch.py, cli/demo/workload.py
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import pytest
from hushstream.agents.clock.genesis import read_ledger
from hushstream.agents.clock.ledger import totals
from hushstream.agents.kafka.cluster import Cluster
from hushstream.cli.demo.report import _pair
from hushstream.cli.demo.workload import DAY, HOUR, START, clicks, trips
from hushstream.deploy.broker import Broker
from hushstream.deploy.process import command_of
from hushstream.topics.config.load import load
from hushstream.topics.config.model import Kafka

from ...judge.topics import deployment

HUSH = [sys.executable, "-m", "hushstream", "demo"]


def _environment(folder: Path) -> dict[str, str]:
    """Environment with temporary folders in ``folder``, so that all started processes name it."""
    return os.environ | {"TMPDIR": str(folder), "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}


def _left(folder: Path) -> list[str]:
    """Command lines of processes that name ``folder``."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [line for line in map(command_of, pids) if str(folder) in line]


def _none_left(folder: Path) -> bool:
    deadline = time.monotonic() + 150
    while (found := _left(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not found


@pytest.mark.broker
@pytest.mark.slow
def test_it_shows_everything_and_leaves_nothing_but_the_picture(tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    command = [*HUSH, "--users", "1000", "--workers", "1", "--out", str(picture)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=_environment(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
    assert "`hush live`" in text.rstrip().splitlines()[-1]
    released, known = map(int, re.findall(r"(\d+) of (194) keys released", text)[0])
    assert 40 <= released <= 65 and known == 194
    shown = re.search(r"│ Manhattan +│ +1,(\d{3}) │ +\d+ │ +(\d+\.\d\d) │", text)
    # Within eight standard deviations of the noise, which differs each time.
    assert shown and abs(int(shown[1]) - 97) < 64 and abs(float(shown[2]) - 10.89) < 2.4, text
    assert re.search(r"│ zones +│ trip +│ +1 │ +1 │ +1e-06 │", text)
    assert re.search(r"│ boroughs +│ trip +│ +5 │ +1 │ +1e-06 │", text)
    assert re.search(r"│ clicks +│ user and day +│ +1 │ +2 │ +1e-09 │", text)
    assert "at most ε=2" in text
    assert re.search(r"│ zones +│ +6,433 │ +26 │ +1 │ +0\.0% │", text)
    cut = re.search(r"│ clicks +│ +[\d,]+ │ +0 │ +0 │ +(\d+\.\d)% │", text)
    assert cut and 0 < float(cut[1]) < 50
    assert "-t hush.zones.releases.v1 -e" in text and "hush releases -c" in text
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 50_000
    assert [p.name for p in tmp_path.iterdir()] == ["out.png"]
    assert _none_left(tmp_path)


@pytest.mark.thorough
@pytest.mark.slow
def test_kept_on_a_cluster_it_can_be_read_and_stopped(broker: Broker, tmp_path: Path) -> None:
    before = set(Cluster(Kafka(bootstrap=broker.bootstrap)).topics())
    common = {"capture_output": True, "text": True, "env": _environment(tmp_path)}
    command = [*HUSH, "--users", "1000", "--workers", "1", "--keep", "--bootstrap"]
    picture = ["--out", str(tmp_path / "out.png")]
    done = subprocess.run([*command, broker.bootstrap, *picture], timeout=900, **common)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.glob("hush-demo-*")
    try:
        assert f"hush demo --stop {folder}" in done.stdout
        (page,) = re.findall(r"(http://127\.0\.0\.1:\d+)/metrics", done.stdout)
        with urlopen(f"{page}/metrics", timeout=120) as answer:
            assert b"hush_ready 1.0" in answer.read()
        assert urlopen(f"{page}/live", timeout=120).status == 200
        config = load(folder / "hush.toml", environ={})
        ledger = read_ledger(Cluster(config.kafka), "demo")
        spent = totals(ledger, ["zones", "boroughs", "clicks"])
        assert {n: (float(one.epsilon), one.epochs) for n, one in spent.items()} == {
            "zones": (1.0, 1), "boroughs": (5.0, 5), "clicks": (2.0, 1),
        }  # fmt: skip
        manifests = Counter()
        for message in Cluster(config.kafka).read("hush.boroughs.releases.v1"):
            body = json.loads(message.value())
            if body["schema"] == "hush.manifest/2":
                manifests[body["window"]["start"], body["trigger"]] += 1
        assert len(manifests) == 31 and set(manifests.values()) == {2}
        secret = bytes.fromhex((folder / "hush.key").read_text())
        judged = deployment(broker.bootstrap, folder / "hush.toml", secret)
        assert {name: one.objections for name, one in judged.items()} == {
            "zones": [], "boroughs": [], "clicks": [],
        }  # fmt: skip
        assert [judged[name].triggers for name in ("zones", "boroughs", "clicks")] == [31, 31, 24]
        assert len(_left(folder)) == 2  # the worker and the live page
        (page,) = re.findall(r"^  (http://127\.0\.0\.1:\d+/)$", done.stdout, re.MULTILINE)
        until = time.monotonic() + 150
        while True:
            with urlopen(f"{page}summary.json", timeout=120) as answer:
                told = {p["name"]: p["windows"] for p in json.load(answer)["pipelines"]}
            if len(told) == 3 and all(told.values()) and told["zones"][0]["trigger"] == 31:
                break
            assert time.monotonic() < until, told
            time.sleep(0.2)
        again = subprocess.run([*command, broker.bootstrap, *picture], timeout=600, **common)
        assert again.returncode == 4 and "topics that the demo would use" in again.stderr
    finally:
        stop = subprocess.run([*HUSH, "--stop", str(folder)], timeout=600, **common)
    assert stop.returncode == 0, stop.stderr
    assert _none_left(tmp_path) and not folder.exists()
    assert (
        set(Cluster(Kafka(bootstrap=broker.bootstrap)).topics())
        - {"__consumer_offsets", "__transaction_state"}
        <= before
    )


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.thorough)],
)
def test_interrupted_in_the_middle_it_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    running = subprocess.Popen(
        [*HUSH, "--users", "1000", "--out", str(tmp_path / "out.png")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(tmp_path),
        start_new_session=True,
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "workers started" in line:
            break
    assert len(_left(tmp_path)) > 3  # the demo, the broker, two workers
    running.send_signal(number)
    said = running.stdout.read()
    running.stdout.close()
    assert running.wait(150) == code, said
    assert list(tmp_path.iterdir()) == [] and _none_left(tmp_path)


def test_trips_are_those_of_the_file_in_event_time_order() -> None:
    stream = trips()
    times = [json.loads(e.value)["pickup"] for part in stream.parts for e in part]
    assert stream.size == 6433 and times == sorted(times) and times[0].startswith("2019-02-28")
    assert len(stream.parts) == 31 and stream.step == DAY
    assert sum(stream.truth["zones"][0].values()) == 6433 - 26 - 1
    assert len(stream.truth["zones"][0]) == 194


def test_clicks_follow_their_rule_and_are_the_same_every_time() -> None:
    stream = clicks(20_000)
    events = [json.loads(e.value) for part in stream.parts for e in part]
    per_user = Counter(e["user"] for e in events)
    assert len(per_user) == 20_000 and 5.4 < len(events) / 20_000 < 6.4  # mean of the law: 5.9
    once = sum(1 for n in per_user.values() if n == 1) / 20_000
    assert 0.187 < once < 0.209  # 26^-6.738 over the sum of all: 0.1979
    pages = Counter(e["page"] for e in events)
    assert {k: float(n) for k, n in pages.items()} == stream.truth["clicks"][0]
    assert 1.8 < pages["page-0001"] / pages["page-0002"] < 2.2
    for hour, part in enumerate(stream.parts):
        first = START + hour * HOUR
        assert all(first <= json.loads(e.value)["time"] * 1000 < first + HOUR for e in part)
    assert all(e.key == json.loads(e.value)["user"].encode() for e in stream.parts[0])
    assert clicks(1_000).parts == clicks(1_000).parts


def test_the_error_shown_is_the_longer_side_of_an_interval_that_is_cut_at_zero() -> None:
    assert _pair({"value": 12, "low": 0.0, "high": 30.0}) == ("12", "18")
    assert _pair({"value": 100, "low": 92.5, "high": 107.5}) == ("100", "8")
    assert _pair(None) == ("–", "")
