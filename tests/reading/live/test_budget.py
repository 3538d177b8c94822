"""Spent and left, by epoch: each figure follows exactly from the ledger's charges."""

from __future__ import annotations

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.reading.live.budget import cap, spent
from hushstream.reading.live.declared import declared
from hushstream.topics.config.load import loads

from ...agents.deployment.test_sharing import text as shared
from .test_declared import compiled, seen

HOUR = 3_600_000  # milliseconds
BEGIN = 17956 * 24 * HOUR


def ledger(*epochs: int, refused: tuple[int, ...] = ()) -> Ledger:
    made = Ledger()
    made.take(made.next("genesis", 0, {}).encode())
    for epoch in epochs:
        body = {"pipeline": "histogram-plain", "epoch": epoch, "epsilon": "1/10", "delta": "1/1000"}
        body |= {"mu2": "0", "pure_epsilon": "1/10", "coupling_delta": "0"}
        made.take(made.next("charge", 0, body).encode())
        other = {"pipeline": "another", "epoch": epoch, "epsilon": "7", "delta": "0"}
        made.take(made.next("charge", 0, other).encode())
    for epoch in refused:
        body = {"pipeline": "histogram-plain", "epoch": epoch}
        made.take(made.next("refused", 0, body).encode())
    return made


PIPELINE = seen(compiled("histogram-plain"))


def test_charges_add_up_and_the_rest_is_left() -> None:
    body = spent(ledger(0, 1, 2), PIPELINE, 0.5)
    assert (body["epsilon"], body["delta"]) == (4.0, 1e-6)  # of one epoch, as configured
    assert (body["total"], body["charged"], body["limit"]) == (0.3, 3, 0.5)  # 0.1 * 3 is not 0.3
    assert abs(body["left"] - 0.2) < 1e-12 and abs(body["total_delta"] - 0.003) < 1e-12
    assert [e["epoch"] for e in body["epochs"]] == [2, 1, 0]
    assert [e["total"] for e in body["epochs"]] == [0.3, 0.2, 0.1]
    assert [round(e["left"], 9) for e in body["epochs"]] == [0.2, 0.3, 0.4]
    assert body["epochs"][-1]["start"] == BEGIN and body["epochs"][-1]["end"] == BEGIN + 8 * HOUR


def test_no_limit_leaves_nothing_to_say_and_a_passed_one_leaves_nothing() -> None:
    free = spent(ledger(5), PIPELINE, None)
    assert free["left"] is None and free["epochs"][0]["left"] is None
    assert spent(ledger(5, 6), PIPELINE, 0.15)["left"] == 0


def test_refused_epochs_are_listed_and_cost_nothing() -> None:
    body = spent(ledger(0, refused=(1,)), PIPELINE, 0.1)
    assert (body["charged"], body["refused"], body["total"]) == (1, 1, 0.1)
    assert [e["refused"] for e in body["epochs"]] == [True, False]
    assert body["epochs"][0]["start"] == BEGIN + 8 * HOUR


def test_the_total_is_of_all_epochs_together_and_their_sum_stands_beside_it() -> None:
    made = Ledger()
    made.take(made.next("genesis", 0, {}).encode())
    for epoch in range(9):
        body = {"pipeline": "histogram-plain", "epoch": epoch, "epsilon": "1", "delta": "1/1000000"}
        body |= {"mu2": "1/25", "pure_epsilon": "0", "coupling_delta": "0"}
        made.take(made.next("charge", 0, body).encode())
    told = spent(made, PIPELINE, 5.0)
    assert told["sum"] == 9.0 and 2 < told["total"] < 4 and told["left"] == 5 - told["total"]
    assert told["epochs"][0]["total"] == told["total"] > told["epochs"][-1]["total"]


def test_a_pipeline_without_charges_has_spent_nothing() -> None:
    body = spent(ledger(), PIPELINE, 2.0)
    assert (body["total"], body["left"], body["epochs"]) == (0, 2.0, [])


def sharing(more: str = "") -> Ledger:
    """Two pipelines with a shared budget, which charged four epochs and the first three of them."""
    config = loads(shared("a = 1, b = 1", ("a", "b"), more=more), environ={})
    made = Ledger()
    made.take(made.next("genesis", 0, {"deployment": "d"}).encode())
    for number, p in enumerate(compile_config(config).pipelines):
        body = {"pipeline": p.name, "number": number, "config": p.config}
        made.take(made.next("pipeline", 0, body).encode())
        for epoch in range(4 - number):
            made.take(made.next("charge", 0, charge_body(p, epoch, "1", "key")).encode())
    return made


def test_what_is_left_of_a_shared_budget_is_left_of_all_members_together() -> None:
    made = sharing()
    for name, epochs in (("a", 4), ("b", 3)):
        body = spent(made, declared(made)[name], 5.0)
        whole = body["shared"]
        assert (whole["name"], whole["members"]) == ("people", ["a", "b"])
        assert (whole["epsilon"], whole["delta"]) == (1.0, 1e-6)
        assert (whole["charged"], whole["sum"], body["charged"]) == (4, 4.0, epochs)
        assert body["total"] < whole["total"] < 4 and body["left"] == 5 - whole["total"]
        assert [one["left"] for one in body["epochs"]] == [None] * epochs
        assert body["cap"] is None
    assert spent(ledger(0), PIPELINE, 5.0)["shared"] is None


@pytest.mark.parametrize(("period", "told"), [(', period = "30d"', "30d"), ("", None)])
def test_a_cap_is_told_as_it_was_promised_and_nothing_of_what_it_dropped(period, told) -> None:
    made = sharing(f"per_unit = {{ epsilon = 8, delta = 1e-4{period} }}\n")
    for one in declared(made).values():
        assert spent(made, one, None)["cap"] == cap(one) == {
            "epsilon": 8.0, "delta": 1e-4, "period": told, "pipelines": ["a", "b"]
        }  # fmt: skip
