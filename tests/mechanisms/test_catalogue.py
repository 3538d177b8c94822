"""Every mechanism has every member of the contract; one that lacks any is refused by name.

Covers: mechanisms/entry.py, mechanisms/histogram/entry.py, mechanisms/pak/entry.py
Covers: mechanisms/activity/entry.py
Covers: mechanisms/phdstream/entry.py, mechanisms/privhp/entry.py, mechanisms/topl/entry.py
Covers: mechanisms/tops/entry.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hushstream.errors import ContractError, ParameterError
from hushstream.mechanisms import catalogue
from hushstream.mechanisms.contract import Mechanism
from hushstream.mechanisms.histogram import ENTRY
from hushstream.mechanisms.histogram.settings import HistogramParameters
from hushstream.mechanisms.pak.mechanism import Pak


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Read the installed mechanisms anew in each test, not once per process."""
    catalogue.entries.cache_clear()
    yield
    catalogue.entries.cache_clear()


@pytest.mark.parametrize("name", [entry.name for entry in catalogue.BUILT_IN])
def test_every_mechanism_is_complete(name: str) -> None:
    entry = catalogue.find(name)
    catalogue.check(entry)


REQUIRED = ("absorb", "bounds", "cost", "digests", "draws", "error", "guarantee", "release",
            "traits")  # fmt: skip


@pytest.mark.parametrize("member", REQUIRED)
def test_a_mechanism_without_a_member_is_refused_by_name(member: str) -> None:
    assert set(REQUIRED) == Mechanism.__abstractmethods__
    less = type("Less", (Mechanism,), {name: None for name in REQUIRED if name != member})
    with pytest.raises(ContractError, match=f"'histogram': Less lacks {member}$"):
        catalogue.check(ENTRY._replace(mechanisms=(less,)))


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"mechanisms": ()}, "mechanisms must name a class"),
        ({"build": None}, "build must be a function"),
        ({"framed": None}, "framed must be a function"),
        ({"objections": None}, "objections must be a function"),
        ({"parameters": dict}, "parameters must be a dataclass"),
        ({"planner": object()}, "planner lacks members"),
    ],
)
def test_an_incomplete_entry_is_refused(change: dict[str, object], hint: str) -> None:
    with pytest.raises(ContractError, match=f"'histogram': {hint}"):
        catalogue.check(ENTRY._replace(**change))


def test_what_is_no_entry_is_refused() -> None:
    with pytest.raises(ContractError, match="is not a mechanism"):
        catalogue.check(("histogram",))


def test_what_an_entry_builds_must_be_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Other:
        pass

    other = ENTRY._replace(name="other", build=lambda parameters, setting: Other())
    monkeypatch.setattr(catalogue, "BUILT_IN", (other,))
    with pytest.raises(ContractError, match="'other' builds Other"):
        catalogue.build("other", HistogramParameters(), None)  # type: ignore[arg-type]


def test_a_name_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BUILT_IN", (ENTRY, ENTRY._replace(mechanisms=(Pak,))))
    with pytest.raises(ContractError, match="'histogram' is there twice"):
        catalogue.entries()


def test_a_class_of_another_kind_is_refused() -> None:
    with pytest.raises(ContractError, match="'histogram': object must be a subclass of Mechanism"):
        catalogue.check(ENTRY._replace(mechanisms=(object,)))


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ParameterError, match=r"must be one of .*histogram, .*pak, phdstream"):
        catalogue.find("hist")


def installed(folder: Path, target: str) -> None:
    """A package's metadata with one entry point."""
    info = folder / "extra-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{catalogue.GROUP}]\nextra = {target}\n")


def test_an_installed_package_adds_a_mechanism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from hushstream.mechanisms.pak import ENTRY\nENTRY = ENTRY._replace(name='extra')\n"
    (tmp_path / "extra_mechanism.py").write_text(code)
    installed(tmp_path, "extra_mechanism:ENTRY")
    monkeypatch.syspath_prepend(tmp_path)
    assert catalogue.find("extra").mechanisms == (Pak,)
    monkeypatch.delitem(sys.modules, "extra_mechanism")


def test_a_package_that_cannot_be_loaded_stops_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "nowhere_at_all:ENTRY")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ContractError, match="'extra' cannot be loaded from nowhere_at_all:ENTRY"):
        catalogue.find("histogram")
