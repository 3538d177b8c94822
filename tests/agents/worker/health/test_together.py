"""Several processes on one page: every sample names its process, and none hides another's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hushstream.agents.worker.health import together
from hushstream.agents.worker.health.http import health_page, metrics_page, serve_local
from hushstream.agents.worker.health.together import Together
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from prometheus_client.parser import text_string_to_metric_families

from ....support import deployment, trigger

P = deployment().pipelines[0]


class Two:
    """Two processes, of which the first owns the clock, and a third that does not answer."""

    def __init__(self, folder: Path) -> None:
        self.live = [True, True]
        self.public = [PublicMetrics() for _ in self.live]
        self.operator = [OperatorMetrics() for _ in self.live]
        self.sockets = [folder / str(number) for number in range(3)]
        self.servers = [self._serve(number) for number in range(2)]

    def _serve(self, number: int):  # type: ignore[no-untyped-def]
        public, operator = self.public[number], self.operator[number]
        public.declare(P)
        operator.declare(P)
        public.watch(lambda: True)
        pages = {
            "/live": health_page(lambda: self.live[number]),
            "/ready": health_page(lambda: True),
            "/metrics": metrics_page(public.series),
            "/internal/metrics": metrics_page(operator.series),
        }
        return serve_local(self.sockets[number], pages)

    def samples(self, path: str, processes: int = 2) -> dict[tuple[str, frozenset[str]], float]:
        together = Together(self.sockets[:processes])
        status, body = (together.public() | together.operator())[path]()
        assert status == 200
        return {
            (s.name, frozenset(s.labels.values())): s.value
            for family in text_string_to_metric_families(body.decode())
            for s in family.samples
        }


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    monkeypatch.setattr(together, "SECONDS", 120.0)  # a live process has time to answer
    made = Two(tmp_path)
    yield made
    for server in made.servers:
        server.shutdown()
        server.server_close()


def test_each_sample_names_its_process_and_sums_are_those_of_all(two: Two) -> None:
    two.public[0].triggered(P, trigger(P, 3, [1000]))
    found = two.samples("/metrics")
    outcomes = {k: v for k, v in found.items() if k[0] == "hush_releases_total"}
    assert sum(outcomes.values()) == 1 and len(outcomes) == 6
    assert outcomes["hush_releases_total", frozenset({"p", "histogram", "fired", "0"})] == 1
    assert found["hush_ready", frozenset({"0"})] == found["hush_ready", frozenset({"1"})] == 1


def test_the_pages_keep_public_and_operator_apart(two: Two) -> None:
    public = {name for name, _ in two.samples("/metrics")}
    operator = {name for name, _ in two.samples("/internal/metrics")}
    assert not public & operator
    assert "process_resident_memory_bytes" in operator and "hush_events_total" in operator
    assert not any(name.startswith("process_") for name in public)


def test_every_outcome_and_reason_begins_at_0(two: Two) -> None:
    found = two.samples("/internal/metrics")
    dead = {k: v for k, v in found.items() if k[0] == "hush_dead_letters_total"}
    assert set(dead.values()) == {0} and len(dead) == 2 * 18
    assert found["hush_events_total", frozenset({"p", "late", "1"})] == 0
    assert found["hush_loss_alarm", frozenset({"p", "misplaced", "0"})] == 0
    assert found["hush_release_delay_seconds_count", frozenset({"p", "0"})] == 0


def test_a_process_that_does_not_answer_is_not_ready_and_not_live(two: Two) -> None:
    found = two.samples("/metrics", 3)
    ready = {labels: value for (name, labels), value in found.items() if name == "hush_ready"}
    assert ready == {frozenset("0"): 1, frozenset("1"): 1, frozenset("2"): 0}
    assert Together(two.sockets).public()["/live"]() == (503, b"not yet\n")
    pages = Together(two.sockets[:2]).public()
    assert pages["/live"]() == pages["/ready"]() == (200, b"ok\n")
    both, all_three = Together(two.sockets[:2]), Together(two.sockets)
    assert both.live() and both.ready() and not all_three.live() and not all_three.ready()
    two.live[1] = False
    assert not both.live() and both.ready()
    assert pages["/live"]()[0] == 503 and pages["/ready"]()[0] == 200


def test_types_and_texts_are_those_of_one_process(two: Two) -> None:
    body = Together(two.sockets[:2]).operator()["/internal/metrics"]()[1].decode()
    alone = metrics_page(two.operator[0].series)()[1].decode()
    # One more sample of each, and nothing else.
    kinds = re.findall(r"# TYPE (\S+) (\S+)", body)
    assert kinds == re.findall(r"# TYPE (\S+) (\S+)", alone)
    assert body.count("# HELP hush_events_total Events by outcome.") == 1
