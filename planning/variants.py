"""Changes of a pipeline that would make its releases more exact, or its budget smaller.

A variant changes only the window, the triggers, ε or the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats.events.keys import decode_key, encode_key
from ..topics.calendar import CalendarSpan
from ..topics.config.expressions.derive import Derive
from ..topics.config.inputs.places import place_of
from ..topics.config.pipelines.pipeline import PipelineSettings
from ..topics.config.pipelines.windows import Length, Triggers
from ..topics.config.toml.values import Duration, format_duration
from .records import Records

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
LENGTHS = tuple(map(Duration, (60 * SECOND, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY)))
EARLIER = tuple(
    Duration(number * unit)
    for unit, numbers in ((SECOND, (1, 2, 5, 10, 15, 30)), (60 * SECOND, (1, 2, 5, 10, 15, 30)),
                          (HOUR, (1, 2, 3, 4, 6, 12)), (DAY, (1,)))
    for number in numbers
)  # fmt: skip
LOOKS, MOST_LOOKS = 24, 96  # wanted and most triggers of a window that is released early as well
LARGER = 8  # the largest ε tried is this times the configured ε, but at least this itself
SMALLER = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 10))
MOST_EPSILON = 20
MOST_TRIGGERS = 1000
NAMES_SOMETHING = re.compile(
    r"(?:(?:^|[_.\-])(?i:ids?|code|zip|postcode|no|nr|number)|[a-z]I[dD])$"
)
"""Endings of names of fields whose numbers are identifiers rather than quantities."""
BUCKETS = (4, 16)  # times fewer keys of a numeric column


class Numbering(NamedTuple):
    """The key of each record, if keys are coarser than configured or publicly listed."""

    key: NDArray[np.int32]  # (n,)
    keys: int


class Variant(NamedTuple):
    """A changed pipeline."""

    settings: PipelineSettings  # the pipeline with its changes
    numbering: Numbering  # of the records' keys
    changes: dict[str, str]  # lines of the configuration that differ, as written there
    words: str  # the changes for people; empty if nothing was changed


def given(
    settings: PipelineSettings, records: Records, public: tuple[bytes, ...] | None
) -> Variant:
    """The pipeline as configured; ``public`` is its public key list in canonical order."""
    return Variant(settings, numbering(records, records.keys if public is None else public), {}, "")


def numbering(records: Records, keys: Sequence[bytes]) -> Numbering:
    """Each record's key as an index into a list that holds all keys of the records."""
    place = {key: i for i, key in enumerate(keys)}
    code = np.array([place[key] for key in records.keys], np.int32)
    return Numbering(code[records.key], len(keys))


def coarser(base: Variant, records: Records) -> Iterator[Variant]:
    """Coarser variants, the cheapest first: fewer triggers, longer windows, coarser keys, both."""
    rarely = list(_once(base))
    longer = list(_longer(base, records))
    fewer = list(_fewer_keys(base, records))
    yield from rarely
    yield from longer
    yield from fewer
    yield from (found for one in fewer for found in _longer(one, records))


def oftener(base: Variant) -> Variant | None:
    """The same windows, released early as well: about `LOOKS` times, the old times among them.

    None: a window has half as many triggers already, no interval fits, or triggers follow none.
    """
    settings = base.settings
    length, every = settings.window.length, settings.triggers.every
    if length is None or every is None or settings.window.hop or settings.schedule == "external":
        return None
    whole, now = _size(length), _size(every)
    if 2 * whole >= LOOKS * now:
        return None
    fitting = [one for one in EARLIER if one < now and now % one == 0]
    few = min(fitting, key=lambda one: abs(log(whole / one / LOOKS)), default=None)
    if few is None or whole > MOST_LOOKS * few:
        return None
    best: Length = few
    if isinstance(length, CalendarSpan) and few >= DAY:
        best = CalendarSpan.of(few // DAY, "day")
    text = best if isinstance(best, CalendarSpan) else format_duration(best)
    made = replace(settings, triggers=Triggers(every=best))
    changes = base.changes | {"triggers.every": f'"{text}"'}
    return base._replace(settings=made, changes=changes, words=f"a release every {text}")


def _size(length: Duration | CalendarSpan) -> int:
    """Microseconds; a month has 30 days, and no day 23 or 25 hours."""
    if not isinstance(length, CalendarSpan):
        return length
    return length.step * (30 * DAY if length.grid == "month" else DAY)


def shorter(base: Variant) -> Iterator[Variant]:
    """Shorter windows, the shortest first; each is released once."""
    length = base.settings.window_length
    if base.settings.window.length is None or base.settings.calendar is not None:
        return  # calendar windows are deliberate
    for one in LENGTHS:
        if one < length and length % one == 0:
            yield _windowed(base, one, one)


def dearer(base: Variant) -> Iterator[Variant]:
    """Variants with larger ε, the smallest first."""
    now = Fraction(base.settings.budget.epsilon)
    most, larger = min(Fraction(MOST_EPSILON), max(LARGER * now, Fraction(LARGER))), 2 * now
    while larger <= most:
        yield _paid(base, larger)
        larger *= 2


def cheaper(base: Variant) -> Iterator[Variant]:
    """Variants with smaller ε, the smallest first."""
    now = Fraction(base.settings.budget.epsilon)
    return (_paid(base, now * share) for share in reversed(SMALLER))


def _paid(base: Variant, epsilon: Fraction) -> Variant:
    budget = replace(base.settings.budget, epsilon=epsilon, limit_epsilon=None)
    text = f"{float(epsilon):.6g}"
    made = replace(base.settings, budget=budget)
    return base._replace(
        settings=made, changes=base.changes | {"budget.epsilon": text}, words=f"ε = {text}"
    )


def _once(base: Variant) -> Iterator[Variant]:
    length, triggers = base.settings.window.length, base.settings.triggers
    if (
        length is None
        or isinstance(length, CalendarSpan)
        or isinstance(triggers.every, CalendarSpan)
    ):
        return
    if triggers.cron is None and (triggers.every or 0) < length:
        yield _windowed(base, length, length)


def _longer(base: Variant, records: Records) -> Iterator[Variant]:
    settings = base.settings
    length, every = settings.window.length, settings.triggers.every
    if length is None or every is None or not records.timed:
        return
    if isinstance(length, CalendarSpan) or isinstance(every, CalendarSpan):
        return
    for one in LENGTHS:
        if one > length and one % every == 0 and one <= records.span:
            if one // every <= MOST_TRIGGERS and every < length:
                yield _windowed(base, one, every)
            yield _windowed(base, one, one)


def _windowed(base: Variant, length: Duration, every: Duration) -> Variant:
    """Other windows and triggers; an epoch is one window."""
    settings = base.settings
    window = replace(settings.window, length=length)
    made = replace(settings, window=window, triggers=Triggers(every=every), epoch=None)
    changes = {"triggers.every": f'"{format_duration(every)}"'}
    same = length == settings.window.length
    if not same:
        changes["window.length"] = f'"{format_duration(length)}"'
    words = f"one release of each window of {format_duration(length)}"
    if every < length:
        words = f"windows of {format_duration(length)}"
    both = f"{base.words}, {words}" if base.words else words
    return base._replace(settings=made, changes=base.changes | changes, words=both)


def _fewer_keys(base: Variant, records: Records) -> Iterator[Variant]:
    """Variants without one column of the key, or with its numbers in bands."""
    names = base.settings.key
    if not names or base.settings.public_keys is not None or not records.keys:
        return
    parts = [decode_key(key) for key in records.keys]
    for place, name in enumerate(names):
        if name in base.settings.derive:
            continue
        yield from _banded(base, parts, place, records)
    if len(names) > 1:
        for place in range(len(names)):
            kept = [n for i, n in enumerate(names) if i != place]
            coarse = [[v for i, v in enumerate(part) if i != place] for part in parts]
            derive = {n: d for n, d in base.settings.derive.items() if n in kept}
            made = replace(base.settings, key=tuple(kept), derive=derive)
            text = "[" + ", ".join(f'"{n}"' for n in kept) + "]"
            numbering = _numbered(coarse, records)
            yield Variant(made, numbering, {"key": text}, f"keys without {names[place]}")


def _banded(
    base: Variant, parts: list[list[Any]], place: int, records: Records
) -> Iterator[Variant]:
    name, settings = base.settings.key[place], base.settings
    values = [part[place] for part in parts]
    different = set(values)
    if len(different) < 2 * BUCKETS[0] or not all(type(v) in (int, float) for v in values):
        return
    if NAMES_SOMETHING.search(name) or name in (place_of(settings.key) or ()):
        return  # adjacent numbers have nothing in common, or bands would be strips of a map
    low, high = min(different), max(different)
    for fewer in BUCKETS:
        width = _round((high - low) / (len(different) / fewer))
        band = f"{name.replace('.', '_')}_band"
        if width <= 0 or band in settings.key:
            continue
        names = tuple(band if i == place else n for i, n in enumerate(settings.key))
        derive = {**settings.derive, band: Derive(field=name, bucket=Fraction(str(width)))}
        made = replace(settings, key=names, derive=derive)
        coarse = [[v // width if i == place else v for i, v in enumerate(part)] for part in parts]
        text = "[" + ", ".join(f'"{n}"' for n in names) + "]"
        changes = {"key": text, f"derive.{band}": f'{{ field = "{name}", bucket = {width:g} }}'}
        yield Variant(made, _numbered(coarse, records), changes, f"{name} in bands of {width:g}")


def _round(width: float) -> float:
    """The next larger 1, 2 or 5 times a power of ten."""
    if width <= 0:
        return 0.0
    scale = 10.0 ** np.floor(np.log10(width))
    return float(next(step * scale for step in (1, 2, 5, 10) if step * scale >= width * 0.999))


def _numbered(coarse: list[list[Any]], records: Records) -> Numbering:
    number: dict[bytes, int] = {}
    place = [number.setdefault(encode_key(one), len(number)) for one in coarse]
    return Numbering(np.array(place, np.int32)[records.key], len(number))
