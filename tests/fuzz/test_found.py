"""Mistakes that hostile input has found, each as a named test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import re
import sys
import time
from typing import Any

import numpy as np
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hushstream.agents.clock.ledger import Ledger, number, totals
from hushstream.agents.kafka.batches.tolerant import TolerantBatches
from hushstream.agents.stages.bound.codec import UnitCodec
from hushstream.agents.stages.feedback import Feedback
from hushstream.agents.state.rows.columns import column_of
from hushstream.client.survey import ReportError, Survey
from hushstream.errors import ConfigError, EngineError, LedgerError
from hushstream.formats.entries import FORMATS
from hushstream.formats.events.decode import Decoder, RawRecord
from hushstream.formats.events.fields import InputFields, PipelineFields
from hushstream.formats.schemas import proto_text
from hushstream.formats.schemas.avro import compile_avro
from hushstream.formats.schemas.avro_types import parse_avro
from hushstream.formats.schemas.batch import FieldColumn, Payloads
from hushstream.formats.schemas.proto_text import parse_protobuf
from hushstream.formats.schemas.proto_types import message_at
from hushstream.formats.schemas.protobuf import Message
from hushstream.formats.schemas.schema import MAX_TEXT, Pinned, Schema, UnusableSchema
from hushstream.topics.config.load import loads
from hushstream.topics.config.model import Kafka
from hushstream.topics.records import decode_clock, decode_marker, decode_request
from hushstream.topics.sql.columns import QuerySource
from hushstream.topics.sql.query import read_query
from hushstream.topics.sql.refusal import QueryError

from ..support import ORIGIN, deployment
from . import hostile_schemas

DEEP = b'{"a":' * 5000


@pytest.mark.parametrize("value", [None, b"", b"\xff", DEEP, b"[]", b'{"id":1,"at":2}'])
def test_a_request_without_a_value_or_sense_is_an_error_that_the_clock_passes_over(value):
    """A tombstone in the requests topic once raised `TypeError`, which ended the clock."""
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
    """``1e999999999`` once took all memory."""
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
    """Batches of old logs lack the attribute ``magic``, which once stopped the partition."""
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, 1, b"key", b"value")
    batch = TolerantBatches(bytes(builder.build())).next_batch()
    assert [record.value for record in batch] == [b"value"]


@pytest.mark.parametrize("change", [-1, 1])
def test_a_units_row_of_another_length_is_an_engine_error(change):
    mechanism = deployment().pipelines[0].mechanism
    codec = UnitCodec(mechanism.traits)
    (row,) = codec.encode(mechanism.traits.units(1))
    hurt = row[:change] if change < 0 else row + b"\0"
    with pytest.raises(EngineError, match="damaged"):
        codec.decode(column_of([row, hurt]))


@pytest.mark.parametrize(
    "text", ["x = " + "9" * 5000, "x = " + "[" * 5000, "x = " + "[" * 2000 + "]" * 2000]
)
def test_a_configuration_that_the_parser_cannot_hold_is_a_config_error(text):
    with pytest.raises(ConfigError, match=r"hush\.toml"):
        loads(text, environ={})


NINES = "9" * 5000
ORDERS = QuerySource("orders", "orders", ("user",), "created")


@pytest.mark.parametrize(
    "said",
    [
        f"p, TUMBLE(created, INTERVAL '{NINES}' DAY)", f"p, TUMBLE(created, INTERVAL {NINES} DAY)",
        f"p, TUMBLE(created, INTERVAL '{NINES}' MONTH)", f"window(created, '{NINES} minutes')",
        f"p, {NINES}", "ROUND(a, 1e99999999)", f"FLOOR(a / {NINES}) * {NINES}",
        f"SUBSTR(p, {NINES})", "CASE WHEN a > 1e-99999999 THEN 1 ELSE 0 END",
        "CASE WHEN a > 1e900 * 1e900 THEN 1 ELSE 0 END",
    ],
)  # fmt: skip
def test_a_number_of_a_query_that_takes_long_to_read_is_refused_at_once(said):
    """The first number once raised `ValueError`, and ``1e99999999`` ran for minutes."""
    read_query("SELECT COUNT(*) FROM orders GROUP BY p", [ORDERS])  # loads the parser
    begun = time.process_time()
    with pytest.raises(QueryError, match=r"between 1e-999 and 1e999|3650 days are the most"):
        read_query(f"SELECT COUNT(*) FROM orders GROUP BY {said}", [ORDERS])
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "said",
    ["SUM(ROUND(CLIP(a, 0, 1), 1e900))", "APPROX_QUANTILES(CLIP(a, 0, 1), 999999999)"],
)
def test_a_count_of_decimals_or_parts_has_an_end(said):
    with pytest.raises(QueryError, match=r"decimals up to 100|at most 1000 parts"):
        read_query(f"SELECT p, {said} FROM orders GROUP BY p", [ORDERS])


def test_a_length_that_is_nested_too_deeply_is_refused():
    with pytest.raises(QueryError, match="cannot be read; a length is"):
        text = f"SELECT p FROM orders WINDOW TUMBLING (SIZE 1 {'[' * 4000}) GROUP BY p"
        read_query(text, [ORDERS])


@pytest.mark.parametrize(
    "setting", ["x = " + NINES, f'lateness = "{NINES}d"', f"budget = {{ epsilon = 0.{NINES} }}",
                f'budget = {{ epsilon = "1/{NINES[:2000]}" }}', 'lateness = "100000001d"']
)  # fmt: skip
def test_a_setting_of_thousands_of_digits_is_refused_with_its_line(setting):
    with pytest.raises(ConfigError) as caught:
        loads(f'[[pipeline]]\nname = "p"\n{setting}', environ={})
    assert re.search(r"hush\.toml:3: .*(at most 100|more than 1000)", str(caught.value))


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
    """The owner's reader gets a record without a value."""
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
    """It was once decoded; no double could hold it, so `OverflowError` ended the reader."""
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


# -- schemas, which anyone may register ------------------------------------------------------------


def _read_by(encoding: str, text: str) -> set[str]:
    """Decode a record with this schema and return its reason; nothing may be raised."""
    fields = InputFields("t", "epoch_us", "UTC", ("user",), format=encoding)
    decoder = Decoder(fields, [PipelineFields(("page",))], [deployment().pipelines[0].mechanism])
    log = [RawRecord(0, 0, None, b"\0\0\0\0\1" + bytes(40))]
    known = {1: Pinned(Schema(FORMATS[encoding].registered, text), 0)}
    return set(decoder.decode(log, known).bad.values())


@pytest.mark.parametrize("number", [129, 328, 900, 5000])
@pytest.mark.parametrize("kind", ["array", "map", "union"])
def test_an_avro_schema_of_types_within_types_is_unusable(number, kind):
    """328 nested arrays once raised `RecursionError`, which ended the worker at every start."""
    assert _read_by("avro", hostile_schemas.nested(number, kind)) == {"wrong_schema"}


def test_whether_a_schema_is_too_deep_does_not_depend_on_who_asks():
    """A replay has another stack depth than a worker, but must refuse the same schemas."""

    def refused(text: str, below: int) -> bool:
        if below:
            return refused(text, below - 1)
        try:
            compile_avro(parse_avro(Schema("AVRO", text)), {"user": None})
        except UnusableSchema:
            return True
        return False

    for depth in (20, 126, 127, 128, 129, 140):
        text = hostile_schemas.nested(depth)
        assert refused(text, 0) == refused(text, 400) == (depth > 127)
    brackets = hostile_schemas.record('"user","doc":%s' % ("[" * 600 + "]" * 600), '"string"')
    assert refused(brackets, 0) and refused(brackets, 400)
    # Where the stack has no room for the verdict, there is none.
    room = sys.getrecursionlimit() - len(inspect.stack(0))
    for left in (100, 60, 30):
        with pytest.raises(RecursionError):
            refused(hostile_schemas.nested(120), room - left)


@pytest.mark.parametrize("size", [1 << 31, 1 << 63, 1 << 70])
def test_a_fixed_of_more_bytes_than_there_are_is_unusable(size):
    """2^70 once raised `OverflowError` in the list of the first record."""
    kind = f'{{"type":"fixed","name":"F","size":{size}}}'
    text = hostile_schemas.record('"user"', '"string"', f'{{"name":"f","type":{kind}}},')
    assert _read_by("avro", text) == {"wrong_schema"}


def test_a_chain_of_avro_records_by_name_is_followed_without_a_stack():
    """The text is flat, but each of 3,000 types contains the previous one."""
    text = hostile_schemas.chain(3_000)
    last = hostile_schemas.record('"f"', '"R2999"').replace('"E"', '"F"')
    schema = Schema("AVRO", last, (("E", text),))
    assert schema.size <= MAX_TEXT
    payloads = Payloads([b"\x02", b"\x04", b""])
    run = compile_avro(parse_avro(schema), {"user": None})
    run(payloads, np.arange(3), {"user": FieldColumn(3)})
    assert payloads.bad.all()  # deeper than values may be, without an error


def test_unions_that_name_one_record_again_and_again_do_not_multiply():
    """30,000 branches on both levels of a path would be 900,000,000 steps."""
    begun = time.process_time()
    schema = Schema("AVRO", hostile_schemas.product(30_000))
    assert schema.size <= MAX_TEXT
    with pytest.raises(UnusableSchema, match="again and again"):
        compile_avro(parse_avro(schema), {"t": {"x": {"q": None}}})
    assert time.process_time() - begun < 10


def test_names_that_lie_in_a_long_one_take_no_memory():
    with pytest.raises(UnusableSchema, match="too long"):
        parse_avro(Schema("AVRO", hostile_schemas.names(90_000)))
    long = f'syntax = "proto3"; message {"a" * 9000} {{ {"message b {}" * 20} }}'
    deep = f'syntax = "proto3"; package {".".join("p" * 80)}; message E {{ a b = 1; }}'
    for text in (long, deep):
        with pytest.raises(UnusableSchema, match="too long"):
            parse_protobuf(Schema("PROTOBUF", text))


@pytest.mark.parametrize("group", ["oneof o {{ {} }}", "{}"])
def test_a_protobuf_message_of_many_fields_compiles_in_linear_time(group):
    """378 kB once took 21.8 s, because each field was compared with all others."""
    many = "".join(f"int32 a{n}={n + 1};" for n in range(20_000))
    text = f'syntax="proto3";message E{{{group.format(many)}}}'
    assert 300_000 < len(text) <= MAX_TEXT
    begun = time.process_time()
    kind = message_at(parse_protobuf(Schema("PROTOBUF", text)), (0,))
    Message(kind, {"a7": None, "a19999": None}, "")
    assert time.process_time() - begun < 5


def test_fields_of_one_name_do_not_multiply():
    many = "".join(f"E user={n + 1};" for n in range(15_000))
    text = f'syntax="proto3";message E{{oneof o{{{many}}}}}'
    assert _read_by("protobuf", text) == {"wrong_schema"}


def test_references_are_connected_once():
    """With 64 references each field was once looked up 65 times."""
    texts = [f"message M{n}{{{''.join(f'Z z{i}={i};' for i in range(1, 500))}}}" for n in range(65)]
    schema = Schema("PROTOBUF", texts[0], tuple((f"r{n}", one) for n, one in enumerate(texts[1:])))
    assert schema.size <= MAX_TEXT
    begun = time.process_time()
    parse_protobuf(schema)
    assert time.process_time() - begun < 5


def test_a_descriptor_whose_number_does_not_end_is_refused_at_once():
    text = base64.b64encode(b"\x80" * 290_000).decode()
    begun = time.process_time()
    with pytest.raises(UnusableSchema, match="descriptor"):
        parse_protobuf(Schema("PROTOBUF", text))
    assert time.process_time() - begun < 1


def test_a_descriptor_of_messages_within_messages_is_unusable():
    """Nested generators once walked its names, deeper than the stack."""
    data = b"\x0a\x01E"
    for _ in range(200):
        data = b"\x0a\x01E\x1a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    whole = b"\x22" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    with pytest.raises(UnusableSchema, match="deeply"):
        parse_protobuf(Schema("PROTOBUF", base64.b64encode(whole).decode()))


def test_texts_that_do_not_end_are_looked_at_once():
    begun = time.process_time()
    with pytest.raises(UnusableSchema):
        parse_avro(Schema("AVRO", hostile_schemas.quotes(190_000)))
    assert time.process_time() - begun < 2


def test_records_that_name_many_messages_parse_their_schema_once(monkeypatch):
    """A record names its message; once, each name parsed the whole schema again."""
    parsed: list[Schema] = []

    def counted(schema: Schema) -> Any:
        parsed.append(schema)
        return parse_protobuf(schema)

    monkeypatch.setattr(proto_text, "parse_protobuf", counted)
    files = proto_text.ParsedFiles()
    good, bad = Schema("PROTOBUF", "message E {}"), Schema("PROTOBUF", "message {")
    for place in range(50):
        for schema in (good, bad):
            with contextlib.suppress(UnusableSchema):
                assert files.message(schema, (place,)).name == "E" and (schema, place) == (good, 0)
    assert parsed == [good, bad]
