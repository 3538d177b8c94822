"""Compiling a configuration: what is wrong is said with the pipeline's name, nothing is guessed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hushstream.agents.compiled import compile_config, pinned_hash
from hushstream.mechanisms.errors import ConfigError
from hushstream.topics.config import loads
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import INPUT, PIPELINE, deployment


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
    # The count and the sum only serve the mean: they are not shown under names of their own.
    assert p.names == {"count": None, "sum:f": None, "sum:g": "total"}
    assert [column for _, column in p.means] == ["sum:f"]
    assert p.cells_partitions == 3


def test_aggregate_keys_releases_no_value():
    p = compiled(more='aggregate = "keys"')
    assert p.mechanism.outputs == ()


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
