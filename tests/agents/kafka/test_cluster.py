"""A cluster with unknown offsets: no log is taken for empty, and no client outlives it."""

from __future__ import annotations

import gc
import weakref

import pytest
from confluent_kafka import OFFSET_INVALID
from hushstream.agents.kafka.cluster import Cluster
from hushstream.errors import OutageError
from hushstream.topics.config.model import Kafka

from .test_offsets import asked


def test_a_partition_whose_end_is_unknown_is_not_taken_for_an_empty_one():
    made = Cluster(Kafka(bootstrap="127.0.0.1:1"), patience=0.3)
    made.offsets = asked(OFFSET_INVALID)
    with pytest.raises(OutageError, match="ledger-0: its leader is away"):
        made.read("ledger")


def test_the_last_reference_ends_its_client_without_the_garbage_collector():
    gc.disable()
    try:
        made = Cluster(Kafka(bootstrap="127.0.0.1:1"))
        seen = weakref.ref(made)
        del made
        assert seen() is None
    finally:
        gc.enable()
