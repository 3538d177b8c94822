"""Public tables that a column of a key is looked up in, as the judge reads them."""

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any


def looked_up(config: dict[str, Any], settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put the rows of public tables beside their digests, which were charged."""
    for name, how in config.get("derive", {}).items():
        if how["kind"] != "lookup":
            continue
        asked = settings["derive"][name]
        path = folder / asked["lookup"]
        delimiter = "," if path.suffix == ".csv" else "\t"
        match = asked.get("match", how["field"].split(".")[-1])
        with path.open(encoding="utf-8-sig", newline="") as file:
            read = csv.DictReader(file, delimiter=delimiter)
            pairs = [(row[match], row[asked["take"]]) for row in read]
        rows: dict[str, Any] = {key: value for key, value in pairs if key and value}
        if all(re.fullmatch("0|-?[1-9][0-9]{,17}", value) for value in rows.values()):
            rows = {key: int(value) for key, value in rows.items()}
        lines = [json.dumps([key, rows[key]], ensure_ascii=False) for key in sorted(rows)]
        if hashlib.sha256("\n".join(lines).encode()).hexdigest() != how["sha256"]:
            raise ValueError(f"another table of {name} was charged")
        how["rows"] = rows
    return config
