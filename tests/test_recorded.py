"""A release changes only if the changelog says so, even by a byte."""

from __future__ import annotations

import json

import pytest

from .recorded.pipelines import RECORDED, cases, digests

WANTED = json.loads(RECORDED.read_text("utf-8"))


def test_every_case_is_recorded() -> None:
    assert sorted(WANTED) == sorted(cases())


@pytest.mark.parametrize("case", cases())
def test_releases_are_those_that_were_recorded(case: str) -> None:
    assert digests(case) == WANTED[case]
