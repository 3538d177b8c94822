"""Lay out the pages of ``mkdocs.yml``: all documents, what they link to, and the API reference.

Pages keep their places in the tree, so that their links hold on the site as in a checkout.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".build" / "site"  # mkdocs.yml names its parts
DOCUMENTS = ("*.md", "docs/**/*.md", "mechanisms/**/*.md", "docs/**/*.js")
LINK = re.compile(r"\]\(([^)#:\s]+)[)#]")
ITEM = re.compile(r"^( {3,}\S.*\n)(?=\d+\. )", re.MULTILINE)
IN_A_LIST = re.compile(r"(^```.*?^```$)|^(?= {3})", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)

CONTRACT = ("contract", "key_form", "columns", "keys", "entry", "planner")
PACKAGES = {  # page: its title, and the package whose exported names it describes
    "index": ("The package", "hushstream"),
    "client": ("The client", "hushstream.client"),
    "noise": ("Noise", "hushstream.mechanisms.noise"),
    "accounting": ("Accounting", "hushstream.mechanisms.accounting"),
    "factorization": ("Factorization", "hushstream.mechanisms.factorization"),
}
MODULES = {  # page: its title, and modules that it describes whole
    "errors": ("Errors", ["hushstream.errors"]),
    "mechanisms": (
        "The contract of mechanisms",
        [f"hushstream.mechanisms.{name}" for name in CONTRACT],
    ),
}


class Examples(griffe.Extension):
    """Examples in docstrings, shown as code; mkdocstrings loads this class."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of one docstring."""
        if obj.docstring:
            text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```\n", obj.docstring.value)
            obj.docstring.value = text


def main() -> None:
    """Write the pages, and the package that their API reference is read from."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for pattern in DOCUMENTS:
        for document in ROOT.glob(pattern):
            _lay(document)
    (BUILD / "pages" / "api").mkdir()
    for page, text in reference().items():
        (BUILD / "pages" / "api" / f"{page}.md").write_text(text, "utf-8")
    package = BUILD / "hushstream"  # the product alone: no tests, no environment
    package.mkdir()
    for path in ROOT.iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            (package / path.name).symlink_to(path)


def _lay(path: Path) -> None:
    """Copy a file to its place among the pages, with what it links to."""
    target = BUILD / "pages" / path.resolve().relative_to(ROOT)
    if target.exists() or not path.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md":
        shutil.copyfile(path, target)
        return
    text = path.read_text("utf-8")
    listed = IN_A_LIST.sub(lambda found: found[1] or " ", ITEM.sub(r"\1\n", text))
    target.write_text(listed, "utf-8")  # Python's Markdown indents by four and wants blank lines
    for link in LINK.findall(text):
        _lay(path.parent / link)


def reference() -> dict[str, str]:
    """Return the text of each page of the API reference, which describes each name once."""
    pages = {page: _page(title, modules, []) for page, (title, modules) in MODULES.items()}
    whole = [module for _, modules in MODULES.values() for module in modules]
    for page, (title, package) in PACKAGES.items():
        others = {name for _, name in PACKAGES.values()} - {package}
        names = {f"{_home(package, n)}.{n}": n for n in import_module(package).__all__}
        away = {full for full in names if full.rpartition(".")[0] in {*whole, *others}}
        links = [f"[`{names[full]}`][{full}]" for full in names if full in away]
        pages[page] = _page(title, [full for full in names if full not in away], links)
    return pages


def _home(package: str, name: str) -> str:
    """Return the module or package that an exported name is taken from."""
    where: dict[str, str] = getattr(import_module(package), "_WHERE", {})
    return package + where.get(name, "")


def _page(title: str, described: list[str], links: list[str]) -> str:
    away = [f"On the other pages: {', '.join(links)}."] if links else []
    return "\n\n".join([f"# {title}", *away, *(f"::: {name}" for name in described)]) + "\n"


if __name__ == "__main__":
    main()
