"""What `plan` advises on a pipeline: settings, expected errors, and what they rest on.

Advice comes from public parameters, from a sample that is public or synthetic, or from a stated
shape; never from the protected stream. It is a plain body, ready for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from ...errors import ConfigError
from ...mechanisms.contract import Noise, Setting
from ...mechanisms.histogram.advise import Goal, Outcome, Proposal, propose
from ...mechanisms.histogram.settings import HistogramParameters
from ...mechanisms.histogram.stated_shape import Shape
from ...mechanisms.noise import KeyedNoise
from ...mechanisms.pak import advise as pak_advise
from ...mechanisms.tops import advise as tops_advise
from ...topics.config.load import Config
from ..deployment.compile import parameters_of, setting_of
from ..deployment.model import Pipeline
from .sample import WINDOWS, Sample

_FEW = 50_000  # below so many records each candidate is played with more than one noise key
_REPEATS = 3
_SECRET = b"public noise of the advice alone"


class Subject(NamedTuple):
    """A pipeline, its parameters and what is fixed around them."""

    pipeline: Pipeline
    parameters: Any
    setting: Setting

    @property
    def kind(self) -> str:
        """Name of the mechanism."""
        return str(self.pipeline.config["mechanism"]["kind"])


def subject(config: Config, pipeline: Pipeline) -> Subject:
    """What there is to advise on."""
    (p,) = (one for one in config.pipeline if one.name == pipeline.name)
    setting = setting_of(p, pipeline.windows, pipeline.fields.columns, pipeline.public_keys)
    return Subject(pipeline, parameters_of(p), setting)


# Histogram


def shape_sample(one: Subject, shape: Shape) -> Sample:
    """A stated shape as the sample; the same records come again in each window of an epoch.

    Raises:
        ConfigError: the pipeline needs more than a shape says.
    """
    p = one.pipeline
    if one.setting.columns:
        raise ConfigError(
            f"pipeline {p.name!r} sums values, of which a shape says nothing; give a --sample"
        )
    if p.public_keys is not None and shape.keys != len(p.public_keys):
        raise ConfigError(
            f"pipeline {p.name!r} has {len(p.public_keys)} public keys, the shape {shape.keys}"
        )
    work = shape.workload()
    windows = range(min(p.windows.per_epoch, WINDOWS))
    epoch = tuple(work._replace(window=i) for i in windows)
    return Sample((epoch,), shape.users, len(set(work.key.tolist())), shape.records * len(epoch))


def histogram_advice(
    one: Subject, sample: Sample, goal: Goal, tick: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Settings of least error on the sample, and what every candidate did."""
    repeats = repeats_of(sample)
    found = propose(
        one.parameters, one.setting, sample.epochs, _noises(one.pipeline.name), goal, repeats, tick
    )
    names = [output.name for output in one.pipeline.mechanism.outputs] or ["records not covered"]
    grids = [float(o.grid) for o in one.pipeline.mechanism.outputs] or [1.0]
    ranked = sorted(found.outcomes, key=lambda p: found.outcomes[p].score)

    def body(p: HistogramParameters) -> dict[str, Any]:
        settings = {name: getattr(p, name) for name in found.settings}
        return {"settings": settings, **_outcome(found.outcomes[p], names, grids)}

    return {
        "kind": "histogram",
        "goal": goal,
        "sample": {
            "records": sample.records,
            "units": sample.units,
            "keys": sample.keys,
            "windows": sample.windows,
            "noise_keys": repeats,
        },
        "settings": {name: getattr(found.parameters, name) for name in found.settings},
        "toml": toml("histogram", _changed(one.parameters, found)),
        "changed": found.parameters != found.given,
        "proposed": body(found.parameters),
        "configured": body(found.given),
        "candidates": [body(p) for p in ranked],
        "notes": [*sample.notes, *_histogram_notes(one.pipeline, sample, found)],
    }


def repeats_of(sample: Sample) -> int:
    """Noise keys with which each candidate is played."""
    return 1 if sample.records >= _FEW else _REPEATS


def _noises(name: str) -> Callable[[int], Noise]:
    def noise(number: int) -> Noise:
        return KeyedNoise(
            _SECRET, charge=bytes(32), mechanism="advice", config=b"", pipeline=name,
            window=str(number), test=True,
        )  # fmt: skip

    return noise


def _outcome(outcome: Outcome, names: list[str], grids: list[float]) -> dict[str, Any]:
    pairs = list(zip(names, grids, strict=True))
    return {
        "l1": {n: float(x) * grid for (n, grid), x in zip(pairs, outcome.last, strict=True)},
        "mean_l1": {n: float(x) * grid for (n, grid), x in zip(pairs, outcome.mean, strict=True)},
        "share": outcome.score,
        "released": outcome.released,
    }


def _histogram_notes(p: Pipeline, sample: Sample, found: Proposal) -> list[str]:
    notes = []
    most = max(map(len, sample.epochs))
    if most < p.windows.per_epoch:
        notes.append(
            f"{p.windows.per_epoch} windows of an epoch share one bound, of which the sample holds "
            f"{most}: units will have less left per window than here"
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
    """Every setting that was chosen, and those given that are no defaults."""
    plain = type(given)()
    kept = {
        f.name: getattr(given, f.name)
        for f in fields(given)
        if f.name not in ("delay", "aggregate")  # they belong to the pipeline
        and getattr(given, f.name) != getattr(plain, f.name)
    }
    return kept | {name: getattr(found.parameters, name) for name in found.settings}


def toml(kind: str, settings: dict[str, Any]) -> str:
    """The line of a configuration that says it."""
    parts = [f"{name} = {_toml(value)}" for name, value in {"kind": kind, **settings}.items()]
    return f"mechanism = {{ {', '.join(parts)} }}"


def _toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return repr(int(value)) if float(value).is_integer() else repr(value)


# Streams of values


def pak_advice(one: Subject, records: int | None, scale: float | None) -> dict[str, Any]:
    """The optimiser's choice, and its error beside what is configured and B itself."""
    grid = float(one.setting.grids[0])
    found = pak_advise.propose(one.parameters, one.setting, records, _steps(one, scale))
    choice, top = found.choice, one.setting.columns[0][2] * grid
    settings = _moved(one.parameters, found.parameters, _OF_THRESHOLD if found.clip else ())
    return {
        "kind": "pak",
        "records": found.records,
        "scale": float(found.scale) * grid,
        "settings": settings,
        "toml": toml("pak", settings),
        "changed": found.parameters != one.parameters,
        "expected_error": {
            "proposed": found.error * grid,
            "configured": None if found.configured is None else found.configured * grid,
            "top": found.top * grid,
        },
        "largest_value": top,
        "rank": choice.rank if found.clip else None,
        "break_even": found.break_even * grid if found.clip else None,
        "clip": found.clip,
        "notes": [_pak_sentence(found, grid, top), *_pak_warmup(one, found)],
    }


_OF_THRESHOLD = ("warmup", "tail", "safety", "factor", "split")


def _pak_sentence(found: pak_advise.Advice, grid: float, top: float) -> str:
    if not found.clip:
        return (
            f"the largest value B = {top:g} is better than any learnt threshold here: take "
            'threshold = "top"'
        )
    share, even = float(found.choice.tail), found.break_even * grid
    if even >= top:
        return f"a learnt threshold is better than B = {top:g} whatever it turns out to be"
    return (
        f"a learnt threshold is better than B = {top:g} as long as at most {share:.2%} of the "
        f"values exceed {even:.4g}; beyond that B is"
    )


def _pak_warmup(one: Subject, found: pak_advise.Advice) -> list[str]:
    longer = found.parameters.warmup
    if longer <= one.parameters.warmup:
        return []
    return [
        f"with the longer warm-up nothing is released before trigger {longer} of "
        f"{one.setting.horizon}"
    ]


def tops_advice(one: Subject, records: int | None, scale: float | None) -> dict[str, Any]:
    """The public choices, the threshold to expect, and the errors of ranges with it."""
    grid = float(one.setting.grids[0])
    found = tops_advise.propose(one.parameters, one.setting, records, _steps(one, scale))
    settings = _moved(one.parameters, found.parameters, ())
    low, middle, high = (x * grid for x in found.thresholds)
    return {
        "kind": "tops",
        "records": found.records,
        "scale": float(found.excess) * grid,
        "settings": settings,
        "toml": toml("tops", settings),
        "changed": found.parameters != one.parameters,
        "skip": found.skip,
        "slots_per_block": found.width,
        "slots_per_chunk": found.chunk,
        "skip_errors": {str(s): error for s, error in found.skips},
        "threshold": {"5%": low, "50%": middle, "95%": high, "ideal": found.ideal * grid},
        "expected_error": {
            "configured": found.error * grid,
            "ideal": found.ideal_error * grid,
            "top": found.top_error * grid,
        },
        "largest_value": one.setting.columns[0][2] * grid,
        "clip": found.clip,
        "notes": [_tops_sentence(found, one.setting.columns[0][2] * grid)],
    }


def _tops_sentence(found: tops_advise.Advice, top: float) -> str:
    if found.clip:
        return f"the learnt threshold is better than the largest value B = {top:g}"
    return (
        f"the learnt threshold gains nothing over the largest value B = {top:g}: lengthen the "
        'warm-up, lower `high` if a smaller bound is public, or take PAK with threshold = "top"'
    )


def _steps(one: Subject, scale: float | None) -> float | None:
    return None if scale is None else scale / float(one.setting.grids[0])


def _moved(given: Any, proposed: Any, always: tuple[str, ...]) -> dict[str, Any]:
    plain = type(given)()
    return {
        f.name: getattr(proposed, f.name)
        for f in fields(given)
        if (f.name in always and getattr(proposed, f.name))
        or getattr(proposed, f.name) != getattr(plain, f.name)
    }
