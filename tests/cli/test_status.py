"""``hush status`` on a broker without a worker: exit codes, and watching."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient
from hushstream.deploy.broker import Broker

from ..integration.local import local
from ..integration.test_outage import TOML
from .bench import interrupted, typed


def test_what_is_wrong_ends_in_4_and_an_interrupted_watch_in_one_line(
    empty_broker: Broker, tmp_path: Path
) -> None:
    view = '\n[[view]]\nname = "top"\nsource = "p"\nlimit = 3\n'
    with local(tmp_path, empty_broker.bootstrap, TOML + view, {"events": 1}) as run:
        words = ["status", "-c", str(run.toml), "--bootstrap", run.bootstrap]
        code, out, _ = typed(*words, "--json")
        body = json.loads(out)
        assert code == 4 and "No worker runs" in body["wrong"][0]
        assert body["views"] == {"top": "p"}
        code, out, _ = typed(*words)
        assert code == 4 and "No worker runs" in out
        assert "Views, whose releases are not looked at here: top (of p)" in out
        shown = tmp_path / "shown"
        with shown.open("w") as out:
            watch = subprocess.Popen(
                [sys.executable, "-m", "hushstream", *words, "--watch", "--every", "1"],
                stdout=out, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            until = time.monotonic() + 60
            while shown.read_text().count("No worker runs") < 2:
                assert time.monotonic() < until and watch.poll() is None, shown.read_text()
                time.sleep(0.1)
            assert interrupted(watch) == 130
        assert watch.communicate()[1].split() == ["interrupted"]


def test_a_topic_that_is_gone_is_named_instead_of_a_start_that_would_fail(
    empty_broker: Broker, tmp_path: Path
) -> None:
    with local(tmp_path, empty_broker.bootstrap, TOML, {"events": 1}) as run:
        topic = run.names.cells("p")
        client = AdminClient({"bootstrap.servers": run.bootstrap, "log_level": 0})
        client.delete_topics([topic])[topic].result(120)
        words = ["status", "-c", str(run.toml), "--bootstrap", run.bootstrap, "--json"]
        until, wrong = time.monotonic() + 60, [""]
        while "No worker can start" not in wrong[0]:  # brokers learn of a deletion one by one
            assert time.monotonic() < until, wrong
            code, out, _ = typed(*words)
            wrong = json.loads(out)["wrong"]
        assert code == 4 and f"topic {topic} is gone" in wrong[0]
        assert not any("hush worker" in one for one in wrong)
