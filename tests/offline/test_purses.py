"""The part of a file that purses let through: as counted by hand, with matching errors."""

from __future__ import annotations

import pytest
from hushstream.offline.purses import left
from hushstream.topics.config.load import loads

from ..support import DAY, INPUT, ORIGIN, PIPELINE

CAP = "delta = 1e-4, per_unit = { epsilon = 12, delta = 2e-4 } }"
KEYS = 'public_keys = ["p0", "p1", "p2", "p3"]'


def test_a_forecast_says_what_is_kept_once_purses_run_dry():
    """Users come each day, and their purse pays for two days, so a third of six days is kept."""
    data = [
        {"user": f"u{user}", "page": f"p{page}", "t": ORIGIN + day * DAY + user}
        for day in range(6) for user in range(200) for page in range(4)
    ]  # fmt: skip
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    text += PIPELINE.format(name="p", mechanism="", more=KEYS).replace("delta = 1e-4 }", CAP)
    text += PIPELINE.format(name="free", mechanism="", more=KEYS)
    found = left(loads(text, environ={}), data, "events")
    assert set(found) == {"p"}
    one = found["p"]
    assert one.windows == 6 and one.kept == pytest.approx(1 / 3)
    capped, free = one.errors["count"]
    assert capped == pytest.approx(2 / 3, abs=0.05) and free < 0.05
    said = one.in_words
    assert "over 6 windows (4,800 records) of the file" in said and "33.3% is kept" in said
    assert f"error of count: {capped:.1%} in place of {free:.1%}" in said


def test_who_comes_once_loses_nothing():
    data = [
        {"user": f"u{day} {user}", "page": "p0", "t": ORIGIN + day * DAY + user}
        for day in range(4) for user in range(50)
    ]  # fmt: skip
    text = INPUT.format(units=1, cells=1, partitioner="none", format="json")
    text += PIPELINE.format(name="p", mechanism="", more="").replace("delta = 1e-4 }", CAP)
    one = left(loads(text, environ={}), data, "events")["p"]
    assert one.kept == 1 and one.hidden is not None and one.hidden[0] == one.hidden[1]
    assert max(one.errors["count"]) < 0.15  # noise alone
