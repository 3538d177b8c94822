"""Prometheus alerting rules as data: for the public, and for the operator.

`hush alerts` prints them for a configuration; the file in ``deploy/prometheus`` is what it prints
for the sample deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LATE = 1.5  # times the longest time between two triggers
SLACK_SECONDS = 60.0  # for scrapes, and for a clock that moves to another worker
RUNBOOKS = "docs/operations.md"  # has a section named after each alert


class Alert(NamedTuple):
    """One rule; ``hold`` is the time for which it must be true before it fires."""

    name: str
    expr: str
    severity: str
    summary: str
    description: str
    hold: str = ""


class RuleGroup(NamedTuple):
    """Rules for the same audience."""

    name: str
    remark: str
    rules: Sequence[Alert]


ENDED = (
    "max by (pipeline) (max_over_time(hush_last_release_timestamp_seconds[7d])) "
    ">= max by (pipeline) (hush_final_release_timestamp_seconds)"
)
"""Retired pipelines whose last trigger has fired: nothing more is due, and nothing is paid for."""
WORKERS = (
    Alert(
        "WorkerDown",
        'up{job="hush-public"} == 0 or absent(up{job="hush-public"})',
        "critical",
        "A worker cannot be scraped",
        "{{ or $labels.instance `Every worker` }} is gone. A worker that cannot go on safely "
        "stops; its log says why, for example a broken ledger or another noise key.",
        "1m",
    ),
    Alert(
        "WorkerNotReady",
        "hush_ready == 0",
        "warning",
        "A worker has not become ready",
        "{{ $labels.instance }}{{ with $labels.process }}, process {{ . }},{{ end }} is restoring "
        "its state or waits for the ledger.",
        "5m",
    ),
    Alert(
        "WorkerRestarting",
        "changes(hush_start_timestamp_seconds[15m]) > 2",
        "critical",
        "A worker starts again and again",
        "{{ $labels.instance }}{{ with $labels.process }}, process {{ . }},{{ end }} has started "
        "{{ $value }} times in a quarter of an hour. Each life may charge for epochs of which "
        "nothing is released.",
    ),
    Alert(
        "FiredNotPublished",
        'sum by (pipeline) (increase(hush_releases_total{outcome="fired"}[30m])) > 0 '
        "unless on (pipeline) "
        'sum by (pipeline) (increase(hush_releases_total{outcome="published"}[30m])) > 0',
        "critical",
        "{{ $labels.pipeline }} pays for releases that do not appear",
        "Triggers have fired, which is charged for, and nothing was published for half an hour.",
        "15m",
    ),
)
BUDGET = (
    Alert(
        "BudgetNearlyExhausted",
        # A budget falls in steps, so a line fitted to a few of them predicts nothing: what the last
        # seven days took is compared with what is left. Workers see charges at different times.
        "(min by (pipeline) (hush_budget_remaining_ratio) < 0.1 "
        "or 2 * min by (pipeline) (hush_budget_remaining_ratio) "
        "< min by (pipeline) (hush_budget_remaining_ratio offset 7d)) "
        "unless on (pipeline) (time() > max by (pipeline) (hush_final_release_timestamp_seconds))",
        "warning",
        "The budget of {{ $labels.pipeline }} is running out",
        "Once it is exhausted, windows are refused and their data are dropped: raise the limit, or "
        "end the pipeline.",
        "15m",
    ),
    Alert(
        "BudgetRefused",
        'increase(hush_releases_total{outcome="refused"}[1h]) > 0',
        "critical",
        "{{ $labels.pipeline }} was refused a charge",
        "The budget's limit is reached: the window is not released, and its data are dropped.",
    ),
)
OPERATOR = (
    Alert(
        "LedgerWriteFailed",
        # A single lost transaction, as when a broker restarts, is retried at once: no alert.
        "sum(increase(hush_ledger_write_failures_total[15m])) > 2.5",
        "critical",
        "Transactions of the clock fail again and again",
        "Charges and triggers are written together or not at all, so every release is paid for. "
        "Releases are late until a write succeeds. Check the brokers, the rights of the "
        "transactional ids and min.insync.replicas.",
    ),
    Alert(
        "WatermarkStalled",
        "time() - max by (pipeline, partition) (hush_watermark_timestamp_seconds) > 120",
        "warning",
        "{{ $labels.pipeline }} uses no new records of partition {{ $labels.partition }}",
        "The last beat was used {{ $value | humanizeDuration }} ago. Records have stopped, or a "
        "producer holds a transaction open, or a worker hangs.",
        "5m",
    ),
    Alert(
        "ConsumerLagGrowing",
        "min_over_time(hush_lag_records[10m]) > 100000",
        "warning",
        "{{ $labels.store }} lags behind",
        "{{ $value }} records of the topic are not yet applied: add workers.",
        "10m",
    ),
    Alert(
        "DeadLettersRising",
        "sum by (pipeline, reason) (rate(hush_dead_letters_total[10m])) > 1",
        "warning",
        "Bad records of {{ $labels.pipeline }}: {{ $labels.reason }}",
        "{{ $value }} per second go to the dead-letter topic.",
        "10m",
    ),
    Alert(
        "RecordsLost",
        "max by (pipeline, cause) (hush_loss_alarm) > 0",
        "warning",
        "{{ $labels.pipeline }} loses many of its records: {{ $labels.cause }}",
        "More than engine.loss_share of them are bad (dead), in the wrong partition (misplaced), "
        "late, or beyond their unit's bound (cut); alarms.log in the worker's folder says what to "
        "look at.",
    ),
    Alert(
        "ClockSkewEvents",
        'sum by (pipeline) (increase(hush_events_total{outcome="future"}[15m])) > 0',
        "warning",
        "{{ $labels.pipeline }} gets records from the future",
        "A producer's clock, or the unit of its time field, is wrong.",
        "15m",
    ),
    Alert(
        "ReleasesSlow",
        "histogram_quantile(0.95, sum by (pipeline, le) "
        "(rate(hush_release_delay_seconds_bucket[30m]))) > 60",
        "warning",
        "Releases of {{ $labels.pipeline }} are slow",
        "95 % appear within {{ $value }} s of their trigger, the rest later.",
        "15m",
    ),
    Alert(
        "RecoveryStuck",
        "hush_recovery_remaining_records > 0 and delta(hush_recovery_remaining_records[10m]) >= 0",
        "critical",
        "{{ $labels.store }} is not being restored",
        "{{ $value }} rows of its changelog remain.",
        "10m",
    ),
    Alert(
        "StateGrowing",
        "predict_linear(hush_state_free_bytes[6h], 7 * 86400) < 0",
        "warning",
        "The disk of {{ $labels.instance }} will be full within a week",
        "At the pace of the last six hours. Enlarge the disk, shorten epochs, or add partitions "
        "in a new deployment.",
        "1h",
    ),
)


def groups(gaps: Mapping[str, float]) -> list[RuleGroup]:
    """All rules; ``gaps``: by scheduled pipeline, the longest time between triggers in seconds."""
    overdue = (_overdue(gaps),) if gaps else ()
    return [
        RuleGroup("hush-public", "from the public metrics alone", (*WORKERS, *overdue, *BUDGET)),
        RuleGroup(
            "hush-operator", "functions of raw data: never route these to the public", OPERATOR
        ),
    ]


def limit(gap: float) -> float:
    """Seconds after a scheduled trigger from which the next one counts as overdue.

    >>> limit(86400.0), limit(1.0)
    (129600.0, 61.0)
    """
    return max(LATE * gap, gap + SLACK_SECONDS)


EXHAUSTED = (
    'sum by (pipeline) (max_over_time(hush_releases_total{outcome="refused"}[7d])) > 0 '
    "and on (pipeline) min by (pipeline) (hush_budget_remaining_ratio) == 0"
)
"""Pipelines that were refused and cannot pay for another epoch: they are not overdue."""


def _overdue(gaps: Mapping[str, float]) -> Alert:
    """One expression for all pipelines, each with its own limit.

    A worker's restart resets the gauge, so its past is queried too. A pipeline whose budget is
    exhausted has its own alert.
    """
    parts = []
    for name, gap in gaps.items():
        last = f'hush_last_release_timestamp_seconds{{pipeline="{name}"}}'
        reach = round(2 * limit(gap)) + 3600
        since = f"time() - max by (pipeline) (max_over_time({last}[{reach}s]))"
        parts.append(f"{since} > {round(limit(gap))}")
    return Alert(
        "ReleaseOverdue",
        f"({' or '.join(parts)}) unless on (pipeline) ({EXHAUSTED} or {ENDED})",
        "critical",
        "Pipeline {{ $labels.pipeline }} is overdue",
        "The last trigger was scheduled {{ $value | humanizeDuration }} ago.",
        "5m",
    )


def rules(gaps: Mapping[str, float], runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The rules file as Prometheus reads it; alerts name sections of the page ``runbooks``."""
    return {
        "groups": [
            {"name": group.name, "rules": [_rule(alert, runbooks) for alert in group.rules]}
            for group in groups(gaps)
        ]
    }


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    body: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    if alert.hold:
        body["for"] = alert.hold
    body["labels"] = {"severity": alert.severity}
    body["annotations"] = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{runbooks}#{alert.name.lower()}",
    }
    return body


def text(gaps: Mapping[str, float], runbooks: str = RUNBOOKS) -> str:
    """The rules file as YAML; arguments as for `rules`."""
    lines = [
        "# Printed by `hush alerts`; limits of ReleaseOverdue follow the schedules.",
        "groups:",
    ]
    for group in groups(gaps):
        lines += [f"  - name: {group.name} # {group.remark}", "    rules:"]
        for alert in group.rules:
            lines += _lines(_rule(alert, runbooks))
    return "\n".join(lines) + "\n"


def _lines(rule: dict[str, Any]) -> list[str]:
    lines = [f"      - alert: {rule['alert']}", f"        expr: {_quoted(rule['expr'])}"]
    if "for" in rule:
        lines.append(f"        for: {rule['for']}")
    lines.append(f"        labels: {{ severity: {rule['labels']['severity']} }}")
    lines.append("        annotations:")
    lines += [f"          {name}: {_quoted(said)}" for name, said in rule["annotations"].items()]
    return lines


def _quoted(said: str) -> str:
    """Quote a YAML text with single quotes."""
    return "'" + said.replace("'", "''") + "'"
