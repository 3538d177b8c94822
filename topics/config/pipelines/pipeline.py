"""The settings of one pipeline, as frozen dataclasses. Their docstrings are the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal

from ....formats.events.expressions.derived import ChosenNumber
from ....mechanisms.catalogue import DEFAULT, entries
from ....mechanisms.entry import Frame
from ...calendar import Calendar, CalendarSpan, interval
from ...names import default_owner, latest_topic, releases_topic
from ..aggregates.kinds import Aggregate, counted_in
from ..aggregates.partial import Count
from ..expressions.conditions import Condition
from ..expressions.derive import Derive
from ..toml.lines import Path
from ..toml.read import Convert, Reader, shown
from ..toml.values import ZERO, Duration, FieldPath, Instant, Name, TopicName, span, within
from .budgets import BudgetSettings, Learn
from .windows import Triggers, WindowSettings, length_up_to

Scalar = str | int | bool

CENTURY = 36_525 * 86_400_000_000
ENDLESS = 1 << 24


def endless(every: int) -> int:
    """Length of a window without a stated end, from its trigger interval; 0 for 0.

    Both in microseconds. Even such a window ends, where representable times and matrices end.
    """
    return every and every * min(ENDLESS, CENTURY // every)


def _read_paths(reader: Reader, raw: Any, path: Path) -> tuple[str, ...]:
    """Read one path, or a list of distinct paths."""
    listed = [raw] if isinstance(raw, str) else raw
    if not _is_list(listed):
        rule = 'must be a path such as "user.id", or a list of paths such as ["a", "b"]'
        raise reader.fail(path, f"{shown(raw)} {rule}")
    paths: tuple[str, ...] = reader.read(tuple[FieldPath, ...], listed, path)
    if not paths or len(set(paths)) < len(paths):
        raise reader.fail(path, "must be a path or a list of distinct paths")
    return paths


Paths = Annotated[tuple[str, ...], Convert(_read_paths)]


def _read_public_keys(reader: Reader, raw: Any, path: Path) -> tuple[tuple[Scalar, ...], ...]:
    """Read a list of keys; brackets are optional for keys of one column."""
    listed = [[key] if isinstance(key, Scalar) else key for key in raw] if _is_list(raw) else raw
    keys: tuple[tuple[Scalar, ...], ...] = reader.read(tuple[tuple[Scalar, ...], ...], listed, path)
    return keys


def _is_list(raw: Any) -> bool:
    return isinstance(raw, list | tuple)


def _read_aggregates(reader: Reader, raw: Any, path: Path) -> tuple[Aggregate, ...]:
    """Read a list of aggregates; it is empty for keys alone."""
    if raw == "keys":
        return ()
    if not _is_list(raw) or not raw:
        raise reader.fail(path, 'must be "keys" or a list such as [{ kind = "count" }]')
    aggregates: tuple[Aggregate, ...] = reader.read(tuple[Aggregate, ...], raw, path)
    return aggregates


def _read_mechanism(reader: Reader, raw: Any, path: Path) -> MechanismSettings:
    """Read a mechanism of the catalogue with its own settings."""
    if not isinstance(raw, dict):
        raise reader.fail(path, 'must be a table such as { kind = "histogram" }')
    kind = raw.get("kind", DEFAULT)
    known = entries()
    if not isinstance(kind, str):
        raise reader.fail((*path, "kind"), 'must be a text such as "histogram"')
    if kind not in known:
        raise reader.fail((*path, "kind"), f'"{kind}": ' + reader.unknown(kind, known, "mechanism"))
    settings = {name: value for name, value in raw.items() if name != "kind"}
    return MechanismSettings(kind, reader.table(known[kind].parameters, settings, path))


def _default_mechanism() -> MechanismSettings:
    return MechanismSettings(DEFAULT, entries()[DEFAULT].parameters())


@dataclass(frozen=True)
class MechanismSettings:
    """The mechanism that makes releases private.

    Attributes:
        kind: name; other settings stand beside it, see the mechanism's page.
        parameters: the mechanism's own settings.
    """

    kind: str
    parameters: Any


@dataclass(frozen=True)
class Release:
    """The records written for each trigger.

    Attributes:
        topic: release topic; default `hush.<pipeline>.releases.v1`.
        latest: whether the newest value of each window and key is also kept in a compacted topic,
            `hush.<pipeline>.latest.v1`, or `<topic>.latest` if `topic` is set.
        format: `rows` and one manifest, or `full` rows that repeat the manifest.
        encoding: plain JSON, or what a schema registry's deserialisers read, with the schema's id
            before the value.
        display: `non-negative` adds a field with negative values shown as 0.
        confidence_level: confidence level of the error bars, which cover only the noise.
    """

    topic: TopicName | None = None
    latest: bool = True
    format: Literal["rows", "full"] = "rows"
    encoding: Literal["json", "avro", "protobuf", "json_schema"] = "json"
    display: Literal["raw", "non-negative"] = "raw"
    confidence_level: Annotated[Fraction, within(0.5, 0.9999)] = Fraction(95, 100)


@dataclass(frozen=True)
class Clip:
    """Bounds of a field that a `query` sums without stating them.

    Attributes:
        low: smaller values count as this.
        high: larger values count as this.
        grid: values are rounded to multiples of this.
    """

    low: Fraction
    high: Fraction
    grid: Fraction = Fraction(1)


@dataclass(frozen=True)
class PipelineSettings:
    """One private release of one input.

    Attributes:
        name: name in topics and releases.
        input: name of the input.
        window: events that belong together.
        triggers: times of releases.
        budget: cost of a privacy unit.
        key: columns that events are grouped by: paths, and names of derived columns.
        derive: derived columns of the key, and numbers that aggregates sum, by name.
        where: conditions, all of which a record must fulfil to count here, tested before the
            contribution bound.
        public_keys: list of all keys, if it is public; `"natural"` where the key's columns say it:
            parts of the time, cases, or no column, for a total. Without it, keys are found
            privately.
        public_keys_file: file with that list: JSON, or one key per line.
        aggregate: released values per key: counts, sums, means, variances and standard
            deviations; or one number of distinct values; or `"keys"` for keys alone.
        inputs: path of each number that mechanisms other than `histogram` read; default: the
            number's name. `value` is the aggregate's field, `time` the event time.
        sign: path of a field that marks deletions (true, -1 or "delete").
        unit_name: name of a privacy unit in releases and the ledger.
        neighbouring: relation of data sets: neighbours differ by one whole unit.
        epoch: length of the windows that share one charge and one contribution bound; default: one
            window, or with `window.hop` one length. For windows of the calendar a number of them,
            such as `"3 months"`.
        until: boundary between two epochs at which this pipeline is retired: no later epoch is
            charged or released. It cannot be changed once `hush topics` has written it to the
            ledger.
        follows: the pipeline whose releases this one continues, on the same topics; its windows
            begin at that one's `until`.
        learn: choose the budget of the contribution bound
            [from releases](mechanisms/histogram.md#a-bound-that-is-learnt).
        noise_key_file: file with this pipeline's own noise key; default: the deployment's, which
            keeps its other purposes.
        forget_keys: each epoch has its own noise key, which every machine erases once the epoch is
            over. Needs a ratchet: `hush ratchet new`.
        session: longest pause within a session: records of one unit and key in an epoch, which
            count as one, with the numbers `session_length` in seconds and `session_events`.
        schedule: triggers follow the clock, or `hush trigger`.
        lateness: wait for late records after a trigger's time.
        feedback_delay: triggers until a released key affects how its records are counted.
        mechanism: mechanism that makes releases private.
        release: how releases are written.
        query: the pipeline in SQL, which sets `input`, `key`, `derive`, `where`, `aggregate` and
            the length of the window: see [SQL](sql.md).
        clip: bounds of fields that a `query` sums without CLIP.
    """

    name: Name
    input: Name
    window: WindowSettings
    triggers: Triggers
    budget: BudgetSettings
    key: Paths = ()
    derive: dict[str, Derive] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()
    public_keys: Annotated[tuple[tuple[Scalar, ...], ...] | None, Convert(_read_public_keys)] = None
    public_keys_file: str | None = None
    aggregate: Annotated[tuple[Aggregate, ...], Convert(_read_aggregates)] = (Count(),)
    inputs: dict[str, FieldPath] = field(default_factory=dict)
    sign: FieldPath | None = None
    unit_name: str = "unit"
    neighbouring: Literal["add_remove"] = "add_remove"
    epoch: Annotated[Duration | CalendarSpan, length_up_to("36500d")] | None = None
    until: Instant | None = None
    follows: Name | None = None
    learn: Learn | None = None
    noise_key_file: str | None = None
    forget_keys: bool = False
    session: Annotated[Duration, span("1s", "366d")] | None = None
    schedule: Literal["wall", "external"] = "wall"
    lateness: Annotated[Duration, span("0s", "366d")] = ZERO
    feedback_delay: Annotated[int, within(0, 1000)] = 1
    mechanism: Annotated[MechanismSettings, Convert(_read_mechanism)] = field(
        default_factory=_default_mechanism
    )
    release: Release = field(default_factory=Release)
    query: str | None = None
    clip: dict[str, Clip] = field(default_factory=dict)

    @property
    def release_topic(self) -> str:
        """Release topic, by default named after the pipeline."""
        return self.release.topic or releases_topic(self.name)

    @property
    def latest_topic(self) -> str | None:
        """Compacted topic of newest values; None if there is none."""
        if not self.release.latest:
            return None
        # A follower inherits the first generation's release topic, even if that was a default.
        first = default_owner(self.release.topic or "") if self.follows else ""
        return latest_topic(first) if first else latest_topic(self.name, self.release.topic)

    @property
    def chosen(self) -> dict[str, ChosenNumber]:
        """Derived columns outside the key: numbers that aggregates sum, by name."""
        keys = (*self.key, counted_in(self.aggregate))
        found = {name: one.chosen for name, one in self.derive.items() if name not in keys}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def frame(self) -> Frame:
        """The pipeline's values of what a mechanism's parameters may also set."""
        return Frame(
            delay=self.feedback_delay,
            keys_only=not self.aggregate,
            public_keys=self.public_keys is not None,
            every=None if isinstance(self.triggers.every, CalendarSpan) else self.triggers.every,
            origin=self.window.origin,
            timed="time" in self.inputs,
        )

    @property
    def epoch_length(self) -> Duration | CalendarSpan:
        """Length of an epoch, a multiple of the window's; microseconds unless of the calendar."""
        return self.epoch or self.window.length or Duration(self.window_length)

    @property
    def window_length(self) -> int:
        """Length of a window in microseconds; of the calendar, that of the longest."""
        given, every = self.window, self.triggers.every
        if isinstance(given.length, CalendarSpan):
            made = self.calendar
            return 0 if made is None else made.longest
        if given.endless:
            return endless(every if isinstance(every, int) else 0)
        return given.length or (given.horizon or 1) * (every if isinstance(every, int) else 0)

    @property
    def step_length(self) -> int:
        """Microseconds from one window to the next; less than a window's length if they overlap."""
        return self.window.hop or self.window_length

    @property
    def calendar(self) -> Calendar | None:
        """Windows of the calendar; None: windows have a fixed length."""
        length, every = self.window.length, self.triggers.every
        if not isinstance(length, CalendarSpan):
            return None
        zone = "UTC" if self.window.zone is None else self.window.zone
        return Calendar(zone, length, interval(every or length), self.window.origin)
