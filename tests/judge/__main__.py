"""Judge a deployment on a broker: ``python -m tests.judge FOLDER [BOOTSTRAP [RATCHET]]``.

The folder holds ``hush.toml`` and ``hush.key``, as ``make demo ARGS=--keep`` leaves them.
Where pipelines forget their keys, an early state of the ratchet is needed.
"""

import sys
import tomllib
from pathlib import Path

from .topics import deployment


def main(folder: str, bootstrap: str = "", ratchet: str = "") -> int:
    """Print what was judged; 1 if there are objections."""
    config = Path(folder) / "hush.toml"
    settings = tomllib.loads(config.read_text("utf-8"))
    secret = bytes.fromhex((Path(folder) / "hush.key").read_text("utf-8").strip())
    state = Path(ratchet) if ratchet else None
    place = bootstrap or settings["kafka"]["bootstrap"]
    found = deployment(place, config, secret, state=state)
    for name, judgement in found.items():
        print(f"{name}: {judgement.triggers} triggers, {judgement.rows} rows")
        for objection in judgement.objections[:20]:
            print(f"  {objection}")
    return int(any(judgement.objections for judgement in found.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
