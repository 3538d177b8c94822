"""The ratchet, specified again: the noise key of an epoch, from a state given to an auditor."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from .noise import fields

Clock = Mapping[str, Any]


class Forgotten(Exception):
    """The state is newer than a trigger's charge, so its key is forgotten."""


def keys(state: Mapping[str, Any]) -> Callable[[Clock], bytes]:
    """Return a function from a trigger to the noise key under which it was released.

    Args:
        state: content of a ratchet's file at any time: ``step``, ``key`` and ``kept`` keys, in
            hexadecimal.
    """
    kept = {(k["number"], k["pipeline"], k["epoch"]): k["key"] for k in state["kept"]}
    known = {state["step"]: bytes.fromhex(state["key"])}  # by number of the ledger's record

    def key(trigger: Clock) -> bytes:
        number, name, epoch = trigger["charge_seq"], trigger["pipeline"], trigger["epoch"]
        if (number, name, epoch) in kept:
            return bytes.fromhex(kept[number, name, epoch])
        if number < state["step"]:
            raise Forgotten(f"the noise key of epoch {epoch} of pipeline {name!r}")
        for one in range(max(known), number):
            known[one + 1] = hmac.digest(known[one], b"hushstream ratchet: next step", "sha256")
        words = [b"hushstream", b"epoch", name.encode(), str(epoch).encode()]
        return hmac.digest(known[number], fields(words), "sha256")

    return key
