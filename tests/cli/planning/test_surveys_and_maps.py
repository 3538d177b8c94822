"""Advice of ``hush plan`` for surveys and maps: it can be pasted, and improves the release.

Covers: mechanisms/planner.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..bench import typed
from .test_request import folder, proposed, with_line

__all__ = ["folder"]  # a fixture

SURVEY = """
[[input]]
name = "steps"
topic = "steps"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "walked"
input = "steps"
unit_name = "user"
window = { length = "1d" }
triggers = { every = "4h" }
budget = { epsilon = 1.0 }
aggregate = [{ kind = "mean", field = "steps", low = 0, high = 20000 }]
mechanism = { kind = "topl", buckets = 64, levels = 64 }
[secret]
noise_key_file = "hush.key"
"""


def test_a_survey_comes_with_advice_that_can_be_pasted(folder: Path) -> None:
    (folder / "hush.toml").write_text(SURVEY)
    found = proposed("--records", "20000", "--tail-scale", "800")["walked"]
    errors = found["expected_error"]
    assert errors["ideal"] <= errors["proposed"] <= errors["configured"]
    with_line(folder, "topl", found["toml"])
    again = proposed("--records", "20000", "--tail-scale", "800")["walked"]
    assert again["expected_error"]["configured"] == errors["proposed"]


MAP = """
[[input]]
name = "visits"
topic = "visits"
unit = "user"
time = { field = "t", format = "epoch_us" }
[[pipeline]]
name = "map"
input = "visits"
inputs = { x = "x", y = "y" }
unit_name = "user"
window = { length = "1d" }
triggers = { every = "6h" }
budget = { epsilon = 1.0 }
[pipeline.mechanism]
kind = "KIND"
# bound
domain = { depth = 6, split = "SPLIT", axes = [AXES] }
[secret]
noise_key_file = "hush.key"
"""
AXES = '{ name = "x", low = 0, high = 1 }, { name = "y", low = 0, high = 1 }'


@pytest.mark.parametrize(("kind", "split"), [("phdstream", "all"), ("privhp", "binary")])
def test_a_map_gets_a_bound_for_a_shape_that_can_be_pasted(
    folder: Path, kind: str, split: str
) -> None:
    text = MAP.replace("KIND", kind).replace("SPLIT", split).replace("AXES", AXES)
    (folder / "hush.toml").write_text(text)
    shape = ("--shape", "users=3000,records=60000,keys=9")
    assert proposed()["map"] is None  # without records per unit there is nothing to say
    first = proposed(*shape)["map"]
    assert first["changed"] and first["units"] == 3000
    errors = first["expected_error"]
    assert errors["proposed"] < errors["configured"]
    (folder / "hush.toml").write_text(text.replace("# bound", first["toml"]))
    again = proposed(*shape)["map"]
    assert not again["changed"] and again["settings"] == first["settings"]
    assert again["expected_error"]["configured"] == errors["proposed"]
    code, out, err = typed("plan", *shape)
    assert code == 0, err
    said = " ".join(out.split())
    assert "no change needed:" in said and "a private number of all records" in said
    assert "chosen by the protected stream leaks it" in said
