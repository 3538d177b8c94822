"""Compares old terms of pipelines with new ones: what changes, when, and what a unit pays.

A charged setting is fixed for a pipeline's name. So changing one takes another pipeline, which
follows the first at a boundary of its epochs; all other settings change at once. Everything here is
public.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from ...topics.config.change import FREE, HASH, every, of
from ...topics.config.model import Config
from ...topics.config.pipelines.schedule import Schedule
from ...topics.config.toml.values import format_duration, format_instant
from .model import Pipeline

DAY = 86_400_000_000  # microseconds
LENGTHS = ("length", "every", "epoch", "lateness", "max_future_skew")  # settings in microseconds
IDENTITY = ("name", "follows", "deployment", "schema")


@dataclass(frozen=True)
class Terms:
    """The terms of one pipeline, from a configuration or a ledger."""

    name: str
    config: Mapping[str, Any]  # its charged settings
    until: int | None = None  # its end, microseconds since 1970; None: it has none
    free: Mapping[str, Any] | None = None  # further settings by path, which may change at once
    # public name of a noise key of its own, by the setting that gives it
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, p: Pipeline) -> Terms:
        """The terms of a compiled pipeline."""
        free = {
            "budget.limit_epsilon": p.limit_epsilon,
            "budget.limit_delta": p.limit_delta,
            "release.latest": p.latest_topic is not None,
        }
        return cls(p.name, p.config, p.until, free)

    @property
    def windows(self) -> Schedule:
        """Windows and epochs."""
        return Schedule.declared(self.config)

    @property
    def follows(self) -> str | None:
        """Name of the pipeline that it follows."""
        return self.config.get("follows")

    @property
    def budget(self) -> tuple[Fraction, Fraction]:
        """ε and δ of a unit and epoch."""
        given = self.config["budget"]
        return Fraction(given["epsilon"]), Fraction(given["delta"])


@dataclass(frozen=True)
class ChangedSetting:
    """One changed setting; ``holds`` says from when on the new value applies."""

    setting: str
    old: str
    new: str
    holds: str


@dataclass(frozen=True)
class Difference:
    """One pipeline compared with its earlier terms, or with the one that it follows."""

    pipeline: str
    against: str | None  # name of the other one; None: there is none, and it is new
    lines: tuple[ChangedSetting, ...]
    words: tuple[str, ...]  # the effect in sentences


def differences(old: Sequence[Terms], new: Sequence[Terms], now: int) -> list[Difference]:
    """Compare new terms with old ones, at ``now``, microseconds since 1970."""
    before = {one.name: one for one in old}
    after = {one.name: one for one in new}
    found = [_one(terms, before, after, now) for terms in new]
    gone = [Difference(t.name, t.name, (), _removed(t, now)) for t in old if t.name not in after]
    return [one for one in found if one.lines or one.words] + gone


def _one(
    terms: Terms, before: Mapping[str, Terms], after: Mapping[str, Terms], now: int
) -> Difference:
    known = before.get(terms.name)
    if known is not None:
        return _same(known, terms, now)
    first = before.get(terms.follows or "") or after.get(terms.follows or "")
    if first is None:
        return Difference(terms.name, None, (), (f"new: {_price(terms)}.",))
    begin = format_instant(terms.windows.origin)
    lines = [
        ChangedSetting(path, _shown(path, a), _shown(path, b), f"from {begin} on")
        for path, a, b in changes(first.config, terms.config)
        if path != "window.origin"
    ]
    lines += list(_free(first, terms, f"from {begin} on"))
    lines += list(_keys(first, terms, f"from {begin} on"))
    return Difference(terms.name, first.name, tuple(lines), tuple(_handed_over(first, terms)))


def _same(old: Terms, new: Terms, now: int) -> Difference:
    charged = list(changes(old.config, new.config))
    lines = [
        ChangedSetting(path, _shown(path, a), _shown(path, b), "never under this name")
        for path, a, b in charged
    ]
    lines += list(_free(old, new, "at once"))
    lines += list(_keys(old, new, "never under this name"))
    words = [_proposed(old, now)] if charged else []
    if old.until != new.until:
        lines.append(
            ChangedSetting("until", _instant(old.until), _instant(new.until), _end(old, new, now))
        )
    return Difference(new.name, old.name, tuple(lines), tuple(words))


def _end(old: Terms, new: Terms, now: int) -> str:
    if old.until is not None:
        return "never, once `hush topics` has written it: an end is not moved"
    least = old.windows.boundary(now)
    if new.until is not None and new.until < least and new.config["schedule"] == "wall":
        return f"refused: the earliest is {format_instant(least)}"
    return "from then on; `hush topics` writes it, for ever"


def _removed(terms: Terms, now: int) -> tuple[str, ...]:
    if terms.until is not None and terms.until <= now:
        return ("removed: it has ended; what it has not released by now is lost.",)
    return (
        "removed at once: what it has not released is lost, its charges stay; give it an until to "
        "end it at a boundary of its epochs.",
    )


def _free(old: Terms, new: Terms, holds: str) -> Iterator[ChangedSetting]:
    if old.free is None or new.free is None:
        return  # a ledger does not hold them
    for path in sorted({*old.free, *new.free}):
        a, b = old.free.get(path), new.free.get(path)
        if a != b:
            yield ChangedSetting(path, _shown(path, a), _shown(path, b), holds)


def _keys(old: Terms, new: Terms, holds: str) -> Iterator[ChangedSetting]:
    for path in sorted({*old.keys, *new.keys}):
        a, b = old.keys.get(path, "none"), new.keys.get(path, "none")
        if a != b:
            yield ChangedSetting(path, a, b, holds)


def changes(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """List charged settings that differ: path, old value, new value."""
    for name in sorted({*old, *new} - (set(IDENTITY) if not path else set())):
        a, b = old.get(name), new.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping) and "sha256" not in {*a, *b}:
            yield from changes(a, b, f"{path}{name}.")
        elif a != b:
            yield f"{path}{name}", a, b


def _shown(path: str, value: Any) -> str:
    """Write a value as a configuration has it; a list of public keys by its number and digest."""
    name = path.rpartition(".")[2]
    if value is None:
        return "none"
    if isinstance(value, Mapping) and "sha256" in value:
        return f"{value['count']} keys ({str(value['sha256'])[:8]})"
    if name in LENGTHS and isinstance(value, int):
        return format_duration(value)
    if name == "origin" and isinstance(value, int):
        return format_instant(value)
    if isinstance(value, Fraction | str):
        return str(value)
    return json.dumps(value, default=str)


def _instant(value: int | None) -> str:
    return "none" if value is None else format_instant(value)


def _price(terms: Terms) -> str:
    epsilon, delta = terms.budget
    unit, length = terms.config["unit_name"], _shown("epoch", terms.config["epoch"])
    return f"ε={float(epsilon):g}, δ={float(delta):g} per {unit} and epoch of {length}"


def _handed_over(old: Terms, new: Terms) -> Iterator[str]:
    """Say what one unit pays for the old, for the new, and for both."""
    unit = new.config["unit_name"]
    begin = format_instant(new.windows.origin)
    yield f"{old.name} ends and {new.name} goes on at {begin}."
    yield f"cost of {old.name}: {_price(old)}{_most(old)}."
    yield f"cost of {new.name}: {_price(new)}{_most(new)}."
    epochs = [t.windows.length * t.windows.per_epoch for t in (old, new)]
    before, after = (float(t.budget[0] * DAY / e) for t, e in zip((old, new), epochs, strict=True))
    if max(epochs) <= DAY:
        yield f"a {unit} active all day pays ε={before:g} a day before, and {after:g} after."
    (e, d), (f, g) = ([float(part) for part in t.budget] for t in (old, new))
    relation = new.config["neighbouring"]
    yield (
        f"a {unit} in N epochs before and M after pays the sum: ε = N × {e:g} + M × {f:g}, "
        f"δ = N × {d:g} + M × {g:g} ({relation}); one in a single epoch pays for that one alone. "
        f"Not the maximum: the boundary divides records, and a {unit} may have some on either side."
    )
    limits = [(t.free or {}).get("budget.limit_epsilon") for t in (old, new)]
    known = [Fraction(limit) for limit in limits if limit is not None]
    if len(known) == len(limits):
        yield f"over both limits together: at most ε={float(sum(known)):g}."


def _most(terms: Terms) -> str:
    limit = (terms.free or {}).get("budget.limit_epsilon")
    epsilon = terms.budget[0]
    if not limit or not epsilon:
        return ", no limit set"
    return f", at most {int(limit / epsilon):,} epochs within its limit of {float(limit):g}"


def _proposed(old: Terms, now: int) -> str:
    return f"charged settings hold for as long as a pipeline has its name. {proposal(old, now)}"


def proposal(old: Terms, now: int) -> str:
    """Say what to write so that new terms apply from a boundary of epochs on.

    Args:
        now: microseconds since 1970.
    """
    if old.config["schedule"] == "external" or old.config["window"]["length"] is None:
        return "Give the pipeline a new name, and with it charges of its own."
    begun = old.until is not None
    end = format_instant(old.until if old.until is not None else old.windows.boundary(now))
    keep = "Keep the block as it was declared"
    keep += ":" if begun else f", and add to it the earliest end:\n    until = {end}"
    return (
        f"{keep}\nWrite the new settings as a pipeline that follows it, with charges of its own "
        f'from {end} on:\n    [[pipeline]]\n    name = "{next_name(old.name)}"\n'
        f'    follows = "{old.name}"\nThen stop the workers, run `hush topics` and start them, all '
        "before that time."
    )


def next_name(name: str) -> str:
    """Name the next generation.

    >>> next_name("pages"), next_name("pages-2")
    ('pages-2', 'pages-3')
    """
    numbered = re.fullmatch(r"(.+)-(\d{1,9})", name)
    return f"{numbered[1]}-{int(numbered[2]) + 1}" if numbered else f"{name}-2"


def beside(old: Config, new: Config) -> list[ChangedSetting]:
    """List settings that differ and belong to no pipeline."""
    found = []
    for path in (path for path in every() if path.startswith("engine.")):
        name = path.partition(".")[2]
        found += _beside(path, path, getattr(old.engine, name), getattr(new.engine, name))
    before = {one.name: one for one in old.input}
    for source in (one for one in new.input if one.name in before):
        for one in fields(source):
            values = getattr(before[source.name], one.name), getattr(source, one.name)
            found += _beside(f"input.{source.name}.{one.name}", f"input.{one.name}", *values)
    return found


def _beside(shown: str, path: str, old: Any, new: Any) -> list[ChangedSetting]:
    held = of(path)
    if old == new or held is None or held.held == HASH:
        return []
    holds = "at once" if held.held == FREE else f"never in this deployment: {held.why}"
    return [ChangedSetting(shown, _shown(path, old), _shown(path, new), holds)]
