"""Resources for a load, from measured costs; figures by hand."""

from __future__ import annotations

import math

import pytest
from hushstream.errors import ParameterError
from hushstream.planning.costs import COSTS, Costs
from hushstream.planning.size import BUSY, SPREAD, Load, distinct, size

COST = Costs(
    direct_us=10, rekeyed_us=20, known_us=2, disk_us=30, beside=1, broker_direct_us=3,
    broker_rekeyed_us=6, frame_us=100, step_us=0, idle_us=0, fetch_us=0, trigger_us=2, restore_us=3,
    event_bytes=30, sum_bytes=9, row_bytes=40, row_pair_bytes=5, key_row_bytes=20, frame_bytes=800,
    process_bytes=1e9, shard_bytes=0, sum_held_bytes=1000, known_bytes=100,
    user_bytes=18, pair_bytes=6, key_bytes=12, table_bytes=0,
)  # fmt: skip
SHARDS = COST._replace(step_us=8_000, idle_us=5_000, shard_bytes=1e6, table_bytes=6e4)
FIXED = Load(1e6, 6e5, 100_000, pairs=3, waiting=0, processes=2, partitions=4, cells=3, beat=0.25)
TAKEN = 2**20 / 100  # events of a step: their bytes end the rest of each shard, a second


def test_distinct_ones_among_draws():
    assert distinct(10, 1e12) == pytest.approx(10) and distinct(1e9, 7) == pytest.approx(7)
    assert distinct(1000, 1000) == pytest.approx(1000 * (1 - math.exp(-1)))
    assert distinct(0, 5) == distinct(5, 0) == 0


def test_figures_of_a_direct_pipeline_by_hand():
    found = size(FIXED, COST)
    frames = 3 / TAKEN
    assert found.frames == pytest.approx(100_000 * frames)
    assert found.worker_us == pytest.approx(10 + 2 + 100 * frames)
    assert found.worker_cores == pytest.approx(0.1 * found.worker_us)
    assert found.topics.units == 0
    sums = 6e5 * (1 - math.exp(-TAKEN / 6e5)) / TAKEN
    assert found.topics.cells == pytest.approx(sums * (9 + 16) + frames * 800)
    rows = 2.5e5 * (1 - math.exp(-TAKEN / 2.5e5)) / TAKEN
    assert found.topics.rows == pytest.approx(rows * (40 + 2.5 * 5))
    changed = 6e5 * (1 - math.exp(-3.6e8 / 6e5)) / 3.6e8
    assert found.topics.sums == pytest.approx(changed * 36)
    assert found.written == pytest.approx(3 * 100_000 * sum(found.topics))
    assert found.memory == pytest.approx(2e9 + 1e8 + 6e8) and found.known == 1
    assert found.disk == pytest.approx(1e6 * (18 + 18) + 6e5 * 12)
    assert found.kept == pytest.approx(3 * (1e6 * 55 + 6e5 * 36))
    assert found.broker_cores == pytest.approx(3 * 0.3)
    assert found.trigger == pytest.approx(2e-6 * 2e5)
    assert found.restore == pytest.approx(3e-6 * 1.6e6 / 2)


def test_figures_of_a_repartitioned_pipeline_by_hand():
    found = size(FIXED._replace(direct=0, rekeyed=1), COST)
    frames = 4 / TAKEN
    event = 30 + frames * 800
    assert found.topics.units == pytest.approx(event)
    two = size(FIXED._replace(direct=0, rekeyed=1, units=2, rate=1e9), COST)
    bound = 2 * 40_000  # frames of four shards, each of which sends to two
    assert two.topics.rows == pytest.approx(5e5 * (1 - math.exp(-bound / 5e5)) / bound * 52.5)
    sums = 6e5 * (1 - math.exp(-40_000 / 6e5)) / 40_000
    assert two.topics.cells == pytest.approx(sums * 25 + 3 / 40_000 * 800)
    assert found.frames == pytest.approx(100_000 * (frames + 3 / TAKEN))
    many = size(FIXED._replace(direct=0, rekeyed=1, partitions=120, units=4, every=9), COST)
    seldom = size(FIXED._replace(direct=0, rekeyed=1, partitions=120, units=4, every=1e9), COST)
    again = 4 * (120 / 40 - 1) * 3 / 9  # shards of bound step for forty frames while it waits
    assert many.frames - seldom.frames == pytest.approx(again, rel=1e-4)
    week = 7 * 86_400 * 100_000 * event
    assert found.kept == pytest.approx(3 * (week + 1e6 * 55 + 6e5 * 36))
    assert size(FIXED._replace(direct=0, rekeyed=1, keep=0), COST).kept < found.kept / 1e3


def test_each_shard_costs_its_steps_its_memory_and_its_table():
    free, found = size(FIXED, COST), size(FIXED, SHARDS)
    steps = 1e5 / TAKEN + (4 + 2 * 3) / 3600  # and at each trigger
    assert found.shards == 7 and found.steps == pytest.approx(steps) == pytest.approx(free.steps)
    spent = 8e-3 * (steps - 1e5 / 40_000)  # beyond the large steps that an event's cost includes
    assert found.step_cores == pytest.approx(spent) and free.step_cores == 0
    assert found.worker_cores == pytest.approx(free.worker_cores + spent + 2 * 5e-3)
    assert found.worker_us == pytest.approx(10 * found.worker_cores)
    assert found.memory == pytest.approx(free.memory + 7e6)
    assert found.disk == pytest.approx(free.disk + 7 * 6e4) and found.stored == free.stored
    shared = size(FIXED, SHARDS._replace(beside=1.5))
    assert shared.step_cores == pytest.approx(1.5 * found.step_cores)


def test_shards_of_a_later_stage_step_as_often_as_frames_come():
    load = FIXED._replace(direct=0, rekeyed=1, units=8, rate=4e4, keys=1e12)
    found = size(load, SHARDS)
    taken = 2**20 / load.raw_bytes  # enough before the rest ends, which is 1.1 s
    each = 4 * taken / 8  # events of a step of a units shard
    assert found.shards == 4 + 8 + 3
    assert found.steps == pytest.approx(4e4 / taken + 4e4 / each + (4 + 8 + 2 * 3) / 3600)
    # A hundred to a process rest 15 s.
    many = load._replace(partitions=80, units=40, cells=80, rate=2e4)
    assert found.step_cores == pytest.approx(8e-3 * (found.steps - 2 * 4e4 / 40_000))
    assert size(many, SHARDS).steps == pytest.approx(80 / 15 + 40 / 15 + (80 + 40 * 2 + 160) / 3600)
    often, seldom = (size(many._replace(every=every), SHARDS).frames for every in (60, 1e9))
    assert often - seldom == pytest.approx(40 * (2 - 1) * 80 / 60, rel=1e-4)


def test_an_idle_deployment_costs_its_processes_and_triggers():
    found = size(FIXED._replace(rate=0, every=1), SHARDS)
    assert found.worker_us == found.frames == 0
    assert found.worker_cores == pytest.approx(2 * 5e-3 + 8e-3 * (4 + 2 * 3))


def test_fetches_cost_what_they_find_in_the_time_that_is_left():
    lists = SHARDS._replace(fetch_us=1_000)
    slow = FIXED._replace(rate=4_000)

    def spent(load: Load, cost: Costs = lists) -> float:
        free = size(load, cost._replace(fetch_us=0)).worker_cores
        left = 1 - free / (load.processes or 1) / BUSY
        return (size(load, cost).worker_cores - free) / left

    assert spent(slow) == pytest.approx(1e-3 * 2 * 5)  # five in each rest of a second
    assert spent(slow._replace(processes=30)) == pytest.approx(1e-3 * 30 * 5)
    assert spent(slow._replace(partitions=197)) == pytest.approx(1e-3 * 2 * 5 / 15)
    assert spent(slow._replace(rate=6)) == pytest.approx(1e-3 * 6)
    assert spent(slow, lists._replace(beside=1.5)) == pytest.approx(1.5e-3 * 2 * 5)
    busy = FIXED._replace(rate=3e5)
    assert size(busy, lists) == size(busy, SHARDS)  # its lists are long


def test_a_step_holds_no_more_than_its_setting():
    busy = size(FIXED._replace(rate=1e7), COST)
    assert busy.frames == pytest.approx(1e7 * 3 / 40_000)
    larger = size(FIXED._replace(rate=1e7, step=400_000), COST)
    assert larger.frames == pytest.approx(busy.frames / 10)


def test_a_step_takes_what_comes_in_a_rest_or_a_beat_until_its_bytes_are_enough():
    slow = FIXED._replace(rate=4_000)  # 1,000 events per second and shard
    frames = [size(slow._replace(beat=beat), COST).frames for beat in (0.25, 1.0, 2.0)]
    assert frames == pytest.approx([4_000 * 3 / 1_000] * 2 + [4_000 * 3 / 2_000])
    many = size(slow._replace(partitions=40, cells=40), COST)  # forty shards to a process: 6 s
    assert many.frames == pytest.approx(4_000 * 40 / 600)
    assert size(slow._replace(raw_bytes=2**20 / 500), COST).frames == pytest.approx(24)


def test_sums_in_memory_have_a_limit():
    few, many, more = (
        size(FIXED._replace(keys=keys), COST).memory - 2.1e9 for keys in (1e5, 1e6, 1e9)
    )
    assert few == pytest.approx(1e8) and many == pytest.approx(1e9)
    assert more == pytest.approx(3 * 4e8)


def test_events_that_share_a_key_share_its_sum():
    few, many = (size(FIXED._replace(keys=keys), COST).topics.cells for keys in (100, 1e9))
    assert few == pytest.approx(100 / TAKEN * 25 + 3 / TAKEN * 800, rel=0.01) and many > 10 * few


def test_each_process_holds_records_that_wait():
    found = size(FIXED._replace(waiting=5e7), COST)
    assert found.memory == pytest.approx(size(FIXED, COST).memory + 2 * 5e7)


def test_rows_beyond_the_memory_are_read_from_disk():
    tight = size(FIXED._replace(unit_cache=12.5e6), COST)
    assert tight.known == pytest.approx(0.25) and tight.memory == pytest.approx(2e9 + 2.5e7 + 6e8)
    roomy = size(FIXED, COST)
    assert tight.worker_us - roomy.worker_us == pytest.approx(0.25 * 2 + 0.75 * 30 - 2)


def test_every_pipeline_adds_its_events_and_rows():
    one, both = (size(FIXED._replace(rekeyed=n), COST) for n in (0, 1))
    alone = size(FIXED._replace(direct=0, rekeyed=1), COST)
    assert both.worker_us == pytest.approx(one.worker_us + alone.worker_us)
    assert both.topics.all == pytest.approx(one.topics.all + alone.topics.all)
    assert both.disk == pytest.approx(2 * one.disk)


def test_a_second_process_costs_what_cores_that_share_cost_where_partitions_stay():
    shared = COST._replace(beside=1.25)
    one, two, three = (size(FIXED._replace(processes=n), shared) for n in (1, 2, 3))
    assert one == size(FIXED._replace(processes=1), COST)
    assert two.worker_us == pytest.approx(1.25 * one.worker_us) == pytest.approx(three.worker_us)
    assert two.frame_cores == pytest.approx(1.25 * one.frame_cores)
    assert two.broker_cores == pytest.approx(one.broker_cores)
    assert two.memory == pytest.approx(one.memory + 1e9)


def test_processes_are_enough_for_the_frames_that_they_add():
    for rate in (0, 1e3, 1e5, 3e6, 1e7):
        found = size(Load(1e8, 1e6, rate, unit_cache=256e6), COST)
        assert found.processes * BUSY >= found.worker_cores
        assert found.partitions == found.cells == SPREAD * found.processes


def test_frames_limit_how_many_processes_can_share_a_load():
    load = Load(0, 1e9, 1e7, step=1_000_000)
    short, long = (size(load._replace(beat=beat), COST) for beat in (0.25, 2.5))
    assert short.processes > long.processes and short.frames > 2 * long.frames
    with pytest.raises(ParameterError, match=r"beat = 0\.0001"):
        size(Load(0, 1e9, 3e9, beat=1e-4), COST)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"users": -1}, "users = -1"),
        ({"keys": math.inf}, "keys = inf"),
        ({"rate": math.nan}, "rate = nan"),
        ({"direct": 0}, "pipelines = 0"),
        ({"replicas": 0}, "replicas = 0"),
        ({"processes": 0}, "processes = 0"),
        ({"every": 0}, "every = 0"),
    ],
)
def test_a_load_that_cannot_be_is_refused(change, named):
    with pytest.raises(ParameterError, match=named):
        size(FIXED._replace(**change), COST)


def test_the_measured_costs_are_in_their_order():
    assert all(value > 0 for value in COSTS)
    assert (
        COSTS.direct_us < COSTS.rekeyed_us and COSTS.beside >= 1 and COSTS.known_us < COSTS.disk_us
    )


def test_a_standby_is_one_more_table_of_a_process_that_applies_each_row():
    alone, copied = size(FIXED, COST), size(FIXED._replace(standbys=1), COST)
    assert copied.disk == pytest.approx(2 * alone.disk)
    assert copied.worker_us == pytest.approx(alone.worker_us + 3)
    assert copied.memory == pytest.approx(alone.memory + 1e8)
    assert copied.restore == alone.restore
    tables = size(FIXED._replace(standbys=1), SHARDS)
    assert tables.disk == pytest.approx(copied.disk + 2 * 7 * 6e4)
    assert tables.memory == pytest.approx(copied.memory + 2 * 7e6)
    one = FIXED._replace(processes=1)
    assert size(one._replace(standbys=1), COST) == size(one, COST)  # no process to hold a copy


def test_snapshots_take_each_table_once_and_what_standbys_copy_not_again():
    none = size(FIXED._replace(standbys=1), COST)
    some = size(FIXED._replace(standbys=1, snapshots=3600), COST)
    assert none.stored == none.sent == 0 and some.disk == none.disk
    assert some.stored == pytest.approx(1e6 * 36 + 6e5 * 12) == some.disk / 2
    assert some.sent == pytest.approx(some.stored / 3600)
