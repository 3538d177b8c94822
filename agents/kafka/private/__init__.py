"""Private names of Faust and aiokafka that the product relies on, all in this package.

Modules are named after their library. Both libraries are capped in ``pyproject.toml``, since any
release may change private names. Importing a module checks that every name it needs exists, so a
worker with an incompatible version stops before it reads a record. The modules wrap the private
names in public functions and classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

from ....errors import EngineError

Needed = Sequence[tuple[Any, tuple[str, ...]]]
"""Owners of private names, and the names."""


def check(library: str, needed: Needed) -> None:
    """Check that every private name exists.

    Args:
        needed: classes or modules of the library, and their private names.

    Raises:
        EngineError: one is missing; the message names library, version and name.
    """
    for owner, names in needed:
        known = set(_names(owner))
        for name in names:
            if name not in known and not hasattr(owner, name):
                raise EngineError(
                    f"{library} {version(library)} has no {owner.__name__}.{name}, which this "
                    "version of hushstream relies on: install the versions of requirements.lock"
                )


def _names(owner: Any) -> Iterator[str]:
    """List attributes that methods of a class use or annotate, including those of instances."""
    for one in getattr(owner, "__mro__", ()):
        yield from vars(one).get("__annotations__", ())
        for member in vars(one).values():
            if isinstance(member, FunctionType):
                yield from _used(member.__code__)


def _used(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)
