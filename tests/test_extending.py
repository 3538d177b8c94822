"""`docs/extending.md` agrees with what the code requires."""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import MISSING, fields
from types import ModuleType

import click
import pytest
from click.testing import CliRunner
from hushstream.cli import group
from hushstream.mechanisms import catalogue
from hushstream.mechanisms.contract import Mechanism, Traits

from .tree import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def members() -> list[str]:
    """The names in the two lists of members."""
    first = section("How to add a mechanism").partition("It must have\n")[2]
    listed = first.partition("All other members")[0]
    return re.findall(r"`(\w+)`", listed)


def test_the_page_lists_the_members_without_a_default() -> None:
    assert set(members()) == set(Mechanism.__abstractmethods__)


def test_the_page_lists_the_traits_without_a_default() -> None:
    listed = section("How to add a mechanism").partition("So have all `Traits` but ")[2]
    needed = [one.name for one in fields(Traits) if one.default is MISSING]
    assert re.findall(r"`(\w+)`", listed.partition(". ")[0]) == needed


def test_the_entry_point_is_that_of_the_package() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    said = tomllib.loads(re.sub(r"^   ", "", block[1], flags=re.MULTILINE))
    package = tomllib.loads((ROOT / "tests/seventh/pyproject.toml").read_text("utf-8"))
    points = said["project"]["entry-points"]
    assert points == package["project"]["entry-points"] and set(points) == {catalogue.GROUP}


def test_nothing_outside_its_folder_knows_the_package() -> None:
    here = ("tests/seventh/", ".")
    paths = (p for root in ("*.py", "*/**/*.py") for p in ROOT.glob(root))
    found = [
        path
        for path in (p.relative_to(ROOT).as_posix() for p in paths)
        if not path.startswith(here) and path != "tests/test_extending.py"
        and re.search(r"\bbinned\.entry|\bkind = .binned|seventh\.binned",
                      (ROOT / path).read_text("utf-8"))
    ]  # fmt: skip
    assert found == []


def test_a_command_is_a_module_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def greet() -> None:
        """Greet."""
        click.echo("hello")

    module = ModuleType("greet")
    module.greet = greet  # type: ignore[attr-defined]
    monkeypatch.setitem(group.COMMANDS, "greet", ("greet", "Greet."))
    monkeypatch.setattr(
        importlib, "import_module", lambda name: {"hushstream.cli.greet": module}[name]
    )
    assert CliRunner().invoke(group.hush, ["greet"]).output == "hello\n"
    assert "Greet." in CliRunner().invoke(group.hush, ["--help"]).output
    assert "COMMANDS" in section("How to add a command")
