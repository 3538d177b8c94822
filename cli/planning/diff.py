"""The option ``--diff`` of ``hush plan``: old terms against new ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from ...agents.deployment.compile import compile_config
from ...agents.deployment.difference import ChangedSetting, Difference, Terms, beside, differences
from ...agents.worker.lines.screen import Screen, say
from ...errors import ConfigError
from ...mechanisms.noise import fingerprint
from ...topics.config.access.secret import read_key
from ...topics.config.load import Config, load
from ..deployed import ledger_of
from ..options import emit, kept_tables, readable

LEDGER = "ledger"


def show_difference(config: Config, before: str, as_json: bool) -> None:
    """Print how a configuration differs from the file ``before``, or from the ledger if `LEDGER`.

    Raises:
        ConfigError: the old configuration is missing or not valid.
        LedgerError: there is no ledger, or it is broken.
    """
    new = _terms(config)
    more: list[ChangedSetting] = []
    if before == LEDGER:
        old = _declared(config)
    else:
        if not Path(before).exists():
            raise ConfigError(
                f"--diff {before}: file not found; name the configuration before the change, or "
                f"{LEDGER} for what was declared"
            )
        other = load(before)
        other = load(before, tables=kept_tables(other)) if other.lookup else other
        old = _terms(other)
        more = beside(other, config)
    found = differences(old, new, int(time.time() * 1e6))
    if as_json:
        emit({"pipelines": [_plain(one) for one in found], "other": [vars(one) for one in more]})
        return
    console = Screen()
    for one in found:
        alone = one.against in (None, one.pipeline)
        title = one.pipeline if alone else f"{one.against} → {one.pipeline}"
        console.print(title, markup=False)
        if one.lines:
            console.print(_table(one.lines))
        for words in one.words:
            console.print(words, soft_wrap=True, markup=False, highlight=False)
        console.print()
    if more:
        console.print(_table(more))
    if not found and not more:
        say("nothing differs that is charged, declared or shown")


def _terms(config: Config) -> list[Terms]:
    keys = {p.name: p.noise_key_file for p in config.pipeline}
    found = []
    for p in compile_config(config).pipelines:
        named = {} if p.own_key is None else {"forget_keys": p.own_key}
        if (file := keys[p.name]) is not None:
            named["noise_key_file"] = _named(file)
        found.append(replace(Terms.of(p), keys=named))
    return found


def _named(file: str) -> str:
    """Name a noise key in public: by its fingerprint, or by its file where that cannot be read."""
    try:
        return fingerprint(read_key(Path(file)))
    except ConfigError:
        return f"not readable here: {file}"


def _declared(config: Config) -> list[Terms]:
    ledger = ledger_of(config)
    ends = {name: int(body["until"]) for name, body in ledger.retired.items()}
    return [
        Terms(name, body["config"], ends.get(name), keys=_pinned(config, body))
        for name, body in ledger.pipelines.items()
    ]


def _pinned(config: Config, body: Mapping[str, Any]) -> dict[str, str]:
    """The key that the ledger names for a pipeline, by the setting that has given it."""
    if (name := body.get("key_fingerprint")) is None:
        return {}
    return {"forget_keys" if name == config.secret.ratchet else "noise_key_file": name}


def _table(lines: list[ChangedSetting] | tuple[ChangedSetting, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2))
    for name in ("setting", "old", "new", "holds"):
        table.add_column(name, no_wrap=name == "setting")
    for line in lines:
        table.add_row(line.setting, line.old, line.new, line.holds)
    return readable(table)


def _plain(one: Difference) -> dict[str, Any]:
    return {
        "pipeline": one.pipeline,
        "against": one.against,
        "settings": [vars(line) for line in one.lines],
        "words": list(one.words),
    }
