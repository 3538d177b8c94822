"""The root of the package: few public names, sorted, complete, and loaded only when used.

Covers: __init__.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import hushstream
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", hushstream.__all__)
def test_a_public_name_is_what_its_module_calls_so(name: str) -> None:
    found = getattr(hushstream, name)
    assert found.__name__ == name
    assert found.__module__.startswith("hushstream.")
    assert found.__doc__


def test_the_names_are_sorted_and_the_same_everywhere() -> None:
    names = list(hushstream.__all__)
    assert names == sorted(set(names))
    assert list(hushstream._WHERE) == names
    assert set(names) <= set(dir(hushstream))
    assert _typed() == hushstream._WHERE


def _typed() -> dict[str, str]:
    """Names and modules that a type checker sees."""
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f".{node.module}" for node in imports for alias in node.names}


def test_every_error_is_public() -> None:
    import hushstream.errors as errors

    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert {name for name in classes if name.endswith("Error")} <= set(hushstream.__all__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Mechanisms'"):
        _ = hushstream.Mechanisms


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, hushstream; hushstream.HushError;"
        "heavy = {'numpy', 'faust', 'scipy', 'pyarrow', 'confluent_kafka'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
