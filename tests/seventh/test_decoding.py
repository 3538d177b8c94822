"""Records with keys and inputs: both decoders read both, and drop the same records."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.fields import InputFields, PipelineFields

from .test_binned import MADE

INPUT = InputFields("t", "epoch_us", "UTC", ("user",), 10_000, "json")
PIPELINE = PipelineFields(
    ("shop",), (), None, {"value": "price"}, frozenset({b'["a"]', b'["b"]'}), None, {}
)
ROWS: list[dict[str, Any]] = [
    {"user": "u", "t": 1, "shop": "a", "price": 0.5},
    {"user": "u", "t": 2, "shop": "b", "price": 7},
    {"user": "v", "t": 3, "shop": "a", "price": 19},
    {"user": "v", "t": 4, "shop": "c", "price": 19},  # not listed
    {"user": "v", "t": 5, "shop": "a", "price": 20},  # outside all bins
    {"user": "w", "t": 6, "shop": "a"},
    {"user": "w", "t": 7, "shop": "b", "price": 3},
]


def decoded(texts: list[str], pipeline: PipelineFields = PIPELINE) -> Any:
    records = [RawRecord(i, 0, None, text.encode()) for i, text in enumerate(texts)]
    return Decoder(INPUT, [pipeline], [MADE]).decode(records).views[0]


def counts(view: Any) -> Counter[tuple[bytes, int]]:
    names = view.keys.tolist()
    return Counter(
        (names[key], place)
        for key, place in zip(view.key.tolist(), view.value[:, 0].tolist(), strict=True)
    )


EXPECTED = Counter({(b'["a"]', 0): 1, (b'["b"]', 1): 1, (b'["b"]', 2): 1, (b'["a"]', 2): 1})


def test_keys_are_the_records_and_values_the_bins() -> None:
    view = decoded([json.dumps(row) for row in ROWS])
    assert counts(view) == EXPECTED and view.rows.tolist() == [0, 1, 2, 6]
    assert set(view.keys.tolist()) == {b'["a"]', b'["b"]'}
    assert view.bad == {5: "missing_value"} or str(view.bad[5]).startswith("missing_value")


def test_records_that_the_scanner_leaves_out_are_read_alike() -> None:
    odd = [json.dumps(row).replace('"shop"', '"s\\u0068op"') for row in ROWS]  # an escaped name
    for texts in (odd, odd[:2] + [json.dumps(row) for row in ROWS[2:]]):
        view = decoded(texts)
        assert counts(view) == EXPECTED and view.rows.tolist() == [0, 1, 2, 6]


def test_without_a_list_every_key_counts() -> None:
    open_ = replace(PIPELINE, allowed=None)
    found = counts(decoded([json.dumps(row) for row in ROWS], open_))
    assert found == EXPECTED + Counter({(b'["c"]', 2): 1})


def test_a_slice_without_a_record_in_a_bin_has_no_key() -> None:
    view = decoded([json.dumps(ROWS[4])])
    assert (len(view.keys), len(view.rows), view.value.shape) == (0, 0, (0, MADE.traits.columns))
    assert view.value.dtype == np.int64
