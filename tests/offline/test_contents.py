"""A digest distinguishes contents, and a file that changes while it is read is detected."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hushstream.errors import ConfigError, ParameterError
from hushstream.offline.contents import as_json, of_file, of_frame
from hushstream.offline.files import FileLayout


def test_a_digest_is_of_the_bytes_and_of_how_they_are_read(tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("a;b\n1;2\n")
    other.write_text("a;b\n1;2\n")
    semicolons = of_file(path, FileLayout(";"))
    assert semicolons.digest == of_file(other, FileLayout(";")).digest
    assert semicolons.digest != of_file(path, FileLayout(";", ("c", "d"))).digest
    assert list(semicolons.rows(True)) == [{"a": 1, "b": 2}] == list(semicolons.rows(False))
    other.write_text("a;b\n1;3\n")
    assert semicolons.digest != of_file(other, FileLayout(";")).digest


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    content = of_file(path, FileLayout())
    content.demand_unchanged()
    with path.open("a") as file:
        file.write("3,4\n")
    with pytest.raises(ConfigError, match="has changed while it was read"):
        content.demand_unchanged()
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        content.demand_unchanged()


class Stream:
    """An object that exports Arrow's stream, as Polars does."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self._table.__arrow_c_stream__(requested)


def test_frames_of_one_content_are_the_same() -> None:
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    pieces = pa.concat_tables([table[:1], table[1:]])
    frame = pd.DataFrame({"a": pd.array([1, 2, None], "Int64"), "b": ["x", "y", "z"]})
    found = [of_frame(one) for one in (table, pieces, Stream(table), frame)]
    assert len({one.digest for one in found}) == 1
    assert all(list(one.rows(True)) == table.to_pylist() for one in found)
    assert of_frame(table[::-1]).digest != found[0].digest
    for wrong in (7, None, "text", object()):
        with pytest.raises(ParameterError, match="source = "):
            of_frame(wrong)


def test_a_text_that_utf8_cannot_hold_is_escaped() -> None:
    assert as_json({"a": "Söder"}) == '{"a": "Söder"}'.encode()
    assert as_json({"a": "\ud800"}) == b'{"a": "\\ud800"}'
