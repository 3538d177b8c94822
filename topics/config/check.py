"""Checks for settings that are valid singly but contradict each other."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ...errors import ConfigError
from ...mechanisms.factorization.hopping import LONGEST
from ...mechanisms.registry import entries, find
from ..calendar import CalendarSpan
from ..names import ledger_topic, reserved
from . import attributes, learn, roles, sessions, sharing, views
from .aggregates import Distinct, counted_in
from .model import Config, Engine, InputSettings, Kafka, Time
from .pipeline import BudgetSettings, PipelineSettings, SharedBudget
from .read import Problem
from .schedule import MAX_TRIGGERS, Schedule
from .values import UNIX_EPOCH, format_duration, format_instant

LONGEST_WINDOW = 36_500 * 86_400_000_000


def contradictions(config: Config) -> Iterator[Problem]:
    """Yield every contradiction of a configuration whose single values are valid."""
    yield from _kafka(config.kafka)
    yield from _registry(config)
    yield from _engine(config.engine)
    yield from _distinct([i.name for i in config.input], "input")
    yield from _distinct([p.name for p in config.pipeline], "pipeline")
    for place, source in enumerate(config.input):
        yield from _input(source).under("input", place)
    for place, setting, why in attributes.of_inputs(config):
        yield Problem(("input", place, setting), why)
    for place, pipeline in enumerate(config.pipeline):
        yield from _pipeline(config, pipeline).under("pipeline", place)
    for place, shared in enumerate(config.budget):
        yield from _Found(_limits(shared)).under("budget", place)
    yield from (Problem(path, message) for path, message in sharing.contradictions(config))
    yield from (Problem(path, message) for path, message in learn.contradictions(config))
    yield from _topics(config)
    topics = [source.topic for source in config.input]
    partitions = config.engine.release_partitions
    yield from views.contradictions(config.view, config.pipeline, topics, partitions)


class _Found(list[tuple[str, str]]):
    """Problems of one element: (dotted setting, message)."""

    def under(self, table: str, place: int) -> Iterator[Problem]:
        for setting, message in self:
            steps = tuple(int(s) if s.isdigit() else s for s in setting.split(".") if s)
            yield Problem((table, place, *steps), message)


def _kafka(kafka: Kafka) -> Iterator[Problem]:
    sasl = kafka.security_protocol.startswith("SASL")
    tls = kafka.security_protocol.endswith("SSL")
    for name in _named("sasl_", kafka):
        if not sasl:
            yield Problem(("kafka", name), "needs security_protocol = SASL_PLAINTEXT or SASL_SSL")
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password",
                 "ssl_key_password_file"):  # fmt: skip
        if getattr(kafka, name) is not None and not tls:
            yield Problem(("kafka", name), "needs security_protocol = SSL or SASL_SSL")
    for name in ("sasl_mechanism", "sasl_username"):
        if getattr(kafka, name) is None and sasl:
            yield Problem(("kafka", "security_protocol"), f"{kafka.security_protocol} needs {name}")
    if (kafka.ssl_certfile is None) != (kafka.ssl_keyfile is None):
        given = "ssl_certfile" if kafka.ssl_certfile else "ssl_keyfile"
        yield Problem(("kafka", given), "ssl_certfile and ssl_keyfile go together")
    yield from _tokens(kafka)


def _named(prefix: str, kafka: Kafka) -> list[str]:
    """Settings of one kind that are given."""
    found = [f.name for f in fields(kafka) if f.name.startswith(prefix)]
    return [name for name in found if getattr(kafka, name) is not None]


def _tokens(kafka: Kafka) -> Iterator[Problem]:
    if kafka.sasl_mechanism != "OAUTHBEARER":
        for name in _named("sasl_token_", kafka):
            yield Problem(("kafka", name), "needs sasl_mechanism = OAUTHBEARER")
    elif kafka.sasl_token_url is None:
        yield Problem(("kafka", "sasl_mechanism"), "OAUTHBEARER needs sasl_token_url")
    elif not _keeps_secrets(kafka.sasl_token_url):
        rule = "must be an https:// address (http:// on this machine alone), without credentials"
        yield Problem(("kafka", "sasl_token_url"), rule)


def _keeps_secrets(url: str) -> bool:
    """Whether what is sent to an address is encrypted, or stays on this machine."""
    if not _is_address(url):
        return False
    found = urlsplit(url)
    return found.scheme == "https" or found.hostname in ("localhost", "127.0.0.1", "::1")


def _registry(config: Config) -> Iterator[Problem]:
    registry = config.registry
    for place, source in enumerate(config.input):
        if source.format != "json" and registry.url is None:
            yield Problem(("input", place, "format"), f'"{source.format}" needs registry.url')
    for place, pipeline in enumerate(config.pipeline):
        encoding = pipeline.release.encoding
        if encoding != "json" and registry.url is None:
            where = ("pipeline", place, "release", "encoding")
            yield Problem(where, f'"{encoding}" needs registry.url')
    addresses = (registry.url or "").split(",")
    if registry.url is not None and not all(map(_is_address, addresses)):
        rule = "must be http:// or https:// addresses, separated by commas, without credentials"
        yield Problem(("registry", "url"), rule)
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        if getattr(registry, name) is not None and "https://" not in (registry.url or ""):
            yield Problem(("registry", name), "needs an https:// address")
    if (registry.ssl_certfile is None) != (registry.ssl_keyfile is None):
        given = "ssl_certfile" if registry.ssl_certfile else "ssl_keyfile"
        yield Problem(("registry", given), "ssl_certfile and ssl_keyfile go together")
    secret = registry.password is not None or registry.password_file is not None
    if registry.username is None and secret:
        yield Problem(("registry", "username"), "is missing: a password needs one")
    if registry.username is not None and not secret:
        wanted = "needs a password: set HUSH_REGISTRY__PASSWORD or password_file"
        yield Problem(("registry", "username"), wanted)


def _is_address(text: str) -> bool:
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        return False
    plain = found.scheme in ("http", "https") and "@" not in found.netloc
    return plain and bool(found.hostname) and port != 0


def _engine(engine: Engine) -> Iterator[Problem]:
    public = engine.public_host, engine.public_port
    if engine.public_port and public == (engine.operator_host, engine.operator_port):
        yield Problem(("engine", "operator_port"), "must differ from public_port")
    if engine.replication_factor == 0:
        yield Problem(("engine", "replication_factor"), "must be -1 or at least 1, not 0")


def _distinct(names: Sequence[Hashable], table: str) -> Iterator[Problem]:
    for place, name in enumerate(names):
        if name in names[:place]:
            yield Problem((table, place, "name"), f'"{name}" is the name of another {table}')


def _input(source: InputSettings) -> _Found:
    found = _Found(_time(source.time))
    if source.partitioner != "none" and len(source.unit) > 1:
        found.append(("partitioner", f"{source.partitioner} needs a unit of one field"))
    if source.dlq_payload != "raw" and source.on_error != "dlq" and source.late != "topic":
        nothing = f'on_error = "{source.on_error}" and late = "{source.late}"'
        found.append(("dlq_payload", f"has no effect with {nothing}"))
    return found


def _time(time: Time) -> Iterator[tuple[str, str]]:
    if time.format == "record" and time.field is not None:
        yield "time.field", 'has no effect with format = "record"'
    if time.format != "record" and time.field is None:
        yield "time", f'format = "{time.format}" needs field'
    try:
        ZoneInfo(time.zone)
    except (ValueError, OSError, KeyError):
        yield "time.zone", f'"{time.zone}" is not a time zone'
    if time.zone != "UTC" and time.format != "iso":
        yield "time.zone", 'has an effect only with format = "iso"'


def _pipeline(config: Config, pipeline: PipelineSettings) -> _Found:
    found = _Found()
    inputs = [i.name for i in config.input]
    if pipeline.input not in inputs:
        near = difflib.get_close_matches(pipeline.input, inputs, 1, 0.6)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"known inputs: {', '.join(inputs) or 'none'}"
        )
        found.append(("input", f'"{pipeline.input}" is not an input; {hint}'))
    found += _schedule(pipeline)
    if not found:
        found += [*_until(pipeline), *sessions.objections(pipeline)]
    found += ((f"budget.{name}", message) for name, message in _limits(pipeline.budget))
    found += _keys(pipeline)
    found += _expressions(pipeline)
    if not found:  # else a condition may mean nothing
        source = next(one for one in config.input if one.name == pipeline.input)
        found += roles.objections(pipeline, source)
        found += attributes.objections(config, pipeline, source)
    units = [one.unit for one in config.input if one.name == pipeline.input]
    found += _aggregates(pipeline, units)
    found += _mechanism(pipeline)
    if pipeline.forget_keys and pipeline.noise_key_file is not None:
        found.append(("forget_keys", "has the ratchet's keys: leave out noise_key_file"))
    if pipeline.forget_keys and config.secret.ratchet is None:
        found.append(("forget_keys", "needs secret.ratchet, which `hush ratchet new` says"))
    return found


def _schedule(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    window, epoch, rule = pipeline.window, pipeline.epoch, pipeline.triggers
    if pipeline.schedule == "external" and window.origin == UNIX_EPOCH:
        yield "window", "an external schedule needs an origin: the start of its first window"
    if (window.length is None) == (window.horizon is None):
        yield "window", "needs either length or horizon"
        return
    if window.hop is not None:
        yield from _hopping(pipeline)
    if isinstance(window.length, CalendarSpan):
        yield from _calendar(pipeline, window.length)
        return
    for setting, given in (("epoch", epoch), ("triggers.every", rule.every)):
        if isinstance(given, CalendarSpan):
            yield setting, f'is of the calendar: write window.length so too, such as "{given}"'
            return
    if window.zone is not None:
        yield "window.zone", 'needs a length of the calendar: length = "1 day", not "1d"'
    if (rule.every is None) == (rule.cron is None):
        yield "triggers", "needs either every, or cron and count"
    elif rule.every is None and window.horizon is not None:
        yield "window.horizon", "needs triggers.every: windows of a cron rule need a length"
    elif rule.every is None:
        yield from _cron(pipeline)
    elif not isinstance(rule.every, CalendarSpan):
        yield from _regular(pipeline, rule.every)
    if window.horizon is not None and pipeline.lateness:
        yield "lateness", "has no effect with window.horizon, where events are never late"
    length, of = pipeline.step_length, "hop" if window.hop else "length"
    if not isinstance(epoch, CalendarSpan) and epoch is not None and length and epoch % length:
        whole = f"{format_duration(epoch)} is not a multiple of the window's"
        yield "epoch", f"{whole} {of}, {format_duration(length)}"


def _hopping(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Contradictions of windows that overlap."""
    window, rule, budget = pipeline.window, pipeline.triggers, pipeline.budget
    hop, length = window.hop or 0, window.length
    if not isinstance(length, int):
        yield "window.hop", 'needs a length that is a duration, such as length = "24h"'
    elif length % hop or length == hop:
        shown = f"{format_duration(hop)} must divide window.length = {format_duration(length)}"
        yield "window.hop", f"{shown}, and be shorter"
    for setting, whole in (("window.hop", length), ("epoch", pipeline.epoch_length)):
        if isinstance(whole, int) and hop and whole // hop > LONGEST:
            what = f"makes {whole // hop:,} hops of {format_duration(whole)}"
            yield setting, f"{what}, and at most {LONGEST:,} are possible: write a longer hop"
    if rule.every != hop or rule.cron is not None:
        shown = f'every = "{format_duration(hop)}"'
        yield "triggers", f"of windows that hop fire at the end of each: write {shown}"
    if not find(pipeline.mechanism.kind).hops:
        yield "window.hop", f"is not possible with {pipeline.mechanism.kind}, but with histogram"
    if budget.per_unit is not None:
        yield "budget.per_unit", "is not possible with window.hop"
    if pipeline.forget_keys:
        yield (
            "forget_keys",
            "is not possible with window.hop: noise of an epoch is kept for windows after its end",
        )


def _calendar(pipeline: PipelineSettings, length: CalendarSpan) -> Iterator[tuple[str, str]]:
    """Contradictions of a window of the calendar."""
    made, epoch, rule = pipeline.calendar, pipeline.epoch_length, pipeline.triggers
    assert made is not None  # its length is one of the calendar
    if rule.cron is not None or rule.count is not None or rule.every is None:
        yield "triggers", "of windows of the calendar are every, without cron and count"
    else:
        yield from made.objections(_most(pipeline))
    if not isinstance(epoch, CalendarSpan) or not epoch.holds(length):
        yield "epoch", f'must be a number of windows: "{length}", or a multiple in {length.unit}s'


def _until(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    if pipeline.until is None:
        return
    schedule = Schedule.of(pipeline)
    after = schedule.boundary(pipeline.until)
    before = schedule.begin(schedule.epoch_at(pipeline.until))
    if before != pipeline.until:
        one, next_ = format_instant(before), format_instant(after)
        yield "until", f"is no boundary of two epochs: one is at {one}, the next at {next_}"


def _regular(pipeline: PipelineSettings, every: int) -> Iterator[tuple[str, str]]:
    length = pipeline.window_length
    if pipeline.triggers.count is not None:
        yield "triggers.count", "follows from every and window: leave it out"
    if length % every:
        shown = format_duration(length)
        yield "triggers.every", f"{format_duration(every)} does not divide window.length = {shown}"
    elif pipeline.window.hop is None and length // every > (most := _most(pipeline)):
        setting = "triggers.every" if pipeline.window.horizon is None else "window.horizon"
        yield setting, f"makes {length // every:,} triggers per window{_beyond(pipeline, most)}"
    if pipeline.window.horizon is not None and length > LONGEST_WINDOW:
        yield (
            "window.horizon",
            f"times triggers.every is more than {format_duration(LONGEST_WINDOW)}",
        )


def _most(pipeline: PipelineSettings) -> int:
    """Most triggers of a window that schedule and mechanism have."""
    given = pipeline.mechanism
    return min(MAX_TRIGGERS, find(given.kind).triggers(given.parameters))


def _beyond(pipeline: PipelineSettings, most: int) -> str:
    """Say how many are possible, and what to write."""
    given = pipeline.mechanism
    name = getattr(given.parameters, "factorization", None)
    which = given.kind if name is None else f'{given.kind} with factorization = "{name}"'
    if pipeline.window.horizon is not None:
        return f", and {which} has at most {most:,}: write at most that"
    length = pipeline.window_length
    least = next((one for one in _STEPS if one * most >= length and not length % one), length)
    every = f'every = "{format_duration(least)}" or longer'
    return f", and {which} has at most {most:,}: write {every}, or a shorter window"


_STEPS = tuple(
    number * unit
    for unit, numbers in ((1_000_000, (1, 2, 5, 10, 15, 30)), (60_000_000, (1, 2, 5, 10, 15, 30)),
                          (3_600_000_000, (1, 2, 3, 4, 6, 8, 12, 24)))
    for number in numbers
)  # fmt: skip


def _cron(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    rule = pipeline.triggers
    if rule.count is None:
        yield "triggers", "cron needs count, the number of triggers per window"
        return
    if rule.count > (most := _most(pipeline)):
        kind = pipeline.mechanism.kind
        yield "triggers.count", f"{rule.count:,} is more than the {most:,} triggers of {kind}"
        return
    try:
        CronSim(rule.cron or "", datetime(2000, 1, 1))
    except CronSimError as error:
        yield "triggers.cron", f'"{rule.cron}" is not a cron rule ({error})'
        return
    schedule = Schedule.of(pipeline)
    samples = max(1, min(32, 10_000 // rule.count))  # windows begin at different phases of it
    try:
        last = [schedule.times(window)[-1] - pipeline.lateness for window in range(samples)]
    except ConfigError as error:
        yield "triggers.cron", str(error)
        return
    if any(time < schedule.start(window + 1) for window, time in enumerate(last)):
        yield "triggers.count", f"{rule.count} triggers end before their window does"


def _limits(budget: BudgetSettings | SharedBudget) -> Iterator[tuple[str, str]]:
    if budget.limit_epsilon is not None and budget.limit_epsilon < budget.epsilon:
        yield "limit_epsilon", "is less than epsilon, so no epoch could be charged"
    if budget.limit_delta is not None and budget.limit_delta < budget.delta:
        yield "limit_delta", "is less than delta, so no epoch could be charged"


def _keys(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    by_key = find(pipeline.mechanism.kind).grouped
    if by_key and not pipeline.budget.delta and pipeline.public_keys is None:
        yield (
            "budget.delta",
            (
                "is 0, which cannot hide a key that only one unit has: set it, usually below "
                "1 / (number of units), or list the keys in public_keys"
            ),
        )
    total = pipeline.public_keys == ((),)
    if by_key and not pipeline.key and not pipeline.inputs and not total:
        yield (
            "",
            'needs key (columns to group by), public_keys = "natural" for a total of all records, '
            "or a mechanism with its own inputs",
        )
    if pipeline.public_keys is None:
        return
    if not pipeline.public_keys:
        yield "public_keys", "is empty: leave it out if keys are unknown"
    for place, key in enumerate(pipeline.public_keys):
        if len(key) != len(pipeline.key):
            want = f"{len(pipeline.key)} columns, as key has"
            yield f"public_keys.{place}", f"has {len(key)} columns instead of {want}"
    typed = Counter(tuple((type(v), v) for v in key) for key in pipeline.public_keys)
    double = [", ".join(str(v) for _, v in key) for key, times in typed.items() if times > 1]
    if double:
        yield "public_keys", f"names {double[0]} more than once"


def _expressions(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Conditions, derived columns, and bounds for a query."""
    if pipeline.clip and pipeline.query is None:
        yield "clip", "has an effect only with query: bounds of an aggregate stand in its table"
    for place, condition in enumerate(pipeline.where):
        for setting, message in condition.objections():
            yield f"where.{place}.{setting}".rstrip("."), message
    for name, derived in pipeline.derive.items():
        found = list(derived.objections())
        if name in (*pipeline.key, counted_in(pipeline.aggregate)):
            found += [] if found else derived.of_key()
        elif name in [getattr(one, "field", None) for one in pipeline.aggregate]:
            found += [] if found else derived.of_sum()
        else:
            yield f"derive.{name}", "is no column of key, and no field of an aggregate"
        for setting, message in found:
            yield f"derive.{name}.{setting}".rstrip("."), message


def _aggregates(
    pipeline: PipelineSettings, units: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    labels = [aggregate.label for aggregate in pipeline.aggregate]
    for place, aggregate in enumerate(pipeline.aggregate):
        if labels[place] in labels[:place]:
            yield f"aggregate.{place}", f'"{labels[place]}" exists already: set another name'
        for setting, message in aggregate.objections():
            yield f"aggregate.{place}.{setting}", message
        if getattr(aggregate, "where", ()) and _in_rounds(pipeline):
            yield f"aggregate.{place}.where", _ROUNDS
    if (field := counted_in(pipeline.aggregate)) is not None:
        place = next(n for n, one in enumerate(pipeline.aggregate) if isinstance(one, Distinct))
        if (field,) in units:
            yield f"aggregate.{place}", _UNITS
        yield from ((f"aggregate.{place}", why) for why in _sets(pipeline, field))


def _in_rounds(pipeline: PipelineSettings) -> bool:
    return getattr(pipeline.mechanism.parameters, "selection", None) == "rounds"


_ROUNDS = (
    'is not possible with selection = "rounds": its noise is set for values of every record, and '
    "conditions of one value would not share it. Leave selection out, or write where of the "
    "pipeline"
)
_UNITS = (
    'is of the privacy unit itself: distinct units per key are { kind = "count" } with mechanism = '
    '{ kind = "histogram", bound = "per-key", per_key = 1 }, with less noise'
)


def _sets(pipeline: PipelineSettings, field: str) -> Iterator[str]:
    if len(pipeline.aggregate) > 1:
        yield (
            'kind = "distinct" stands alone: give other values a pipeline of their own, which '
            "may share a [[budget]] with this one"
        )
    if not find(pipeline.mechanism.kind).distinct:
        able = " or ".join(f'"{one.name}"' for one in entries().values() if one.distinct)
        yield f'kind = "distinct" needs mechanism.kind = {able}'
    if field in pipeline.key:
        yield f"{field!r} is a column of key, so each key has one value of it"
    if pipeline.sign is not None:
        yield (
            "whether others still show a deleted value would have to be known: leave out sign, "
            "and drop deletions with where, to count the values of insertions"
        )


def _mechanism(pipeline: PipelineSettings) -> Iterator[tuple[str, str]]:
    """Settings of a mechanism that would have no effect in this pipeline."""
    given = pipeline.mechanism
    for setting, message in find(given.kind).objections(given.parameters, pipeline.frame):
        yield f"mechanism.{setting}", message


def _topics(config: Config) -> Iterator[Problem]:
    taken: dict[str, str] = {ledger_topic(config.deployment.name): "the ledger"}
    for place, source in enumerate(config.input):
        if source.topic in taken and taken[source.topic] == "the ledger":
            yield Problem(("input", place, "topic"), f'"{source.topic}" is the topic of the ledger')
        elif kept := reserved(source.topic):
            yield Problem(("input", place, "topic"), f'"{source.topic}" is {kept}')
        elif source.topic in taken:
            # A topic has one owner per partition: the second input would be charged, never read.
            message = (
                f'"{source.topic}" is read by {taken[source.topic]}: add pipelines to that one'
            )
            yield Problem(("input", place, "topic"), message)
        taken.setdefault(source.topic, f"input {source.name}")
    follows = {p.name: p.follows for p in config.pipeline}
    for place, pipeline in enumerate(config.pipeline):
        first = pipeline.name  # the generation whose topics it goes on with
        while (before := follows.get(first)) is not None:
            first = before
        for topic in filter(None, (pipeline.release_topic, pipeline.latest_topic)):
            owner = taken.setdefault(topic, f"pipeline {first}")
            where = ("pipeline", place, "release", "topic")
            if owner != f"pipeline {first}":
                yield Problem(where, f'"{topic}" is the topic of {owner}')
            elif kept := reserved(topic):
                yield Problem(where, f'"{topic}" is {kept}: one record there would break it')
