"""Text for people: nothing acts on a terminal, hides or turns, and JSON keeps its meaning."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
from pathlib import Path

import hushstream
import pytest
from hushstream.agents.worker.lines.visible import visible, visible_lines
from hypothesis import given
from hypothesis import strategies as st

TRICKS = {
    "\x1b[2J": r"\u001b[2J",
    "\x1b]0;title\x07": r"\u001b]0;title\u0007",
    "\x9b2J": r"\u009b2J",
    "a\nb\rc\td": r"a\nb\rc\td",
    "\x7f\x00\x85": r"\u007f\u0000\u0085",
    "invoice\u202efdp.exe": r"invoice\u202efdp.exe",
    "a\u2066b\u2069c\u200f\u061c": r"a\u2066b\u2069c\u200f\u061c",
    "a\u2028b\u2029": r"a\u2028b\u2029",
    "te\u200ba\ufeff\u00ad": r"te\u200ba\ufeff\u00ad",
    "te\u200da": r"te\u200da",
    "\u200c": r"\u200c",
    "\U000e0041": r"\udb40\udc41",
    "\ud800": r"\ud800",
}


@pytest.mark.parametrize(("text", "seen"), TRICKS.items(), ids=ascii)
def test_what_acts_or_hides_is_written_out(text, seen):
    assert visible(text) == seen


PLAIN = ["Grüße, 東京", "می\u200cخواهم", "👩\u200d💻", "C:\\new", "a / b", "שלום", "é", "❤\ufe0f"]


@pytest.mark.parametrize("text", PLAIN)
def test_what_people_write_stays_as_it_is(text):
    assert visible(text) == text


def test_lines_stay_lines_and_nothing_else_does():
    assert visible_lines("a\r\n\x1bb\n") == "a\\r\n\\u001bb\n"


@given(st.text(st.characters(codec=None)))
def test_nothing_that_acts_is_left_and_a_second_look_changes_nothing(text):
    seen = visible(text)
    assert visible(seen) == seen
    assert not {unicodedata.category(one) for one in seen} & {"Cc", "Zl", "Zp", "Cs"}
    assert not {unicodedata.bidirectional(one) for one in seen} & {
        "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip


@given(st.text(st.characters(codec=None)))
def test_json_means_the_same(text):
    assert json.loads(visible(json.dumps([text], ensure_ascii=False))) == [text]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt-get install nodejs")
def test_the_live_page_writes_the_same():
    page = Path(hushstream.__path__[0], "reading", "live", "page", "text.js").read_text("utf-8")
    texts = [*TRICKS, *PLAIN, *map(chr, (*range(0x3000), *range(0xD7F0, 0xE010), 0xE0001, 0x1F600))]
    script = (
        "const { visible } = await import('data:text/javascript,' + encodeURIComponent("
        f"{json.dumps(page)}));"
        f"console.log(JSON.stringify({json.dumps(texts)}.map(visible)));"
    )
    told = subprocess.run(
        ["node", "--input-type=module", "-"], input=script, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert json.loads(told.stdout) == [visible(text) for text in texts]
