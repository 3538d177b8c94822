"""Several ledgers added up: each charge once, units separate, at most the plain sum.

Covers: cli/ledger_sum.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import exp, sqrt
from pathlib import Path
from typing import Any

import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.deployment.published.statement import charge_body
from hushstream.errors import LedgerError
from hushstream.reading.joint import joint
from scipy.optimize import brentq
from scipy.stats import norm

from ..cli.bench import typed
from ..support import deployment

P = deployment().pipelines[0]


def body(epoch: int, **other: Any) -> dict[str, Any]:
    return charge_body(P, epoch, "1.0", "key") | other


def kept(*bodies: dict[str, Any], genesis: str = "abcdef") -> Ledger:
    ledger = Ledger()
    ledger.take(ledger.next("genesis", 1, {"genesis": genesis}).encode())
    for one in bodies:
        ledger.take(ledger.next("charge", 2, one).encode())
    return ledger


def gaussian(mu2: float, delta: float) -> float:
    """ε of μ-GDP at δ, in floating point (Dong, Roth and Su)."""
    mu = sqrt(mu2)

    def beyond(epsilon: float) -> float:
        far = norm.cdf(-mu / 2 - epsilon / mu)
        return float(norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * far - delta)

    return float(brentq(beyond, 0.0, 200.0))


def test_the_charges_of_two_ledgers_are_added():
    one, other = kept(body(0), body(1)), kept(body(0), genesis="fedcba")
    (found,) = joint({"one": one, "other": other}).sums
    assert (found.epsilon, found.delta) == (24, 3 * Fraction(1, 10_000))
    assert [(x.ledger, x.pipeline, x.epochs) for x in found.lines] == [
        ("one", "p", 2),
        ("other", "p", 1),
    ]
    assert found.kind == ("user", "add_remove")


def test_composing_the_mechanisms_gives_the_epsilon_of_their_gaussians():
    many = [body(e) for e in range(30)]
    (found,) = joint({"a": kept(*many[:20]), "b": kept(*many[20:], genesis="b")}).sums
    cost = P.mechanism.cost()
    expected = gaussian(30 * float(cost.mu2), 30 * float(P.delta - cost.delta))
    assert found.epsilon == 240
    assert float(found.composed) == pytest.approx(expected + 30 * float(cost.epsilon), rel=0.02)
    assert found.composed < found.epsilon / 2


def test_pure_charges_without_delta_are_a_plain_sum():
    pure = {
        "mu2": "0",
        "pure_epsilon": "1/2",
        "coupling_delta": "0",
        "epsilon": "1/2",
        "delta": "0",
    }
    (found,) = joint({"a": kept(body(0, **pure), body(1, **pure))}).sums
    assert (found.epsilon, found.delta, found.composed) == (1, 0, 1)


def test_two_copies_of_one_ledger_count_once_and_two_ways_that_it_went_count_both():
    old = kept(body(0), body(1))
    again = Ledger.read(r.encode() for r in old.records)
    again.take(again.next("charge", 9, body(2) | {"salt": "x"}).encode())
    forked = Ledger.read(r.encode() for r in old.records)
    forked.take(forked.next("charge", 9, body(2) | {"salt": "y"}).encode())
    found = joint({"again": again, "forked": forked})
    assert found.twice == 2
    assert found.sums[0].epsilon == 8 * 4


def test_other_units_and_relations_are_never_added():
    ledger = kept(body(0), body(1, unit="device"), body(2, neighbouring="replace_value"))
    found = joint({"a": ledger})
    assert {tuple(one.kind) for one in found.sums} == {
        ("user", "add_remove"), ("device", "add_remove"), ("user", "replace_value"),
    }  # fmt: skip
    assert all(one.epsilon == 8 for one in found.sums)


def test_a_delta_of_one_and_more_leaves_the_plain_sum():
    ledger = kept(*(body(e, delta="1/2") for e in range(3)))
    (found,) = joint({"a": ledger}).sums
    assert found.delta == Fraction(3, 2) and found.composed == found.epsilon


@pytest.mark.parametrize("missing", ["unit", "neighbouring", "epsilon", "mu2"])
def test_a_charge_that_lacks_something_is_refused(missing: str):
    broken = body(0)
    del broken[missing]
    with pytest.raises(LedgerError, match="ledger"):
        joint({"a": kept(broken)})


def files(folder: Path, ledgers: Sequence[Ledger]) -> Iterator[str]:
    for n, ledger in enumerate(ledgers):
        path = folder / f"ledger{n}.jsonl"
        path.write_bytes(b"".join(r.encode() + b"\n" for r in ledger.records))
        yield str(path)


def test_the_command_reads_copies_without_a_cluster_or_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    paths = list(files(tmp_path, [kept(body(0)), kept(body(0), body(1), genesis="other")]))
    code, out, err = typed("ledger", "sum", *paths)
    assert (code, err) == (0, "")
    assert "A user active in every epoch of all of these pays at most ε=24, δ=0.0003" in out
    assert "Composed: ε=" in out
    code, out, _ = typed("ledger", "sum", "--json", *paths)
    told = json.loads(out)
    assert code == 0 and told["sums"][0]["epsilon"] == 24 and told["twice"] == 0


def test_the_command_states_the_cap_of_a_pipeline(tmp_path: Path):
    cap = 'limit_epsilon = 80, per_unit = { epsilon = 20, delta = 1e-3, period = "7d" }'
    (p,) = deployment(swap={"delta = 1e-4": f"delta = 1e-4, {cap}"}).pipelines
    (path,) = files(tmp_path, [kept(*(charge_body(p, n, "1.0", "key") for n in range(5)))])
    out = typed("ledger", "sum", path)[1]
    assert "pays at most ε=40, δ=0.0005" in out
    assert (
        f"{path}, p: by its cap a user loses at most ε=20, δ=0.001 over each period of 7d, however "
        "many epochs are charged."
    ) in out
    (line,) = json.loads(typed("ledger", "sum", "--json", path)[1])["sums"][0]["lines"]
    assert line["cap"] == {"epsilon": 20, "delta": 0.001, "period": "7d", "pipelines": []}
    (path,) = files(tmp_path, [kept(charge_body(p, 0, "1.0", "key"), body(1))])
    out = typed("ledger", "sum", path)[1]
    assert "ε=16" in out and "cap" not in out  # not all charges state it


def test_the_command_refuses_a_copy_that_was_changed(tmp_path: Path):
    (path,) = files(tmp_path, [kept(body(0), body(1))])
    text = Path(path).read_text()
    Path(path).write_text(text.replace('"epoch":0', '"epoch":7'))
    code, _, err = typed("ledger", "sum", path)
    assert code == 3 and "chain is broken" in err and path in err
