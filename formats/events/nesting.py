"""The depth to which JSON is nested, told by each record's bytes alone.

A decoder's own limit is what is left of the interpreter's stack, which differs between workers, and
between two calls of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_NESTED = 64  # lists and objects within each other, with the record itself
_PART = 256  # records examined at once, so that their bytes stay in the processor's cache
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def deep(value: bytes) -> bool:
    r"""Whether a record is nested too deeply; what is no JSON may be either.

    >>> deep(b"[" * 64 + b"]" * 64), deep(b"[" * 65 + b"]" * 65)
    (False, True)
    >>> deep(b"[" + b"[]," * 99 + b'"' + b"[" * 99 + rb"\"" + b"[" * 99 + b'"]')
    False
    """
    most = MOST_NESTED + 1
    if len(value.split(b"[", most)) + len(value.split(b"{", most)) - 2 <= MOST_NESTED:
        return False
    plain = value.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHERS)
    # Two quotes side by side hold no bracket; of what is left, every other part is outside strings.
    brackets = b"".join(plain.replace(b'""', b"").split(b'"')[::2])
    steps = (np.frombuffer(brackets, np.int8) & 2) - 1  # this bit tells [{ from ]}
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > MOST_NESTED)


def shallow(objects: Sequence[bytes]) -> bool:
    """Whether no record is nested too deeply; each must be an object, so it has a bracket."""
    return all(_shallow(objects[n : n + _PART]) for n in range(0, len(objects), _PART))


def _shallow(objects: Sequence[bytes]) -> bool:
    data = b"".join(objects)
    if b"[" not in data:
        braces = np.count_nonzero(np.frombuffer(data, np.uint8) == ord("{"))
        if braces < len(objects) + MOST_NESTED:  # none has more than 64
            return True
    return not any(map(deep, objects))
