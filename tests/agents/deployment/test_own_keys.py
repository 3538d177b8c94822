"""Noise keys of pipelines' own: known by their fingerprints, and by nothing else."""

from __future__ import annotations

from hushstream.agents.deployment.own_keys import fingerprints, with_keys
from hushstream.mechanisms.noise import fingerprint

from ...support import deployment

ROOT, OWN = bytes(range(32)), bytes(range(100, 132))


def test_each_pipeline_is_known_by_the_key_that_it_releases_under() -> None:
    plain = deployment(pipelines=("p", "q"))
    assert with_keys(plain, {}) == plain
    made = with_keys(plain, {"q": OWN, "gone": ROOT})
    assert fingerprints(made, ROOT) == {"p": fingerprint(ROOT), "q": fingerprint(OWN)}
    assert OWN.hex() not in repr(made) and repr(OWN) not in repr(made)
