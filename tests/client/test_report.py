"""Reports: those that are impossible or unreadable are refused."""

from __future__ import annotations

import json

import pytest
from hushstream.client import (
    Client,
    Report,
    ReportError,
    ReportStore,
    parse,
)
from hushstream.client.survey import RANGE, VALUE

from .surveyed import SURVEY, VALUED, store

__all__ = ["store"]  # a fixture


def test_reports_say_what_they_cost(store: ReportStore) -> None:
    payload = Client(SURVEY, store).report(VALUED, 1, 40, 5)
    record = json.loads(payload)
    assert record["schema"] == "hush.report/1"
    assert record["definition"] == "local"
    assert record["epsilon"] == "1/2" and record["epsilon_user"] == "3/2"
    assert record["survey"] == SURVEY.number and record["period"] == 0
    assert parse(payload, SURVEY) == Report(VALUED, 1, VALUE, 5, record["code"])


def forged(**changes: object) -> bytes:
    fields = {
        "schema": "hush.report/1",
        "survey": SURVEY.number,
        **Report(VALUED, 1, VALUE, 5, 3)._asdict(),
    }
    return json.dumps({**fields, **changes}).encode()


def test_the_unchanged_forgery_is_readable() -> None:
    assert parse(forged(), SURVEY).code == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"survey": SURVEY.number + 1},
        {"survey": SURVEY.digest},
        {"schema": "hush.report/2"},
        {"group": RANGE, "theta": 0},  # not this user's group
        {"group": 3},
        {"theta": 0},
        {"theta": 33},
        {"code": -1},
        {"code": SURVEY.hybrid.outputs},
        {"code": 3.0},
        {"code": float("nan")},
        {"code": True},
        {"slot": 1 << 32},
        {"user": 7},
    ],
)
def test_impossible_reports_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ReportError):
        parse(forged(**changes), SURVEY)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{}", b"\xff", b'{"survey": 1}'])
def test_unreadable_reports_are_refused(payload: bytes) -> None:
    with pytest.raises(ReportError):
        parse(payload, SURVEY)
