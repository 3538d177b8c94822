"""Loops are compiled before a worker joins.

Covers: agents/worker/startup.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.kafka.batches.record_columns import RecordColumns
from hushstream.agents.kafka.private.of_aiokafka import fill_columns
from hushstream.agents.stages.bound.codec import UnitCodec, distinct
from hushstream.agents.stages.bound.purses import PurseCodec
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.agents.stages.step import Step
from hushstream.agents.state.layout import sortable, units_of
from hushstream.agents.state.rocks import RocksStore
from hushstream.agents.state.rows.columns import RowColumns
from hushstream.agents.worker import startup
from hushstream.agents.worker.shards.transaction import _unit_records
from hushstream.formats.events.raw import RawRecord
from hushstream.formats.events.views import UnitTexts
from hushstream.mechanisms.columns import Batch
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.parts.bounds.lifetime import Cap
from hushstream.topics.config.load import loads
from hushstream.topics.records import Marker

from tests.judge.test_logs import TEXT
from tests.recorded.pipelines import text_of

from ...tree import paths


def test_the_folders_of_the_cache_hold_the_code_of_every_loop(tmp_path):
    """A loop outside them would survive an interrupted start and end the next one as well."""
    _, folders = startup.cache_folders(tmp_path)
    loops = [path for path in paths() if "@compiled" in path.read_text("utf-8")]
    assert len(loops) > 8
    assert [p for p in loops if not any(p.is_relative_to(folder) for folder in folders)] == []


def test_nothing_is_compiled_once_a_worker_is_warm(monkeypatch, tmp_path):
    from hushstream.agents.kafka.batches.scan import _scan
    from hushstream.agents.stages.ingest import digest_scan
    from hushstream.formats.events import json_scan, key_scan

    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    startup.warm(made, tmp_path)
    loops = [_scan, digest_scan.recall, digest_scan.remember, digest_scan.digests,
             digest_scan.crc32, json_scan.scan, key_scan.texts, key_scan.lengths,
             key_scan.numbers]  # fmt: skip
    before = [len(loop.signatures) for loop in loops]  # type: ignore[attr-defined]
    assert all(before)
    body = b'{"user":"u1","page":"a","t":1552000000000,"fare":1.5}'
    found = made.inputs[0].decoder.decode([RawRecord(n, 5, None, body) for n in range(100)])
    units = UnitDigests(bytes(32), "crc32", 2, 0)
    assert len(set(map(bytes, units.look(found.unit)[0]))) == 1
    assert [len(loop.signatures) for loop in loops] == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_loops_over_registered_values_are_compiled_before_the_first_schema_is_known(
    encoding, tmp_path
):
    from hushstream.formats.events.binary import scan

    from tests.formats.events.binary.test_scanner import LIST_OF

    where = f'format = "{encoding}"\ntime = {{ field'
    text = TEXT.replace("time = { field", where) + '\n[registry]\nurl = "http://localhost:1"\n'
    made = compile_config(loads(text, environ={}), {"events": 2})
    startup.warm(made, tmp_path)
    loops = [scan.scan, scan.spell]
    before = [len(loop.signatures) for loop in loops]  # type: ignore[attr-defined]
    assert all(before)
    values, known = LIST_OF[encoding](0)
    records = [RawRecord(n, 5, None, value) for n, value in enumerate(values)]
    assert isinstance(made.inputs[0].decoder.decode(records, known).unit, UnitTexts)
    assert [len(loop.signatures) for loop in loops] == before  # type: ignore[attr-defined]


def test_no_step_compiles_loops_over_rows_of_units_once_a_worker_is_warm(tmp_path):
    from hushstream.agents.kafka.batches.pack import _pack
    from hushstream.agents.stages.bound import unit_scan
    from hushstream.agents.state.rows import scan as row_scan
    from hushstream.agents.state.units import packed_scan
    from hushstream.mechanisms.parts.bounds import scan as bound_scan

    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    startup.warm(made, tmp_path)
    loops = [_pack, unit_scan.distinct, unit_scan.counts, unit_scan.decode, unit_scan.encode,
             unit_scan.split, unit_scan.joined,
             packed_scan.index, packed_scan.find, packed_scan.sizes, packed_scan.gather,
             packed_scan.replace, packed_scan.measure, packed_scan.merge, packed_scan.cut,
             packed_scan.write, packed_scan.count, packed_scan.read,
             row_scan.put, row_scan.look, row_scan.gather, row_scan.listed, row_scan.rebuild,
             row_scan.merge, bound_scan.hash_keys, bound_scan.in_order, bound_scan.decide,
             bound_scan.new_pairs, bound_scan.merge]  # fmt: skip
    before = [len(loop.signatures) for loop in loops]  # type: ignore[attr-defined]
    assert all(before)
    store = RocksStore(tmp_path / "s", None, 1 << 20, 1_000)
    codec, rng = UnitCodec(made.pipelines[0].traits), np.random.default_rng(3)
    digests = rng.integers(0, 256, (2_000, 16), np.uint8)
    purses, purse_rows = PurseCodec(Cap(70_000, 3, 9)), Keys.of([b""])
    for _ in range(6):
        step = Step(Marker("g", 0))
        for _ in range(2):
            who = rng.integers(0, 2_000, 900)
            keys, unit = distinct(digests[who], units_of(0) + sortable(0))
            units = codec.decode(step.units.read(store, keys))
            batch = Batch(Keys.of([b"a", b"b"]), who % 2, unit, np.zeros((900, 0), np.int64),
                          np.ones(900, np.int8), np.zeros(2, np.int32))  # fmt: skip
            units, _ = made.pipelines[0].mechanism.absorb(units, batch)
            step.units.put(RowColumns(keys, codec.encode(units)))
            kept = purses.take(purse_rows, 5, None)._replace(mine=codec.encode(units)[:1])
            purse_rows = purses.put(kept, 5, codec.blank)
        rows = _unit_records(step).then(RecordColumns.of({b"m": b"1"}))
        assert fill_columns(BatchBuilder(900_000, 0), rows, 0, 900_000) == len(rows.gone)
        store.write(step.rows, step.units.columns())
        store.flush()
    store.close()
    assert [len(loop.signatures) for loop in loops] == before  # type: ignore[attr-defined]


def test_loops_over_rows_of_keys_are_compiled_where_a_pipeline_packs_them(tmp_path):
    from hushstream.agents.state.rows import sparse_scan
    from hushstream.agents.state.rows.sparse import pack, unpack
    from hushstream.mechanisms.parts import isotonic
    from hushstream.mechanisms.quantile import inversion

    startup.warm(compile_config(loads(text_of("quantile"), environ={}), {"trips": 2}), tmp_path)
    loops = [sparse_scan.sizes, sparse_scan.pack, sparse_scan.unpack, isotonic.pooled]
    before = [len(loop.signatures) for loop in loops]  # type: ignore[attr-defined]
    assert all(before)
    unpack(pack(np.arange(6, dtype=np.int32)[::2], np.eye(3, dtype=np.int64)[:, ::-1]), 3)
    inversion.rising(np.eye(4)[:, ::2])
    assert [len(loop.signatures) for loop in loops] == before  # type: ignore[attr-defined]


def test_a_package_that_cannot_be_written_has_its_cache_beside_the_state(monkeypatch, tmp_path):
    monkeypatch.setattr(startup.os, "access", lambda *_: False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    startup.warm(compile_config(loads(TEXT, environ={}), {"events": 2}), tmp_path)
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(tmp_path / "compiled")


START = """
import logging, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO)
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.worker import startup
from hushstream.topics.config.load import loads
from hushstream.formats.events.raw import RawRecord
text, folder = sys.argv[1:]
startup.os.access = lambda *_: False  # as in an image
made = compile_config(loads(text, environ={}), {"events": 2})
startup.warm(made, Path(folder))
body = b'{"user":"u1","page":"a","t":1552000000000,"fare":1.5}'
found = made.inputs[0].decoder.decode([RawRecord(n, 5, None, body) for n in range(100)])
print(len(found.unit), found.time[3], sorted(set(found.unit)))
"""


@pytest.mark.thorough
def test_a_start_with_a_damaged_cache_compiles_anew_and_goes_on(tmp_path: Path):
    """A bit of each file is flipped; numba alone would run the code and die by a signal."""
    environ = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}

    def start() -> tuple[str, str]:
        done = subprocess.run([sys.executable, "-c", START, TEXT, str(tmp_path)], env=environ,
                              capture_output=True, text=True, timeout=900, check=False)  # fmt: skip
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        return done.stdout, done.stderr

    right, said = start()
    folder = tmp_path / "compiled"
    assert "checksum" not in said and folder.stat().st_mode & 0o777 == 0o700
    kept = sorted(folder.rglob("*.nb[ic]"))
    assert len(kept) > 30
    for path in kept:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
    again, said = start()
    assert again == right and said.count("does not match its checksum") == 1
    assert not any(one.name.startswith("hush-") for one in folder.iterdir())
