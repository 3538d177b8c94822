"""The settings of a deployment, as frozen dataclasses. Their docstrings are the reference.

Durations and instants are integer microseconds, numbers that privacy depends on are fractions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

from .pipelines.budgets import SharedBudget
from .pipelines.pipeline import Paths, PipelineSettings
from .pipelines.views import ViewSettings
from .toml.values import (
    FIVE_MINUTES,
    FIVE_SECONDS,
    INPUT,
    ONE_MINUTE,
    ONE_SECOND,
    SEVEN_DAYS,
    SIX_HOURS,
    TEN_SECONDS,
    THIRTY_SECONDS,
    ZERO,
    Addresses,
    Duration,
    Extensions,
    FieldPath,
    Name,
    Partitions,
    Port,
    Secret,
    TopicName,
    Words,
    matches,
    span,
    within,
)


@dataclass(frozen=True)
class DeploymentSettings:
    """The identity of the deployment.

    Attributes:
        name: prefix of the ledger topic, `<name>.ledger.v1`, and of internal topics.
        shared_topics: whether pipelines of one input share internal topics and dead letters; fixed
            at genesis.
    """

    name: Name = "hush"
    shared_topics: bool = False


Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@dataclass(frozen=True)
class Kafka:
    """Connection to the cluster; one table for all clients.

    Attributes:
        bootstrap: brokers as `host:port`, separated by commas.
        security_protocol: encryption and authentication.
        sasl_mechanism: authentication method, with a `SASL_…` protocol.
        sasl_username: user name for SASL; with `OAUTHBEARER`, the id of this client.
        sasl_password: never in the file: set `HUSH_KAFKA__SASL_PASSWORD`. With `OAUTHBEARER`, the
            secret of this client.
        sasl_password_file: file that holds the password, if the variable is not set.
        sasl_token_url: address where this client gets its tokens (`OAUTHBEARER`, by client
            credentials); `https://`, or `http://` on this machine.
        sasl_token_scope: scope that it asks for.
        sasl_token_extensions: what it tells the broker with a token, as `name=value`, separated by
            commas.
        sasl_token_cafile: certificates of the authorities trusted for that address, PEM; default:
            the system's.
        ssl_cafile: certificates of trusted authorities, PEM; default: the system's.
        ssl_certfile: certificate of this client (mutual TLS), PEM.
        ssl_keyfile: private key of that certificate, PEM.
        ssl_key_password: never in the file: set `HUSH_KAFKA__SSL_KEY_PASSWORD`.
        ssl_key_password_file: file that holds it, if the variable is not set.
        ssl_check_hostname: whether a broker's certificate must carry its host name.
        request_timeout: longest wait for one request of a worker's clients, after which they ask
            again.
        outage_timeout: a worker that reaches no broker for longer ends with exit code 4.
    """

    bootstrap: Addresses = "localhost:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    sasl_password_file: str | None = None
    sasl_token_url: str | None = None
    sasl_token_scope: str | None = None
    sasl_token_extensions: Extensions | None = None
    sasl_token_cafile: str | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: Secret | None = None
    ssl_key_password_file: str | None = None
    ssl_check_hostname: bool = True
    request_timeout: Annotated[Duration, span("1s", "5m")] = THIRTY_SECONDS
    outage_timeout: Annotated[Duration, span("1s", "1d")] = FIVE_MINUTES


@dataclass(frozen=True)
class RegistrySettings:
    """Connection to a schema registry, for inputs and releases that have its schemas.

    Attributes:
        url: address of the registry's Confluent-compatible API; several, separated by commas, are
            tried in turn. Without credentials.
        username: user name for HTTP basic authentication.
        password: never in the file: set `HUSH_REGISTRY__PASSWORD`.
        password_file: file that holds the password, if the variable is not set.
        ssl_cafile: certificates of trusted authorities, PEM; default: the system's.
        ssl_certfile: certificate of this client (mutual TLS), PEM.
        ssl_keyfile: private key of that certificate, PEM.
        timeout: longest wait for one request.
        outage_timeout: a worker that needs a schema ends with exit code 4 if the registry answers
            nothing for longer.
    """

    url: str | None = None
    username: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    timeout: Annotated[Duration, span("100ms", "5m")] = TEN_SECONDS
    outage_timeout: Annotated[Duration, span("1s", "1d")] = FIVE_MINUTES


@dataclass(frozen=True)
class KeyCommand:
    """A program that prints a secret key, such as the client of a vault.

    Attributes:
        command: program and arguments, as a list. No shell reads them; what the program prints is
            the key, and is never logged.
        timeout: time after which it is ended, and there is no key.
    """

    command: Words
    timeout: Annotated[Duration, span("1s", "10m")] = THIRTY_SECONDS


@dataclass(frozen=True)
class SecretFiles:
    """Sources of the noise key and of the key that signs. `HUSH_NOISE_KEY`, `HUSH_NOISE_KEY_FILE`,
    `HUSH_SIGNING_KEY` and `HUSH_SIGNING_KEY_FILE` override them.

    Attributes:
        noise_key_file: file with the 32-byte key in hexadecimal or base64, relative to this file.
        key: a command that prints the key, instead of the file.
        signing_key_file: file with the key that signs releases and ledger, in the same form. A
            deployment that begins without one is never signed; one that begins with one always is.
        signing_key: a command that prints that key, instead of the file.
        ratchet: public name of the ratchet of pipelines that forget their keys: 32 hexadecimal
            digits, printed by `hush ratchet new`.
        ratchet_file: file with that ratchet. Workers rewrite it, so put it in a folder of theirs
            on a persistent disk.
        escrow_key_file: public key (X25519, PEM) of an auditor, to which each epoch's key is
            sealed before it is forgotten.
        escrow_file: file to which sealed keys are added.
    """

    noise_key_file: str = "hush.key"
    key: KeyCommand | None = None
    signing_key_file: str | None = None
    signing_key: KeyCommand | None = None
    ratchet: Annotated[str, matches(r"[0-9a-f]{32}", "must be 32 hexadecimal digits")] | None = None
    ratchet_file: str = "hush.ratchet"
    escrow_key_file: str | None = None
    escrow_file: str = "hush.escrow"


@dataclass(frozen=True)
class Engine:
    """Settings of workers. Only `max_future_skew` affects the content of releases.

    Attributes:
        data_dir: folder of the local tables, which are restored if they are lost.
        witness: file on other storage than the brokers' that remembers the last trigger, so that a
            cluster restored from before it is refused.
        units_partitions: partitions of the topic re-partitioned by privacy unit; fixed at genesis.
            `input`: as many as the largest input topic has by then, at most 4.
        cells_partitions: partitions of the topic of partial sums by key; likewise.
        release_partitions: partitions of each release topic; fixed at genesis.
        replication_factor: replicas of topics that Hushstream creates; -1 is the cluster's default.
        beat_interval: interval at which new records become available; at most 250 ms near a trigger
            and after a request.
        publish_delay: least public pause between a trigger and its publication, to hide load.
        settle: time without scheduled triggers after an outage of the brokers or of all workers,
            so that producers can send what they hold; a trigger that was due meanwhile waits for
            `lateness` where that is longer.
        max_clock_lead: a worker whose clock is further ahead of the broker's fires no triggers.
        max_future_skew: records further ahead of the clock are set aside.
        step_records: maximum records per transaction.
        step_bytes: maximum bytes per fetch of a partition, and of the raw records of one step.
        input_mb: memory of fetched records that wait for their step, MiB per process; its
            partitions share it.
        stall_timeout: a worker with a task that makes no progress for longer is not `/live`.
        loss_share: an alarm is written, inside the trust boundary, while more than this share of a
            pipeline's records is bad, misplaced, late or cut off; 0: never.
        session_timeout: a worker that is silent for longer counts as dead.
        standbys: other workers that keep a copy of each table, so that a shard of a dead worker is
            open at once; copies share `unit_cache_mb` with tables.
        snapshots: address (`s3://`, `gs://`, `az://`, `file:///`) of an object store for encrypted
            copies of tables, so that a machine with an empty disk needs only the changelogs' newest
            part.
        snapshot_interval: time between two copies of a table; the older one is deleted.
        transaction_timeout: time after which the broker aborts an unfinished transaction.
        trim_interval: interval at which applied partial sums are deleted from Kafka; "0s": never.
        keep_clock: how long the clock log is kept for `hush replay`; "0s": only what workers
            need.
        keep_units: whether to keep re-partitioned events as long as the clock log; `hush replay`
            needs them.
        block_cache_mb: memory of the tables' shared cache, MiB per process.
        write_buffer_mb: memory of unflushed rows, MiB per table.
        unit_cache_mb: cache of the rows of units, MiB per process; its tables share it. Other
            rows are read from disk, 4 to 18 µs of a core each.
        public_host: address of public metrics, `/live` and `/ready`.
        public_port: port of `public_host`; 0 disables it.
        operator_host: address of operator metrics, which are functions of raw data.
        operator_port: port of `operator_host`; 0 disables it.
        page_names: host names, besides `localhost`, under which operator metrics and all that is
            served on the loopback interface answer; addresses always do.
        log_level: level of the worker's log.
    """

    data_dir: str = "hush-data"
    witness: str = ""
    units_partitions: Partitions | Literal["input"] = INPUT
    cells_partitions: Partitions | Literal["input"] = INPUT
    release_partitions: Partitions = 1
    replication_factor: Annotated[int, within(-1, 100)] = -1
    beat_interval: Annotated[Duration, span("10ms", "1m")] = ONE_SECOND
    publish_delay: Annotated[Duration, span("0s", "31d")] = ZERO
    settle: Annotated[Duration, span("0s", "1d")] = THIRTY_SECONDS
    max_clock_lead: Annotated[Duration, span("100ms", "1h")] = FIVE_SECONDS
    max_future_skew: Annotated[Duration, span("0s", "3650d")] = FIVE_MINUTES
    step_records: Annotated[int, within(1, 1_000_000)] = 40_000
    step_bytes: Annotated[int, within(1_048_576, 1_073_741_824)] = 8_388_608
    input_mb: Annotated[int, within(1, 1_048_576)] = 256
    stall_timeout: Annotated[Duration, span("1s", "1d")] = FIVE_MINUTES
    loss_share: Annotated[Fraction, within(0, 1)] = Fraction(1, 10)
    session_timeout: Annotated[Duration, span("1s", "30m")] = TEN_SECONDS
    standbys: Annotated[int, within(0, 1)] = 0
    snapshots: str = ""
    snapshot_interval: Annotated[Duration, span("10s", "6h")] = SIX_HOURS
    transaction_timeout: Annotated[Duration, span("5s", "15m")] = ONE_MINUTE
    trim_interval: Annotated[Duration, span("0s", "1d")] = FIVE_MINUTES
    keep_clock: Annotated[Duration, span("0s", "3650d")] = SEVEN_DAYS
    keep_units: bool = True
    block_cache_mb: Annotated[int, within(1, 1_048_576)] = 64
    write_buffer_mb: Annotated[int, within(1, 65_536)] = 16
    unit_cache_mb: Annotated[int, within(0, 1_048_576)] = 512
    public_host: str = "127.0.0.1"
    public_port: Port = 9464
    operator_host: str = "127.0.0.1"
    operator_port: Port = 9465
    page_names: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True)
class Time:
    """Location of a record's event time.

    Attributes:
        format: `iso` text, a number (`epoch_s`, `epoch_ms`, `epoch_us`), or the Kafka timestamp
            (`record`).
        field: path of the field; none with `record`.
        zone: time zone of ISO texts without one.
    """

    format: Literal["iso", "epoch_s", "epoch_ms", "epoch_us", "record"]
    field: FieldPath | None = None
    zone: str = "UTC"


@dataclass(frozen=True)
class InputSettings:
    """One raw topic, and how its records are read.

    Attributes:
        name: name of the input in pipelines.
        topic: the raw topic.
        unit: path, or list of paths, of the privacy unit: the protected person or thing.
        time: location of the event time.
        format: one JSON object per record, or what a schema registry's serialisers write, with the
            schema's id before the value.
        partitioner: the producers' partitioner, if the unit is the record key; saves
            re-partitioning, and every record is verified.
        on_error: treatment of an unusable record: keep it in the dead-letter topic, drop it, or
            stop the worker.
        dlq_payload: content of copies of dead letters and late records: everything, a keyed hash,
            or nothing.
        late: treatment of late and far-future records: drop them, or keep them in a topic.
        max_record_bytes: larger records are unusable; so are those deeper than 64 levels.
        attributes_of: input whose units' attributes (`derive`) this topic states, such as a
            compacted topic of users; then no pipeline reads it.
    """

    name: Name
    topic: TopicName
    unit: Paths
    time: Time
    format: Literal["json", "avro", "protobuf", "json_schema"] = "json"
    partitioner: Literal["none", "murmur2", "crc32"] = "none"
    on_error: Literal["dlq", "drop", "fail"] = "dlq"
    dlq_payload: Literal["raw", "hash", "none"] = "raw"
    late: Literal["drop", "topic"] = "drop"
    max_record_bytes: Annotated[int, within(1, 104_857_600)] = 1_000_000
    attributes_of: Name | None = None


@dataclass(frozen=True)
class LookupSettings:
    """Public data in a topic. A pipeline has them as they were when `hush topics` declared it.

    Attributes:
        name: name for `lookup`, and JOIN in a query.
        topic: JSON objects: of each key the newest is a row; one without a value deletes it.
    """

    name: Name
    topic: TopicName


@dataclass(frozen=True)
class Config:
    """A complete deployment.

    Attributes:
        deployment: identity.
        kafka: connection to the cluster.
        registry: connection to a schema registry.
        secret: location of the noise key.
        engine: settings of workers.
        input: raw topics.
        pipeline: private releases.
        budget: charges that several pipelines share.
        view: releases made of those of one pipeline, at no cost.
        lookup: public reference data in topics.
    """

    deployment: DeploymentSettings = field(default_factory=DeploymentSettings)
    kafka: Kafka = field(default_factory=Kafka)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    secret: SecretFiles = field(default_factory=SecretFiles)
    engine: Engine = field(default_factory=Engine)
    input: tuple[InputSettings, ...] = ()
    pipeline: tuple[PipelineSettings, ...] = ()
    budget: tuple[SharedBudget, ...] = ()
    view: tuple[ViewSettings, ...] = ()
    lookup: tuple[LookupSettings, ...] = ()
