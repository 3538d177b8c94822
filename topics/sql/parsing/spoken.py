"""Clauses of single systems, taken out of a query before it is parsed.

BigQuery's ``WITH DIFFERENTIAL_PRIVACY OPTIONS (...)``, ksqlDB's ``WINDOW TUMBLING (...)`` and
``EMIT CHANGES``, Flink's windows as tables, and ``CREATE ... AS`` before a query. They are replaced
by spaces, so that the parser reports places in the query as written. If a name is in backticks,
double quotes enclose texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot.tokenizer_core import Token

from ..refusal import QueryError

_SHOWN = "write TABLE(TUMBLE(TABLE orders, DESCRIPTOR(time), INTERVAL '1' DAY))"
_HOP = "write TABLE(HOP(TABLE orders, DESCRIPTOR(time), INTERVAL '1' HOUR, INTERVAL '1' DAY))"
_SESSIONS = (
    "write TABLE(SESSION(TABLE orders PARTITION BY user, DESCRIPTOR(time), INTERVAL '30' MINUTE))"
)
CALLED = "SESSWIN"
"""What the parser reads in place of a call of SESSION, which it reserves."""
_TABLE = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_TUMBLE_NAMES = ("DATA", "TIMECOL", "SIZE", "OFFSET")
_HOP_NAMES = ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET")
"""Flink's names of arguments, in the order without names."""
_PRIVATE = ("DIFFERENTIAL_PRIVACY", "ANONYMIZATION")
HOPPED = "HOPPED"
"""Stands for Spark's window of a time, a length and a hop, in this order."""
SMOOTH = "windows tumble or hop: write"


@dataclass
class Spoken:
    """A query without clauses of single systems, and what they said.

    Attributes:
        text: the query, with spaces for what was taken out.
        view: name of the view, table or stream that it was to create.
        options: options of the clause on differential privacy, by lower-case name, as SQL.
        window: SQL of the window's length, from a clause or a table function.
        hop: SQL of the time from one window to the next, if windows overlap.
        time: SQL of the window's time column; None: the event time, by default.
        session: SQL of the longest pause within a session; None: no sessions.
        parts: columns by which a table function partitions sessions.
        emit: whether it stated when results are emitted.
        grace: whether it stated how long late records count.
    """

    text: str
    view: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    window: str | None = None
    hop: str | None = None
    time: str | None = None
    session: str | None = None
    parts: tuple[str, ...] = ()
    emit: bool = False
    grace: bool = False


class _Reader:
    """The tokens of a query, in which some are taken out."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text, self._tokens = text, tokens
        self._words = [token.text.upper() for token in tokens]
        self._edits: list[tuple[int, int, str]] = []
        self._backticks = any(text[token.start] == "`" for token in tokens)  # around a name
        self.said = Spoken(text)

    def read(self) -> Spoken:
        self._create()
        place = 0
        while place < len(self._tokens):
            place = self._at(place)
        self.said.text = self._edited()
        return self.said

    def _at(self, place: int) -> int:
        """Read what begins at a token; return the place where to continue."""
        if self._backticks and self._text[self._tokens[place].start] == '"':
            inner = self._tokens[place].text.replace("'", "''")
            self._edit(place, place, f"'{inner}'")  # texts of BigQuery and Spark
            return place + 1
        word, after = self._words[place], self._word(place + 1)
        if word == "WITH" and after in _PRIVATE:
            return self._privacy(place)
        if word in _PRIVATE and self._word(place - 1) == "SELECT":
            raise QueryError(f"WITH is missing: write SELECT WITH {word} OPTIONS(epsilon=1)")
        if word == "WINDOW" and after in ("TUMBLING", "HOPPING", "SESSION"):
            return self._window(place)
        if word == "WINDOW" and after == "(":  # Spark's function, a word of the same length
            parts = list(self._parts(place + 2, self._close(place + 1)))
            self._edit(place, place, HOPPED if len(parts) == 3 else "TUMBLE")
        elif word == "STREAM" and self._word(place - 1) == "SELECT":
            if after not in ("", ",", ".", "AS", "FROM"):  # Calcite's keyword, not a column
                self._stream(place)
        elif word == "EMIT" and after in ("CHANGES", "FINAL"):
            self._edit(place, place + 1)
            self.said.emit = True
        elif word == "CLAMPED" and after == "BETWEEN" and self._word(place + 3) == "AND":
            return self._clamped(place)
        elif word in _TABLE and after == "(" and self._word(place - 1) in ("FROM", "("):
            return self._table(place)
        elif word == "SESSION" and after == "(":
            self._edit(place, place, CALLED)
        return place + 1

    def _stream(self, place: int) -> None:
        """Take out Calcite's STREAM; in small letters it may be a column, with an alias."""
        written, after = self._tokens[place].text, self._tokens[place + 1].text
        if written != "STREAM":
            raise QueryError(
                f"{written} {after}: write {written} AS {after} if {written} is a field, else "
                f"leave {written} out"
            )
        self._edit(place, place)

    def _create(self) -> None:
        """Take out ``CREATE MATERIALIZED VIEW name ... AS``, or ``INSERT INTO name``."""
        words = self._words
        if words[:1] not in (["CREATE"], ["INSERT"]) or not set(words[1:8]) & _MADE:
            return
        begins = [n for n, word in enumerate(words) if word == "SELECT"]
        begins += [n for n, word in enumerate(words) if word == "WITH" and words[n - 1] == "AS"]
        if not begins:
            raise QueryError("a SELECT is missing: CREATE MATERIALIZED VIEW name AS SELECT ...")
        begin = min(begins)
        made = max(n for n, word in enumerate(words[:8]) if word in _MADE)
        names = [n for n, word in enumerate(words[:begin]) if n > made and word not in _HEAD]
        if (words[0] == "CREATE" and "AS" not in words[:begin]) or not names:
            raise QueryError("write CREATE MATERIALIZED VIEW name AS SELECT ...")
        last = names[0]
        while self._word(last + 1) == ".":
            last += 2
        if self._word(last + 1) == "(" and last + 1 != begin - 1:
            raise QueryError(
                f"{self._tokens[last].text}: AS in the query names columns: leave out their list"
            )
        self.said.view = self._tokens[last].text.split(".")[-1]
        self._edit(0, begin - 1 - (self._word(begin - 1) == "("))

    def _privacy(self, place: int) -> int:
        end = place + 1
        if self._word(place + 2) == "OPTION":
            raise QueryError("OPTION: write OPTIONS(epsilon=1, delta=1e-6)")
        if self._word(place + 2) == "OPTIONS" and self._word(place + 3) == "(":
            end = self._close(place + 3)
            for part in self._parts(place + 4, end):
                name = self._words[part[0]].lower()
                if len(part) < 3 or self._words[part[1]] not in ("=", "=>"):
                    raise QueryError(f"OPTIONS: {name} needs a value: write {name} = ...")
                if name in self.said.options:
                    raise QueryError(f"OPTIONS: {name} is said twice: leave one of them out")
                self.said.options[name] = self._sql(part[2], part[-1])
        self._edit(place, end)
        return end + 1

    def _window(self, place: int) -> int:
        kind, end = self._word(place + 1), place + 1
        if kind == "SESSION":
            return self._session(place)
        if self._word(place + 2) == "(":
            end = self._close(place + 2)
            for part in self._parts(place + 3, end):
                self.said.grace |= self._words[part[0]] == "GRACE"
                if self._words[part[0]] == "SIZE":
                    self._length("INTERVAL " + self._sql(part[0] + 1, part[-1]))
                if kind == "HOPPING" and self._words[part[0] : part[0] + 2] == ["ADVANCE", "BY"]:
                    self.said.hop = "INTERVAL " + self._sql(part[0] + 2, part[-1])
        if self.said.window is None:
            raise QueryError("WINDOW TUMBLING needs a length: write WINDOW TUMBLING (SIZE 1 HOUR)")
        if kind == "HOPPING" and self.said.hop is None:
            shown = "WINDOW HOPPING (SIZE 24 HOURS, ADVANCE BY 1 HOUR)"
            raise QueryError(f"WINDOW HOPPING needs the time to the next window: write {shown}")
        self._edit(place, end)
        return end + 1

    def _session(self, place: int) -> int:
        """Take ``WINDOW SESSION (30 MINUTES)``; anything else in the brackets has no effect."""
        end = self._close(place + 2) if self._word(place + 2) == "(" else place
        parts = list(self._parts(place + 3, end))
        if not parts:
            raise QueryError("WINDOW SESSION needs a pause: write WINDOW SESSION (30 MINUTES)")
        self._pause("INTERVAL " + self._sql(parts[0][0], parts[0][-1]))
        self._edit(place, end)
        return end + 1

    def _sessions(self, place: int, end: int, first: int, last: int) -> int:
        """Take sessions written as a table: ``TABLE orders PARTITION BY user`` and so on."""
        parts = list(self._parts(place + 2, end))
        times = [n for n, part in enumerate(parts) if "DESCRIPTOR" in map(self._word, part)]
        if not times or times[0] == 0 or times[0] + 2 != len(parts):
            raise QueryError(f"SESSION needs table, time and pause: {_SESSIONS}")
        of = [token for part in parts[: times[0]] for token in part]
        words = [self._words[token] for token in of]
        begin = words.index("=>") + 1 if "=>" in words else 0
        begin += words[begin : begin + 1] == ["TABLE"]
        cuts = (n for n, word in enumerate(words) if word.startswith("PARTITION"))
        cut = next(cuts, len(of))
        if begin >= cut:
            raise QueryError(f"SESSION needs a table: {_SESSIONS}")
        named = (t for t in of[cut + 1 :] if self._words[t] not in ("BY", "(", ")"))
        self.said.parts = tuple(self._tokens[token].text for token in named)
        time, pause = (self._stripped(parts[n]) for n in (times[0], times[0] + 1))
        self.said.time = self._sql(time[0], time[-1])
        self._pause(self._sql(pause[0], pause[-1]))
        self._edit(first, last, self._sql(of[begin], of[cut - 1]))
        return last + 1

    def _pause(self, sql: str) -> None:
        if self.said.session is not None:
            raise QueryError("sessions are said twice: leave one of them out")
        self.said.session = sql

    def _table(self, place: int) -> int:
        """Take a window written as a table, and put its source table in its place."""
        kind, end = self._words[place], self._close(place + 1)
        wrapped = self._word(place - 1) == "(" and self._word(place - 2) == "TABLE"
        if not wrapped and self._word(place - 1) != "FROM":
            return place + 1
        first, last = (place - 2, end + 1) if wrapped else (place, end)
        if kind == "SESSION":
            return self._sessions(place, end, first, last)
        parts = [self._stripped(part) for part in self._in_order(place + 2, end, kind)]
        if kind == "CUMULATE":
            more = "--every 1m (triggers.every) releases each window so far, again and again"
            raise QueryError(f"{kind} is not possible: {SMOOTH} TUMBLE in its place; {more}")
        hops = kind == "HOP"
        if len(parts) < 3 + hops:
            needs = f"HOP needs table, time, hop and length: {_HOP}" if hops else (
                f"TUMBLE needs table, time and length: {_SHOWN}")  # fmt: skip
            raise QueryError(needs)
        table, time, length = (self._sql(parts[n][0], parts[n][-1]) for n in (0, 1, 2 + hops))
        if len(parts) > 3 + hops:
            moved = self._sql(parts[3 + hops][0], parts[3 + hops][-1])
            raise QueryError(f"{kind} with an offset of {moved} is not possible: leave it out")
        self.said.time = time
        if hops:
            self.said.hop = self._sql(parts[2][0], parts[2][-1])
        self._length(length)
        self._edit(first, last, table)
        return last + 1

    def _in_order(self, begin: int, end: int, kind: str) -> list[list[int]]:
        """The arguments of a window as a table; named ones may stand in any order."""
        parts = list(self._parts(begin, end))
        if not all(self._word(part[1]) == "=>" for part in parts if len(part) > 1):
            return parts
        names = _HOP_NAMES if kind == "HOP" else _TUMBLE_NAMES
        known = [part for part in parts if self._words[part[0]] in names]
        if len(known) < len(parts):
            return parts
        return sorted(parts, key=lambda part: names.index(self._words[part[0]]))

    def _stripped(self, part: list[int]) -> list[int]:
        """A table, time or length without ``TABLE``, ``DESCRIPTOR (...)`` or its argument name."""
        left = part[2:] if len(part) > 1 and self._words[part[1]] == "=>" else part
        if left and self._words[left[0]] == "DESCRIPTOR":
            left = left[2:-1]
        if left and self._words[left[0]] == "TABLE":
            left = left[1:]
        if not left:
            raise QueryError(f"{self._sql(part[0], part[-1])} names nothing: {_SHOWN}")
        return left

    def _clamped(self, place: int) -> int:
        low, high = self._sql(place + 2, place + 2), self._sql(place + 4, place + 4)
        last = place + 4
        if high == "-":
            high, last = self._sql(place + 4, place + 5), place + 5
        self._edit(place, last, f", clamped => ({low}, {high})")
        return last + 1

    def _length(self, sql: str) -> None:
        if self.said.window is not None:
            raise QueryError("there are two windows: leave one of them out")
        self.said.window = sql

    def _word(self, place: int) -> str:
        return self._words[place] if 0 <= place < len(self._words) else ""

    def _close(self, place: int) -> int:
        """The token that closes the bracket opened at a token."""
        depth = 0
        for at in range(place, len(self._words)):
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            if not depth:
                return at
        shown = self._words[place - 1]
        raise QueryError(f"{shown} ( has no end: write ) where it ends")

    def _parts(self, begin: int, end: int) -> Iterator[list[int]]:
        """The tokens between commas of a list in brackets; ``end`` is the closing one."""
        part: list[int] = []
        depth = 0
        for at in range(begin, end):
            depth += {"(": 1, ")": -1}.get(self._words[at], 0)
            if self._words[at] == "," and not depth:
                if part:
                    yield part
                part = []
            else:
                part.append(at)
        if part:
            yield part

    def _sql(self, first: int, last: int) -> str:
        return self._text[self._tokens[first].start : self._tokens[last].end + 1]

    def _edit(self, first: int, last: int, instead: str = "") -> None:
        self._edits.append((self._tokens[first].start, self._tokens[last].end + 1, instead))

    def _edited(self) -> str:
        out, at = [], 0
        for begin, end, instead in sorted(self._edits):
            blank = "".join(c if c == "\n" else " " for c in self._text[begin:end])
            out += [self._text[at:begin], instead + blank[len(instead) :]]
            at = end
        return "".join([*out, self._text[at:]])


_HEAD = {
    "CREATE", "OR", "REPLACE", "TEMP", "TEMPORARY", "EXTERNAL", "MATERIALIZED", "VIEW", "TABLE",
    "STREAM", "CONTINUOUS", "LIVE", "STREAMING", "IF", "NOT", "EXISTS", "INSERT", "INTO",
    "OVERWRITE", "(",
}  # fmt: skip

_MADE = {"VIEW", "TABLE", "STREAM", "INTO", "OVERWRITE"}


def spoken(text: str, tokens: Sequence[Any]) -> Spoken:
    """Take the clauses of single systems out of a query.

    Raises:
        QueryError: such a clause has no meaning here.
    """
    return _Reader(text, tokens).read()
