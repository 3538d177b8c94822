"""The judge's command: the list of what it judges, and a folder without a deployment."""

from __future__ import annotations

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.topics.config.load import loads

from .__main__ import main
from .logs import KINDS, Pipeline
from .outcomes import public
from .stream import Objection
from .test_histogram import COUNT, DISTINCT
from .worlds import INPUT, PIPELINE


def test_the_list_says_what_can_be_judged(capsys):
    assert main(["--list"]) == 0
    every = [
        "activity",
        "histogram",
        "pak",
        "phdstream",
        "privhp",
        "quantile",
        "topl",
        "tops",
        "view",
    ]
    assert capsys.readouterr().out.split() == every


def test_a_folder_without_a_deployment_is_refused_with_a_reason(tmp_path, capsys):
    for given, reason in (([], "give the folder"), ([str(tmp_path)], "has no file hush.toml")):
        with pytest.raises(SystemExit) as refused:
            main(given)
        assert refused.value.code == 2 and reason in capsys.readouterr().err


def test_a_mechanism_that_is_not_known_is_named():
    assert "other" not in KINDS
    with pytest.raises(Objection, match="other is no mechanism that can be judged"):
        Pipeline({"mechanism": {"kind": "other"}}).rules()


def test_distinct_values_over_an_endless_window_are_named_and_never_declared():
    endless = (
        'window = { endless = true, origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "6h" }'
    )
    head = INPUT.format(units=1, cells=1, partitioner="none", unit='"user"')
    counted, distinct = (
        head
        + PIPELINE.format(
            name="p", key='["page"]', window=endless, more=f"aggregate = [{one}]", epsilon=8,
            delta=0.01, mechanism="",
        )
        for one in (COUNT, DISTINCT)
    )  # fmt: skip
    with pytest.raises(ConfigError, match="pairs of key and value would be kept for ever"):
        compile_config(loads(distinct, environ={}), {"events": 1})
    made = compile_config(loads(counted, environ={}), {"events": 1})
    ((source, pipeline),) = ((source, p) for source in made.inputs for p in source.pipelines)
    known = public(source, pipeline)
    assert known.rules().endless
    known.config["aggregate"] = [{"kind": "distinct", "field": "shop"}]
    with pytest.raises(Objection, match="distinct values over an endless window are not judged"):
        known.rules()
