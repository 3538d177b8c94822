"""A compiled deployment knows only the fingerprints of pipelines' own noise keys."""

from __future__ import annotations

from hushstream.mechanisms.noise import fingerprint

from ...support import deployment

ROOT, OWN = bytes(range(32)), bytes(range(100, 132))


def test_each_pipeline_is_known_by_the_key_that_it_releases_under() -> None:
    plain = deployment(pipelines=("p", "q"))
    assert plain.with_keys({}) == plain
    made = plain.with_keys({"q": OWN, "gone": ROOT})
    assert made.fingerprints(ROOT) == {"p": fingerprint(ROOT), "q": fingerprint(OWN)}
    assert OWN.hex() not in repr(made) and repr(OWN) not in repr(made)
