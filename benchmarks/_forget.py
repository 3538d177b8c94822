"""Forgotten noise keys in a benchmark's deployment: an auditor opens the keys later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from _cluster import Local
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hushstream.agents.clock.genesis import read_ledger
from hushstream.mechanisms.noise import Charge
from hushstream.topics.config.access.ratchet_file import create, read

RATCHET, FIRST = "hush.ratchet", "first.ratchet"
PRIVATE, PUBLIC = "auditor.key", "auditor.pem"


class Forgotten(NamedTuple):
    """Number of charges under a ratchet, and of those whose keys are gone."""

    charges: int
    forgotten: int


def forgetting(text: str, folder: Path) -> str:
    """Let every other pipeline without hops in its windows forget its keys.

    The initial ratchet stays beside the file for the judge, and an auditor's private key for
    replays; a real deployment would keep neither.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = create(folder / RATCHET).name
    shutil.copy(folder / RATCHET, folder / FIRST)
    auditor = X25519PrivateKey.generate()
    secret = auditor.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / PRIVATE).write_bytes(secret)
    (folder / PRIVATE).chmod(0o600)
    public = auditor.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / PUBLIC).write_bytes(public)
    first, *others = text.split("[[pipeline]]\n")
    first = first.replace(
        "[secret]\n", f'[secret]\nratchet = "{name}"\nescrow_key_file = "{PUBLIC}"\n'
    )
    forgets = ["" if n % 2 or "hop = " in one else "forget_keys = true\n"
               for n, one in enumerate(others)]  # fmt: skip
    blocks = (f"[[pipeline]]\n{more}{one}" for more, one in zip(forgets, others, strict=True))
    return first + "".join(blocks)


def forgotten(run: Local) -> Forgotten:
    """Count the keys that are gone from the file that all workers share."""
    held = read(run.folder / RATCHET)
    charges = [
        Charge(r.seq, name, epoch)
        for (name, epoch), r in read_ledger(run.cluster, run.deployment.name).charges.items()
        if r.body["key_fingerprint"] == held.name
    ]
    return Forgotten(len(charges), sum(held.of(one) is None for one in charges))
