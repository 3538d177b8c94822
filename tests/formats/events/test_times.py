"""Times of records: with and without an offset, as numbers, or the record's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hushstream.formats.events.decode import RawRecord, utc
from hypothesis import given
from hypothesis import strategies as st

from .test_decode import body, decoder, raw

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30))


@given(MOMENTS, st.integers(-14 * 60, 14 * 60))
def test_iso_times_with_an_offset(moment, minutes):
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    found = decoder(how="iso").decode(raw(body(t=aware.isoformat())))
    assert int(found.time[0]) == expected


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2029, 12, 30)),
    st.sampled_from(["Europe/Berlin", "Asia/Tokyo"]),
)
def test_iso_times_without_an_offset_are_of_the_inputs_zone(moment, zone):
    expected = moment.replace(tzinfo=ZoneInfo(zone)).timestamp()
    found = decoder(how="iso", zone=zone).decode(raw(body(t=moment.isoformat())))
    assert found.time[0] == round(expected * 1e6)


@given(st.lists(st.integers(0, 253_402_300_799), min_size=1, max_size=9))
def test_epochs_from_1970_to_9999(seconds):
    for how, per_second in (("epoch_s", 1), ("epoch_ms", 1_000), ("epoch_us", 1_000_000)):
        found = decoder(how=how).decode(raw(*(body(t=s * per_second) for s in seconds)))
        assert not found.bad
        assert found.time.tolist() == [s * 1_000_000 for s in seconds]


def test_fractions_of_seconds_and_mixed_numbers():
    found = decoder(how="epoch_s").decode(raw(body(t=1.5), body(t=2), body(t=-0.1), body(t=1e20)))
    assert found.time[:2].tolist() == [1_500_000, 2_000_000]
    assert found.bad == {2: "bad_time", 3: "bad_time"}


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2019-13-01", "10000-01-01", "1969-12-31T23:59:59Z",
             "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]
)  # fmt: skip
def test_texts_that_are_no_times(text):
    assert decoder(how="iso").decode(raw(body(t=text))).bad == {0: "bad_time"}


def test_the_records_own_time():
    made = decoder(time=None, how="record")
    records = [
        RawRecord(0, 7, None, raw(body())[0].value),
        RawRecord(1, -1, None, raw(body())[0].value),
    ]
    found = made.decode(records)
    assert found.time[0] == 7_000 and found.bad == {1: "bad_time"}


def test_text_of_times():
    assert utc(0) == "1970-01-01T00:00:00Z"
    assert utc(1_551_398_400_000_001) == "2019-03-01T00:00:00.000001Z"
    assert np.datetime64(utc(253_402_300_799_999_999)[:-1], "us").astype(int) == (
        253_402_300_799_999_999
    )
