from __future__ import annotations

from hushstream.agents.version import code_version


def test_the_version_is_that_of_the_package() -> None:
    assert code_version()[0].isdigit()
