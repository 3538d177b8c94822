"""The mechanisms that configuration, commands, contract tests and benchmarks know of.

Adding one is a file beside this one, an entry here and a page in ``docs/mechanisms``.
"""

from __future__ import annotations

from . import histogram_plan, pak_plan, phdstream_plan, privhp_plan, topl_plan, tops_plan
from .contract import Entry
from .errors import ParameterError

_ALL: tuple[Entry, ...] = (
    histogram_plan.ENTRY,
    pak_plan.ENTRY,
    phdstream_plan.ENTRY,
    privhp_plan.ENTRY,
    topl_plan.ENTRY,
    tops_plan.ENTRY,
)

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in _ALL}


def find(name: str) -> Entry:
    """The entry called ``name``; raises `ParameterError` naming what there is."""
    if name not in ENTRIES:
        known = ", ".join(sorted(ENTRIES))
        raise ParameterError("mechanism.kind", name, f"must be one of {known}")
    return ENTRIES[name]
