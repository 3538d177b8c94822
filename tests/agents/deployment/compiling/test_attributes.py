"""Compiled attributes: the topic that states them, and keys without them."""

from __future__ import annotations

import pytest
from hushstream.agents.deployment.cluster.topic_specs import internal_topics, layout
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.topology import Topology
from hushstream.errors import ConfigError
from hushstream.formats.events.expressions.derived import Attribute, AttributeCases
from hushstream.topics.config.load import loads

from ....support import NAMES
from ....topics.config.inputs.test_attributes import CHOICE, COUNTRY, TEXT

SECOND = TEXT[TEXT.index("[[pipeline]]") :].replace('"p"', '"q"').replace("country", "age")


def test_a_key_is_read_without_its_attributes_and_public_keys_with_them():
    text = TEXT.replace('"page"]', '"page"]\npublic_keys = [["DE", "a"]]')
    made = compile_config(loads(text, environ={}))
    (p,) = made.pipelines
    assert p.fields.key == ("page",) and p.fields.allowed is None and not p.fields.derived
    assert p.attributed is not None and p.attributed.columns == ((0, Attribute("country", "none")),)
    assert p.attributed.sampled.allowed == frozenset({b'["DE","a"]'})
    sampled = made.inputs[0].in_json()
    assert sampled.attributes is None
    assert sampled.pipelines[0].fields == p.attributed.sampled


def test_all_pipelines_of_an_input_share_what_is_kept_of_a_unit():
    made = compile_config(loads(TEXT + SECOND, environ={}))
    assert made.inputs[0].attributes is not None
    assert made.inputs[0].attributes.paths == ("age", "country")
    assert not made.inputs[0].attributes.compared
    assert compile_config(loads(TEXT, environ={})).inputs[1].beside


def test_a_choice_by_attributes_leaves_the_key_with_them():
    made = compile_config(loads(TEXT.replace(COUNTRY, CHOICE), environ={}))
    (p,) = made.pipelines
    assert p.fields.key == ("page",) and not p.fields.derived and p.attributed is not None
    ((place, column),) = p.attributed.columns
    assert place == 0 and isinstance(column, AttributeCases) and column.domain == ("home", "rest")
    assert made.inputs[0].attributes is not None
    assert made.inputs[0].attributes.compared == {"country"}


def test_the_topic_is_pinned_has_no_shard_and_must_have_as_many_partitions():
    numbers = {"events": 3, "crm.users": 3}
    made = compile_config(loads(TEXT, environ={}), numbers)
    (source,) = made.streams
    assert layout(source, source.pipelines[0], NAMES).items() >= numbers.items()
    assert "crm.users" not in {spec.topic for spec in Topology(made, NAMES).specs}
    assert not [one for one in internal_topics(made, NAMES) if "users" in one.name]
    with pytest.raises(ConfigError, match=r"crm\.users with 3"):
        compile_config(loads(TEXT, environ={}), numbers | {"crm.users": 2})
