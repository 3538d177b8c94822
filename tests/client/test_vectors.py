"""The wire format does not change: the Python client computes the committed vectors."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hushstream.client import parse

from ..tree import ROOT
from . import vectors as made

COMMITTED: dict[str, Any] = json.loads((ROOT / "client" / "vectors.json").read_text("utf-8"))


@pytest.mark.parametrize("part", [name for name in COMMITTED if name != "format"])
def test_the_client_computes_the_committed_vectors(part: str) -> None:
    assert json.loads(json.dumps(made.vectors()[part])) == COMMITTED[part]


def test_what_is_no_survey_is_refused() -> None:
    assert [text for text in made.NO_SURVEYS if not made.refused(text)] == []


def test_digests_are_those_of_the_canonical_text() -> None:
    """Computed from the specification, without the client."""
    for one in COMMITTED["surveys"]:
        plain = json.loads(one["canonical"])
        assert json.dumps(plain, sort_keys=True, separators=(",", ":")) == one["canonical"]
        digest = hashlib.sha256(one["canonical"].encode("ascii")).hexdigest()
        assert (one["digest"], one["number"]) == (digest[:16], int(digest[:12], 16))


def test_groups_are_those_of_the_hash() -> None:
    """Computed from the specification, without the client."""
    for one in COMMITTED["groups"]:
        survey = json.loads(COMMITTED["surveys"][one["survey"]]["canonical"])
        text = f"{len(survey['salt'])}:{survey['salt']}{one['user']}".encode()
        place = Fraction(int(hashlib.sha256(text).hexdigest()[:16], 16), 1 << 64)
        share = Fraction(survey["share"])
        found = 1 if place < share / survey.get("rounds", 1) else 3
        assert one["group"] == (found if place < share else 2)


def test_tables_are_near_the_papers_and_never_beyond_epsilon() -> None:
    for one in COMMITTED["surveys"]:
        survey = json.loads(one["canonical"])
        epsilon, d = Fraction(survey["epsilon"]), survey["buckets"]
        power = math.exp(epsilon)
        wave = one["square_wave"]
        assert wave["high"] / 2**24 <= power * (1 + 1e-12)
        assert wave["high"] / 2**24 == pytest.approx(power, rel=1e-6)
        if epsilon > Fraction(1, 10):  # below, the formula cancels in floating point
            e = float(epsilon)
            half = (e * power - power + 1) / (2 * power * (power - 1 - e))
            assert wave["width"] == 2 * math.floor(half * d) + 1
        assert int(wave["total"]) == wave["width"] * wave["high"] + (d - 1) * 2**24


def test_reports_are_read_by_the_aggregator_and_every_channel_speaks() -> None:
    surveys, spoke = made.surveys(), set()
    for one in COMMITTED["reports"]:
        survey = surveys[one["survey"]]
        report = parse(one["payload"].encode(), survey)
        assert (report.user, report.slot) == (one["user"], one["slot"])
        spoke.add((report.group, report.code >= survey.hybrid.piecewise.outputs))
    assert spoke >= {(1, False), (2, False), (2, True), (3, False)}


def test_the_scale_of_octaves_is_that_of_the_specification() -> None:
    """Bucket and step from logarithms, without the client; draw 0 gives the value's own bucket."""
    for survey in (one for one in made.surveys() if one.rounds == 2):
        steps = survey.buckets // 16
        for value in (0, 1e-9, 0.0004, 0.1, 0.9, 3, 4.7, float(survey.bound), 1e300):
            share = min(value / float(survey.bound), 1)
            octave = min(max(math.floor(math.log2(share)) + 16, 0), 15) if share else 0
            place = math.floor((share * 2.0 ** (16 - octave) - 1) * steps)
            bucket = octave * steps + min(max(place, 0), steps - 1)
            assert survey.perturb_range(value, lambda n: 0) == bucket
            assert value >= survey.bound or value < survey.threshold(bucket + 1)
            assert not bucket or value >= survey.threshold(bucket)
