"""Compiling a configuration: errors name the pipeline, and nothing is guessed.

Covers: agents/deployment/model.py
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hushstream.agents.deployment.compile import compile_config, pinned_hash
from hushstream.errors import ConfigError
from hushstream.topics.config.load import loads
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support import INPUT, PIPELINE, deployment


def compiled(mechanism: str = "", more: str = "", text: str | None = None) -> Any:
    head = INPUT.format(units=1, cells=3, partitioner="none", format="json")
    body = PIPELINE.format(name="p", mechanism=mechanism, more=more) if text is None else text
    return compile_config(loads(head + body, environ={}), {"events": 5}).pipelines[0]


@pytest.mark.parametrize(
    "more,hint",
    [
        ('aggregate = [{kind="sum",field="f",low=0,high=1},{kind="mean",field="f",low=0,high=2}]',
         "two different bounds"),
        ('aggregate = [{kind="sum",field="f",low=0,high=1},'
         '{kind="mean",field="f",low=0,high=1,grid=0.5}]', "two different bounds"),
        ('aggregate = [{kind="sum",field="f",low=2,high=1}]', "low"),
        ('aggregate = [{kind="sum",field="f",low=0,high=1,grid=0}]', "grid"),
    ],
)  # fmt: skip
def test_contradictory_columns(more, hint):
    with pytest.raises(ConfigError, match=hint) as caught:
        compiled(more=more)
    assert "p" in str(caught.value)


@pytest.mark.parametrize(
    "mechanism",
    [", adaptive_weight = 7", ", min_users = 0", ', factorization = "none"',
     ", threshold_delta_share = 2", ", nothing = 1"],
)  # fmt: skip
def test_what_a_mechanism_refuses_names_the_setting(mechanism):
    with pytest.raises(ConfigError) as caught:
        compiled(mechanism=mechanism)
    assert mechanism.split()[1] in str(caught.value)


def test_hashes_follow_what_is_private_and_nothing_else():
    base = compiled().config_hash
    assert compiled().config_hash == base
    assert compiled(mechanism=", min_users = 2").config_hash != base
    assert compiled(more='public_keys = ["a"]').config_hash != base
    assert (
        deployment(cells=2).pipelines[0].config_hash == deployment(cells=3).pipelines[0].config_hash
    )


def test_every_shard_that_releases_debiasing_counters_is_paid_for():
    """Shards draw under nonces of their own: each is one more look, so the noise of each grows."""
    debiased = ", debias = true"
    one, three = (deployment(cells=n, mechanism=debiased).pipelines[0] for n in (1, 3))
    ratios = {
        float(b.variance / a.variance)
        for a, b in zip(
            one.mechanism.debias.processes, three.mechanism.debias.processes, strict=True
        )
    }
    assert all(abs(ratio - 3) < 0.05 for ratio in ratios)
    assert one.config_hash != three.config_hash


def test_the_hash_pins_what_this_machine_made_of_the_factorisation():
    p = compiled()
    assert pinned_hash("x", p.mechanism) != pinned_hash("y", p.mechanism)
    other = compiled(mechanism=', factorization = "tree"')
    assert pinned_hash("x", p.mechanism) != pinned_hash("x", other.mechanism)


def test_columns_names_and_public_keys():
    p = compiled(
        more='public_keys = ["b", "a"]\naggregate = [{kind="mean",field="f",low=0,high=2,grid=0.5},'
        '{kind="sum",field="g",low=-1,high=1,grid="0.25",name="total"}]'
    )
    assert [c.field for c in p.fields.columns] == ["f", "g"]
    assert [c.grid for c in p.fields.columns] == [Fraction(1, 2), Fraction(1, 4)]
    assert p.public_keys == (b'["a"]', b'["b"]')
    assert p.fields.allowed == frozenset(p.public_keys)
    # The count and the sum serve only the mean; they are not released under their own names.
    shown = {aggregate.label: aggregate.parts for aggregate in p.aggregates}
    assert shown == {"mean_f": ("count", "sum:f"), "total": ("sum:g",)}
    assert p.cells_partitions == 3


def test_aggregate_keys_releases_no_value():
    p = compiled(more='aggregate = "keys"')
    assert p.traits.outputs == ()


@settings(max_examples=12)
@given(st.integers(0, 60), st.sampled_from(["raw", "hash", "none"]))
def test_numbers_of_pipelines_are_those_of_the_ledger(number, policy):
    text = (
        INPUT.format(units=1, cells=1, partitioner="none", format="json")
        + f'dlq_payload = "{policy}"\n'
    )
    config = loads(text + PIPELINE.format(name="p", mechanism="", more=""), environ={})
    made = compile_config(config, None, {"p": number})
    assert made.pipelines[0].number == number and made.inputs[0].partitions == 1
    assert made.pipelines[0].dlq_payload == policy


@pytest.mark.parametrize(
    "on_error,topic,fails",
    [("dlq", "hush.p.dlq", False), ("drop", None, False), ("fail", None, True)],
)
def test_what_becomes_of_bad_records(on_error, topic, fails):
    text = (
        INPUT.format(units=1, cells=1, partitioner="none", format="json")
        + f'on_error = "{on_error}"\n'
    )
    p = compile_config(
        loads(text + PIPELINE.format(name="p", mechanism="", more=""), environ={})
    ).pipelines[0]
    assert (p.dlq_topic, p.fail_on_error) == (topic, fails)


# Mechanisms with inputs of their own

FARE = '{ kind = "sum", field = "trip.fare", low = 0, high = 100 }'
INPUTS = """
[[pipeline]]
name = "p"
input = "events"
window = {{ length = "1d", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "6h" }}
budget = {{ epsilon = 1.0, delta = 1e-6 }}
mechanism = {{ kind = "{kind}"{settings} }}
{more}
"""


def with_inputs(kind: str, settings_: str = "", more: str = f"aggregate = [{FARE}]") -> Any:
    return compiled(text=INPUTS.format(kind=kind, settings=settings_, more=more))


@pytest.mark.parametrize("kind", ["pak", "tops"])
def test_slots_follow_the_schedule_unless_they_are_given(kind):
    """One slot for each trigger from the start of the window, in microseconds of event time."""
    six_hours, begin = 6 * 3_600_000_000, 17956 * 86_400_000_000
    slots = with_inputs(kind).mechanism.slots
    assert (slots.length, slots.origin, slots.slots) == (six_hours, begin, 4)
    slots = with_inputs(kind, ", slots_per_trigger = 6").mechanism.slots
    assert (slots.length, slots.origin, slots.slots) == (six_hours // 6, begin, 24)
    slots = with_inputs(kind, ", slot = 60, origin = 7").mechanism.slots
    assert (slots.length, slots.origin) == (60, 7)
    more = f'aggregate = [{FARE}]\ninputs = {{ time = "minute" }}'
    assert with_inputs(kind, more=more).mechanism.slots.length == 1
    with pytest.raises(ConfigError, match="slots_per_trigger = 7: does not divide"):
        with_inputs(kind, ", slots_per_trigger = 7")


def test_inputs_are_read_from_where_they_are_configured():
    assert with_inputs("pak").fields.inputs == {"value": "trip.fare"}
    more = f'aggregate = [{FARE}]\ninputs = {{ value = "other" }}'
    assert with_inputs("tops", more=more).fields.inputs == {"value": "other"}
    report = with_inputs("topl", more=f'aggregate = [{FARE}]\ninputs = {{ code = "r.code" }}')
    assert report.fields.inputs == {
        "slot": "slot", "group": "group", "theta": "theta", "survey": "survey", "code": "r.code"
    }  # fmt: skip
    assert not report.fields.columns  # a report does not have the value itself


@pytest.mark.parametrize(
    "kind,more,hint",
    [
        ("pak", 'inputs = { x = "f" }', "pak has no input 'x'; there is time, value"),
        ("pak", 'key = ["f"]', "key has no effect with pak"),
        ("histogram", 'inputs = { x = "f" }', "there is none, it groups by key"),
        ("histogram", "", "needs key"),
    ],
)
def test_inputs_that_a_mechanism_does_not_have_are_refused(kind, more, hint):
    with pytest.raises(ConfigError, match=hint):
        with_inputs(kind, more=f"aggregate = [{FARE}]\n{more}")


def test_a_part_of_an_input_that_is_named_like_its_mechanism_s_is_refused() -> None:
    """It was met only as a worker started."""
    text = PIPELINE.format(name="p", mechanism="", more='where = [{ field = "x1.a", above = 1 }]')
    text = text.replace('key = ["page"]\n', "").replace('"histogram", budget = 4', '"phdstream"')
    with pytest.raises(ConfigError, match="field 'x1"):
        compiled(text=text.replace('unit_name = "user"', 'inputs = { x2 = "y" }'))
