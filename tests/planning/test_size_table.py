"""The table of ``hush size``: what it says stands in the answer."""

from __future__ import annotations

import io

from hushstream.planning.costs import COSTS
from hushstream.planning.limits import Limit
from hushstream.planning.size import Load, size
from hushstream.planning.size_table import size_of, table_of
from rich.console import Console


def shown(load: Load, parts: list[Limit]) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table_of(load, size(load, COSTS), parts))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.replace("│", " ").split())


def test_the_table_says_what_gives_way_first_and_when():
    text = shown(Load(1e7, 1e6, 1e5), [Limit(3.14, "a part"), Limit(9.0, "another")])
    assert "a part; when the load is 3.1 times this" in text and "another" not in text
    assert "100,000 events/s" in text and "100%" in text
    assert "a part; has given way" in shown(Load(1, 1, 1), [Limit(0.5, "a part")])


def test_bytes_have_three_digits():
    assert [size_of(n) for n in (0, 999, 1e3, 12_345, 9.9e8, 1.5e10, 2e12, 3e15)] == [
        "0 B", "999 B", "1 kB", "12.3 kB", "990 MB", "15 GB", "2 TB", "3e+03 TB"]  # fmt: skip
