"""Records of a file: read in chunks, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hushstream.errors import ConfigError
from hushstream.planning import records as records_module

from .visits import read, write


def test_a_file_is_read_in_chunks_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "visits.csv", rows=1_000)
    text = path.read_text().replace("u3,p3,20,", "u0,p3,77,", 1)
    path.write_text(text + "\nu9,,30,1551398400000000,x")
    _, whole = read(path)
    monkeypatch.setattr(records_module, "CHUNK", 64)
    _, chunked = read(path)
    assert chunked.read == 1_001 and len(chunked.time) == 1_000 and chunked.units == 999
    assert sum(chunked.faults.values()) == 1 and chunked.timed
    assert np.array_equal(chunked.time, whole.time) and np.array_equal(chunked.unit, whole.unit)
    assert [chunked.keys[i] for i in chunked.key] == [whole.keys[i] for i in whole.key]


def test_nothing_of_use_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text("user,page,age,t\nu1,,20,1551398400000000\n")
    with pytest.raises(ConfigError, match=r"can use: 1 missing key$"):
        read(path)
    path.write_text("user,page,age,t\nu1,p1,20,2019-03-01\nu3,,1,")
    with pytest.raises(ConfigError, match=r"1 wrong type .field t holds text and must hold a numb"):
        read(path)
    path.write_text("visitor,page,age\nu1,p1,20\n")
    with pytest.raises(
        ConfigError, match=r"no record has the field 't', .* there is age, page, vi"
    ):
        read(path)
    path.write_text("user,page,age,t\n")
    with pytest.raises(ConfigError, match="no record"):
        read(path)
