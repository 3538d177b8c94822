"""Spent and left, by epoch: each figure follows from the charges of the ledger, exactly."""

from __future__ import annotations

from hushstream.agents.clock.ledger import Ledger
from hushstream.reading.live.budget import spent

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
