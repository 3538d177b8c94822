"""The option ``--diff`` of ``hush plan``: old terms against new ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.table import Table

from ...agents.deployment.compile import compile_config
from ...agents.deployment.difference import ChangedSetting, Difference, Terms, beside, differences
from ...agents.worker.lines.screen import Screen, say
from ...errors import ConfigError
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
    new = [Terms.of(p) for p in compile_config(config).pipelines]
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
        old = [Terms.of(p) for p in compile_config(other).pipelines]
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


def _declared(config: Config) -> list[Terms]:
    ledger = ledger_of(config)
    ends = {name: int(body["until"]) for name, body in ledger.retired.items()}
    return [Terms(name, body["config"], ends.get(name)) for name, body in ledger.pipelines.items()]


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
