"""The content of the image: the locked core, and nothing that builds, tests or runs Java."""

from __future__ import annotations

import json
import re

from ..tree import ROOT
from .engine import docker

IMAGE = "hushstream"
LISTING = """
import importlib.metadata as m, json, os, shutil
files = [os.path.join(f, n) for f, _, ns in os.walk("/", followlinks=False)
         for n in ns if not f.startswith(("/proc", "/sys"))]
print(json.dumps({
    "packages": sorted({d.metadata["Name"] for d in m.distributions()}),
    "java": [f for f in files if os.path.basename(f) == "java" or f.endswith((".jar", ".jmod"))],
    "tests": [f for f in files if "/hushstream/tests/" in f or "/hushstream/benchmarks/" in f],
    "keys": [f for f in files if os.path.basename(f) in ("hush.key", "noise_key")],
    "uid": os.getuid(),
}))
"""


def locked(text: str) -> set[str]:
    """The names in a lock file, normalised as packages compare them.

    >>> sorted(locked("Faust_Streaming==0.15.3 \\\\\\n    --hash=sha256:00\\nnumpy==2.4.6 ; x\\n"))
    ['faust-streaming', 'numpy']
    """
    return {_plain(name) for name in re.findall(r"^([A-Za-z0-9][\w.-]*)==", text, re.MULTILINE)}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def faults(found: dict[str, object], lock: str) -> list[str]:
    """What an image contains and must not contain.

    >>> clean = {"packages": ["hushstream"], "java": [], "tests": [], "keys": [], "uid": 10001}
    >>> faults(clean, ""), faults({**clean, "packages": ["pytest"], "uid": 0}, "")
    ([], ["['pytest'] is installed and not locked", 'it runs as root'])
    """
    said = []
    packages = found["packages"]
    assert isinstance(packages, list)
    if more := {_plain(name) for name in packages} - locked(lock) - {"hushstream"}:
        said.append(f"{sorted(more)} is installed and not locked")
    held = ("java", "tests", "keys")
    said.extend(f"it holds {kind}: {found[kind]}" for kind in held if found[kind])
    if found["uid"] == 0:
        said.append("it runs as root")
    return said


def examine() -> tuple[list[str], int, int]:
    """Return the faults of the image, the number of its packages, and its size in bytes."""
    words = ["run", "--rm", "--network", "none", "--entrypoint", "python", IMAGE, "-c", LISTING]
    found = json.loads(docker(*words, timeout=120))
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    size = int(docker("image", "inspect", "--format", "{{.Size}}", IMAGE))
    return faults(found, lock), len(found["packages"]), size
