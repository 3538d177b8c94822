"""The ratchet, a second time: the noise key of an epoch from a state that an auditor was given."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from .noise import fields

Clock = Mapping[str, Any]


class Forgotten(Exception):
    """The state is of a later moment than a trigger's charge."""


def keys(state: Mapping[str, Any]) -> Callable[[Clock], bytes]:
    """Tell the noise key under which a trigger was released.

    Args:
        state: content of a ratchet's file at any moment: ``step``, ``key`` and ``kept`` keys, in
            hexadecimal.
    """
    kept = {(k["number"], k["pipeline"], k["epoch"]): k["key"] for k in state["kept"]}
    known = {state["step"]: bytes.fromhex(state["key"])}  # by record of the ledger

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
