"""What hostile input has found, each case once more and by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hushstream.agents.clock.ledger import Ledger, number, totals
from hushstream.agents.kafka.tolerant_batches import TolerantBatches
from hushstream.agents.stages.bound.codec import UnitCodec
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.state.columns import column_of
from hushstream.client.survey import ReportError, Survey
from hushstream.errors import ConfigError, EngineError, LedgerError
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import decode_clock, decode_marker, decode_request

from ..support import ORIGIN, deployment

DEEP = b'{"a":' * 5000


@pytest.mark.parametrize("value", [None, b"", b"\xff", DEEP, b"[]", b'{"id":1,"at":2}'])
def test_a_request_without_a_value_or_sense_is_an_error_that_the_clock_passes_over(value):
    """A tombstone in the requests topic raised `TypeError`, which ended the clock."""
    with pytest.raises(EngineError, match="requests topic is damaged"):
        decode_request(value)


@pytest.mark.parametrize("value", [b"", b"\xff", DEEP, b"{}"])
def test_clock_records_and_markers_that_are_none_are_engine_errors(value):
    for decode in (decode_clock, decode_marker):
        with pytest.raises(EngineError, match="is damaged"):
            decode(value)


@pytest.mark.parametrize(
    "keys, status",
    [('["cA=="]', "[]"), ('["c"]', "[1]"), ('["*&^="]', "[1]"), ('["cA=="]', "[-1]"),
     ('["cA=="]', "[9999999999]")],
)  # fmt: skip
def test_a_damaged_record_of_released_keys_is_an_engine_error(keys, status):
    head = '{"type":"selected","window":0,"trigger":1,"shard":0,"done":false'
    record = f'{head},"keys":{keys},"status":{status}}}'
    with pytest.raises(EngineError, match="selected topic is damaged"):
        Feedback(1).apply(record.encode())


@pytest.mark.parametrize(
    "kind, body",
    [("pipeline", {}), ("charge", {"pipeline": "p"}), ("charge", {"pipeline": "p", "epoch": []}),
     ("refused", {"pipeline": {}, "epoch": 0})],
)  # fmt: skip
def test_a_ledger_record_without_its_fields_is_a_ledger_error(kind, body):
    ledger = Ledger()
    ledger.take(ledger.next("genesis", ORIGIN, {}).encode())
    with pytest.raises(LedgerError, match=f"record 1 is not a {kind} record"):
        ledger.take(ledger.next(kind, ORIGIN, body).encode())


@pytest.mark.parametrize("value", [None, 1, "", "1e999999999", "1/0", "9" * 3000, "0.5", "1_0"])
def test_what_is_no_rational_of_the_ledger_is_refused_at_once(value):
    """``1e999999999`` took all memory."""
    with pytest.raises(LedgerError, match="rational"):
        number(value)


def test_a_charge_without_its_loss_is_a_ledger_error():
    ledger = Ledger()
    ledger.take(ledger.next("genesis", ORIGIN, {}).encode())
    ledger.take(ledger.next("charge", ORIGIN, {"pipeline": "p", "epoch": 0}).encode())
    with pytest.raises(LedgerError, match="rational"):
        totals(ledger, ["p"])


def test_a_ledger_record_that_is_nested_without_end_is_a_ledger_error():
    with pytest.raises(LedgerError, match="not a ledger record"):
        Ledger().take(DEEP)


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_the_first_formats_are_read(magic):
    """The batches of old logs have no attribute ``magic``: the partition stopped for ever."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, 1, b"key", b"value")
    batch = TolerantBatches(bytes(builder.build())).next_batch()
    assert [record.value for record in batch] == [b"value"]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_units_row_of_another_length_is_an_engine_error(change):
    mechanism = deployment().pipelines[0].mechanism
    codec = UnitCodec(mechanism)
    (row,) = codec.encode(mechanism.init_units(1))
    hurt = row[:change] if change < 0 else row + b"\0"
    with pytest.raises(EngineError, match="damaged"):
        codec.decode(column_of([row, hurt]))


@pytest.mark.parametrize(
    "text", ["x = " + "9" * 5000, "x = " + "[" * 5000, "x = " + "[" * 2000 + "]" * 2000]
)
def test_a_configuration_that_the_parser_cannot_hold_is_a_config_error(text):
    with pytest.raises(ConfigError, match=r"hush\.toml"):
        loads(text, environ={})


BUDGET = """
[[pipeline]]
name = "p"
budget = {{ epsilon = {epsilon}, delta = 0.1 }}
mechanism = {mechanism}
"""


@pytest.mark.parametrize("epsilon", ["1e999999999", '"1e999999999"', "1e-999999999"])
def test_a_number_of_a_thousand_million_digits_is_refused_at_once(epsilon):
    text = BUDGET.format(epsilon=epsilon, mechanism='{ kind = "histogram" }')
    with pytest.raises(ConfigError, match=r"epsilon.*between 1e-999 and 1e999"):
        loads(text, environ={})


@pytest.mark.parametrize("kind", ["5", "[]", "{}", "true"])
def test_a_mechanism_whose_name_is_not_a_text_is_refused(kind):
    text = BUDGET.format(epsilon=1, mechanism=f"{{ kind = {kind} }}")
    with pytest.raises(ConfigError, match=r"kind: must be a text"):
        loads(text, environ={})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 5000, '{"epsilon":1,"bound":"1","share":"1/2"}',
     '{"epsilon":"1e999999999","bound":"1","share":"1/2"}',
     '{"epsilon":"1","bound":"1/0","share":"1/2"}'],
)  # fmt: skip
def test_what_is_no_survey_is_a_report_error(text):
    with pytest.raises(ReportError, match="not a survey"):
        Survey.from_json(text)


def test_the_clock_goes_on_after_a_tombstone_among_requests():
    """What its owner reads them with, given a record without a value."""
    from hushstream.agents.clock.known import AskedTriggers

    class Record:
        value = None

    class Consumer:
        async def getmany(self, timeout_ms: int) -> dict[Any, list[Record]]:
            return {0: [Record()]}

    requests = AskedTriggers(Kafka(), "requests", lambda: None)
    requests._consumer = Consumer()
    assert asyncio.run(requests.read())


def test_a_released_number_of_four_hundred_digits_is_damage_and_not_a_column():
    """It was decoded, and then no double could hold it: `OverflowError` ended the reader."""
    from hushstream.topics.releases import ROW, ROW_SCHEMA, decode_public

    value = b'{"value":1%s,"stddev":1,"low":0,"high":2}' % (b"0" * 400)
    window = b'{"start":"2019-03-01T00:00:00Z","end":"2019-03-02T00:00:00Z"}'
    row = b'{"schema":"hush.release/2","release_id":"a","pipeline":"p","window":%s,"trigger":1,' % (
        window
    )
    row += b'"final":false,"key":{},"values":{"count":%s}}'
    header = ((ROW, ROW_SCHEMA.encode()),)
    assert decode_public(header, row % b"null") is not None
    with pytest.raises(EngineError, match="damaged"):
        decode_public(header, row % value)
