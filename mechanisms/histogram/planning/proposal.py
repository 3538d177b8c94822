"""Proposals for a histogram: settings of least error on a sample, and the table of all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....errors import ParameterError
from ...noise.trial import noise_of
from ...planner import Head, PlanTable, Question, toml, unlike_default
from ...workload import Sample, plainly
from ..settings import HistogramParameters
from .tune import Outcome, Proposal, propose

_FEW = 50_000  # with fewer records each candidate is played with more than one noise key
_REPEATS = 3
_AT = {"last": "at a window's last trigger", "mean": "on average over a window's triggers"}
_OF_THE_PIPELINE = ("delay", "aggregate")  # settings that follow from the pipeline

_HEADS = {
    "adaptive_weight": "weight",
    "factorization": "factors",
    "threshold_delta_share": "δ share",
    "last_share": "last share",
    "count_share": "count share",
    "per_key": "per key",
}


def proposed(question: Question, tick: Callable[[], None]) -> dict[str, Any]:
    """Settings of least error on the sample, and the outcome of every candidate."""
    sample = sample_of(question)
    found = propose(
        question.parameters, question.setting, sample.epochs,
        lambda number: noise_of(question.name, number), question.goal, repeats_of(sample), tick,
    )  # fmt: skip
    return {"source": question.source, **_body(question, sample, found)}


def table(name: str, body: dict[str, Any]) -> PlanTable:
    """The configured settings, then the best candidate of every budget."""
    goal, rows = body["goal"], list(_rows(body))
    first = rows[0][1]["settings"]
    varied = [n for n in first if any(r["settings"][n] != first[n] for _, r in rows)]
    heads = (
        Head(""), *(Head(_HEADS.get(one, one)) for one in varied), Head("keys"),
        *(Head(f"l1 {one}", wraps=True) for one in _errors(body["proposed"], goal)),
        Head("of all"),
    )  # fmt: skip
    lines = tuple((mark, *_line(candidate, goal, varied)) for mark, candidate in rows)
    return PlanTable(_intro(name, body), f"{name}: expected error {_AT[goal]}", heads, lines)


def sample_of(question: Question) -> Sample:
    """The sample; raises `ParameterError` if there is none."""
    if question.sample is None:
        raise ParameterError("sample", None, "a histogram's settings are tried on a sample")
    return question.sample


def _intro(name: str, body: dict[str, Any]) -> str:
    sample = body["sample"]
    return (
        f"{name}, tried on {body['source']} (records: {sample['records']:,}, units: "
        f"{sample['units']:,}, keys: {sample['keys']:,}, windows: {sample['windows']}). "
        "This must be public or synthetic data: settings that are tuned on the protected stream "
        "leak it, and no charge covers that. It should be as large as a real window: noise and "
        "thresholds do not shrink with a sample."
    )


def repeats_of(sample: Sample) -> int:
    """Noise keys with which each candidate is played."""
    return 1 if sample.records >= _FEW else _REPEATS


def _body(question: Question, sample: Sample, found: Proposal) -> dict[str, Any]:
    plain = plainly(question.mechanism.traits.outputs)
    outputs = [one for one in question.mechanism.traits.outputs if one.name in plain]
    names = [output.name for output in outputs] or ["records not covered"]
    grids = [float(o.grid) for o in outputs] or [1.0]
    ranked = sorted(found.outcomes, key=lambda p: found.outcomes[p].score)

    def body(p: HistogramParameters) -> dict[str, Any]:
        settings = {name: getattr(p, name) for name in found.settings}
        return {"settings": settings, **_outcome(found.outcomes[p], names, grids)}

    return {
        "kind": "histogram",
        "goal": question.goal,
        "sample": {
            "records": sample.records,
            "units": sample.units,
            "keys": sample.keys,
            "windows": sample.windows,
            "noise_keys": repeats_of(sample),
        },
        "settings": {name: getattr(found.parameters, name) for name in found.settings},
        "toml": toml("histogram", _changed(question.parameters, found)),
        "changed": found.parameters != found.given,
        "proposed": body(found.parameters),
        "configured": body(found.given),
        "candidates": [body(p) for p in ranked],
        "notes": [*sample.notes, *_notes(question, sample, found)],
    }


def _outcome(outcome: Outcome, names: list[str], grids: list[float]) -> dict[str, Any]:
    pairs = list(zip(names, grids, strict=True))
    return {
        "l1": {n: float(x) * grid for (n, grid), x in zip(pairs, outcome.last, strict=True)},
        "mean_l1": {n: float(x) * grid for (n, grid), x in zip(pairs, outcome.mean, strict=True)},
        "share": outcome.score,
        "released": outcome.released,
    }


def _notes(question: Question, sample: Sample, found: Proposal) -> list[str]:
    notes = []
    most = max(map(len, sample.epochs))
    if most < question.setting.windows:
        notes.append(
            f"{question.setting.windows} windows of an epoch share one bound, of which the sample "
            f"holds {most}: units will have less left per window than here"
        )
    if found.parameters.factorization == "final" != found.given.factorization:
        notes.append(
            'factorization = "final" is best at the last trigger of a window and worse before it; '
            "--goal mean looks at all triggers alike"
        )
    if not found.outcomes[found.parameters].released:
        notes.append("no key of this sample would be released: it is too small to choose by")
    elif found.parameters == found.given:
        notes.append("what is configured is within 1 % of the best that was tried")
    return notes


def _changed(given: HistogramParameters, found: Proposal) -> dict[str, Any]:
    """Every chosen setting, and every given one that differs from its default."""
    kept = {n: v for n, v in unlike_default(given).items() if n not in _OF_THE_PIPELINE}
    return kept | {name: getattr(found.parameters, name) for name in found.settings}


def _rows(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The configured settings, then the best candidate of each budget, the proposed one marked."""
    best: dict[float, dict[str, Any]] = {}
    for candidate in body["candidates"]:  # best first
        best.setdefault(candidate["settings"]["budget"], candidate)
    proposed, given = body["proposed"], body["configured"]
    best[proposed["settings"]["budget"]] = proposed
    if given != proposed:
        yield "configured", given
    shown: list[Any] = []
    for _, candidate in sorted(best.items()):
        figures = candidate["l1"], candidate["mean_l1"]
        if candidate == proposed:
            yield "proposed", candidate
        elif candidate != given and figures not in shown:  # skip budgets without any effect
            yield "", candidate
        shown.append(figures)


def _line(candidate: dict[str, Any], goal: str, names: list[str]) -> list[str]:
    settings = [candidate["settings"][name] for name in names]
    errors = _errors(candidate, goal).values()
    numbers = [f"{candidate['released']:,.0f}", *(f"{x:,.0f}" for x in errors)]
    return [
        *(v if isinstance(v, str) else f"{v:g}" for v in settings), *numbers,
        f"{candidate['share']:.1%}",
    ]  # fmt: skip


def _errors(candidate: dict[str, Any], goal: str) -> dict[str, float]:
    """The errors that form the goal; last and mean error if there is a single output."""
    last, mean = candidate["l1"], candidate["mean_l1"]
    if len(last) == 1:
        ((name, x),) = last.items()
        return {"last": x, "mean": mean[name]}
    chosen: dict[str, float] = last if goal == "last" else mean
    return chosen
