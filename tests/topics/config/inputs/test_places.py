"""Fields that are longitude and latitude, and the words about them as keys."""

from __future__ import annotations

import pytest
from hushstream.agents.deployment.cautions import cautions
from hushstream.topics.config.inputs.places import place_of
from hushstream.topics.config.load import loads

from ....planning.visits import INPUT


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("lat", "lon"), ("lon", "lat")),
        (("shop", "pickup_latitude", "pickup.lng"), ("pickup.lng", "pickup_latitude")),
        (("platform", "along"), None),
        (("lat",), None),
    ],
)
def test_a_place_has_both(names: tuple[str, ...], found: tuple[str, str] | None) -> None:
    assert place_of(names) == found


@pytest.mark.parametrize(
    ("key", "said"), [('["lat", "lon"]', True), ('["page", "lat"]', False), ('["page"]', False)]
)
def test_a_key_that_is_a_place_is_better_a_map(key: str, said: bool) -> None:
    config = loads(INPUT.replace('["page", "age"]', key), environ={})
    words = " ".join(cautions(config, 2 * 10**15))
    assert ("phdstream" in words) == said
