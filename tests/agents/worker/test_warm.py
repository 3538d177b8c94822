"""Loops are compiled before a worker joins, and a worker without a compiler says so and goes on.

Covers: agents/worker/startup.py
"""

from __future__ import annotations

import logging
import os

import pytest
from hushstream.agents.deployment.compile import compile_config
from hushstream.agents.stages.ingest.unit_digests import UnitDigests
from hushstream.agents.worker import startup
from hushstream.topics.config.load import loads

from tests.judge.test_logs import TEXT


def test_without_numba_a_worker_says_so_and_starts(monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.INFO, "hushstream")
    monkeypatch.setattr(startup.compiled, "possible", lambda: False)
    startup.warm(compile_config(loads(TEXT, environ={}), {"events": 2}), tmp_path)
    assert "numba is not installed" in caplog.text


def test_nothing_is_compiled_once_a_worker_is_warm(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    from hushstream.agents.kafka.batch_scan import _scan
    from hushstream.agents.stages.ingest import digest_scan
    from hushstream.topics.events import json_scan, key_scan
    from hushstream.topics.events.raw import RawRecord

    made = compile_config(loads(TEXT, environ={}), {"events": 2})
    startup.warm(made, tmp_path)
    loops = [_scan, digest_scan.digests, digest_scan.crc32, json_scan.scan, key_scan.texts,
             key_scan.lengths, key_scan.numbers]  # fmt: skip
    before = [len(loop.signatures) for loop in loops]  # type: ignore[attr-defined]
    assert all(before)
    body = b'{"user":"u1","page":"a","t":1552000000000,"fare":1.5}'
    found = made.inputs[0].decoder.decode([RawRecord(n, 5, None, body) for n in range(100)])
    units = UnitDigests(bytes(32), "crc32", 2, 0)
    assert len(set(map(bytes, units.look(found.unit)[0]))) == 1
    assert [len(loop.signatures) for loop in loops] == before  # type: ignore[attr-defined]


def test_a_package_that_cannot_be_written_has_its_cache_beside_the_state(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    monkeypatch.setattr(startup.os, "access", lambda *_: False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    startup.warm(compile_config(loads(TEXT, environ={}), {"events": 2}), tmp_path)
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(tmp_path / "compiled")
