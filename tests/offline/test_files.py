"""Each kind of file gives the same rows, compressed or not; damaged files are refused."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hushstream.errors import ConfigError
from hushstream.offline.files import FileLayout, read_file, stream_file
from pyarrow import feather, parquet

ROWS = [{"a": 1, "b": "x"}, {"a": None, "b": "y,z"}]
CSV = 'a,b\n1,x\n,"y,z"\n'
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),  # as `cat` joins two
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("name", ["f.csv", "f.tsv", "f.jsonl"])
def test_texts_may_be_compressed(tmp_path: Path, name: str, suffix: str) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    text = {"f.csv": CSV, "f.tsv": "a\tb\n1\tx\n\ty,z\n", "f.jsonl": lines}[name]
    path = tmp_path / (name + suffix)
    path.write_bytes(PACKED[suffix](b"\xef\xbb\xbf" + text.encode()))  # a byte-order mark
    assert read_file(path) == ROWS


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = PACKED[suffix](b"a,b\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(9000)))
    for data in (whole[:-1], whole[: len(whole) // 2], b"nothing of the kind"):
        path = tmp_path / f"f.csv{suffix}"
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"damaged|cannot be read|not a"):
            read_file(path)


def test_binary_files_keep_types(tmp_path: Path) -> None:
    time = dt.datetime(2019, 3, 1, 12, 0, 0, 1)
    exact = pa.array([time], pa.timestamp("us")).cast(pa.timestamp("ns"))
    odd = pa.compute.add(exact.cast(pa.int64()), 7).cast(pa.timestamp("ns"))
    table = pa.table({"t": odd, "d": pa.array([dt.date(2019, 3, 1)]),
                      "c": pa.array(["x"]).dictionary_encode()})  # fmt: skip
    parquet.write_table(table, tmp_path / "f.parquet")
    feather.write_feather(table, str(tmp_path / "f.feather"), compression="uncompressed")
    for name in ("f.parquet", "f.feather"):
        assert read_file(tmp_path / name) == [{"t": time, "d": dt.date(2019, 3, 1), "c": "x"}]
    (tmp_path / "f.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ConfigError, match=r"not a \.parquet file"):
        read_file(tmp_path / "f.parquet")


def test_a_layout_names_delimiter_and_columns(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("1;x\n2;y\n")
    found = list(stream_file(path, layout=FileLayout(";", ("a", "b")), strict=True))
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    with pytest.raises(ConfigError, match="line 1: 2 fields, and --columns names 3"):
        list(stream_file(path, layout=FileLayout(";", ("a", "b", "c")), strict=True))
    with pytest.raises(ConfigError, match="names 'a' twice"):
        list(stream_file(path, layout=FileLayout(";", ("a", "a"))))
    (tmp_path / "f.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="have a delimiter"):
        stream_file(tmp_path / "f.jsonl", layout=FileLayout(";"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n', 3),
        ('a,"b\n1,x\n', 1),
        ('a,b\n1,"x\n', 2),
        ('a,b\n1,"x\ny"\n2,"5" pipe"\n', 4),
        ('a,b\n1,x\n2,"' + "secret\n" * 20_000, 3),
    ],
)
def test_a_quote_that_is_not_closed_is_told_with_its_line(
    tmp_path: Path, text: str, line: int
) -> None:
    path = tmp_path / "f.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"f\.csv, line {line}: .*: close each quote") as caught:
        read_file(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["f.parquet.gz", "f.csv.rar", "f", "f.gz"])
def test_an_unknown_kind_is_named_with_those_that_are_known(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"unknown kind of file; expected one of .*\.csv"):
        stream_file(tmp_path / name)


def test_only_what_json_can_write_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    texts = ["1_000", "nan", "Infinity", "1e999", "٣", "1.5e2", "-.5", "+7", "007", "1" * 5000]
    path.write_text("a\n" + "\n".join(texts) + "\n")
    told = [row["a"] for row in read_file(path)]
    assert told == [*texts[:5], 150.0, -0.5, 7, 7, "1" * 5000]


def test_columns_with_points_are_fields_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("customer.id,customer.home.city,Temp. (C),n\n5,Bonn,2,1\n6\n")
    rows = read_file(path)
    assert rows[0] == {"customer": {"id": 5, "home": {"city": "Bonn"}}, "Temp. (C)": 2, "n": 1}
    assert rows[1]["customer"] == {"id": 6, "home": {"city": None}}
    assert next(stream_file(path, {"customer"})) == {"customer": rows[0]["customer"]}
    path.write_text("a,a.b\n1,2\n")
    with pytest.raises(ConfigError, match=r"names 'a' and 'a\.b', a field of it.*rename"):
        read_file(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(ConfigError, match="a folder"):
        stream_file(tmp_path / "d.csv")
