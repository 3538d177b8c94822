"""`hush mechanisms` as typed: every mechanism, and every setting with its meaning."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hushstream.mechanisms.catalogue import BUILT_IN
from hushstream.mechanisms.entry import Entry

from .bench import typed


def test_all_are_listed_with_their_purpose() -> None:
    code, out, _ = typed("mechanisms", "--json")
    assert code == 0
    assert json.loads(out) == [
        {"kind": one.name, "purpose": one.summary}
        for one in sorted(BUILT_IN, key=lambda one: one.name)
    ]
    assert all(one.name in typed("mechanisms")[1] for one in BUILT_IN)


@pytest.mark.parametrize("entry", BUILT_IN, ids=lambda entry: entry.name)
def test_every_setting_has_a_meaning(entry: Entry) -> None:
    code, out, err = typed("mechanisms", entry.name, "--json")
    assert code == 0, err
    found = {row["setting"]: row for row in json.loads(out)}
    assert list(found) == [one.name for one in fields(entry.parameters)]
    assert all(row["meaning"] and row["type"] and row["default"] for row in found.values())
    assert all(">>>" not in row["meaning"] for row in found.values())
    shown = typed("mechanisms", entry.name)[1]
    assert all(name in shown for name in found)


def test_an_unknown_one_is_refused() -> None:
    code, _, err = typed("mechanisms", "hist")
    assert code == 2 and "must be one of activity, histogram" in err
