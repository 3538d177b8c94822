"""Canary values in users, keys, values and counts: nothing that may be public shows one.

Releases contain only released keys and noisy values. Metrics, logs, errors, manifests and endpoints
contain no user, no key that was not released, no payload and no exact count.
"""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.log import ClockLog
from hushstream.agents.deployment.model import Lifetime
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.agents.stages.aggregate.nonces import steady
from hushstream.agents.stages.aggregate.secrets import Secrets
from hushstream.agents.stages.aggregate.stage import AggregateStage
from hushstream.agents.stages.ingest.dead_letters import dead_letters
from hushstream.agents.stages.step import Step
from hushstream.agents.worker.health.http import health_page, metrics_page, serve
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from hushstream.cli.group import hush, main
from hushstream.errors import HushError
from hushstream.formats.events.decode import RawRecord
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.lifetime import Cap
from hushstream.offline.engine import OfflineEngine
from hushstream.topics.config.access.secret import write_new_key
from hushstream.topics.frames import CellsFrame, decode
from hushstream.topics.records import Marker
from prometheus_client import generate_latest

from ..support import (
    HOUR,
    NAMES,
    ORIGIN,
    SECRET,
    deployment,
    engine,
    event,
    start,
    trigger,
    written,
)

USER, KEY, RARE, TEXT = "canaryuser", "openpage", "canarykey", "canarypayload"
VALUE = 7654321
COUNT = 4391  # records of the popular page, in total
OFFSET = 813_000_000_000  # the first offset; no public number may contain it
# Figures that only exact counting gives: for each micro-batch, and in total.
EXACT = {str(n) for n in (COUNT, COUNT + 1, COUNT + 3, VALUE, *range(OFFSET, OFFSET + COUNT + 3))}


def log() -> list[RawRecord]:
    """A popular page, a page of one user, and bad records, all with canaries."""
    out = []
    for i in range(COUNT):
        time = ORIGIN + i % 24 * HOUR
        out.append(event(OFFSET + i, f"{USER}{i % 300}", KEY, time, amount=VALUE, note=TEXT))
    out.append(event(OFFSET + COUNT, f"{USER}-alone", RARE, ORIGIN, amount=VALUE))
    out.append(
        RawRecord(OFFSET + COUNT + 1, 99, USER.encode(), TEXT.encode(), (("h", TEXT.encode()),))
    )
    out.append(RawRecord(OFFSET + COUNT + 2, 99, None, json.dumps({"user": USER}).encode()))
    return out


SUM = 'aggregate = [{kind = "count"}, {kind = "sum", field = "amount", low = 0, high = 100}]'


def run(**options: Any) -> tuple[Any, OfflineEngine]:
    made = deployment(more=SUM, **options)
    p = made.pipelines[0]
    records = log()
    cuts = [trigger(p, n, [OFFSET + len(records) * n // 4]) for n in range(1, 5)]
    return p, engine(made, [records], [start(p), *cuts])


@pytest.fixture(scope="module")
def finished() -> Iterator[tuple[Any, OfflineEngine, list[logging.LogRecord]]]:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    keep = Keep()
    logging.getLogger().addHandler(keep)
    try:
        yield (*run(), records)
    finally:
        logging.getLogger().removeHandler(keep)


def leaks(text: str, allowed: tuple[str, ...] = ()) -> list[str]:
    """Canaries in a text: words, and any exact figure that stands alone."""
    words = [w for w in (USER, KEY, RARE, TEXT) if w in text and w not in allowed]
    return words + sorted(EXACT & set(re.findall(r"\d+", text)))


def test_the_scan_finds_what_it_looks_for():
    assert leaks(f"user={USER}17") == [USER]
    assert leaks(f"count {COUNT}.") == [str(COUNT)]
    assert leaks(f"offset={OFFSET + 5}") == [str(OFFSET + 5)]
    assert leaks(f"{KEY} 17", allowed=(KEY,)) == []
    assert leaks(f"x{COUNT}0") == []


def test_the_run_had_something_to_hide(finished):
    p, found, _ = finished
    assert found.counts["p", "seen"] == COUNT + 1
    assert found.counts["p", "invalid:malformed"] == 1
    assert RARE in cell_keys(found)
    assert any(KEY.encode() in (o.value or b"") for o in found.outs[p.release_topic])


def cell_keys(found: OfflineEngine) -> str:
    frames = [decode(f.value) for f in found._logs[NAMES.cells("p"), 0].records]
    return " ".join(k.decode() for f in frames if isinstance(f, CellsFrame) for k in f.part.key)


@pytest.mark.parametrize("mechanism", ["", ", adaptive_weight = 0", ", debias = true"])
@pytest.mark.parametrize("rows", ["rows", "full"])
def test_releases_and_manifests(mechanism, rows):
    extra = SUM + f'\nrelease = {{ format = "{rows}", display = "non-negative" }}'
    made = deployment(more=extra, mechanism=mechanism)
    p = made.pipelines[0]
    records = log()
    cuts = [trigger(p, n, [OFFSET + len(records) * n // 4]) for n in range(1, 5)]
    found = engine(made, [records], [start(p), *cuts])
    outs = found.outs[p.release_topic]
    assert found.outs[p.latest_topic] == [
        out._replace(topic=p.latest_topic) for out in outs if out.headers[0][0] == "hush-row"
    ]  # it repeats them, and holds nothing else
    assert sum(b"hush.manifest/2" in o.value for o in outs) == 4
    assert len(outs) > 4
    for out in outs:
        for part in (out.key, out.value):
            assert leaks((part or b"").decode(), allowed=(KEY,)) == []
        assert out.headers in (
            (("hush-row", b"hush.release/2"),), (("hush-manifest", b"hush.manifest/2"),)
        )  # fmt: skip
        # The scheduled time, for any times of the records.
        assert out.timestamp is not None and out.timestamp * 1000 in p.windows.times(0)


def test_logs_of_a_run_at_every_level(finished):
    _, _, records = finished
    text = "\n".join(r.getMessage() + str(r.exc_info) for r in records)
    assert leaks(text) == []


ALLOWED = {
    "hush_build_info",
    "hush_ready",
    "hush_start_timestamp_seconds",
    "hush_releases_total",
    "hush_releases_created",
    "hush_last_release_timestamp_seconds",
    "hush_epsilon_spent",
    "hush_epsilon_sum",
    "hush_epsilon_limit",
    "hush_delta_epoch",
    "hush_epsilon_epoch",
    "hush_delta_spent",
    "hush_delta_limit",
    "hush_epsilon_cap",
    "hush_delta_cap",
    "hush_budget_remaining_ratio",
    "hush_noise_stddev",
}


def metric_names(page: bytes) -> set[str]:
    lines = page.decode().splitlines()
    return {re.split(r"[ {]", line)[0] for line in lines if line and not line.startswith("#")}


def charged(p: Any, epochs: int) -> Ledger:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {}).encode())
    for epoch in range(epochs):
        ledger.take(ledger.next("charge", 1, charge_body(p, epoch, "1.0", "key")).encode())
    return ledger


def public_metrics(p: Any) -> PublicMetrics:
    metrics = PublicMetrics()
    metrics.declare(p)
    metrics.spent(p, charged(p, 3))
    metrics.triggered(p, trigger(p, 1, [OFFSET + COUNT]))
    metrics.refused(p)
    return metrics


def operator_metrics(found: OfflineEngine) -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.count(found.counts)
    metrics.step.labels(stage="commit").observe(0.1)
    metrics.delay.labels(pipeline="p").observe(0.1)
    for gauge in (metrics.recovery, metrics.lag, metrics.state):
        gauge.labels(store="s").set(1)
    metrics.watermark.labels(pipeline="p", partition="0").set(1)
    return metrics


def test_public_metrics_are_an_allowlist_and_share_nothing_with_the_operators(finished):
    p, found, _ = finished
    capped = Lifetime(Fraction(9), Fraction(1, 1000), None, ("p",), Fraction(2), Cap(9))
    limited = replace(p, limit_epsilon=Fraction(80), limit_delta=Fraction(1, 1000), lifetime=capped)
    for pipeline in (p, limited):
        page = generate_latest(public_metrics(pipeline).series)
        assert metric_names(page) <= ALLOWED
        assert leaks(page.decode()) == []
    assert ALLOWED - metric_names(page) == set()  # every name in the list is in use
    operator = generate_latest(operator_metrics(found).series)
    assert not metric_names(operator) & ALLOWED
    # The operator's page does contain exact figures: it is inside the trust boundary.
    assert leaks(operator.decode().replace(".0", "")) != []
    assert USER not in operator.decode() and KEY not in operator.decode()


def get(port: int, path: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
            return answer.status, str(answer.headers), answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, str(error.headers), error.read().decode()


def test_endpoints_say_no_more_than_they_must(finished, capfd):
    p, _, _ = finished
    metrics = public_metrics(p)
    healthy: list[Callable[[], bool]] = [lambda: False]
    pages = {
        "/metrics": metrics_page(metrics.series),
        "/ready": health_page(lambda: healthy[0]()),
        "/live": health_page(lambda: True),
    }
    server = serve("127.0.0.1", 0, pages)
    try:
        port = server.server_address[1]
        status, headers, body = get(port, "/metrics")
        assert status == 200 and metric_names(body.encode()) <= ALLOWED
        assert leaks(body + headers) == []
        assert get(port, "/ready")[0::2] == (503, "not yet\n")
        healthy[0] = lambda: True
        assert get(port, "/ready")[0::2] == (200, "ok\n")
        assert get(port, "/live")[0::2] == (200, "ok\n")
        for path in ("/", f"/{USER}", "/internal/metrics", "/table", "/metrics/x", "/../ready"):
            status, headers, body = get(port, path)
            assert (status, body) == (404, "not found\n")
            assert USER not in headers
    finally:
        server.shutdown()
        server.server_close()
    assert list(map(written, capfd.readouterr())) == ["", ""]  # requests are not logged


def raised(action: Callable[[], object]) -> str:
    with pytest.raises(HushError) as caught:
        action()
    cause = caught.value.__cause__
    return f"{caught.value}{caught.value!r}{cause!r}"


def test_texts_of_errors():
    made = deployment(more=SUM)
    p = made.pipelines[0]
    failing = deployment(partitions=1, more=SUM).pipelines[0]
    object.__setattr__(failing, "fail_on_error", True)
    bad = RawRecord(OFFSET, 99, USER.encode(), TEXT.encode(), (("h", TEXT.encode()),))
    texts = [
        raised(lambda: dead_letters(failing, ("events", 0), [bad], {0: "malformed"},
                                    Step(Marker("g", 0)), SECRET)),
        raised(lambda: engine(made, [log()], [start(p), trigger(p, 2, [OFFSET + 9], index=2)])),
        raised(lambda: engine(made, [log()], [start(p), *[trigger(p, 1, [OFFSET + 9])] * 2])),
        raised(lambda: Keys.of([RARE.encode()]).codes()),
    ]  # fmt: skip
    assert all(leaks(text) == [] for text in texts)
    assert all(len(text) > 30 for text in texts)


def test_a_frame_in_the_wrong_place_is_named_without_its_content():
    made = deployment(cells=2, more=SUM)
    stage = AggregateStage(
        made.pipelines[0], 0, NAMES, Secrets(SECRET, steady), 1, ClockLog({"p": 4})
    )
    keys = Keys.of([f'["{KEY}{i}"]'.encode() for i in range(9)])
    assert leaks(raised(lambda: stage._check(keys))) == []


# -- the command line ---------------------------------------------------------------------------

CONFIG = """
[secret]
noise_key_file = "hush.key"
[[input]]
name = "events"
topic = "events"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "p"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "1d", origin = "2019-03-01T00:00:00Z" }
triggers = { every = "6h" }
budget = { epsilon = 8.0, delta = 1e-4 }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hush.toml").write_text(CONFIG)
    write_new_key(tmp_path / "hush.key")
    lines = [(r.value or b"").decode() for r in log()[:-2]]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_line_logs_no_payload_and_no_key(folder, caplog):
    secret = (folder / "hush.key").read_text().strip()
    for words in (["check", "--offline"], ["plan"], ["topics", "--print"], ["version"]):
        result = CliRunner().invoke(hush, words)
        assert result.exit_code == 0, result.output
        assert leaks(result.output) == []
        assert secret not in result.output
    with caplog.at_level(logging.DEBUG):
        result = CliRunner().invoke(hush, ["simulate", "data.jsonl", "--json"])
    assert result.exit_code == 0
    # The report compares with the truth and says so; the log has none of it.
    assert leaks(result.stdout) != []
    assert leaks(result.stderr) == [] and leaks(caplog.text) == []
    assert USER not in result.output


@pytest.mark.parametrize("line", ['{"user": "' + USER, "[1]", USER + " " + TEXT, "\xff" + TEXT])
def test_a_file_that_cannot_be_read_is_not_quoted(folder, capsys, line):
    (folder / "bad.jsonl").write_bytes(line.encode("latin-1"))
    with pytest.raises(SystemExit) as left:
        main(["simulate", "bad.jsonl"])
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert leaks(printed.out + printed.err) == []
    assert "bad.jsonl" in printed.err


def test_a_wrong_noise_key_is_not_shown(folder, capsys):
    (folder / "hush.key").write_text(TEXT)
    with pytest.raises(SystemExit) as left:
        main(["check", "--offline"])
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert leaks(printed.out + printed.err) == [] and "FAIL" in printed.out
