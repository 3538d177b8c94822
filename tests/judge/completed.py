"""Complete releases of a topic: those with all rows that the manifests of all shards count."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Published = tuple[bytes, bytes]  # record key and value
Place = tuple[str, int]  # start of the window, trigger


class Source(NamedTuple):
    """A complete release of a view's source."""

    place: Place
    manifest: dict[str, Any]  # the manifest of its first shard
    rows: list[dict[str, Any]]


def complete(published: Iterable[Published]) -> Iterator[Source]:
    """Complete releases, in the order in which the topic completes them."""
    rows: dict[Place, dict[str, dict[str, Any]]] = defaultdict(dict)
    manifests: dict[Place, dict[int, dict[str, Any]]] = defaultdict(dict)
    for _, value in published:
        body = json.loads(value)
        place = body["window"]["start"], body["trigger"]
        if body["schema"] == "hush.manifest/2":
            manifests[place][body["shard"]] = body
        else:
            rows[place][body["release_id"]] = body
        every = manifests[place].values()
        whole = every and len(every) == next(iter(every))["shards"]
        if whole and len(rows[place]) == sum(one["rows"] for one in every):
            first = manifests[place][min(manifests[place])]
            yield Source(place, first, list(rows.pop(place, {}).values()))
            del manifests[place]
