"""The test vectors of the wire format, as the Python client computes them.

    python -m tests.client.vectors > client/vectors.json

writes them again. Only a new version of the format may do this, because devices in the field keep
sending what the committed file says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any
from unittest.mock import patch

from hushstream.client import Budget, Client, ReportError, ReportStore, Survey, exp_below, sampling
from hushstream.client import published_threshold as published
from hushstream.client.survey import NARROW, RANGE, STEP, VALUE

Vector = dict[str, Any]

PUBLISHED = (
    '{"epsilon":"1","bound":"1440","salt":"trips-2031","share":"1/10","reports":7,"period":604800}',
    '{"epsilon":"1/2","bound":"100","salt":"s","reports":3,"share":"1/4","buckets":32,"levels":16}',
    '{"epsilon":"61/100","bound":"10","salt":"","share":"1/2","buckets":2,"levels":2}',
    '{"epsilon":"62/100","bound":"1/3","salt":"Grüße 🌊 \\"x\\" \\u007f\\n","share":"2/4"}',
    '{"epsilon":"16","bound":"3000","salt":"b","share":"999/1000","buckets":4096,"levels":4096}',
    '{"epsilon":"1/1000","bound":"25/2","salt":"c","share":"1/3","buckets":7,"levels":5,'
    '"period":4294967296}',
    '{"epsilon":"1","bound":"1440","salt":"trips-2031","share":"1/5","rounds":2}',
    '{"epsilon":"3/4","bound":"25/3","salt":"r","share":"2/3","rounds":2,"buckets":48,"levels":9}',
    '{"epsilon":"2","bound":"100","salt":"t","share":"1/5","rounds":2,"channel":"told"}',
    '{"epsilon":"1/2","bound":"7","salt":"u","share":"1/3","buckets":6,"levels":4,"channel":"told"}',
    '{"epsilon":"1","bound":"3","salt":"v","share":"1/3","channel":"hybrid"}',
)
WHOLE: Vector = {"epsilon": "1", "bound": "1", "salt": "s", "share": "1/2"}
WRONG: tuple[Vector, ...] = (
    {"epsilon": 1}, {"epsilon": "17"}, {"epsilon": "1/1001"}, {"epsilon": "1e3"}, {"bound": "0"},
    {"bound": "1/0"}, {"bound": "-1"}, {"share": "1"}, {"share": "0"}, {"buckets": 1},
    {"levels": 4097}, {"reports": 0}, {"reports": 1.5}, {"period": -1}, {"other": 0},
    {"rounds": 3}, {"rounds": 0}, {"rounds": 2, "buckets": 40}, {"channel": "piecewise"},
    {"channel": 1},
)  # fmt: skip
NO_SURVEYS = (
    "", "[]", "null", "{}",
    *(json.dumps({n: v for n, v in WHOLE.items() if n != left}) for left in WHOLE),
    *(json.dumps(WHOLE | wrong) for wrong in WRONG),
)  # fmt: skip
USERS = ("", "alice", "user-4711", "Zoë", "🌊", 'a\nb"c\\d/\u007f\u2028', '["alice", 3]', "42")
VALUES = (0, 31.5, 0.1, -7, 1e300, 12.499999999999998, 5e-324, 3)
SLOT = 1_930_003_200
WINDOW = {"start": "2031-02-28T00:00:00Z", "end": "2031-03-01T00:00:00Z"}


def surveys() -> list[Survey]:
    """The surveys of the other vectors."""
    return [Survey.from_json(text) for text in PUBLISHED]


def vectors() -> Vector:
    """All vectors, ready for JSON."""
    return {
        "format": "hush.vectors/1",
        "exp_below": [_power(x) for x in ("0", "1/1000", "1/2", "1", "61/100", "8", "16")],
        "surveys": [_survey(text) for text in PUBLISHED],
        "no_surveys": list(NO_SURVEYS),
        "groups": [
            {"survey": i, "user": user, "group": survey.group(user)}
            for i, survey in enumerate(surveys())
            for user in USERS
        ],
        "periods": list(_periods()),
        "draws": [_draw(n) for n in (1, 2, 3, 65536, 65537, (1 << 64) + 1)],
        "reports": list(_reports()),
        "thresholds": list(_thresholds()),
    }


def _power(x: str) -> Vector:
    return {"x": x, "times_2_128": str(int(exp_below(Fraction(x)) * (1 << 128)))}


def _survey(text: str) -> Vector:
    survey = Survey.from_json(text)
    wave, both = survey.square_wave, survey.hybrid
    return {
        "published": text,
        "canonical": survey.to_json(),
        "digest": survey.digest,
        "number": survey.number,
        "square_wave": {
            "width": wave.width, "high": wave.high, "total": str(wave.total),
            "outputs": wave.outputs,
        },
        "hybrid": {
            "mix": str(both.mix), "width": both.piecewise.width,
            "piecewise_total": str(both.piecewise.total),
            "two_point_total": str(both.two_point.total), "outputs": both.outputs,
        },
    }  # fmt: skip


def _periods() -> Iterator[Vector]:
    for i, survey in enumerate(surveys()):
        for slot in (0, SLOT, (1 << 32) - 1):
            first, end = survey.period_of(slot)
            yield {"survey": i, "slot": slot, "first": first, "end": end}


def _draw(n: int) -> Vector:
    """A draw that is accepted after two refusals, if the range allows refusals."""
    bits = (n - 1).bit_length()
    words = [(1 << bits) - 1] * 2 if n < 1 << bits else []
    words.append(n - 1)
    feed = iter(words)
    with patch.object(sampling, "randbits", lambda _: next(feed)):
        drawn = sampling.below(n)
    used = [str(word) for word in words]
    return {"below": str(n), "bits": bits, "words": used if bits else [], "drawn": str(drawn)}


def _reports() -> Iterator[Vector]:
    seed = 1
    for i, survey in enumerate(surveys()):
        for group in (RANGE, VALUE) if survey.rounds == 1 else (RANGE, VALUE, NARROW):
            named = (u for u in (*USERS, *map(str, range(9999))) if survey.group(u) == group)
            user = next(named)
            for value in VALUES:
                for theta in _told(survey, group):
                    seed += 1
                    yield _report(i, survey, user, value, theta, _numbers(seed))
    # A value between two multiples of 2^-64 levels must round to even, else the draw differs.
    user = next(u for u in map(str, range(9999)) if surveys()[3].group(u) == VALUE)
    yield _report(3, surveys()[3], user, 257 * 9 / 3 * 2.0**-83, 257, iter([4, 0, 0]))


def _told(survey: Survey, group: int) -> Iterator[int | None]:
    """Published steps for a group: one in the middle, with each possible channel."""
    channels = range(3) if survey.channel == "told" and group == VALUE else range(1)
    for channel in channels:
        yield None if group == RANGE else survey.buckets // 2 + 1 + channel * STEP


def _report(
    i: int, survey: Survey, user: str, value: float, theta: int | None, numbers: Iterator[int]
) -> Vector:
    drawn: list[Vector] = []
    with ReportStore(":memory:", Budget(Fraction(1000))) as store:
        client = Client(survey, store, _scripted(drawn, numbers))
        payload = client.report(user, SLOT, value, theta)
    return {
        "survey": i, "user": user, "slot": SLOT, "value": value, "theta": theta,
        "draws": drawn, "payload": payload.decode(),
    }  # fmt: skip


def _numbers(seed: int) -> Iterator[int]:
    """Pseudo-random words of 128 bits (a linear congruence with Knuth's constants)."""
    state = seed
    while True:
        word = 0
        for _ in range(4):
            state = (6364136223846793005 * state + 1442695040888963407) % (1 << 64)
            word = word << 32 | state >> 32
        yield word


def _scripted(drawn: list[Vector], numbers: Iterator[int]) -> Callable[[int], int]:
    """A function that draws from ``numbers`` and records its draws in ``drawn``."""

    def below(n: int) -> int:
        made = next(numbers) % n
        drawn.append({"below": str(n), "drawn": str(made)})
        return made

    return below


def _thresholds() -> Iterator[Vector]:
    survey = surveys()[0]
    public = {"survey": [survey.number], "theta": [34]}
    manifest = {"schema": "hush.manifest/2", "window": WINDOW, "public": public}
    start = SLOT - SLOT % 86400
    records = [
        (manifest, None), (manifest, start), (manifest, start + 86399), (manifest, start + 86400),
        (manifest, start - 1), (manifest | {"public": {"survey": [survey.number]}}, None),
        (manifest | {"public": public | {"survey": [1]}}, None),
        (manifest | {"public": public | {"theta": [0]}}, None),
        (manifest | {"public": public | {"theta": [513]}}, None),
        (manifest | {"public": public | {"theta": [3, 4]}}, None),
        ({"schema": "hush.release/2", "values": {}}, None), ([], None),
    ]  # fmt: skip
    for record, slot in records:
        text = json.dumps(record)
        found = published(text, survey, slot)
        yield {"survey": 0, "record": text, "slot": slot, "theta": found}
    twice = surveys()[6]
    told = {"survey": [twice.number], "range": [400]}
    for public in (told, told | {"theta": [120]}, told | {"range": [513]}, {"theta": [120]}):
        text = json.dumps(manifest | {"public": {"survey": [twice.number]} | public})
        for group in (VALUE, NARROW):
            found = published(text, twice, start, group)
            yield {"survey": 6, "record": text, "slot": start, "group": group, "theta": found}
    other = surveys()[8]
    told = {"survey": [other.number], "range": [400], "theta": [120]}
    for channel in ({"channel": [0]}, {"channel": [1]}, {"channel": [2]}, {"channel": [3]}, {}):
        text = json.dumps(manifest | {"public": told | channel})
        for group in (VALUE, NARROW):
            found = published(text, other, start, group)
            yield {"survey": 8, "record": text, "slot": start, "group": group, "theta": found}


def refused(text: str) -> bool:
    """Whether the client refuses a text as a survey."""
    try:
        Survey.from_json(text)
    except ReportError:
        return True
    return False


if __name__ == "__main__":
    json.dump(vectors(), sys.stdout, indent=1, ensure_ascii=True)
    sys.stdout.write("\n")
