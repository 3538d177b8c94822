"""The judge's command: what it can judge, and a folder without a deployment."""

from __future__ import annotations

import pytest

from .__main__ import main
from .logs import KINDS, Pipeline
from .stream import Objection


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
