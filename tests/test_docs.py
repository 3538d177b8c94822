"""Links, commands, settings and metrics that the documentation names exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import click
import pytest
from hushstream.agents.worker.metrics import OperatorMetrics, PublicMetrics
from hushstream.cli.group import hush
from hushstream.mechanisms.catalogue import entries
from hushstream.topics.config.load import loads
from prometheus_client import CollectorRegistry

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "mechanisms", "deploy", "tests/schedules")
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "client").glob("*.md"),
        *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
every_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
PLACEHOLDER = re.compile(r"^(\.\.\.|…|[A-Z]{2,}|<.*>|\[.*\])")


def _text(page: Path) -> str:
    return page.read_text("utf-8")


def _blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(_text(page)) if kind == language]


def _prose(page: Path) -> str:
    return FENCE.sub("", _text(page))


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, by the common rule."""
    found = set()
    for line in _prose(page).splitlines():
        if line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(words.replace(" ", "-"))
    return found


def test_the_documentation_stays_short() -> None:
    """A page may grow only if it or another one shrinks."""
    words = sum(len(page.read_bytes().split()) for page in (ROOT / "docs").rglob("*.md"))
    assert words <= 45_000


@every_page
def test_links_and_images_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(_prose(page)):
        if urlparse(target).scheme:
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in _anchors(place)):
            broken.append(target)
    assert broken == []


def _commands(page: Path) -> Iterator[list[str]]:
    """Every `hush …` in shell blocks and in code spans, as words."""
    lines = [line for block in _blocks(page, "sh") for line in block.splitlines()]
    for line in [*lines, *CODE.findall(_prose(page))]:
        for part in re.split(r"&&|\||;", line.split(" # ")[0]):
            text = part.strip().removeprefix("$ ").removeprefix(".venv/bin/")
            if text.startswith("hush ") and not text.startswith("hush …"):
                yield shlex.split(text)[1:]


def _unknown(words: list[str]) -> str:
    """The part of a command line that does not exist; empty if everything does."""
    command: click.Command = hush
    context = click.Context(hush)
    for word in words:
        if word.startswith("-"):
            names = {o for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)}
            if word.split("=")[0].rstrip("…]") not in names:
                return word
        elif isinstance(command, click.Group) and not PLACEHOLDER.match(word):
            found = command.get_command(context, word)
            if found is None:
                return word
            command, context = found, click.Context(found)
    return ""


@every_page
def test_commands_exist(page: Path) -> None:
    assert [(words, bad) for words in _commands(page) if (bad := _unknown(words))] == []


def test_a_wrong_command_is_noticed() -> None:
    assert _unknown(["ledger", "shew"]) == "shew"
    assert _unknown(["worker", "--proceses", "2"]) == "--proceses"
    assert _unknown(["ledger", "show", "--json"]) == ""


def test_every_command_is_documented() -> None:
    said = {words[0] for page in PAGES for words in _commands(page) if words}
    assert set(hush.list_commands(click.Context(hush))) <= said


def test_readme_names_the_two_commands() -> None:
    makefile = _text(ROOT / "Makefile")
    named = set(re.findall(r"^make ([a-z]+)", "\n".join(_blocks(ROOT / "README.md", "sh")), re.M))
    assert {"demo", "test"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in named)


def _whole(page: Path) -> list[str]:
    """Blocks of TOML that are whole configurations; fragments have no input of their own."""
    return [b for b in _blocks(page, "toml") if "[[input]]" in b and "[[pipeline]]" in b]


def test_configurations_are_valid() -> None:
    whole = [(page, block) for page in PAGES for block in _whole(page)]
    assert any(page.name == "README.md" for page, _ in whole)
    for _, block in whole:
        assert loads(block).pipeline


@pytest.mark.parametrize("name", sorted(entries()))
def test_every_mechanism_has_a_page(name: str) -> None:
    assert f"(docs/mechanisms/{name}.md)" in _text(ROOT / "README.md")
    assert f"`{name}`" in _text(ROOT / "mechanisms" / "README.md")
    assert (ROOT / "docs" / "mechanisms" / f"{name}.md").exists()


def _metrics(registry: CollectorRegistry) -> set[str]:
    families = list(registry.collect())
    return {f.name + ("_total" if f.type == "counter" else "") for f in families}


def test_metrics_exist_and_public_ones_are_documented() -> None:
    public, operator = _metrics(PublicMetrics().series), _metrics(OperatorMetrics().series)
    page = _text(ROOT / "docs" / "operations.md")
    named = set(re.findall(r"`(hush_[a-z_]+)`", page))
    assert named <= public | operator
    assert public <= named


def test_benchmarks_that_are_named_exist() -> None:
    path = re.compile(r"((?:benchmarks|research)/[a-z_\d]+\.py)")
    named = {name for page in PAGES for name in path.findall(_text(page))}
    named |= {f"benchmarks/{n}" for n in re.findall(r"`(\w+\.py)`", _text(ROOT / "README.md"))}
    assert named
    assert [n for n in named if not (ROOT / n).exists()] == []


def test_the_glossary_explains_words_of_our_own_in_alphabetical_order() -> None:
    words = re.findall(r"^- \[?\*\*(.+?)\*\*", _text(ROOT / "docs" / "glossary.md"), re.M)
    assert words == sorted(words, key=str.lower)
    ours = (
        "beat, barrier, cell, cells topic, copy, cut, form, generation, genesis, nonce, registry, "
        "rest, room, selected topic, standby, traits, witness"
    )
    assert set(ours.split(", ")) <= set(words)


TABLES = sorted((ROOT / "mechanisms").rglob("README.md"))


def _rows_of_names(page: Path) -> Iterator[tuple[list[str], str]]:
    """For each row in a table of names, the names and the module."""
    for line in _text(page).splitlines():
        cells = line.split("|")
        if len(cells) == 6 and (module := re.search(r"`([\w/]+\.py)`", cells[3])):
            yield re.findall(r"`(\w+)`", cells[1]), module[1]


def test_names_stand_in_the_modules_that_the_tables_give() -> None:
    rows = [row for page in TABLES for row in _rows_of_names(page)]
    assert len(rows) > 20
    missing = [
        (name, module)
        for names, module in rows
        for name in names
        if not re.search(rf"\b{name}\b", _text(ROOT / "mechanisms" / module))
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(entries()))
def test_every_family_states_its_guarantee_and_its_names(name: str) -> None:
    page = ROOT / "mechanisms" / name / "README.md"
    said = re.findall(r"^\| (\w[\w ]+) \|", _text(page), re.M)
    assert {"Guarantee", "Neighbours", "Bound of a unit", "Mechanism", "Papers"} <= set(said)
    assert len(list(_rows_of_names(page))) >= 3
    assert f"({name}/README.md)" in _text(ROOT / "mechanisms" / "README.md")


def test_files_that_are_named_exist() -> None:
    folders = "agents|benchmarks|client|deploy|docs|examples|mechanisms|research|tests|topics"
    path = re.compile(rf"`((?:{folders})/[\w./-]+|docker-compose\.yml)`")
    named = {name for page in PAGES for name in path.findall(_text(page))}
    assert named
    assert [n for n in sorted(named) if not (ROOT / n).exists()] == []


def test_license_is_the_declared_one() -> None:
    assert "Apache License" in _text(ROOT / "LICENSE")
    assert 'license = "Apache-2.0"' in _text(ROOT / "pyproject.toml")
