"""Compare what was published with what must be published; differences become objections."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import Any

from .histogram import Release
from .stream import Objection

Published = tuple[bytes, bytes]  # record key and value


def objections(releases: Iterable[Release], published: Iterable[Published]) -> list[str]:
    """Objections to the records of a release topic; an empty list means that there are none.

    Once a shard has published a later trigger, all its rows and manifests of earlier ones must be
    there. Rows are compared once all shards have published their manifests.
    """
    rows: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    manifests: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    shards = 0
    for key, value in published:
        body = json.loads(value)
        name, start, rest = key.split(b"|", 2)
        place = (start.decode(), body["trigger"])
        if body["schema"] == "hush.manifest/2":
            manifests[place].append(body)
            shards = body["shards"]
        else:
            rows[place].append(body | {"record key": rest, "record name": name.decode()})
    found: list[str] = []
    try:
        expected = {name_of(release): release for release in releases}
    except Objection as wrong:
        return [str(wrong)]
    reached: dict[int, int] = {}  # the last trigger of each shard; shards publish in order
    for n, place in enumerate(expected):
        reached |= {body["shard"]: n for body in manifests[place]}
    for n, (place, release) in enumerate(expected.items()):
        told = Counter(body["shard"] for body in manifests[place])
        complete = bool(told) and set(told) == set(range(shards))
        found += [f"{place}: shard {s} has not released it, but a later one"
                  for s, end in reached.items() if n < end and s not in told]  # fmt: skip
        found += [f"{place}: shard {s} has released it {m} times" for s, m in told.items() if m > 1]
        found += [wrong for body in manifests[place] for wrong in about(place, release, body)]
        if complete:
            found += differences(place, release, rows[place])
    found += [f"{place}: released without a trigger" for place in {*rows, *manifests} - {*expected}
              if rows[place] or manifests[place]]  # fmt: skip
    return found


def name_of(release: Release) -> tuple[str, int]:
    """The window's start and the trigger, as releases name them."""
    return release.start, release.trigger["index"]


def about(place: Any, release: Release, manifest: dict[str, Any]) -> Iterator[str]:
    """Objections to what a manifest states about selection and charge."""
    step = release.threshold
    wanted = {"key_threshold": None if step is None else step / 256,
              "final": release.trigger["final"],
              "config_hash": release.trigger["config_hash"]}  # fmt: skip
    for name, value in wanted.items():
        if manifest[name] != value:
            yield f"{place}: the manifest says {name} = {manifest[name]} and not {value}"
    if manifest["privacy"]["charge"] != release.trigger["charge"]:
        yield f"{place}: the manifest names another charge"
    if release.hops is not None and (told := manifest["public"]["hops"]) != [*release.hops]:
        yield f"{place}: the manifest says hops = {told}, not {release.hops}"
    if release.public is not None and (told := manifest["public"]) != release.public:
        yield f"{place}: the manifest says {told}, not {release.public}"
    yield from about_cut(place, release, manifest)


def about_cut(place: Any, release: Release, manifest: dict[str, Any]) -> Iterator[str]:
    """Objections to what a manifest states about the records that the bound cut."""
    told = manifest.get("cut")
    if release.counters is None or told is None:
        if (release.counters is None) != (told is None):
            yield f"{place}: what was cut must be said where there are counters alone"
        return
    counts, spread, cap = release.counters[manifest["shard"]]
    if ((told["arrived"], told["accepted"]) != counts or told["cap"] != cap
            or (told["arrived_stddev"], told["accepted_stddev"]) != spread):  # fmt: skip
        yield f"{place}: the manifest counts {told} and not {counts}, within {spread}"
    z = NormalDist().inv_cdf((1 + manifest["confidence_level"]) / 2)
    if counts[0] <= z * spread[0]:
        if (told["share"], told["low"], told["high"]) != (None, 0.0, 1.0):
            yield f"{place}: nothing is known of the share cut, but {told} is said"
        return
    exact = min(max(1 - counts[1] / counts[0], 0.0), 1.0)
    if abs(told["share"] - exact) > 1e-5:
        yield f"{place}: the share cut is {told['share']} and not {exact}"
    if not 0 <= told["low"] <= told["share"] <= told["high"] <= 1:
        yield f"{place}: the interval of the share cut is none: {told}"
    for name, outward in (("low", -1), ("high", 1)):
        # At an end of the interval, the counts are z deviations from that ratio; inside, fewer.
        for step, beyond in ((-1e-4, False), (1e-4, True)):
            ratio = 1 - told[name] - outward * step
            off = abs(counts[1] - ratio * counts[0]) / math.hypot(spread[1], ratio * spread[0])
            cut_off = told[name] in (0, 1)  # a share cannot be beyond
            if (off > z) != beyond and not cut_off:
                yield f"{place}: the interval of the share cut ends too early or late: {told}"


def differences(place: Any, release: Release, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Objections to rows: missing, doubled, unexpected or different."""
    counted = Counter(body["record key"] for body in rows)
    for body in rows:
        wanted = release.rows.get(body["record key"])
        if wanted is None:
            yield f"{place}: {body['record key']!r} was released and must be hidden"
            continue
        told = {name: body[name] for name in wanted}
        if told != wanted:
            names = [name for name in wanted if told[name] != wanted[name]]
            yield f"{place}: {body['record key']!r} differs in {names}: {told} and not {wanted}"
    yield from (f"{place}: {key!r} was released {n} times" for key, n in counted.items() if n > 1)
    for key in release.rows.keys() - counted.keys():
        yield f"{place}: {key!r} was not released"
