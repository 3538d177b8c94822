"""Settings that may change during a deployment's life, and what holds the others fixed.

Every setting is listed, alone or with its table, so that a new one must be considered: a test finds
missing ones, and changes each of the others to see what detects it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final, NamedTuple

from .merge import tables

HASH: Final = "hash"
LEDGER: Final = "record of the pipeline"
KEY: Final = "record of the pipeline, by the key's fingerprint"
END: Final = "record of its end, once there is one"
FREE: Final = "nothing"


class Change(NamedTuple):
    """The thing that holds a setting fixed, and why; or why nothing needs to."""

    held: str
    why: str


SETTINGS: dict[str, Change] = {
    "deployment.name": Change(HASH, "names the ledger: another name is another deployment"),
    "deployment.shared_topics": Change(LEDGER, "decides in which topics all state lies"),
    "kafka.*": Change(FREE, "how to reach the cluster; topics are known by Kafka's own ids"),
    "registry.*": Change(FREE, "what a schema's id stands for is kept from its first use on"),
    "secret.noise_key_file": Change(
        FREE, "the key may move; its fingerprint stands in the genesis and in each charge"
    ),
    "secret.key.*": Change(FREE, "likewise: another way to the same key"),
    "secret.signing_key_file": Change(
        FREE, "the key may move; the genesis names the public one, once and for all"
    ),
    "secret.signing_key.*": Change(FREE, "likewise: another way to the same key"),
    "secret.ratchet": Change(KEY, "a release keeps the noise that it was charged with"),
    "secret.ratchet_file": Change(FREE, "the file may move"),
    "secret.escrow_key_file": Change(FREE, "whoever may open the keys of epochs to come"),
    "secret.escrow_file": Change(FREE, "the file may move"),
    "engine.data_dir": Change(FREE, "tables are restored from changelogs"),
    "engine.witness": Change(FREE, "it is checked wherever it is"),
    "engine.units_partitions": Change(LEDGER, "decides which shard keeps a unit's bound"),
    "engine.cells_partitions": Change(LEDGER, "decides which shard keeps a key's sums"),
    "engine.release_partitions": Change(LEDGER, "a repeated release goes to the same partition"),
    "engine.replication_factor": Change(FREE, "of topics that are still to be created"),
    "engine.beat_interval": Change(FREE, "cuts are read from the clock log"),
    "engine.publish_delay": Change(FREE, "time of publication, not content"),
    "engine.settle": Change(FREE, "when triggers are cut after an outage; cuts are in the log"),
    "engine.max_clock_lead": Change(FREE, "when the clock's owner stops"),
    "engine.max_future_skew": Change(HASH, "decides which records count"),
    "engine.step_records": Change(FREE, "how work is cut; contents depend on cuts alone"),
    "engine.step_bytes": Change(FREE, "how much is fetched at once"),
    "engine.loss_share": Change(FREE, "when an alarm is raised"),
    "engine.input_mb": Change(FREE, "how much of the input is held in memory"),
    "engine.stall_timeout": Change(FREE, "when a worker is told to be hanging"),
    "engine.standbys": Change(FREE, "copies of tables on other workers"),
    "engine.snapshots": Change(FREE, "copies of tables, of which changelogs have everything"),
    "engine.snapshot_interval": Change(FREE, "how old such a copy may become"),
    "engine.session_timeout": Change(FREE, "when a worker counts as gone"),
    "engine.transaction_timeout": Change(FREE, "when a transaction is given up"),
    "engine.trim_interval": Change(FREE, "deletes what has been applied"),
    "engine.keep_clock": Change(FREE, "what is kept for replays"),
    "engine.keep_units": Change(FREE, "what is kept for replays"),
    "engine.block_cache_mb": Change(FREE, "memory"),
    "engine.write_buffer_mb": Change(FREE, "memory"),
    "engine.unit_cache_mb": Change(FREE, "memory"),
    "engine.public_host": Change(FREE, "an address"),
    "engine.public_port": Change(FREE, "an address"),
    "engine.operator_host": Change(FREE, "an address"),
    "engine.operator_port": Change(FREE, "an address"),
    "engine.page_names": Change(FREE, "an address"),
    "engine.log_level": Change(FREE, "what is logged"),
    "input.name": Change(HASH, "pipelines name their input"),
    "input.topic": Change(HASH, "what is counted; its id and partitions are pinned as well"),
    "input.unit": Change(HASH, "whom the bound holds for"),
    "input.time.*": Change(HASH, "decides which window a record lies in"),
    "input.format": Change(HASH, "how records are read"),
    "input.partitioner": Change(LEDGER, "decides which shard keeps a unit's bound"),
    "input.attributes_of": Change(HASH, "whose attributes stand in keys"),
    "input.on_error": Change(FREE, "bad records count in no case"),
    "input.dlq_payload": Change(FREE, "copies of records that do not count"),
    "input.late": Change(FREE, "late records count in no case"),
    "input.max_record_bytes": Change(HASH, "decides which records count"),
    "pipeline.budget.limit_epsilon": Change(FREE, "may be raised, for epochs to come"),
    "pipeline.budget.limit_delta": Change(FREE, "may be raised, for epochs to come"),
    "budget.limit_epsilon": Change(FREE, "may be raised, for epochs to come"),
    "budget.limit_delta": Change(FREE, "may be raised, for epochs to come"),
    "budget.*": Change(HASH, "what a share of it costs, and whose it is"),
    "pipeline.release.latest": Change(FREE, "another copy of what is released"),
    "pipeline.public_keys_file": Change(FREE, "the file may move; a digest of the keys is held"),
    "pipeline.noise_key_file": Change(KEY, "the file may move; another key gives a second noise"),
    "pipeline.forget_keys": Change(KEY, "a release keeps the noise that it was charged with"),
    "lookup.name": Change(FREE, "pipelines name it; what they found is held"),
    "lookup.topic": Change(HASH, "a pipeline keeps the rows that it was declared with"),
    "view.*": Change(
        FREE,
        "what is released is charged, and not what follows from it; the state says what it was",
    ),
    "pipeline.query": Change(FREE, "the settings that it means are held, not its words"),
    "pipeline.learn.*": Change(FREE, "the pipelines that it stands for are held"),
    "pipeline.clip.*": Change(FREE, "the bounds of the aggregates are held"),
    "pipeline.until": Change(END, "may be set while it lies ahead; an end is never moved"),
    "pipeline.*": Change(HASH, "what is released, and what it costs"),
}


def of(setting: str) -> Change | None:
    """Look up what holds a setting, by its path; None if it is not listed.

    >>> of("input.time.zone").held
    'hash'
    """
    steps = setting.split(".")
    tables = (".".join([*steps[:depth], "*"]) for depth in range(len(steps) - 1, 0, -1))
    listed = (path for path in (setting, *tables) if path in SETTINGS)
    return next((SETTINGS[path] for path in listed), None)


def every() -> list[str]:
    """Paths of all settings, tables left out: ``engine.data_dir``, ``pipeline.budget.epsilon``."""
    headers = {_path(header) for header, _ in tables()}
    found = [f"{_path(header)}.{f.name}" for header, kind in tables() for f in fields(kind)]
    return [path for path in dict.fromkeys(found) if path not in headers]


def _path(header: str) -> str:
    return header.partition(" ")[0].strip("[]")


def reference() -> str:
    """A Markdown section with the table of what holds each setting."""
    held = {path: change for path, change in SETTINGS.items() if change.held != FREE}
    alike: dict[str, list[str]] = {}
    for path, change in held.items():
        alike.setdefault(change.why, []).append(f"`{path}`")
    rows = [f"- {', '.join(paths)}: {why}." for why, paths in alike.items()]
    inside = tuple(path.removesuffix("*") for path in held if path.endswith("*"))
    free = ", ".join(f"`{p}`" for p in SETTINGS if p not in held and p.startswith(inside))
    head = (
        "## What holds a setting\n\nThe ledger holds these, by the hash of the pipeline's "
        "configuration or by a record. `hush worker`, `hush check` and `hush topics` refuse a "
        "change:\n"
    )
    tail = f"Nothing holds {free}, or a setting that is not listed: restart the workers."
    return "\n".join((head, *rows, "", tail, ""))
