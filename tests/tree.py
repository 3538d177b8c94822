"""The product's modules, as the tests of its shape see them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("agents", "client", "deploy", "mechanisms", "topics")


def paths() -> list[Path]:
    """Every source file of the product."""
    rooms = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted([*ROOT.glob("*.py"), *rooms])


def name_of(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("hushstream", *(part for part in parts if part != "__init__")))


def modules() -> list[str]:
    """Every importable module of the product; ``__main__`` would run a command."""
    return [name_of(path) for path in paths() if path.stem != "__main__"]
