"""The recipes of the documentation, run on simulated releases with known exact values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hushstream.cli.group import hush
from hushstream.errors import ConfigError
from hushstream.topics.config.access.secret import write_new_key
from hushstream.topics.config.load import loads

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
USERS, DAYS = 300, 3


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the page's blocks define."""
    folder = tmp_path_factory.mktemp("recipes")
    lines = ["user,page,seconds,t"]
    for day in range(1, DAYS + 1):
        for user in range(USERS):
            place = f"u{user},p{user % 3 // 2},{user % 100}"  # 450 visits a day to 2 pages
            lines += [f"{place},2026-03-0{day}T0{n}:30:00" for n in range(1 + user % 2)]
    (folder / "visits.csv").write_text("\n".join(lines))
    blocks = FENCE.findall(PAGE)
    (toml,) = (text for kind, text in blocks if kind == "toml")
    write_new_key(folder / "hush.key")
    (folder / "hush.toml").write_text(f'{toml}\n[secret]\nnoise_key_file = "hush.key"\n')
    done = CliRunner().invoke(
        hush,
        ["simulate", str(folder / "visits.csv"), "-c", str(folder / "hush.toml"), "--seed", "s",
         "--out", str(folder / "out")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    names: dict[str, Any] = {}
    for kind, text in blocks:
        if kind == "python":
            exec(text.replace('f"out/', f'f"{folder}/out/'), names)  # noqa: S102
    return names


def test_distinct_users_count_once_a_key(found: dict[str, Any]) -> None:
    users = {row["page"]: row["count"] for row in found["users"] if "page" in row}
    assert users["p0"] == pytest.approx(200, abs=25) and users["p1"] == pytest.approx(100, abs=25)


def test_the_median_lies_in_the_middle(found: dict[str, Any]) -> None:
    assert found["median"] == pytest.approx(50, abs=8)


def test_ratios_have_an_error(found: dict[str, Any]) -> None:
    ratios = [(value, spread) for _, page, value, spread in found["per_user"] if page == "p0"]
    assert len(ratios) == DAYS
    assert all(abs(value - 1.5) < 5 * spread + 0.1 and spread < 0.5 for value, spread in ratios)


def test_whoever_asks_for_distinct_units_is_told_the_recipe() -> None:
    (toml,) = (text for kind, text in FENCE.findall(PAGE) if kind == "toml")
    more = 'aggregate = [{ kind = "distinct", field = "user" }]'
    asked = toml.replace('key = ["page"]', f'key = ["page"]\n{more}', 1)
    with pytest.raises(ConfigError, match=r'bound = "per-key", per_key = 1'):
        loads(asked, environ={})
