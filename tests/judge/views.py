"""Views, specified a second time: arithmetic on the records of one release topic.

A view reads only releases, so it needs no noise key and no raw log. Numbers are fractions. The ends
of a quotient's interval solve a quadratic equation; they may differ in the last digits.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

from .completed import Place, Published, Source, complete
from .gaussian import root
from .having import cells, holds, ordered
from .rows import near, plain, six
from .rules import Rules

CLOSE = 2e-5  # part of an interval's width: its ends have six digits
OWN = {"cut", "space", "follows"}  # statements of a manifest that apply only to its source
WORDS = {"digest", "in_words"}


class Number(NamedTuple):
    """A number with noise; ``ends`` is given if they do not follow from the variance."""

    value: Fraction
    variance: Fraction
    floored: bool = False  # the exact number is never negative
    ends: tuple[float, float] | None = None


Numbers = Mapping[str, Number | None]


class ViewJudge:
    """Judge of one view.

    Args:
        view: settings of the view, as in its table.
        rules: rules of the source.
    """

    def __init__(self, view: Mapping[str, Any], rules: Rules) -> None:
        self.view, self.rules = view, rules
        config = rules.config
        histogram = config["mechanism"]["kind"] == "histogram"
        debiased = rules.parameters.get("debias", False)
        told = {label(a): a for a in config["aggregate"]} if histogram else {}
        kinds = () if debiased else ("count", "sum")
        self.added = {name: a for name, a in told.items() if a["kind"] in kinds}
        self.counts = {self.lead(name)[0]: name for name in reversed(self.added)
                       if self.added[name]["kind"] == "count"}  # fmt: skip
        self.history: dict[int, dict[bytes, Numbers]] = {}  # by window: its newest numbers

    def names(self, released: Sequence[str]) -> list[dict[str, Any]]:
        """The values of the view, each with its name."""
        values = self.view.get("values") or [{"of": name} for name in released]
        kinds = [one.get("kind", "value") for one in values]
        given = {"value": "{of}", "ratio": "{of}_per_{over}"}
        return [{**one, "kind": kind,
                 "name": one.get("name", given.get(kind, f"{kind}_{{of}}").format(**one))}
                for one, kind in zip(values, kinds, strict=True)]  # fmt: skip

    def rows(self, source: Source) -> list[dict[str, Any]]:
        """The rows of the view in order: the key, as released, and the values."""
        number, told = self.rules.window(microseconds(source.place[0])), source.manifest
        z = NormalDist().inv_cdf((1 + told["confidence_level"]) / 2)
        names = self.names(told["value_names"])
        groups = self.grouped(source, told["key_names"])
        made, asked = [], []
        for key, (columns, numbers) in groups.items():
            values = {one["name"]: self.shown(self.value(one, key, numbers, number, z), z)
                      for one in names}  # fmt: skip
            made.append({"key": columns, "values": values, "text": key})
            before = {name: self.shown(one, z) for name, one in numbers.items()}
            asked.append(cells(before) | cells(values) | columns)
        self.history[number] = {key: numbers for key, (_, numbers) in groups.items()}
        kept = [n for n, row in enumerate(asked)
                if all(holds(row, one) for one in self.view.get("having", ()))]  # fmt: skip
        for step in self.view.get("order", ())[::-1]:
            by, back = step["by"], step.get("descending", False)
            there = [n for n in kept if asked[n].get(by) is not None]
            there.sort(key=lambda n: ordered(asked[n][by]), reverse=back)
            kept = there + [n for n in kept if asked[n].get(by) is None]
        return [made[n] for n in kept][: self.view.get("limit")]

    def grouped(
        self, source: Source, names: Sequence[str]
    ) -> dict[bytes, tuple[dict[str, Any], Numbers]]:
        """Rows that fulfil ``where``, added by the view's key, in the order of keys."""
        key = self.view.get("key", names)
        rows = [
            row
            for row in source.rows
            if all(
                holds(cells(row["values"]) | row["key"], one) for one in self.view.get("where", ())
            )
        ]
        whole = list(key) == list(names)
        rows.sort(key=lambda row: [ordered(row["key"][name]) for name in key])
        members: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            parts = [row["key"][name] for name in key]
            text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
            members[text.encode()].append(row)
        found = {}
        for text, group in members.items():
            shown = {name: group[0]["key"][name] for name in key}
            taken = group[0]["values"] if whole else self.added
            found[text] = shown, {name: self.total([self.number(row, name) for row in group])
                                  for name in taken}  # fmt: skip
        return found

    def number(self, row: Mapping[str, Any], name: str) -> Number | None:
        """A released value."""
        told = row["values"].get(name)
        if told is None:
            return None
        deviation = Fraction(told["stddev"]) ** 2
        ends = told["low"], told["high"]
        return Number(Fraction(repr(told["value"])), deviation, self.floored(name), ends)

    def floored(self, name: str) -> bool:
        """Whether the exact value is never negative; only for values that can be added."""
        low = Fraction(self.added.get(name, {}).get("low") or 0)
        return name in self.added and self.rules.config["sign"] is None and low >= 0

    @staticmethod
    def total(parts: Sequence[Number | None]) -> Number | None:
        """The sum of independent numbers; None if one is missing."""
        known = [one for one in parts if one is not None]
        if len(known) < len(parts):
            return None
        if len(known) == 1:
            return known[0]
        value, variance = (sum(one[n] for one in known) for n in (0, 1))
        return Number(Fraction(value), Fraction(variance), all(one.floored for one in known))

    def value(
        self, one: Mapping[str, Any], key: bytes, now: Numbers, number: int, z: float
    ) -> Number | None:
        """One value of one key."""
        this, back = now.get(one["of"]), one.get("windows")

        def earlier(window: int) -> Number | None:
            return self.history.get(window, {}).get(key, {}).get(one["of"])

        if one["kind"] == "value":
            return this
        before = earlier(number - (back or 1))
        if one["kind"] == "lag" or this is None:
            return before if one["kind"] == "lag" else None
        if one["kind"] == "change":
            if before is None:
                return None
            return Number(this.value - before.value, this.variance + before.variance)
        if one["kind"] == "ratio":
            below = now.get(one["over"])
            return None if below is None else self.ratio(one, this, below, now, z)
        past = (n for n in self.history if n < number and (not back or number - n < back))
        return self.total([this, *(e for n in past if (e := earlier(n)) is not None)])

    def ratio(
        self, one: Mapping[str, Any], a: Number, b: Number, now: Numbers, z: float
    ) -> Number | None:
        """A quotient; its interval has all r for which a - r·b is within z deviations of 0."""
        times, leads = 1, [self.lead(one[name]) for name in ("of", "over")]
        count = now.get(self.counts.get(leads[0][0], ""))
        shared = leads[0][1] * leads[1][1] * (leads[0][0] == leads[1][0])
        if shared and count is None:  # the correlation of the noise is unknown
            times, covariance = 2, Fraction(0)
        else:
            covariance = shared * count.variance if shared and count else Fraction(0)
        va, vb, square = times * a.variance, times * b.variance, Fraction(z) ** 2
        first, last = b.value**2 - square * vb, a.value**2 - square * va
        if b.value <= 0 or first <= 0:
            return None
        half = a.value * b.value - square * covariance
        spread = root(max(half**2 - first * last, Fraction(0)))
        exact = Fraction(plain(a.value) / plain(b.value))
        variance = max((va + exact**2 * vb - 2 * exact * covariance) / b.value**2, Fraction(0))
        told = near(float(exact), math.sqrt(variance))
        ends = [float(told + (half + way * spread) / first - exact) for way in (-1, 1)]
        if a.floored:
            ends = [max(end, 0.0) for end in ends]
        return Number(told, variance, a.floored, (ends[0], ends[1]))

    def lead(self, name: str) -> tuple[str, Fraction]:
        """The count whose noise is part of a value's noise, and its factor."""
        a = self.added[name]
        if a["kind"] == "count":
            return (f"sum:{a['column']}" if "where" in a else "count"), Fraction(1)
        path = a.get("column") or a["field"]
        place = next(n for n, c in enumerate(self.rules.columns) if c.path == path)
        return self.rules.counter(place), self.rules.middle[place] * self.rules.columns[place].grid

    def shown(self, one: Number | None, z: float) -> dict[str, Any] | None:
        """A number in the form of a row."""
        if one is None:
            return None
        deviation = six(math.sqrt(one.variance))
        half = Fraction(repr(six(z * deviation)))
        ends = [one.value - half, one.value + half]
        if one.floored:
            ends = [max(end, Fraction(0)) for end in ends]
        low, high = one.ends or (float(ends[0]), float(ends[1]))
        out = {"value": plain(one.value), "stddev": deviation, "low": low, "high": high}
        shown = self.rules.config["release"]["display"] != "raw"
        return out | ({"display_value": max(out["value"], 0)} if shown else {})


def about_view(
    view: Mapping[str, Any], rules: Rules, source: Iterable[Published],
    published: Sequence[Published],
) -> Iterator[str]:  # fmt: skip
    """Objections to the records of a view; records that are still to come are not missed."""
    judge, told = ViewJudge(view, rules), defaultdict[Place, list[Any]](list)
    for key, value in published:
        body = json.loads(value)
        told[body["window"]["start"], body["trigger"]].append((key, body))
    for one in complete(source):
        rows, found = judge.rows(one), told.pop(one.place, [])
        if not found and not told:
            return
        yield from (f"{view['name']} {one.place}: {wrong}"
                    for wrong in differences(view, judge, one, rows, found))  # fmt: skip
    yield from (f"{view['name']} {place}: released without a release of its source"
                for place in told)  # fmt: skip


def differences(
    view: Mapping[str, Any], judge: ViewJudge, one: Source, rows: Sequence[dict[str, Any]],
    found: Sequence[tuple[bytes, dict[str, Any]]],
) -> Iterator[str]:  # fmt: skip
    """Compare one release: its rows in order, and its manifest, which is the last record."""
    head = f"{view['name']}|{one.place[0]}|".encode()
    made = [key.removeprefix(head) for key, _ in found]
    if made != [*(row["text"] for row in rows), b"manifest:0"]:
        yield f"{made} were released, not {[row['text'] for row in rows]} and a manifest"
        return
    names = [value["name"] for value in judge.names(one.manifest["value_names"])]
    for row, (_, body) in zip(rows, found, strict=False):
        told = [one.manifest["privacy"]["charge"], view["name"], *one.place, row["text"].decode()]
        same = {name: one.manifest[name] for name in ("window", "trigger", "final")}
        same |= {"schema": "hush.release/2", "pipeline": view["name"], "key": row["key"]}
        same["release_id"] = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
        for name, value in same.items():
            if body[name] != value:
                yield f"{row['text']!r} has {name} = {body[name]}, not {value}"
        for name in names:
            if not close(body["values"][name], row["values"][name]):
                yield (f"{row['text']!r} has {name} = {body['values'][name]}, "
                       f"not {row['values'][name]}")  # fmt: skip
    wanted = {n: told for n, told in one.manifest.items() if n not in OWN} | {
        "pipeline": view["name"], "shard": 0, "shards": 1, "rows": len(rows), "replaces": True,
        "key_names": list(view.get("key", one.manifest["key_names"])), "value_names": names,
        "public": {}, "view": {"source": view["source"]},
    }  # fmt: skip
    body = found[-1][1]
    body = body | {"view": {n: told for n, told in body["view"].items() if n not in WORDS}}
    for name in sorted(body.keys() | wanted.keys()):
        if body.get(name) != wanted.get(name):
            yield f"the manifest says {name} = {body.get(name)}, not {wanted.get(name)}"


def close(told: dict[str, Any] | None, wanted: dict[str, Any] | None) -> bool:
    """Whether a value is right, and its error to the last of six digits."""
    if told is None or wanted is None:
        return told is wanted
    reach = CLOSE * max(wanted["high"] - wanted["low"], wanted["stddev"])
    exact = {name for name in wanted if name in ("value", "display_value")}
    return told.keys() == wanted.keys() and all(
        told[n] == wanted[n] if n in exact else abs(told[n] - wanted[n]) <= reach for n in wanted
    )


def label(a: Mapping[str, Any]) -> str:
    """The name of a released value."""
    plainly = "count" if a["kind"] == "count" else f"{a['kind']}_{a.get('field')}"
    return a["name"] or plainly.replace(".", "_")


def microseconds(text: str) -> int:
    """The microseconds of a time in a row."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
