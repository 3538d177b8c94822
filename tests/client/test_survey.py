"""Surveys: thresholds of manifests, groups, text, and invalid settings."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hushstream.client import (
    ReportError,
    Survey,
    published_threshold,
)
from hushstream.client.survey import RANGE

from .surveyed import SURVEY, store

__all__ = ["store"]  # a fixture


def manifest(survey: Survey = SURVEY, **public: object) -> bytes:
    return json.dumps({"public": {"survey": [survey.number], "theta": [5]} | public}).encode()


def test_devices_take_the_threshold_of_their_survey_from_a_manifest() -> None:
    other = Survey(Fraction(1, 2), Fraction(99), "s", reports=3, buckets=32, levels=16)
    assert published_threshold(manifest(), SURVEY) == 5
    assert published_threshold(manifest().decode(), SURVEY) == 5
    assert published_threshold(manifest(other), SURVEY) is None
    for theta in ([0], [33], [5.0], [True], ["5"], [], [5, 6], 5, None):
        assert published_threshold(manifest(theta=theta), SURVEY) is None


def test_a_decoded_manifest_tells_the_same() -> None:
    body = json.loads(manifest())
    assert published_threshold(body, SURVEY) == 5
    assert published_threshold(bytearray(manifest()), SURVEY) == 5
    assert published_threshold(body | {"public": {}}, SURVEY) is None
    for nothing in (None, 5, [body], body["public"]["theta"]):
        with pytest.raises(ReportError, match="record = "):
            published_threshold(nothing, SURVEY)  # type: ignore[arg-type]


def test_a_threshold_is_for_the_slots_of_its_window() -> None:
    window = {"start": "2019-03-01T00:00:00Z", "end": "2019-03-02T00:00:00Z"}
    body, first = json.loads(manifest()) | {"window": window}, 17956 * 86_400
    told = {
        slot: published_threshold(body, SURVEY, slot)
        for slot in (first - 1, first, first + 86_399, first + 86_400)
    }
    assert list(told.values()) == [None, 5, 5, None]
    for window in ({}, {"start": "x", "end": "y"}, {"start": 1, "end": 2}):  # type: ignore[dict-item]
        assert published_threshold(body | {"window": window}, SURVEY, first) is None
    assert published_threshold(manifest(), SURVEY, first) is None  # an unknown window


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"null", b"[]", b'{"public": 3}', b'{"values": {}}']
)
def test_other_records_of_a_release_topic_tell_no_threshold(payload: bytes) -> None:
    assert published_threshold(payload, SURVEY) is None


def test_groups_follow_share_and_salt() -> None:
    users = [f"user-{i}" for i in range(4000)]
    ranged = [user for user in users if SURVEY.group(user) == RANGE]
    assert abs(len(ranged) - 400) < 4 * (4000 * 0.1 * 0.9) ** 0.5
    other = Survey(Fraction(1, 2), Fraction(100), "t")
    both = [user for user in ranged if other.group(user) == RANGE]
    assert len(both) < len(ranged) / 4
    # characters cannot move between salt and user
    survey_ab, survey_a = (Survey(Fraction(1), Fraction(1), salt) for salt in ("ab", "a"))
    assert {survey_ab.group(f"{i}") == survey_a.group(f"b{i}") for i in range(200)} == {True, False}


def test_a_survey_travels_as_text() -> None:
    again = Survey.from_json(SURVEY.to_json())
    assert again == SURVEY and again.digest == SURVEY.digest
    assert Survey(Fraction(1, 2), Fraction(100), "s", reports=4).digest != SURVEY.digest


@pytest.mark.parametrize(
    "name,value",
    [
        ("epsilon", Fraction(0)),
        ("epsilon", Fraction(17)),
        ("bound", Fraction(0)),
        ("share", Fraction(1)),
        ("reports", 0),
        ("buckets", 1),
        ("levels", 4097),
        ("levels", 2.5),
        ("period", -1),
    ],
)
def test_surveys_name_what_is_wrong(name: str, value: object) -> None:
    given_ = {"epsilon": Fraction(1), "bound": Fraction(1), "salt": "s", name: value}
    with pytest.raises(ReportError, match=f"{name} = "):
        Survey(**given_)  # type: ignore[arg-type]
