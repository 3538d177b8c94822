"""Mistakes put back: a function of the product with one expression changed."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest


def broken(patch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> None:
    """Replace ``old`` by ``new``, found exactly once, in a function of a module or class.

    Modules of the product that have imported the function get the new one too.
    """
    found = inspect.getattr_static(owner, name)
    is_property = isinstance(found, property)
    plain = found.fget if is_property else getattr(found, "__func__", found)
    plain = inspect.unwrap(plain)
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(old) == 1, f"{name} no longer reads {old!r}"
    space = sys.modules[plain.__module__].__dict__
    out: dict[str, Any] = {}
    code = compile(source.replace(old, new), f"<{name}>", "exec", annotations.compiler_flag, True)
    exec(code, space, out)  # noqa: S102 - this is what a mutant is
    patch.setattr(owner, name, out[plain.__name__])
    for module in [m for place, m in sys.modules.items() if place.startswith("hushstream.")]:
        for alias in [a for a, value in vars(module).items() if value is found]:
            patch.setattr(module, alias, out[plain.__name__])
