"""``hush trigger``: requests to the clock; their cost is shown before they are sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

import click

from ..agents.clock.clock import too_early
from ..agents.clock.forecast import InForce, Standing, TriggerForecast, forecast
from ..agents.clock.genesis import read_ledger
from ..agents.clock.timeline import Timeline
from ..agents.deployment.compile import compile_config
from ..agents.worker.lines.screen import say
from ..errors import ConfigError, EngineError
from ..topics.config.load import Config
from ..topics.config.toml.values import counted
from ..topics.records import TriggerRequest, encode
from .deployed import cluster_of
from .options import Flags, config_options, declared, emit, json_option, moment, read_config

MOST_CHARGES = 10  # of one request, without --yes
LOOK_SECONDS = 2.0
STILL_SECONDS = 60.0  # without a trigger, before a warning


@click.command()
@config_options
@json_option
@click.option(
    "--at", metavar="TIME", help="Fire all triggers scheduled up to this time; default: now."
)
@click.option("--pipeline", "only", multiple=True, help="Only this pipeline; repeatable.")
@click.option("--id", "identity", help="Id of the request; repeating it changes nothing.")
@click.option(
    "--yes",
    is_flag=True,
    help=f"Do it even if more than {MOST_CHARGES} epochs are charged, or any is refused.",
)
@click.option("--wait", is_flag=True, help="Wait until all of it has fired, and show the progress.")
@click.option("--cancel", is_flag=True, help="Cancel what earlier requests have not fired yet.")
def trigger(
    flags: Flags,
    as_json: bool,
    at: str | None,
    only: tuple[str, ...],
    identity: str | None,
    yes: bool,
    wait: bool,
    cancel: bool,
) -> None:
    """Fire the triggers of pipelines with schedule = "external".

    The trigger times remain those of the configuration. Requests made because data arrived are
    outside the guarantee: their timing reveals the arrival. What will fire, and what it costs, is
    printed first.
    """
    if cancel and (at or wait or yes):
        raise click.UsageError("--cancel ends requests: give no --at, --wait or --yes with it")
    request = TriggerRequest(
        identity or secrets.token_hex(8), moment(at, "--at"), sorted(only) or None, cancel
    )
    asked = Asked(read_config(flags), request)
    found = [] if cancel else asked.forecasts()
    if not as_json:
        for one in found:
            say(_line(one))
    if not yes:
        _refuse_costly(found)
    asked.send()
    if as_json:
        emit({"id": request.id, "at": request.at, "pipelines": [_body(one) for one in found]})
    elif cancel:
        say(f"cancelled: nothing more of earlier requests fires ({request.id})")
    else:
        say(f"requested: everything scheduled up to {at or 'now'} ({request.id})")
    if wait:
        asked.wait(found)


class Asked:
    """A request before it is sent, with its ledger and pipelines.

    Raises:
        ConfigError: it names a pipeline without an external schedule, or a time too far ahead.
        RightError: this user may not send requests.
    """

    def __init__(self, config: Config, request: TriggerRequest) -> None:
        external = {p.name for p in config.pipeline if p.schedule == "external"}
        for name in request.pipelines or ():
            if declared(config, name).schedule != "external":
                raise ConfigError(
                    f'pipeline {name!r} has no schedule = "external": it fires itself'
                )
        if not external:
            raise ConfigError('no pipeline has schedule = "external": all fire by themselves')
        if too_early(request, int(time.time() * 1e6)):
            raise ConfigError(
                "--at is more than a day ahead: the clock ignores such requests, since each would "
                "charge for every epoch to come; repeat the request later"
            )
        early = [p.name for p in config.pipeline if request.at < p.window.origin]
        if not request.cancel and (before := set(early) & set(request.pipelines or external)):
            raise ConfigError(
                f"pipeline {min(before)!r}: the request is for a time before window.origin, when "
                "the first window begins: nothing is scheduled before it"
            )
        self._config = config
        self._request = request
        self._cluster = cluster_of(config, "administrator")
        ledger = read_ledger(self._cluster, config.deployment.name)
        self._names = ledger.names(config.deployment.name)
        requests = self._names.requests
        self._cluster.rights.demand({self._names.clock: ["READ"], requests: ["READ", "WRITE"]})
        chosen = set(request.pipelines or external)
        self._pipelines = [p for p in compile_config(config).pipelines if p.name in chosen]
        horizons = {p.name: p.traits.horizon for p in self._pipelines}
        self._standing = Standing(config.kafka, self._names, horizons)
        self._in_force = InForce(self._cluster, requests, horizons)

    def forecasts(self) -> list[TriggerForecast]:
        """Forecast each pipeline's triggers that would fire, and their cost.

        Raises:
            LedgerError: the ledger is missing or broken.
            EngineError: the clock log cannot be read.
        """
        ledger = read_ledger(self._cluster, self._config.deployment.name)
        lines = self._standing.look()
        at = self._request.at
        return [forecast(p, _begun(lines[p.name]), ledger, at) for p in self._pipelines]

    def send(self) -> None:
        """Write the request; an `EngineError` if the broker does not accept it."""
        self._cluster.write(self._names.requests, [(None, encode(self._request))])

    def in_force(self) -> set[str]:
        """Pipelines whose request is still in force; raises `EngineError`."""
        requested = self._in_force.look(self._standing.snapshot)
        return {name for name, at in requested.items() if at >= self._request.at}

    def _left(self) -> dict[str, int]:
        """Number of triggers still to fire, by pipeline."""
        return {one.pipeline: one.due for one in self.forecasts() if one.due}

    def wait(self, found: Sequence[TriggerForecast]) -> None:
        """Wait until the whole request has fired; progress goes to stderr.

        Raises:
            EngineError: the rest of the request was cancelled.
        """
        total, refused = sum(one.due for one in found), sum(one.refused for one in found)
        before, since = -1, time.monotonic()
        while left := self._left():
            # It may have ended after its last trigger: check once more what is left.
            if not self.in_force().intersection(left) and (left := self._left()):
                raise EngineError(_ended(total, left))
            now, number = time.monotonic(), sum(left.values())
            if number != before:
                before, since = number, now
                say(_done(total, left), err=True)
            elif now - since > STILL_SECONDS:
                since = now
                say(f"nothing has fired for {STILL_SECONDS:g} s: does a worker run?", err=True)
            time.sleep(LOOK_SECONDS)
        if refused:
            fired = sum(one.triggers for one in found)
            say(f"{counted(fired, 'trigger')} fired; {_refused(refused)}", err=True)
        else:
            say("all triggers fired", err=True)


def _done(total: int, left: Mapping[str, int]) -> str:
    return f"{max(total - sum(left.values()), 0)} of {total} triggers are done"


def _ended(total: int, left: Mapping[str, int]) -> str:
    return (
        f"the request was cancelled for {', '.join(sorted(left))}: {_done(total, left)}, and what "
        "is left fires only if it is requested again"
    )


def _begun(line: Timeline) -> Timeline:
    """An external pipeline begins with window 0 once a worker runs."""
    if line.first is None:
        line.first = 0
    return line


def _refuse_costly(found: Sequence[TriggerForecast]) -> None:
    charges, refused = sum(one.charges for one in found), sum(one.refused for one in found)
    if charges > MOST_CHARGES or any(one.more for one in found):
        raise ConfigError(
            f"nothing was requested: it would charge {charges} epochs, and more than "
            f"{MOST_CHARGES} need --yes; an earlier --at fires less"
        )
    if refused:
        raise ConfigError(
            f"nothing was requested: {_refused(refused)}, and their data are dropped; that needs "
            "--yes; an earlier --at fires less, and a higher limit is for epochs to come"
        )


def _refused(epochs: int) -> str:
    are = "epoch is" if epochs == 1 else "epochs are"
    return f"{epochs} {are} refused for good, since the budget's limit is reached"


def _line(one: TriggerForecast) -> str:
    least = "at least " if one.more else ""
    more = f"; {_refused(one.refused)}" if one.refused else ""
    are = "is" if one.charges == 1 else "are"
    return (
        f"{one.pipeline}: {least}{counted(one.triggers, 'trigger')}; "
        f"{least}{counted(one.charges, 'epoch')} {are} charged: "
        f"epsilon {float(one.epsilon):g}, delta {float(one.delta):g} for a unit in all of them"
        f"{more}"
    )


def _body(one: TriggerForecast) -> dict[str, object]:
    cost = {"epsilon": float(one.epsilon), "delta": float(one.delta)}
    return {name: value for name, value in vars(one).items() if name != "due"} | cost
