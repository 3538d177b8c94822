"""The judge against the product, in memory: same logs, same key, and no line in common."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.errors import ConfigError
from hushstream.topics.config.load import loads
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .outcomes import verdict
from .worlds import HORIZONS, INPUT, PIPELINE, SHARED, sharing, world

HERE = Path(__file__).parent
ENCODINGS = ("json", "avro", "protobuf", "json_schema")

SUM = '{ kind = "sum", field = "spent", low = -5, high = 50, grid = "0.5" }'
MEAN = '{ kind = "mean", field = "spent", low = -5, high = 50, grid = "0.5" }'
SOME = [
    '{ kind = "count", name = "few", where = [{ field = "spent", below = 10 }] }',
    '{ kind = "count", name = "many", where = [{ field = "spent", at_least = 10 }] }',
    SUM.replace("}", ', where = [{ field = "page", not_like = "%0" }] }'),
    '{ kind = "count" }',
]
CALM = ', where = [{ field = "spent", below = 10 }] }'
WILD = ', where = [{ field = "spent", at_least = 10 }] }'
SPREADS = [
    '{ kind = "variance", name = "calm", field = "spent", low = -5, high = 10, grid = "0.5"' + CALM,
    '{ kind = "stddev", name = "wild", field = "spent", low = 10, high = 60, sample = true' + WILD,
    '{ kind = "sum", name = "all", field = "spent", low = 10, high = 60' + WILD,
    '{ kind = "count", name = "few"' + CALM,
]
DISTINCT = '{ kind = "distinct", field = "shop" }'
VARIANCE = MEAN.replace("mean", "variance")
STDDEV = MEAN.replace('"mean"', '"stddev", sample = true')
COUNT = '{ kind = "count" }'
KEYS = 'public_keys = ["p0", "p1", "p3", "nobody"]'
CONDITIONS = (
    '{ field = "spent", at_least = 0, below = 40 }',
    '{ field = "page", none_of = ["p0"] }',
    '{ any = [{ field = "gone", present = true }, { field = "page", one_of = ["p0", "p1"] }] }',
    '{ field = "page", text = [{ case = "upper" }], like = "P_%" }',
    '{ field = "page", not_matches = "[02468]$" }',
    '{ field = "page", lookup = "pages.csv", take = "kind", none_of = [8] }',
    """{ any = [{ field = "page", lookup = "pages.csv", take = "name", present = false }, \
    { field = "page", lookup = "pages.csv", take = "name", text = [{ case = "lower" }], \
    like = "%o%" }] }""",
)
DERIVED = (
    '{ time = "hour", zone = "Asia/Kathmandu" }',
    '{ field = "spent", bucket = 25 }',
    '{ field = "spent", round = -1 }',
    '{ field = "page", text = [{ extract = "p(.).*" }, { start = -1 }] }',
    '{ time = "dow" }',
    """{ cases = [{ where = [{ field = "spent", above = 20 }], then = "much" }, \
    { where = [{ field = "page", equals = "p1" }], then = true }], otherwise = 1 }""",
    """{ lookup = "pages.csv", field = "page", take = "name", text = [{ start = 3 }], \
    otherwise = "-" }""",
    '{ lookup = "pages.csv", field = "page", take = "share", bucket = 0.5, otherwise = "-" }',
    """{ cases = [{ where = [{ field = "page", lookup = "pages.csv", take = "share", \
    above = 0.5 }, { field = "spent", above = 20 }], then = "much" }, { where = [{ \
    field = "page", lookup = "pages.csv", take = "name", not_like = "f%" }], then = 3 }], \
    otherwise = "less" }""",
    '{ lookup = "pages.csv", field = "page", take = "kind", otherwise = -1 }',
)
NATURAL = (
    ("[]", "{}"),
    ('["more"]', f"{{ more = {DERIVED[4]} }}"),
    ('["more", "hour"]', f"{{ more = {DERIVED[5]}, hour = {DERIVED[0]} }}"),
    ('["more"]', f"{{ more = {DERIVED[-2]} }}"),
    ('["more"]', f"{{ more = {DERIVED[-1]} }}"),
)
SIZES = ((30, 5), (120, 10), (400, 10), (600, 100))  # events and users
FACTORS = ("auto", "final", "toeplitz", "blt", "normalized", "tree", "honaker")


@st.composite
def mechanisms(draw: st.DrawFn, public: bool, keys_only: bool, rounds: bool) -> str:
    """Settings of a histogram."""
    made = {"factorization": f'"{draw(st.sampled_from(FACTORS))}"'}
    if rounds and draw(st.integers(0, 2)) == 0:
        made |= {"selection": '"rounds"', "budget": str(draw(st.sampled_from([1, 5, 20])))}
        made["min_users"] = str(draw(st.integers(1, 2)))
        return "".join(f", {name} = {value}" for name, value in made.items())
    bound = draw(st.sampled_from(["quadratic", "quadratic", "records", "per-key"]))
    made["bound"] = f'"{bound}"'
    made["budget"] = str(draw(st.sampled_from([1, 2, 4, 12])))
    if bound == "per-key":
        made["per_key"] = str(draw(st.integers(1, 4)))
    if not public and not keys_only and bound == "quadratic" and draw(st.booleans()):
        made["adaptive_weight"] = draw(st.sampled_from(["0", "0.3", "0.5", "1"]))
    if not public and bound == "quadratic" and draw(st.booleans()):
        made["min_users"] = str(draw(st.integers(1, 3)))
    if not public and not keys_only and draw(st.integers(0, 3)) == 0:
        made |= {"debias": "true", "debias_cap": str(draw(st.sampled_from([3, 20])))}
    if not public and draw(st.booleans()):
        made |= {"threshold_delta_share": "0.75", "last_share": "0.25"}
    if draw(st.booleans()):
        made["count_share"] = "0.3"
    return "".join(f", {name} = {value}" for name, value in made.items())


@st.composite
def caps(draw: st.DrawFn, timed: bool) -> str:
    """A cap for each unit that one or two bounds use up."""
    period = (
        f', period = "{draw(st.sampled_from([2, 4]))}d"' if timed and draw(st.booleans()) else ""
    )
    epsilon = draw(st.sampled_from([10, 15]))
    return f"per_unit = {{ epsilon = {epsilon}, delta = 0.1{period} }}"


@st.composite
def deltas(draw: st.DrawFn, timed: bool) -> str:
    """δ of an epoch, sometimes with a cap for each unit."""
    delta = draw(st.sampled_from(["1e-4", "0.01"]))
    return delta if draw(st.booleans()) else f"{delta}, {draw(caps(timed))}"


@st.composite
def pipelines(draw: st.DrawFn, name: str, shared: tuple[int, bool] | None = None) -> str:
    """One pipeline: keys listed or unknown, with or without values, any kind of window.

    ``shared`` is given if it shares a budget: the horizon, and whether an epoch has two windows.
    """
    public = draw(st.booleans())
    values = [
        [],
        [COUNT],
        [COUNT, SUM],
        [MEAN],
        [COUNT, MEAN, SUM],
        [VARIANCE],
        [STDDEV, SUM],
        [SUM],
        SOME[:2],
        SOME[:3],
        SOME,
        SPREADS,
        [DISTINCT],
    ]
    shown = draw(st.sampled_from(values[1:] if public else values))
    natural = public and draw(st.booleans())
    more = ['public_keys = "natural"' if natural else KEYS] if public else []
    more.append(f"aggregate = [{', '.join(shown)}]" if shown else 'aggregate = "keys"')
    counted = shown == [DISTINCT]
    more += ['sign = "gone"'] * (draw(st.integers(0, 3)) == 0 and not counted)
    key = '["page"]'
    if draw(st.integers(0, 3)) == 0:
        more.append(f"where = [{draw(st.sampled_from(CONDITIONS))}]")
    if not public and draw(st.integers(0, 3)) == 0:
        key = '["page", "more"]'
        more.append(f"derive = {{ more = {draw(st.sampled_from(DERIVED))} }}")
    if natural:
        key, derive = draw(st.sampled_from(NATURAL))
        more.append(f"derive = {derive}")
    found = not public and bool(shown) and shown not in values[-8:]
    horizon = draw(st.sampled_from(list(HORIZONS))) if shared is None else shared[0]
    if horizon != 3 and (draw(st.booleans()) if shared is None else shared[1]):
        more.append('epoch = "2d"')
    more.append(f"feedback_delay = {draw(st.integers(0, 2))}")
    display = 'display = "non-negative", ' if draw(st.booleans()) else ""
    more.append(f'release = {{ {display}encoding = "{draw(st.sampled_from(ENCODINGS))}" }}')
    mechanism = draw(mechanisms(public or counted, not shown, found))
    if shared is not None:
        return sharing(name, key, horizon, "\n".join(more), mechanism)
    return PIPELINE.format(
        name=name, key=key, window=HORIZONS[horizon], more="\n".join(more),
        epsilon=draw(st.sampled_from([1, 8])), delta=draw(deltas(horizon != 3)),
        mechanism=mechanism,
    )  # fmt: skip


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """One or two pipelines of one input; two may share a budget."""
    partitioner = draw(st.sampled_from(["none", "none", "crc32", "murmur2"]))
    unit = '["shop", "user"]' if partitioner == "none" and draw(st.booleans()) else '"user"'
    text = INPUT.format(units=draw(st.integers(1, 2)), cells=draw(st.integers(1, 2)),
                        partitioner=partitioner, unit=unit)  # fmt: skip
    names = ("p", "q")[: draw(st.integers(1, 2))]
    shared = None
    if len(names) == 2 and draw(st.booleans()):
        shared = draw(st.sampled_from(list(HORIZONS))), draw(st.booleans())
        cap = draw(caps(shared[0] != 3)) if draw(st.booleans()) else ""
        text += SHARED.format(members=f"p = {draw(st.integers(1, 3))}, q = 1", cap=cap,
                              epsilon=draw(st.sampled_from([2, 8])), delta="0.02")  # fmt: skip
    for name in names:
        text += draw(pipelines(name, shared))
    return f'{text}\n[registry]\nurl = "http://localhost:1"\n'


worlds = given(configurations(), st.integers(1, 2), st.integers(0, 2**32), st.sampled_from(SIZES))


@settings(max_examples=12)
@worlds
def test_random_configurations_and_logs_release_what_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


@pytest.mark.spread(2)
@pytest.mark.parametrize("some", [SOME[:2], SOME, SPREADS[:1], SPREADS])
@pytest.mark.parametrize("listed", ["", KEYS])
def test_aggregates_with_conditions_release_what_the_judge_says(some, listed):
    mechanism = ", budget = 9"
    more = f"{listed}\naggregate = [{', '.join(some)}]\nfeedback_delay = 1"
    text = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=HORIZONS[next(iter(HORIZONS))], more=more,
        epsilon=8, delta=1e-4, mechanism=mechanism,
    )  # fmt: skip
    made = compile_config(loads(text, environ={}), {"events": 2})
    one = world(made, Random(3), events=400, users=20)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assert rows


@pytest.mark.thorough
@settings(max_examples=40)
@worlds
def test_many_random_configurations_release_what_the_judge_says(text, partitions, seed, size):
    agreed(text, partitions, seed, size)


def agreed(text: str, partitions: int, seed: int, size: tuple[int, int]) -> None:
    try:
        made = compile_config(loads(text, environ={}, folder=HERE), {"events": partitions})
    except ConfigError as error:  # a cap may be lower than the cost of one record
        assume("raise either" not in str(error))
        raise
    one = world(made, Random(seed), events=size[0], users=size[1])
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assume(rows)


HOPS = (
    'window = { length = "2d", hop = "12h", origin = "2019-03-01T00:00:00Z" }\n'
    'triggers = { every = "12h" }'
)


@pytest.mark.thorough
def test_a_week_that_hops_by_the_hour_is_released_as_the_judge_says():
    text = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=HOPS.replace("2d", "7d").replace("12h", "1h"),
        more=f"aggregate = [{COUNT}]", epsilon=8, delta=0.01, mechanism=", budget = 4",
    )  # fmt: skip
    made = compile_config(loads(text, environ={}), {"events": 2})
    one = world(made, Random(4), events=400, windows=6, users=60)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assert rows > 100


@pytest.mark.spread(4)
@pytest.mark.parametrize("epoch", ["12h", "1d", "2d", "3d"])
@pytest.mark.parametrize("more", [
    f"aggregate = [{COUNT}]", f"aggregate = [{COUNT}, {MEAN}]\nsign = \"gone\"",
    f"aggregate = [{VARIANCE}]", f"{KEYS}\naggregate = [{SUM}]",
])  # fmt: skip
def test_windows_that_hop_release_what_the_judge_says(more, epoch):
    text = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=HOPS, more=f'{more}\nepoch = "{epoch}"',
        epsilon=8, delta=0.01, mechanism=", budget = 4",
    )  # fmt: skip
    made = compile_config(loads(text, environ={}), {"events": 2})
    one = world(made, Random(4), events=1200, windows=12, users=60)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assert rows


@pytest.mark.spread(2)
@pytest.mark.parametrize("more", [
    f"aggregate = [{COUNT}]", f"aggregate = [{COUNT}, {MEAN}]\nsign = \"gone\"",
    f"{KEYS}\naggregate = [{SUM}]", 'aggregate = "keys"',
])  # fmt: skip
def test_windows_without_an_end_release_what_the_judge_says(more):
    window = (
        'window = { endless = true, origin = "2019-03-01T00:00:00Z" }\ntriggers = { every = "6h" }'
    )
    text = INPUT.format(units=2, cells=2, partitioner="none", unit='"user"') + PIPELINE.format(
        name="p", key='["page"]', window=window, more=more, epsilon=8, delta=0.01,
        mechanism=", budget = 4",
    )  # fmt: skip
    made = compile_config(loads(text, environ={}), {"events": 2})
    one = world(made, Random(5), events=900, windows=6, users=60)
    found, rows = verdict(made, one.logs, one.clock)
    assert found == []
    assert rows
