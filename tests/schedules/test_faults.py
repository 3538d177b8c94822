"""Errors that a schedule warrants are ones that the product still raises."""

from __future__ import annotations

import re

import pytest

from . import faults
from .forks import ROOT

TEXTS = [*faults.OLDER, faults.FORGOTTEN, *faults.LATE, *faults.AWAY, faults.UNASSIGNED,
         faults.CLOCKS, faults.REGISTRY]  # fmt: skip
SEAM = re.compile(r'"\s+f?"')  # between two parts of one text


@pytest.fixture(scope="module")
def product() -> str:
    folders = (ROOT / name for name in ("agents", "topics"))
    text = "".join(p.read_text("utf-8") for folder in folders for p in folder.glob("**/*.py"))
    return SEAM.sub("", text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_product_still_says_what_a_schedule_warrants(product: str, text: str) -> None:
    assert text in product
