"""Wheels contain every module and data file of the tree, and nothing else.

The tree is first copied into a folder with an odd name, because no build may depend on the name.

Covers: __main__.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .tree import PACKAGES, ROOT, paths

# Files in the packages' folders that are read only from a checkout.
UNPACKED = (
    "client/LICENSE",
    "client/README.md",
    "client/pyproject.toml",
    "client/typescript/",
    "client/vectors.json",
    "client/wire-format.md",
    "deploy/Dockerfile",
    "deploy/README.md",
    "deploy/compose/",
    "deploy/grafana/",
    "deploy/kubernetes/",
    "deploy/prometheus/",
    "deploy/systemd/",
    "deploy/install.sh",
    "deploy/venv.sh",
    *(page.relative_to(ROOT).as_posix() for page in (ROOT / "mechanisms").rglob("README.md")),
)
IGNORED = shutil.ignore_patterns(
    "__pycache__", "*.egg-info", ".*", "build", "dist", "out", "tests", "benchmarks", "docs",
    "research",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, so that no build changes the tree itself."""
    folder = tmp_path_factory.mktemp("clone") / "odd name-1.x"
    shutil.copytree(ROOT, folder, ignore=IGNORED)
    return folder


def _wheel(folder: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--no-build-isolation", "-w", str(out), str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=out.parent)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    """The product's wheel."""
    return _wheel(checkout, checkout.parent / "product")


@pytest.fixture(scope="module")
def client_wheel(checkout: Path) -> Path:
    """The client's wheel."""
    return _wheel(checkout / "client", checkout.parent / "client-alone")


def _members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def _expected() -> set[str]:
    """Every module of the tree, and every other file that the product may read."""
    files = {path.relative_to(ROOT).as_posix() for path in paths()} | {"py.typed"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            built = "__pycache__" in name or ".egg-info" in name
            if path.is_file() and not built and not name.startswith(UNPACKED):
                files.add(name)
    return files


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    assert _members(wheel) == {f"hushstream/{name}" for name in _expected()}


def test_everything_that_is_left_out_exists() -> None:
    assert [name for name in UNPACKED if not (ROOT / name).exists()] == []


def _environment(folder: Path, *wheels: Path) -> Path:
    """A virtual environment with ``wheels``, which uses this one's packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    install += ["--disable-pip-version-check", "--no-index", "--no-deps", *map(str, wheels)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    borrowed = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), "utf-8")
    return python


@pytest.mark.thorough
def test_an_installed_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path / "env", wheel)

    def said(*words: str) -> str:
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=tmp_path)
        return done.stdout

    where = said(str(python), "-c", "import hushstream; print(hushstream.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "env")
    hush = str(python.with_name("hush"))
    assert said(hush, "version") == said(str(python), "-m", "hushstream", "version")
    said(hush, "init", "deployment")
    said(hush, "check", "--offline", "-c", "deployment/hush.toml")
    facade = "import hushstream; [getattr(hushstream, name) for name in hushstream.__all__]"
    said(str(python), "-c", facade)


def test_the_clients_wheel_holds_the_client(client_wheel: Path) -> None:
    modules = {path.name for path in (ROOT / "client").glob("*.py")}
    assert _members(client_wheel) == {f"hushstream_client/{n}" for n in modules | {"py.typed"}}


def test_the_client_carries_the_licence_of_the_product() -> None:
    assert (ROOT / "client" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_client_needs_the_standard_library_alone(client_wheel: Path) -> None:
    """With ``-S`` there are no installed packages: neither NumPy nor the product."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hushstream_client as c;"
        "assert all(getattr(c, name) for name in c.__all__);"
        "assert not {'numpy', 'hushstream'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", script, str(client_wheel)], check=True)
