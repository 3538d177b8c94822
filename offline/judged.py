"""A simulation's releases compared with exact answers: errors, coverage, records cut and hidden."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from ..agents.deployment.model import Pipeline
from ..formats.events.decode import Decoded, View, utc
from ..mechanisms.columns import I64
from ..mechanisms.truth import Truth, WindowRecords
from ..topics.config.aggregates.contract import COUNT
from ..topics.releases import MANIFEST, ROW
from .engine import OfflineEngine
from .exact import counts_units, kept_share, of_keys
from .sessions import in_sessions

Bodies = dict[bytes, dict[str, Any]]  # key -> released row


@dataclass
class SimulationReport:
    """Comparison of the last release of each window with the truth."""

    pipeline: str
    # one entry per window: dates, exact and released keys and records, errors
    windows: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # number of records by outcome
    note: str = ""  # text for people about the preparation of the records
    # share of the records that the contribution bound cut off; None: unknown
    cut: float | None = None
    counted: str = "records"  # what a count counts: records, or distinct units
    unusable: str = ""  # text about unusable records; empty if there are none


def judge(p: Pipeline, view: View, decoded: Decoded, engine: OfflineEngine) -> SimulationReport:
    """Compare a pipeline's releases with the exact answers, after the engine's run.

    Not for a pipeline that reads reports of devices, whose values are not in the file. ``view``
    holds its decoded records, ``decoded`` those of all pipelines.
    """
    report = SimulationReport(p.name, counts=counts_of(p, engine))
    if p.windows.endless:
        view = _since_origin(p, view, decoded)
    if p.sessions is not None:
        view, report.counted = in_sessions(p, view, decoded), "sessions"
    if counts_units(p):
        report.counted = f"distinct units ({p.unit_name})"
    elif p.traits.pairs:
        report.counted = "distinct values"
    numbers: dict[Any, int] = {}
    unit = np.array(
        [numbers.setdefault(decoded.unit[row], len(numbers)) for row in view.rows.tolist()],
        np.int64,
    )
    window = p.windows.windows(decoded.time[view.rows])
    report.cut = _cut(p, view, unit, window, report.counts)
    released, told = last_rows(p, engine), manifests(p, engine)
    for number in sorted({*np.unique(window).tolist(), *told}):
        rows = released.get(number, {})
        held = (window > number - p.windows.hops) & (window <= number)
        truth = _truth(p, view, held, unit, rows)
        entry = dates(p, number) | compare(p, truth, rows) | _said(p, told.get(number, {}))
        report.windows.append({"window": number, **entry})
    return report


def _since_origin(p: Pipeline, view: View, decoded: Decoded) -> View:
    """Leave out what precedes a window without a stated end: such records are late."""
    kept = p.windows.windows(decoded.time[view.rows]) >= 0
    columns = {name: getattr(view, name)[kept] for name in ("rows", "key", "value", "sign")}
    return view._replace(**columns)


def _truth(p: Pipeline, view: View, mine: Any, unit: I64, rows: Bodies) -> Truth:
    if p.in_parts:
        return of_keys(p, view, mine, unit)
    seen = WindowRecords(
        view.keys, view.key[mine], view.value[mine], view.sign[mine], unit[mine]
    )  # fmt: skip
    return p.mechanism.truth(seen, list(rows))


def _cut(
    p: Pipeline, view: View, unit: I64, window: I64, counts: Mapping[str, int]
) -> float | None:
    """Share of the records reaching the bound that it refused.

    Where counts are of distinct units, a unit's repeated keys are no loss.
    """
    if counts_units(p) and counts.get("accepted"):
        shown = np.unique(np.stack([window, view.key.astype(np.int64), unit]), axis=1).shape[1]
        return 1 - min(counts["accepted"] / max(int(shown), 1), 1.0)
    if counts.get("seen") and "accepted" in counts:
        return 1 - counts["accepted"] / counts["seen"]
    bound = p.mechanism.bounds(p.unit_name)
    if p.traits.pairs:
        return None  # repetitions of a unit are no loss
    if bound.get("kind") != "records":
        return None
    return 1 - kept_share(view, unit, window // p.windows.per_epoch, int(bound["budget"]))


def counts_of(p: Pipeline, engine: OfflineEngine) -> dict[str, int]:
    """Numbers of records of a pipeline by outcome."""
    found = sorted(engine.counts.items())
    return {outcome: number for (name, outcome), number in found if name == p.name and number}


def dates(p: Pipeline, window: int) -> dict[str, str | None]:
    """Both ends of a window as texts; None for an end that is not stated."""
    end = None if p.windows.endless else utc(p.windows.end(window))
    return {"start": utc(p.windows.opens(window)), "end": end}


def _bodies(p: Pipeline, engine: OfflineEngine, kind: str) -> Iterator[tuple[bytes, Any]]:
    for out in engine.outs.get(p.release_topic, ()):
        if out.headers[0][0] == kind:
            yield (out.key or b"").split(b"|", 2)[2], json.loads(out.value or b"{}")


def _window(p: Pipeline, body: Mapping[str, Any]) -> int:
    start = datetime.fromisoformat(body["window"]["start"])
    return p.windows.opened(round(start.timestamp()) * 1_000_000)


def last_rows(p: Pipeline, engine: OfflineEngine) -> dict[int, Bodies]:
    """Rows of each window's last release, by window and key.

    Unless a release replaces the previous one, a key that it lacks keeps its last row.
    """
    form, out = p.traits.keys, dict[int, Bodies]()
    for text, body in _bodies(p, engine, ROW):
        if body["final"] or not form.replaces:
            out.setdefault(_window(p, body), {})[form.key(text.decode())] = body
    return out


def manifests(p: Pipeline, engine: OfflineEngine) -> dict[int, dict[str, Any]]:
    """Collect the last manifest of each window, with thresholds that were learnt earlier."""
    out: dict[int, dict[str, Any]] = {}
    for _, body in _bodies(p, engine, MANIFEST):
        known = out.setdefault(_window(p, body), body)
        public = known.get("public", {}) | body["public"]
        out[_window(p, body)] = body | {"public": public}
    return out


def _said(p: Pipeline, told: Mapping[str, Any]) -> dict[str, Any]:
    """Threshold of keys, or the clipping threshold that was learnt, in the value's own unit."""
    if told.get("key_threshold") is not None:
        return {"threshold": told["key_threshold"]}
    learnt = p.mechanism.learnt(told.get("public", {}))
    return {} if learnt is None else {"threshold": learnt}


def compare(p: Pipeline, truth: Truth, rows: Bodies) -> dict[str, Any]:
    """Figures of one window: released rows by key, compared with exact answers.

    Returns:
        ``keys``, ``released``, ``hidden`` and their ``records``; ``figures`` by value; for counts
        by key also l1, l2 and linf over all keys, released or not.
    """
    held = truth.held
    covered = sum(n for key, n in held.items() if key in rows)
    body: dict[str, Any] = {
        "keys": sum(1 for n in held.values() if n) if rows or held else 0,
        "released": len(rows),
        "records": truth.records,
    }
    if truth.every:
        whole = sum(held.values())
        hidden = sum(1 for key in held if key not in rows)
        body |= {"keys": len(held), "covered": covered, "hidden": hidden}
        body["hidden_share"] = 1 - covered / whole if whole else 0.0
        body |= _norms(p, truth, rows)
    body["figures"] = {name: figures(rows, name, answers) for name, answers in truth.values.items()}
    return body


def figures(rows: Bodies, name: str, answers: Mapping[bytes, float]) -> dict[str, Any]:
    """Errors of one value over the rows that have an exact answer.

    Returns:
        ``rows``; ``error``, the median of absolute errors; ``relative``, the median of those
        relative to truths that are not 0; ``total``, the sum of absolute errors relative to the sum
        of truths; ``coverage``, the share of intervals that contain the truth. None where a figure
        is undefined.
    """
    found = [(key, b["values"][name]) for key, b in rows.items() if b["values"].get(name)]
    pairs = [(one, answers.get(key, 0.0)) for key, one in found]
    pairs = [(one, true) for one, true in pairs if not math.isnan(true)]
    errors = np.array([abs(one["value"] - true) for one, true in pairs], float)
    truths = np.array([abs(true) for _, true in pairs], float)
    inside = [one["low"] <= true <= one["high"] for one, true in pairs]
    some = truths > 0
    return {
        "rows": len(pairs),
        "error": float(np.median(errors)) if len(pairs) else None,
        "relative": float(np.median(errors[some] / truths[some])) if some.any() else None,
        "total": float(errors.sum() / truths.sum()) if truths.sum() else None,
        "coverage": sum(inside) / len(inside) if inside else None,
    }


def _norms(p: Pipeline, truth: Truth, rows: Bodies) -> dict[str, Any]:
    """Errors of counts over all keys; a hidden key counts as released with 0."""
    name = next((a.label for a in p.aggregates if a.parts == (COUNT,)), None)
    values = {k: b["values"][name]["value"] for k, b in rows.items() if name in b["values"]}
    held = truth.held
    errors = np.array([values.get(k, 0) - held.get(k, 0) for k in {*held, *values}], float)
    return {
        "l1": float(np.abs(errors).sum()) if values else None,
        "l2": float(np.sqrt((errors**2).sum())) if values else None,
        "linf": float(np.abs(errors).max(initial=0)) if values else None,
    }
