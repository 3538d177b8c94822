"""Forecast of purses: the records of a file with each unit's cap, and without caps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from ..topics.config.load import Config
from .judged import SimulationReport
from .simulate import simulate

MOST = 500_000  # records played, with and without caps
SECRET = hashlib.sha256(b"plan").digest()  # fixed, so that figures are reproducible


class Left(NamedTuple):
    """Share of a file that a cap leaves, with full purses at its beginning.

    Attributes:
        windows: number of windows of the file.
        records: number of records played, at most `MOST`.
        kept: ratio of records accepted with the cap to those accepted without; None: none was.
        errors: by value, summed absolute errors of released rows over their summed truths, with the
            cap and without; mean over windows.
        hidden: share of the records in hidden keys, likewise; None where keys are public.
    """

    windows: int
    records: int
    kept: float | None
    errors: dict[str, tuple[float, float]]
    hidden: tuple[float, float] | None

    @property
    def in_words(self) -> str:
        """The sentence of `hush plan`."""
        if self.kept is None:
            return "nothing of the file was accepted, so no purse was used"
        words = [
            f"over {self.windows} windows ({self.records:,} records) of the file, with full "
            f"purses at its beginning, {self.kept:.1%} is kept of what is accepted without the cap"
        ]
        for name, (capped, free) in self.errors.items():
            words.append(f"error of {name}: {capped:.1%} in place of {free:.1%}")
        if self.hidden is not None:
            capped, free = self.hidden
            words.append(f"records in hidden keys: {capped:.1%} in place of {free:.1%}")
        return "; ".join(words)

    @property
    def body(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        pair = ("capped", "uncapped")
        errors = {name: dict(zip(pair, one, strict=True)) for name, one in self.errors.items()}
        hidden = None if self.hidden is None else dict(zip(pair, self.hidden, strict=True))
        return {
            "windows": self.windows,
            "records": self.records,
            "kept": self.kept,
            "errors": errors,
            "hidden": hidden,
        }


def left(config: Config, rows: list[dict[str, Any]], source: str) -> dict[str, Left]:
    """Play a file with the caps and without; results are by pipeline with a cap.

    Args:
        config: the configuration.
        rows: rows of a public or synthetic file.
        source: name of the input.

    Raises:
        ConfigError: no row has a time.
    """
    with_caps, _ = simulate(config, rows, source, SECRET)
    without, _ = simulate(_uncapped(config), rows, source, SECRET)
    shared = {name for one in config.budget if one.per_unit is not None for name in one.members}
    capped = {p.name for p in config.pipeline if p.budget.per_unit is not None} | shared
    return {name: _left(one, without[name]) for name, one in with_caps.items() if name in capped}


def _uncapped(config: Config) -> Config:
    """The configuration without caps: units may spend a bound in each epoch."""
    pipelines = (replace(p, budget=replace(p.budget, per_unit=None)) for p in config.pipeline)
    budgets = (replace(one, per_unit=None) for one in config.budget)
    return replace(config, pipeline=tuple(pipelines), budget=tuple(budgets))


def _left(capped: SimulationReport, free: SimulationReport) -> Left:
    accepted = capped.counts.get("accepted", 0), free.counts.get("accepted", 0)
    pairs = list(zip(capped.windows, free.windows, strict=True))
    names = {name for entry in free.windows for name in entry["figures"]}
    errors = {name: found for name in sorted(names) if (found := _means(_totals(pairs, name)))}
    shares = ((a.get("hidden_share"), b.get("hidden_share")) for a, b in pairs)
    kept = accepted[0] / accepted[1] if accepted[1] else None
    records = sum(free.counts.get(one, 0) for one in ("seen", "late"))
    return Left(len(pairs), records, kept, errors, _means(shares))


def _totals(pairs: Any, name: str) -> Iterator[tuple[Any, Any]]:
    for both in pairs:
        a, b = (one["figures"].get(name, {}).get("total") for one in both)
        yield a, b


def _means(pairs: Iterator[tuple[Any, Any]]) -> tuple[float, float] | None:
    """Means over the windows in which both are known."""
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not known:
        return None
    return fmean(a for a, _ in known), fmean(b for _, b in known)
