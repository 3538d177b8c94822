"""Sentences of an answer besides its ways: assumptions, and reasons for missing ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..agents.deployment.model import Pipeline
from ..formats.events.unusable import in_words
from ..mechanisms.forecast import percent
from ..mechanisms.planner import HOPELESS
from .records import Records
from .variants import Variant


def assumed(pipeline: Pipeline, records: Records, path: Path) -> Iterator[str]:
    """The assumptions of a forecast from the file ``path``."""
    used = len(records.time)
    of = "all" if used == records.read else f"{used:,}"
    unit = " and ".join(pipeline.config["input"]["unit"])
    name = "" if pipeline.unit_name == "unit" else f", here a {pipeline.unit_name},"
    yield f"the stream is like {path.name}: {records.read:,} records, {of} of which can be used"
    yield (
        f"all records with the same {unit} are one privacy unit{name} which is protected as a "
        f"whole: the file holds {records.units:,} of them"
    )
    if records.faults:
        yield f"records that cannot be used stay rare: {in_words(records.faults)}"
    if not records.timed:
        yield "the file has no times, so it is one window with records spread evenly"
    if records.units == used:
        yield "every record is a unit of its own: if one can send more, a bound cuts the rest"


def no_way(
    title: str, found: Sequence[tuple[Variant, float]], score: float, why: Sequence[str] = ()
) -> str:
    """A sentence on a kind of change that is missing from the answer.

    ``found`` has the variants tried, with their errors, ``score`` is the error of the pipeline as
    configured, and ``why`` gives the reason if nothing was tried.
    """
    if not found:
        reasons = why or ("The configuration, or the file, leaves none to try.",)
        return " ".join((f"There is no way with {title}.", *reasons))
    words = ", ".join(variant.words for variant, _ in found)
    least = percent(min(error for _, error in found))
    return (
        f"There is no way with {title}: {words} would have an error of {least} at best, where it "
        f"is {percent(score)} as asked for."
    )


def untried_settings(number: int, windows: int, triggers: int) -> Iterator[str]:
    """A note on settings for which no work was left, if there are any."""
    if number:
        whole = "one window" if windows == 1 else f"{windows:,} windows"
        each = "one trigger" if triggers == 1 else f"{triggers:,} triggers"
        yield (
            f"the {number:,} least promising settings were not run in full: running the others "
            f"over {whole} of {each} took all the allowed work"
        )


def other_kind(other: str, found: float, kind: str, score: float) -> str:
    """A sentence on another mechanism that answers the same question.

    ``found`` is its error before its settings are searched, ``score`` the error of the configured
    ``kind`` with its best settings.
    """
    compared = "a smaller" if found < score else "no smaller"
    text = (
        f'kind = "{other}" answers the same question, with {compared} error: '
        f"{percent(found)} before its settings are searched, where {kind} has {percent(score)} "
        "after that."
    )
    if score < HOPELESS or found >= score:
        return text
    return f"{text} That is {'not enough either' if found >= HOPELESS else 'enough'}."


def refused(variant: Variant, error: Exception) -> str:
    """A sentence on an impossible variant; a mechanism calls the number of triggers its horizon."""
    return f"{variant.words} ({str(error).replace('horizon', 'triggers of a window')})"
