"""Schemas of released records: their subjects in a registry, and their pins in the ledger.

Bytes of a record must be the same in every replay, so numbers and texts of schemas are pinned with
the pipeline's declaration. A worker asks no registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ....errors import EngineError
from ....formats.values.codec import MOST_ID, WRITTEN, Described, ReleaseCodec, digest
from ....formats.values.shape import namespace
from ....topics.releases import ROW
from ..model import Deployment, Pipeline
from .shapes import shapes

Numbers = Mapping[str, int]  # of schemas, by the name of the header


class Subject(NamedTuple):
    """A schema and a name under which a registry keeps it."""

    pipeline: str
    header: str  # name of the records' header
    name: str  # subject in the registry
    encoding: str
    text: str


def subjects(p: Pipeline) -> list[Subject]:
    """List the subjects of a pipeline; none if it releases JSON.

    The release topic has two kinds of records, so its subjects are named after topic and record.
    The latest topic has only rows, and tools look for their schema under the topic's name.
    """
    if p.encoding == "json":
        return []
    found = []
    package = namespace(p.name)
    for header, shape in shapes(p).items():
        text = WRITTEN[p.encoding].schema(shape, package)
        name = f"{p.release_topic}-{package}.{shape.name}"
        found.append(Subject(p.name, header, name, p.encoding, text))
        if header == ROW and p.latest_topic:
            found.append(found[-1]._replace(name=f"{p.latest_topic}-value"))
    return found


def codec_of(p: Pipeline, numbers: Numbers) -> ReleaseCodec:
    """Make the codec of a pipeline whose schemas have these numbers."""
    known = shapes(p) if p.encoding != "json" else {}
    return ReleaseCodec({h: Described(p.encoding, numbers[h], shape) for h, shape in known.items()})


def pins(p: Pipeline) -> dict[str, Any]:
    """Collect what a declaration pins of a pipeline's schemas; {} if it releases JSON.

    Raises:
        EngineError: the schemas have not been registered.
    """
    texts = {one.header: one.text for one in subjects(p)}
    if texts.keys() != p.codec.records.keys():
        raise EngineError(f"pipeline {p.name!r} was compiled without the ids of its schemas")
    pinned = {
        header: {"id": p.codec.records[header].number, "sha256": digest(text)}
        for header, text in texts.items()
    }
    return {"schemas": pinned} if pinned else {}


def with_pinned_codecs(
    deployment: Deployment, ledger: Mapping[str, Mapping[str, Any]]
) -> Deployment:
    """Give each pipeline the codec that its declaration has pinned.

    Raises:
        EngineError: a pin is missing, or differs from what this version writes.
    """

    def pinned(p: Pipeline) -> Pipeline:
        numbers = _numbers(p, ledger.get(p.name, {}).get("schemas"))
        return replace(p, codec=codec_of(p, numbers)) if numbers else p

    return deployment.each(pinned)


def verify_pinned(asked: Deployment, pinned: Deployment) -> None:
    """Check that a registry has the numbers that the ledger pinned.

    Args:
        asked: codecs with the ids that the registry names now.

    Raises:
        EngineError: a number differs.
    """
    for mine, theirs in zip(asked.pipelines, pinned.pipelines, strict=True):
        for header, one in theirs.codec.records.items():
            found = mine.codec.records[header].number
            if found != one.number:
                raise EngineError(
                    f"the schema registry knows a schema of pipeline {mine.name!r} as {found}, "
                    f"the ledger pinned {one.number}: it is another registry, or was emptied; "
                    "readers cannot tell what records hold until the first one is back"
                )


def _numbers(p: Pipeline, pinned: Any) -> Numbers:
    if p.encoding == "json":
        return {}
    numbers = {}
    for one in subjects(p):
        entry = pinned.get(one.header) if isinstance(pinned, dict) else None
        number, known = (entry.get("id"), entry.get("sha256")) if entry else (None, "")
        if not isinstance(number, int) or not 0 <= number <= MOST_ID:
            raise EngineError(
                f"pipeline {p.name!r}: the ledger does not say which schemas its releases have "
                f"(release.encoding = {p.encoding!r}): run `hush topics` of this version on a new "
                "pipeline name"
            )
        if known != digest(one.text):
            raise EngineError(
                f"pipeline {p.name!r}: this version of Hushstream describes its releases by other "
                f"schemas than the ledger pinned (release.encoding = {p.encoding!r}): go on with "
                "the version that declared it, or give the pipeline a new name, and with it "
                "charges of its own"
            )
        numbers[one.header] = number
    return numbers
