"""A copy follows its changelog: what a kill leaves of it, and what a rewound cluster does to it.

Covers: agents/worker/tables/local_state.py
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hushstream.agents.state.layout import MARKER, POSITION
from hushstream.agents.worker.tables import local_state
from hushstream.agents.worker.tables.evidence import known_in
from hushstream.agents.worker.tables.local_state import LocalState
from hushstream.agents.worker.tables.restoring import position_row
from hushstream.formats.events.decode import RawRecord
from hushstream.topics.records import Marker, encode
from msgspec.structs import replace

from ..bench import UNIT


class Client:
    """Stands for a consumer; `read_span` supplies its records."""

    def assign(self, places: object) -> None:
        """Read from all of them."""


def history(*markers: Marker | None) -> Any:
    """Stands for `continues`; ``markers`` are the possible last markers below a position."""

    async def continues(
        client: object, place: object, position: int, marker: Marker | None
    ) -> bool:
        return marker in markers

    return continues


@pytest.mark.parametrize("hold, tells", [(3, True), (1_000, False)])
def test_a_copy_that_is_killed_tells_how_far_it_came(shared, monkeypatch, hold, tells):
    """It stores its progress each time it has written as many rows as memory may hold."""

    async def read_span(client: object, place: object, start: int, end: int, columns: bool):
        marker = encode(Marker(shared.genesis, 7))
        rows = [RawRecord(n, 0, UNIT[:-1] + bytes([n]), b"row") for n in range(start, end - 1)]
        yield [*rows, RawRecord(end - 1, 0, MARKER, marker)], end

    monkeypatch.setattr(local_state, "read_span", read_span)
    monkeypatch.setattr(local_state, "continues", history(None))

    async def body() -> None:
        state = LocalState(shared, "log", 0, hold, lambda: None)
        state._opened()
        state.ready = True
        client: Any = Client()
        with ThreadPoolExecutor(1) as thread:
            await state.follow(client, 6, thread)
        assert state.position == 6
        known = known_in(state.path)  # the state after a kill
        assert (known is not None and (known.position, known.marker.applied) == (6, 7)) is tells
        state.close()

    asyncio.run(body())


@pytest.mark.parametrize("rewound", [False, True])
def test_a_copy_whose_changelog_was_rewound_and_has_grown_beyond_it_stays_evidence(
    shared, monkeypatch, rewound
):
    """Rows of the other history would overwrite the marker that reveals the rewind."""
    mine = Marker(shared.genesis, 3, transaction="of this history")
    after = Marker(shared.genesis, 4, transaction="beyond the copy")

    async def read_span(client: object, place: object, start: int, end: int, columns: bool):
        yield [RawRecord(end - 1, 0, MARKER, encode(after))], end

    monkeypatch.setattr(local_state, "read_span", read_span)
    there = replace(mine, transaction="of another history") if rewound else mine
    monkeypatch.setattr(local_state, "continues", history(there))

    async def body() -> None:
        state = LocalState(shared, "log", 0, 1_000, lambda: None)
        state._opened().write({MARKER: encode(mine), POSITION: position_row(3)})
        state.ready = True
        client: Any = Client()
        with ThreadPoolExecutor(1) as thread:
            await state.follow(client, 6, thread)
        assert state.ready is not rewound  # `open` then looks for its marker and refuses
        state.close()
        known = known_in(state.path)
        assert known is not None
        assert (known.position, known.marker) == ((3, mine) if rewound else (6, after))

    asyncio.run(body())
