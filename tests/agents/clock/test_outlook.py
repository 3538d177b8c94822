"""What a request would fire and charge: counted before it is sent."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hushstream.agents.clock.ledger import Ledger, charge_body
from hushstream.agents.clock.outlook import MOST, outlook
from hushstream.agents.clock.timeline import fold

from ...support import DAY, HOUR, ORIGIN, deployment, start, trigger

P = deployment().pipelines[0]


def ledger(*epochs: int) -> Ledger:
    made = Ledger()
    made.take(made.next("genesis", 1, {"genesis": "abcdef"}).encode())
    for epoch in epochs:
        made.take(made.next("charge", 1, charge_body(P, epoch, "1", "key")).encode())
    return made


def test_triggers_that_have_fired_and_epochs_that_are_charged_cost_nothing_again():
    line = fold([start(P), trigger(P, 1, [0])], {"p": 4})["p"]
    found = outlook(P, line, ledger(0), ORIGIN + 2 * DAY)
    assert (found.triggers, found.charges, found.more) == (7, 1, False)
    assert (found.epsilon, found.delta) == (P.epsilon, P.delta)
    assert outlook(P, line, ledger(0), ORIGIN + 6 * HOUR).triggers == 0


def test_charges_end_at_the_limit():
    line = fold([start(P)], {"p": 4})["p"]
    limited = replace(P, limit_epsilon=P.epsilon * Fraction(7, 2))
    found = outlook(limited, line, ledger(0), ORIGIN + 30 * DAY)
    assert (found.due, found.triggers) == (120, 12)  # three epochs of four triggers
    assert (found.charges, found.refused) == (2, 27)  # one of three is paid already
    assert (found.epsilon, found.delta) == (2 * P.epsilon, 2 * P.delta)
    spent = outlook(replace(P, limit_epsilon=P.epsilon), line, ledger(0), ORIGIN + 2 * DAY)
    assert (spent.due, spent.triggers, spent.charges, spent.refused) == (8, 4, 0, 1)


def test_an_epoch_that_is_refused_already_is_neither_fired_nor_refused_again():
    line, made = fold([start(P)], {"p": 4})["p"], ledger(0)
    body = {"pipeline": "p", "epoch": 1, "reason": "the budget's limit is reached"}
    made.take(made.next("refused", 1, body).encode())
    found = outlook(P, line, made, ORIGIN + 3 * DAY)
    assert (found.due, found.triggers, found.charges, found.refused) == (12, 8, 1, 0)


def test_what_lasts_for_ever_is_counted_to_a_bound():
    line = fold([start(P)], {"p": 4})["p"]
    found = outlook(P, line, ledger(), ORIGIN + 1_000_000 * DAY)
    assert found.more and found.triggers == MOST and found.charges == MOST // 4
