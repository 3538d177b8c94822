"""Make a release: version, changelog, wheels, source archives, bill of materials, signed tag.

``make release VERSION=1.2.3`` runs the one gate first, then this script; ``DRY=1`` does all of
it but the commit and the tag, on a copy, and leaves the checkout as it is.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = Path("client/_version.py")  # of both distributions
CHANGELOG = Path("CHANGELOG.md")
DISTRIBUTIONS = {"hushstream": ".", "hushstream_client": "client"}
UNRELEASED = "## [Unreleased]\n"
BUILD = (
    "import sys; from setuptools import build_meta as backend; out = sys.argv[1];"
    "backend.build_wheel(out); backend.build_sdist(out)"  # the first changes sys.argv
)


def main() -> None:
    """Parse the command line and make the release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="three numbers, for example 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="neither commit nor tag")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the archives go")
    given = parser.parse_args()
    out = given.out.resolve()
    try:
        _check(given.version, out)
        if given.dry_run:
            with tempfile.TemporaryDirectory() as folder:
                prepare(_copy(Path(folder) / "copy"), given.version, out)
            print(f"dry run: commit and tag v{given.version} are left out")
        else:
            _check_checkout(given.version)
            prepare(ROOT, given.version, out)
            _publishable(given.version)
    except ValueError as error:
        sys.exit(f"release: {error}")


def prepare(root: Path, version: str, out: Path) -> None:
    """Write version and changelog of the tree at ``root``; build into an empty folder ``out``.

    Raises:
        ValueError: the changelog has nothing to say, or something cannot be built.
    """
    before = _read_version(root)
    notes = _cut_changelog(root / CHANGELOG, version)
    path = root / VERSION
    path.write_text(path.read_text("utf-8").replace(f'"{before}"', f'"{version}"'), "utf-8")
    out.mkdir(parents=True, exist_ok=True)
    for folder in DISTRIBUTIONS.values():
        _build(root / folder, out)
    _bill(root, version, out / f"hushstream-{version}.cdx.json")
    print(f"{before} -> {version}\n\n{notes}\n\n{_sums(out)}", end="")


def _read_version(root: Path) -> str:
    found = re.search(r'^__version__ = "(.*)"$', (root / VERSION).read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{VERSION} has no line __version__")
    return found[1]


def _check(version: str, out: Path) -> None:
    """Refuse at once what cannot be released: a copy of the tree takes seconds."""
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: archives of another release might be published")
    _check_version(version, _read_version(ROOT))


def _check_version(version: str, before: str) -> None:
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ValueError(f"version = {version!r}: write three numbers, for example 1.2.3")
    if _numbers(version) < _numbers(before):
        raise ValueError(f"version = {version!r}: must not be below {before}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def _cut_changelog(path: Path, version: str) -> str:
    """Give what is unreleased the version's heading; return it."""
    text = path.read_text("utf-8")
    head, found, rest = text.partition(UNRELEASED)
    notes = re.split(r"^## \[", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not found or not notes:
        raise ValueError(f"{path.name}: nothing stands below {UNRELEASED.strip()!r}")
    if f"## [{version}]" in text:
        raise ValueError(f"{path.name}: {version} is released already")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.write_text(f"{head}{UNRELEASED}\n## [{version}] - {today}\n{rest}", "utf-8")
    return notes


def _build(folder: Path, out: Path) -> None:
    """Build wheel and source archive with the locked tools of this environment."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(out)],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"building {folder} failed:\n{done.stderr}")
    for left in (folder / "build", *folder.glob("*.egg-info")):
        shutil.rmtree(left)


def _bill(root: Path, version: str, path: Path) -> None:
    """Write the bill of materials (CycloneDX) of what `requirements.lock` pins."""
    command = ["requirements", "requirements.lock", "--pyproject", "pyproject.toml"]
    command += ["--output-reproducible"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", *command],
        cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"the bill of materials failed:\n{done.stderr}")
    bill = json.loads(done.stdout)
    bill["metadata"]["component"]["version"] = version  # `pyproject.toml` says where it stands
    path.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")


def _sums(out: Path) -> str:
    """Write and return SHA-256 digests of the archives."""
    archives = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in archives]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")
    return "".join(lines)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout


def _copy(folder: Path) -> Path:
    """Copy the files that git knows."""
    for name in _git("ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def _check_checkout(version: str) -> None:
    if _git("status", "--porcelain"):
        raise ValueError("the checkout has changes: commit them first")
    if _git("tag", "--list", f"v{version}"):
        raise ValueError(f"tag v{version} exists already")


def _publishable(version: str) -> None:
    """Commit and tag; pushing and uploading stay with a person."""
    _git("commit", "--quiet", "-m", f"Release {version}", str(VERSION), str(CHANGELOG))
    _git("tag", "--sign", f"v{version}", "-m", f"Hushstream {version}")
    print(f"\ncommitted and tagged v{version}; next: git push --follow-tags, then upload dist/")


if __name__ == "__main__":
    main()
