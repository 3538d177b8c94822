"""`hush diff` distinguishes new terms from old ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

from hushstream.agents.deployment.compile import compile_config
from hushstream.cli.planning import diff
from hushstream.mechanisms.noise import fingerprint
from hushstream.topics.config.load import load

from ..bench import typed

FOLLOWER = """until = 2031-01-05T00:00:00Z
[[pipeline]]
name = "pages-2"
follows = "pages"
input = "events"
key = ["page"]
unit_name = "user"
window = { length = "12h" }
triggers = { every = "6h" }
budget = { epsilon = 2.0, delta = 1e-4, limit_epsilon = 20.0 }
[secret]"""


def test_plan_tells_old_terms_from_new_ones(folder):
    old = (folder / "hush.toml").read_text()
    (folder / "old.toml").write_text(old)
    assert "nothing differs" in typed("plan", "--diff", "old.toml")[1]
    (folder / "hush.toml").write_text(old.replace("[secret]", FOLLOWER))
    code, out, _ = typed("plan", "--diff", "old.toml")
    assert code == 0
    for word in ("pages → pages-2", "budget.epsilon", "2031-01-05T00:00:00Z", "N × 8 + M × 2"):
        assert word in out, out
    told = json.loads(typed("plan", "--diff", "old.toml", "--json")[1])["pipelines"]
    assert [(one["pipeline"], one["against"]) for one in told] == [
        ("pages", "pages"), ("pages-2", "pages")]  # fmt: skip
    assert "follows pages from 2031-01-05" in typed("plan")[1]
    (folder / "hush.toml").write_text(old.replace("epsilon = 8.0, d", "epsilon = 4.0, d"))
    assert 'follows = "pages"' in typed("plan", "--diff", "old.toml")[1]


def test_a_missing_file_is_named_as_the_one_of_the_option(folder):
    code, _, err = typed("plan", "--diff", "none.toml")
    assert code == 2 and "--diff none.toml: file not found" in err and "hush init" not in err
    (folder / "old").mkdir()
    for words in (("plan", "--diff", "old"), ("plan", "-c", "old")):
        code, _, err = typed(*words)
        assert code == 2 and "old: is a folder; name the file, such as old/hush.toml" in err


def test_a_follower_with_a_noise_key_of_its_own_is_told(folder: Path, monkeypatch) -> None:
    old = (folder / "hush.toml").read_text()
    (folder / "old.toml").write_text(old)
    own = FOLLOWER.replace('key = ["page"]', 'key = ["page"]\nnoise_key_file = "second.key"')
    (folder / "hush.toml").write_text(old.replace("[secret]", own))

    def told(against: str) -> dict[str, str]:
        pages = json.loads(typed("plan", "--diff", against, "--json")[1])["pipelines"]
        found = [one for one in pages[-1]["settings"] if one["setting"] == "noise_key_file"]
        return found[0] if found else {}

    assert told("old.toml")["new"].startswith("not readable here: ")
    second = hashlib.sha256(b"second")
    (folder / "second.key").write_text(second.hexdigest())
    (folder / "second.key").chmod(0o600)
    mark = fingerprint(second.digest())
    held = "from 2031-01-05T00:00:00Z on"
    row = {"setting": "noise_key_file", "old": "none", "new": mark, "holds": held}
    assert told("old.toml") == row
    made = compile_config(load("hush.toml")).pipelines
    bodies = {p.name: {"config": p.config} for p in made[:1]}
    ledger = SimpleNamespace(retired={}, pipelines=bodies)
    monkeypatch.setattr(diff, "ledger_of", lambda config: ledger)
    assert told("ledger") == row
    bodies["pages-2"] = {"config": made[1].config, "key_fingerprint": mark}
    assert told("ledger") == {}
    bodies["pages-2"]["key_fingerprint"] = "0" * 32
    assert told("ledger") == row | {"old": "0" * 32, "holds": "never under this name"}
