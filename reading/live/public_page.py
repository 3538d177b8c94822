"""The public page of a deployment: what it promises and what it has spent, for people.

One self-contained file without executable scripts, so that any site can host it. The same ledger
gives the same page.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

_PART = re.compile("([0-9]+)(d|h|ms|m|us|s)")
_WORDS = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond",
          "us": "microsecond"}  # fmt: skip


def page(told: Mapping[str, Any]) -> str:
    """Write the page of `promise.facts`."""
    name = escape(str(told["deployment"]))
    parts = [_head(told), *(_section(one) for one in told["pipelines"])]
    parts += [_shared(told), _everything(told), _checking(told)]
    # Only `<` could end a data script early.
    data = json.dumps(told, sort_keys=True).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: what is promised, what is spent</title><style>{STYLE}</style></head>\n"
        f"<body><main>{''.join(parts)}</main>\n"
        f'<script type="application/json" id="hush-promise">{data}</script></body></html>\n'
    )


def _head(told: Mapping[str, Any]) -> str:
    day = _day(str(told["as_of"]))
    return (
        f"<h1>{escape(str(told['deployment']))}: what is promised, and what is spent</h1>"
        f"<p class=when>As of {day}</p>"
        "<p>Statistics are published here about many people's data. They are blurred by random "
        "noise. How much they reveal about one person is limited by a number, "
        "ε (<i>epsilon</i>; less is better), but for a small chance δ (<i>delta</i>). Both are "
        "fixed, and written to a ledger that cannot be changed unseen, <b>before</b> anything is "
        "published. This is called <i>differential privacy</i>. It holds whatever else others "
        "know, now or later.</p>"
    )


def _section(one: Mapping[str, Any]) -> str:
    unit, each, total = escape(str(one["unit"])), one["per_epoch"], one["spent"]
    epochs, values = int(one["epochs"]["charged"]), one["neighbouring"] == "replace_value"
    bet = f"a certain {unit} {'has one value and not another' if values else 'is in the data'}"
    rows = [
        ("Published", f"{escape(', '.join(one['released']))}, per {_length(one['window'])}"),
        ("Protected", f"the values of one {unit}, not whether there are any" if values else
         f"whether all data of one {unit} are among those that were used"),
        (f"Per {_length(one['epoch'])}", _bound(each["epsilon"], each["delta"], bet)),
        ("Spent so far", f"{_times(epochs)}; for a {unit} in all of them "
         f"{_bound(total['epsilon'], total['delta'], bet)}" if epochs else "nothing yet"),
    ]  # fmt: skip
    if (cap := one["per_unit"]) is not None:
        time = "in all" if cap["period"] is None else f"per {_length(cap['period'])}"
        all_of = " and ".join(cap["pipelines"])
        whose = f", from {all_of} together" if cap["pipelines"][1:] else ""
        rows.append((f"At most, {time}", f"{_bound(cap['epsilon'], cap['delta'], bet)} However "
                     f"often this is published{escape(whose)}, no {unit} loses more: what would "
                     "exceed it is left out"))  # fmt: skip
    if epochs and total["sum"] > total["epsilon"]:
        rows.append(("Why not more", f"the plain sum is ε = {_number(total['sum'])}; independent "
                     "noise in each makes the whole reveal less"))  # fmt: skip
    rows.append(_limit(one))
    if one["on_device"]:
        rows.append(("Where", "values are blurred on each device, before they are sent"))
    if one["follows"] is not None:
        rows.append(("Follows", f"{escape(one['follows'])}: a {unit} in both pays for both"))
    if one["ends"] is not None:
        rows.append(("Ends", _day(one["ends"])))
    if one["incomplete_epochs"]:
        rows.append(("Incomplete", f"{len(one['incomplete_epochs'])} times, records were lost "
                     "before they were counted; that costs no privacy"))  # fmt: skip
    body = "".join(f"<tr><th>{name}<td>{text}" for name, text in rows)
    return f"<h2>{escape(one['name'])}</h2><table>{body}</table>{_listed(one)}"


def _limit(one: Mapping[str, Any]) -> tuple[str, str]:
    if one["shared_budget"] is not None:
        return (
            "Limit",
            f"that of the budget “{escape(one['shared_budget'])}”, of which it has a part",
        )
    limit = one["limit"]["epsilon"]
    if limit is None:
        return "Limit", "none is stated"
    left = f"{_number(one['left'])} is left, and beyond it nothing is published"
    return "Limit", f"ε = {_number(limit)} for all together; {left}"


def _listed(one: Mapping[str, Any]) -> str:
    if not one["newest_epochs"]:
        return ""
    lines = "".join(
        f"<tr><td>{_day(e['begin'])}<td>{_day(e['end'])}"
        + ("<td>refused<td>" if e.get("refused") else
           f"<td>{_number(e['epsilon'])}<td>{_number(e['so_far'])}")
        for e in one["newest_epochs"]
    )  # fmt: skip
    head = "<tr><th>from<th>to<th>ε<th>ε so far"
    return (
        f"<details><summary>Charges, newest first</summary><table class=list>{head}{lines}"
        "</table></details>"
    )


def _shared(told: Mapping[str, Any]) -> str:
    found = [
        f"<li><b>{escape(one['name'])}</b>, of {escape(' and '.join(one['pipelines']))}: each time "
        f"{_numbers(one['per_epoch'])} for all of them together; {_times(one['epochs'])} so far, "
        f"which is {_numbers(one['spent'])}{_of_limit(one['limit']['epsilon'])}"
        for one in told["shared_budgets"]
    ]
    return f"<h2>Budgets that several share</h2><ul>{''.join(found)}</ul>" if found else ""


def _everything(told: Mapping[str, Any]) -> str:
    if not told["units"]:
        return ""
    found = [
        f"<li>one {escape(one['unit'])} whose data were in all of it pays at most "
        f"{_numbers(one['spent'])}"
        + ("; this is about its values being replaced" if one["neighbouring"] == "replace_value"
           else "")
        for one in told["units"]
    ]  # fmt: skip
    return f"<h2>All together, added up</h2><ul>{''.join(found)}</ul>"


def _checking(told: Mapping[str, Any]) -> str:
    key, ledger = told["public_key"], told["ledger"]
    if key is None:
        how = (
            "<p>This deployment began without a signing key. Its ledger is a chain of records in "
            "which a change shows, but neither it nor what is published is signed.</p>"
        )
    else:
        how = (
            "<p>Everything published, and the ledger, is signed. Any reader can prove that "
            "nothing was left out, altered or published before it was charged:</p>"
            f"<pre>hush verify --deployment {escape(str(told['deployment']))} \\\n"
            f"  --bootstrap HOST:PORT \\\n  --public-key {escape(key)}</pre>"
        )
    return (
        f"<h2>How to check this</h2>{how}<p class=when>This page follows from the first "
        f"{ledger['records']:,} records of the ledger, up to the one with the hash "
        f"<code>{escape(ledger['head'])}</code>. The same facts, for programs, stand in this file "
        "as JSON (<code>#hush-promise</code>).</p>"
    )


def _bound(epsilon: float, delta: float, bet: str) -> str:
    """State a guarantee as numbers and as a bet."""
    sure = 100 / (1 + math.exp(-min(epsilon, 700.0)))
    most = (
        f"{sure:.1f} % sure of it at most" if sure < 99.9 else
        "all but sure of it, by this bound alone"
    )  # fmt: skip
    return (
        f"{_numbers({'epsilon': epsilon, 'delta': delta})} <span class=bet>A person who "
        f"considers it as likely as not that {bet} could become {most}</span>"
    )


def _numbers(cost: Mapping[str, float]) -> str:
    delta = cost["delta"]
    small = f", δ = {_number(delta)} (once in {1 / delta:,.0f})" if delta else ""
    return f"ε = {_number(cost['epsilon'])}{small}"


def _of_limit(limit: float | None) -> str:
    return "" if limit is None else f", of ε = {_number(limit)} for all together"


def _number(value: float) -> str:
    if value and abs(value) < 1e-3:
        mantissa, _, power = f"{value:.2g}".partition("e")
        # No line break here: a line that ends with the mantissa reads like another number.
        return f"{mantissa}&nbsp;·&nbsp;10<sup>{int(power)}</sup>" if power else mantissa
    return f"{value:.4g}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _length(text: str) -> str:
    """A duration in words.

    >>> _length("1d"), _length("8h"), _length("1d12h")
    ('day', '8 hours', '1 day 12 hours')
    """
    parts = [(int(n), _WORDS[unit]) for n, unit in _PART.findall(text)]
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return " ".join(f"{n:,} {word}{'s' if n != 1 else ''}" for n, word in parts)


def _day(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return f"{moment:%Y-%m-%d}" + (f" {moment:%H:%M} UTC" if moment.hour or moment.minute else "")


STYLE = """
body { font: 17px/1.55 system-ui, sans-serif; color: #1c2430; background: #fff; margin: 0 }
main { max-width: 46rem; margin: 3rem auto; padding: 0 1.25rem }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .45rem .9rem .45rem 0 }
th, td { border-top: 1px solid #dde3ea }
th { font-weight: 600; width: 9rem }
.list th, .list td { width: auto; font-variant-numeric: tabular-nums }
.when, .bet { color: #566273 } .bet { display: block; font-size: .92em }
details { margin-top: .6rem } summary { cursor: pointer; color: #1b5fa7 }
pre { background: #f3f5f8; padding: .8rem 1rem; overflow-x: auto } code, pre { font-size: .85em }
code { overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { color: #dfe5ec; background: #12161c }
th, td { border-color: #2c3541 } .when, .bet { color: #9aa7b6 }
pre { background: #1c232c } summary { color: #7db4ec } }
@media print { main { margin: 0; max-width: none } }
"""
