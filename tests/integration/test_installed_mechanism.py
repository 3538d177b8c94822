"""A mechanism of another package runs through the whole product without an edit in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hushstream.agents.clock.genesis import read_ledger
from hushstream.cli.group import hush
from hushstream.deploy.broker import Broker
from hushstream.mechanisms import registry
from hushstream.topics.config.load import loads

from .local import local

ROOT = Path(__file__).parents[2]
HOUR = 3_600_000_000
ORIGIN = 17956 * 24 * HOUR  # 2019-03-01

TOML = """
[deployment]
name = "{name}"
[engine]
units_partitions = 2
[[input]]
name = "sales"
topic = "{name}-raw"
unit = "user"
time = {{ field = "t", format = "epoch_us" }}
[[pipeline]]
name = "{name}-total"
input = "sales"
unit_name = "customer"
window = {{ length = "8h", origin = "2019-03-01T00:00:00Z" }}
triggers = {{ every = "2h" }}
schedule = "external"
budget = {{ epsilon = 2.0 }}
aggregate = [{{ kind = "sum", field = "price", low = 0, high = 20, grid = 0.5 }}]
mechanism = {{ kind = "noisy-total", bound = 3 }}
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What an installer would leave: the metadata of a package with one entry point."""
    site = tmp_path / "site"
    info = site / "noisy_total-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy-total\nVersion: 1.0\n")
    # The name from the root of the checkout: the folder of the checkout may have any name.
    target = "noisy-total = tests.mechanisms.cases.noisy_total:ENTRY\n"
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{target}")
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(site)
    # Workers are processes of their own: they find it as any installed package is found.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    registry.entries.cache_clear()
    yield
    registry.entries.cache_clear()


def sales(first: int, last: int, n: int) -> list[dict[str, Any]]:
    """So many sales, evenly over the hours first … last; half of them above the highest price."""
    step = (last - first) * HOUR // n
    return [
        {"user": f"{first}-{i}", "t": ORIGIN + first * HOUR + i * step, "price": 5 + 30 * (i % 2)}
        for i in range(n)
    ]


def truth(n: int) -> int:
    return n // 2 * 5 + n // 2 * 20


def run(*words: str) -> Any:
    result = CliRunner().invoke(hush, words)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_without_the_package_the_configuration_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_installed", list)
    registry.entries.cache_clear()
    with pytest.raises(Exception, match='"noisy-total": unknown mechanism'):
        loads(TOML.format(name="x"), environ={})


def test_plan_and_simulate_know_it(tmp_path: Path) -> None:
    config, data = tmp_path / "hush.toml", tmp_path / "sales.jsonl"
    config.write_text(TOML.format(name="x"))
    data.write_text("\n".join(json.dumps(row) for row in sales(0, 8, 400)))
    (planned,) = run("plan", "-c", str(config), "--json")["pipelines"]
    assert (planned["mechanism"], planned["definition"]) == ("noisy-total", "pure")
    assert planned["pure_epsilon"] == 2 and planned["total"] == {"scale": 3 * 40 * 3 / 2}
    shown = CliRunner().invoke(hush, ["plan", "-c", str(config)]).output
    assert "noise of a node" in shown and "scale 180" in shown
    simulated = run("simulate", "-c", str(config), str(data), "--seed", "s", "--json")["x-total"]
    (window,) = simulated["windows"]  # its keys hold what it says alone: nothing is compared
    assert (window["released"], window["records"], window["figures"]) == (1, 400, {})
    assert simulated["counts"]["accepted"] == 400


@pytest.mark.broker
def test_it_releases_on_a_real_broker_and_replay_agrees(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("t")
    raw = f"{name}-raw"
    text = TOML.format(name=name)
    with local(tmp_path / name, broker.bootstrap, text, {raw: 2}) as deployed:
        deployed.start("one")
        deployed.publish(raw, sales(0, 4, 1000), 0)
        deployed.trigger(ORIGIN + 4 * HOUR)
        deployed.wait_released(deployed.wait_triggers(2))
        deployed.kill("one")
        deployed.start("two")
        deployed.publish(raw, [*sales(4, 8, 1000), {"user": "u", "t": ORIGIN + 5 * HOUR}], 1)
        deployed.trigger(ORIGIN + 8 * HOUR)
        deployed.wait_released(deployed.wait_triggers(4))
        assert deployed.stop("two") == 0
        bodies = deployed.releases(f"{name}-total")
        check(bodies)
        command = ["replay", "-c", str(deployed.toml), "--bootstrap", deployed.bootstrap]
        assert hush.main(command, standalone_mode=False) is None
        ledger = read_ledger(deployed.cluster, name)
        (charge,) = (record.body for record in ledger.charges.values())
        assert (charge["mechanism"], charge["definition"]) == ("noisy-total", "pure")
        assert (charge["pure_epsilon"], charge["mu2"]) == ("2", "0")


def check(bodies: list[dict[str, Any]]) -> None:
    """Four totals as noise allows, and manifests that say what noise that is."""
    rows = [body for body in bodies if body["schema"] == "hush.release/2"]
    manifests = [body for body in bodies if body["schema"] == "hush.manifest/2"]
    assert [row["trigger"] for row in rows] == [1, 2, 3, 4] and len(manifests) == 4
    for row, n in zip(rows, (1000, 1000, 2000, 2000), strict=True):  # by arrival
        said = row["values"]["total"]
        assert row["key"] == {} and 0 < said["stddev"] < truth(n) / 5
        assert abs(said["value"] - truth(n)) < 14 * said["stddev"]
    for manifest in manifests:
        assert manifest["noise"] == {"distribution": "discrete_laplace"}
        assert manifest["privacy"]["definition"] == "pure"
        assert manifest["bounds"]["in_words"].startswith("at most 3 records of one customer")
        assert manifest["key_threshold"] is None
