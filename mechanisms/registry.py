"""The mechanisms that configuration, commands, contract tests and benchmarks know of.

Adding one is a folder beside this file, an entry here and a page in ``docs/mechanisms``.
"""

from __future__ import annotations

from ..errors import ParameterError
from . import histogram, pak, phdstream, privhp, topl, tops
from .contract import Entry

ENTRIES: dict[str, Entry] = {
    family.ENTRY.name: family.ENTRY for family in (histogram, pak, phdstream, privhp, topl, tops)
}


def find(name: str) -> Entry:
    """The entry called ``name``; raises `ParameterError` naming what there is."""
    if name not in ENTRIES:
        known = ", ".join(sorted(ENTRIES))
        raise ParameterError("mechanism.kind", name, f"must be one of {known}")
    return ENTRIES[name]
