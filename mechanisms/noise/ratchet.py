"""A ratchet of noise keys: the current state gives every later key and no earlier one.

Steps are records of the ledger: public, in one order for all pipelines, without gaps. The key of
step i + 1 is an HMAC under the key of step i, and the key of a charge is another HMAC under the key
of its step. So the key of step i gives the keys of all charges from record i on; going back would
mean inverting HMAC-SHA256. The ratchet holds the key of its current step, and the individual keys
of earlier charges whose epochs may still be released.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .keyed import encode, fingerprint

_NEXT = b"hushstream ratchet: next step"


class Charge(NamedTuple):
    """The charge of one epoch; ``number`` is the position of its record in the ledger, from 0."""

    number: int
    pipeline: str
    epoch: int


Over = Callable[[Charge], bool]
"""Whether an epoch will have no further release, so that its key may be erased."""


def advanced(key: bytes, steps: int) -> bytes:
    """The key of a later step; it does not reveal the key of any earlier step."""
    for _ in range(steps):
        key = hmac.digest(key, _NEXT, "sha256")
    return key


def epoch_key(key: bytes, charge: Charge) -> bytes:
    """The noise key of an epoch, from the key of its charge's step.

    Args:
        key: key of step ``charge.number``; the result does not reveal it.
    """
    words = (b"hushstream", b"epoch", charge.pipeline.encode(), str(charge.epoch).encode())
    return hmac.digest(key, encode(words), "sha256")  # begins with a count, unlike `_NEXT`


@dataclass(frozen=True)
class Ratchet:
    """All secrets held at one step; `forward` makes those of a later step.

    Attributes:
        name: public, the fingerprint of the first key; the same at every step.
        step: number of ledger records read.
        key: key of that step, 32 bytes.
        kept: keys of earlier charges whose epochs are not over, 32 bytes each.

    >>> first = Ratchet.new(bytes(range(32)))
    >>> charge = Charge(7, "p", 3)
    >>> later = first.forward(9, [charge], lambda charge: False)
    >>> later.of(charge) == first.of(charge), later.of(Charge(8, "p", 4))
    (True, None)
    """

    name: str
    step: int
    key: bytearray = field(repr=False)
    kept: Mapping[Charge, bytearray] = field(repr=False)

    @classmethod
    def new(cls, root: bytes) -> Ratchet:
        """Begin with 32 random bytes, before the first record of a ledger."""
        return cls(fingerprint(root), 0, bytearray(root), {})

    def of(self, charge: Charge) -> bytes | None:
        """The noise key of an epoch; None if it was erased or never held."""
        held = self.kept.get(charge)
        if held is not None:
            return bytes(held)
        return next((key for _, key in self.keys([charge])), None)

    def keys(self, charges: Iterable[Charge]) -> Iterator[tuple[Charge, bytes]]:
        """Compute the keys of charges at or after the step; earlier charges are left out."""
        key, at = bytes(self.key), self.step
        for charge in sorted(one for one in charges if one.number >= self.step):
            key, at = advanced(key, charge.number - at), charge.number
            yield charge, epoch_key(key, charge)

    def forward(self, step: int, charges: Iterable[Charge], over: Over) -> Ratchet:
        """The ratchet after more of the ledger was read, without keys of epochs that are over.

        Args:
            step: number of ledger records read; a smaller number than now changes nothing.
            charges: all charges among the records from this ratchet's step on.
            over: whether the key of an epoch may go.
        """
        passed = (one for one in charges if one.number < step and not over(one))
        kept = {one: bytearray(key) for one, key in self.keys(passed)}
        kept |= {one: bytearray(key) for one, key in self.kept.items() if not over(one)}
        step = max(step, self.step)
        key = bytearray(advanced(bytes(self.key), step - self.step))
        return Ratchet(self.name, step, key, kept)

    def wipe(self) -> None:
        """Overwrite all secrets as far as Python allows: copies that it made may remain."""
        for secret in (self.key, *self.kept.values()):
            secret[:] = bytes(len(secret))
