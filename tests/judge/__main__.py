"""Judge a deployment on a broker: ``python -m tests.judge FOLDER [BOOTSTRAP [RATCHET]]``.

The folder holds ``hush.toml`` and ``hush.key``, as ``make demo ARGS=--keep`` leaves them.
Where pipelines forget their keys, an early state of the ratchet is needed. ``--list`` prints what
can be judged.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from .logs import KINDS
from .topics import deployment


def main(given: Sequence[str] | None = None) -> int:
    """Print what was judged; 1 if there are objections."""
    parser = argparse.ArgumentParser("python -m tests.judge", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="of hush.toml and hush.key")
    parser.add_argument("bootstrap", nargs="?", help="servers; default: those of hush.toml")
    parser.add_argument("ratchet", nargs="?", type=Path, help="an early state of the ratchet")
    parser.add_argument("--list", action="store_true", help="print what can be judged, and end")
    said = parser.parse_args(given)
    if said.list:
        print("\n".join([*KINDS, "view"]))
        return 0
    if said.folder is None:
        parser.error("give the folder of hush.toml and hush.key, or --list")
    for name in ("hush.toml", "hush.key"):
        if not (said.folder / name).is_file():
            parser.error(f"{said.folder}: has no file {name}: give the folder of a deployment")
    config = said.folder / "hush.toml"
    settings = tomllib.loads(config.read_text("utf-8"))
    secret = bytes.fromhex((said.folder / "hush.key").read_text("utf-8").strip())
    place = said.bootstrap or settings["kafka"]["bootstrap"]
    found = deployment(place, config, secret, state=said.ratchet)
    for name, judgement in found.items():
        print(f"{name}: {judgement.triggers} triggers, {judgement.rows} rows")
        for objection in judgement.objections[:20]:
            print(f"  {objection}")
    return int(any(judgement.objections for judgement in found.values()))


if __name__ == "__main__":
    sys.exit(main())
