"""The programs of a control plane, and the types of two operators: built once, from locked sources.

Go fetches modules and checks each one against ``programs/go.sum``, or against ``types.lock`` if
only a file of it is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hushstream.deploy.places import cache_dir

HERE = Path(__file__).parent
SOURCES = HERE / "programs"
ENFORCER = HERE / "enforcer"  # built with a client of an older Kubernetes, so it has its own lock
TYPES = HERE / "types.lock"
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
}
LONG = 3 * 3600  # seconds: on two busy cores, the first build takes half an hour


class BuildError(Exception):
    """A program cannot be built, or a download differs from the lock."""


class Type(NamedTuple):
    """A file of a module that defines a type of resources."""

    digest: str
    module: str
    version: str
    path: str

    @property
    def filename(self) -> str:
        """Name without folders."""
        return self.path.rpartition("/")[2]


def read_types(text: str) -> list[Type]:
    """Read a lock: digest of the module in Go's format, module, version, path in the module.

    >>> read_types("# why\\nh1:ab= example.org/m v1.0.0 config/a.yaml\\n")[0].filename
    'a.yaml'
    """
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [Type(*line.split()) for line in lines]


def server_version() -> str:
    """The locked version of the API server, like ``v1.2.3``."""
    text = (SOURCES / "go.mod").read_text("utf-8")
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def sources(name: str) -> Path:
    """Folder with the locks of a program."""
    return ENFORCER if name == "kube-router" else SOURCES


def folder(sources: Path = SOURCES) -> Path:
    """The folder of the built programs, a separate one for each state of the locks."""
    locks = b"".join(p.read_bytes() for p in (sources / "go.mod", sources / "go.sum", TYPES))
    return cache_dir() / "cluster" / hashlib.sha256(locks).hexdigest()[:16]


def program(name: str) -> str | None:
    """Path of a built program; None if it was not built."""
    path = folder(sources(name)) / name
    return str(path) if path.is_file() else None


def types() -> list[Path]:
    """Files of all fetched types."""
    return [folder() / one.filename for one in read_types(TYPES.read_text("utf-8"))]


def missing() -> str | None:
    """What to do if something is missing; None: everything is there."""
    if all(map(program, PROGRAMS)) and all(path.is_file() for path in types()):
        return None
    return "no API server was built on this machine: run `make cluster`, which needs Go"


def build(say: Callable[[str], None] = print) -> None:
    """Build every program and fetch every type that is missing.

    Raises:
        BuildError: Go is missing or refuses; the message says which and why.
    """
    if missing() is None:
        return
    if shutil.which("go") is None:
        needed = re.search(r"^go (\S+)$", (SOURCES / "go.mod").read_text("utf-8"), re.MULTILINE)
        raise BuildError(f"no `go` command: install Go {needed[1] if needed else ''} or later")
    for name, package in PROGRAMS.items():
        if program(name) is None:
            say(f"building {name}, once")
            _build(name, package)
    folder().mkdir(parents=True, exist_ok=True)
    for one in read_types(TYPES.read_text("utf-8")):
        _fetch(one)


def _build(name: str, package: str) -> None:
    version = server_version()
    place = "k8s.io/component-base/version"  # helm refuses a server without a version
    numbers = version.removeprefix("v").split(".")
    told = {"gitVersion": version, "gitMajor": numbers[0], "gitMinor": numbers[1]}
    flags = " ".join(["-s -w", *(f"-X {place}.{key}={value}" for key, value in told.items())])
    made = folder(sources(name))
    made.mkdir(parents=True, exist_ok=True)
    part = made / f"{name}.part"
    words = ["build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", str(part), package]
    _go(sources(name), *words)
    part.replace(made / name)


def _fetch(one: Type) -> None:
    told = json.loads(_go(SOURCES, "mod", "download", "-json", f"{one.module}@{one.version}"))
    if told["Sum"] != one.digest:
        raise BuildError(f"{one.module} {one.version} is {told['Sum']}, and {one.digest} is locked")
    shutil.copyfile(Path(told["Dir"]) / one.path, folder() / one.filename)


def _go(sources: Path, *words: str) -> str:
    environ: dict[str, Any] = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(
        ["nice", "go", *words],
        cwd=sources, env=environ, capture_output=True, text=True, timeout=LONG,
    )  # fmt: skip
    if done.returncode:
        raise BuildError(f"`go {words[0]}` ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout
