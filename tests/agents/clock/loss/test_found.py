"""Lost records are found from the start of a raw partition and the position of its shard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hushstream.agents.clock.loss.found as found_module
import pytest
from hushstream.agents.clock.ledger import Ledger
from hushstream.agents.clock.loss.found import Loss, check_lost, find_lost
from hushstream.errors import EngineError
from hushstream.topics.records import Marker

from ....support import NAMES, deployment

(SOURCE,) = deployment().inputs


def found(monkeypatch: Any, starts: list[int], markers: list[Marker | None], **more: Any) -> Any:
    """Losses of an input whose partitions begin at ``starts``."""
    ledger = Ledger()
    ledger.pipelines = {"p": {"number": 0}}
    asked: list[int] = []

    def last(kafka: object, changelog: str, partition: int) -> Marker | None:
        asked.append(partition)
        return markers[partition]

    monkeypatch.setattr(found_module, "_last", last)
    offsets = SimpleNamespace(begins=lambda topic, partitions: starts)
    cluster: Any = SimpleNamespace(offsets=offsets)
    made = SimpleNamespace(
        streams=[SimpleNamespace(topic=SOURCE.topic, name=SOURCE.name, partitions=len(starts),
                                pipelines=SOURCE.pipelines)]
    )  # fmt: skip
    unused: Any = None
    losses = find_lost(
        unused, cluster, NAMES, made, ledger,  # type: ignore[arg-type]
        more.get("begins", {}), more.get("resumed", {}),
    )  # fmt: skip
    return losses, asked


def at(applied: int, clock: int = 3, genesis: str = NAMES.genesis) -> Marker:
    return Marker(genesis, applied, clock)


def test_a_partition_that_begins_above_its_shards_place_has_lost_what_lies_between(monkeypatch):
    losses, asked = found(monkeypatch, [0, 8, 9, 7], [at(5), at(8), at(8), None])
    topic = SOURCE.topic
    assert losses == [Loss(topic, 2, 8, 9, 3), Loss(topic, 3, 0, 7, 0)]
    assert asked == [1, 2, 3]  # a partition that lost nothing is not asked about


def test_what_was_deleted_before_the_deployment_began_or_was_accepted_is_no_loss(monkeypatch):
    begun = {"begins": {"p": [9, 9]}}
    losses, asked = found(monkeypatch, [9, 12], [None, None], **begun)
    assert losses == [Loss(SOURCE.topic, 1, 9, 12, 0)] and asked == [1]
    accepted = {"resumed": {SOURCE.topic: [0, 12]}}
    assert found(monkeypatch, [9, 12], [None, None], **begun, **accepted) == ([], [])
    losses, _ = found(monkeypatch, [9, 13], [None, at(4)], **begun, **accepted)
    assert losses == [Loss(SOURCE.topic, 1, 12, 13, 3)]


def test_a_marker_of_another_genesis_says_nothing(monkeypatch):
    losses, _ = found(monkeypatch, [7], [at(9, genesis="other")])
    assert losses == [Loss(SOURCE.topic, 0, 0, 7, 0)]


def test_the_refusal_names_partitions_and_no_offset():
    check_lost([])
    with pytest.raises(EngineError, match="events-1, events-2 were deleted") as caught:
        check_lost([Loss("events", 2, 812, 977, 5), Loss("events", 1, 31, 44, 5)])
    said = str(caught.value)
    assert "hush accept-loss" in said
    assert not any(count in said for count in ("812", "977", "31", "44", "165", "13"))
