"""A new deployment: a key that only its owner can read, and the findings of `check`."""

from __future__ import annotations

import json
import stat

from hushstream.topics.config.access.secret import write_new_key

from .bench import typed


def test_init_writes_a_valid_deployment_with_a_private_key(tmp_path, monkeypatch):
    code, out, _ = typed("init", str(tmp_path / "new"))
    assert code == 0 and "hush.toml" in out
    key = tmp_path / "new" / "hush.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() not in out
    assert len(bytes.fromhex(key.read_text().strip())) == 32
    monkeypatch.chdir(tmp_path / "new")
    assert typed("check", "--offline")[0] == 0
    assert typed("plan")[0] == 0
    text = (tmp_path / "new" / "hush.toml").read_text()
    code, _, err = typed("init", ".")
    assert code == 2 and "already exists" in err
    assert (tmp_path / "new" / "hush.toml").read_text() == text


def test_init_keeps_a_key_that_is_there(tmp_path):
    write_new_key(tmp_path / "hush.key")
    before = (tmp_path / "hush.key").read_text()
    assert typed("init", str(tmp_path))[0] == 0
    assert (tmp_path / "hush.key").read_text() == before


def test_check_offline(folder):
    code, out, _ = typed("check", "--offline")
    assert code == 0 and "ok" in out
    code, out, _ = typed("check", "--offline", "--json")
    body = json.loads(out)
    assert code == 0 and body["ok"] and {f["level"] for f in body["findings"]} == {"ok"}
    (folder / "hush.key").unlink()
    code, out, _ = typed("check", "--offline")
    assert code == 2 and "FAIL" in out  # the exit code of a worker
    code, out, _ = typed("check", "--offline", "--json")
    assert code == 2 and not json.loads(out)["ok"]


def test_every_mistake_of_the_configuration_is_a_finding_for_programs(folder):
    text = (folder / "hush.toml").read_text()
    (folder / "hush.toml").write_text(text.replace("unit_name", "unit_nam").replace("6h", "7"))
    code, out, err = typed("check", "--offline", "--json")
    body = json.loads(out)
    assert code == 2 and not body["ok"] and err == ""
    assert {one["level"] for one in body["findings"]} == {"fail"}
    found = " ".join(sorted(one["text"] for one in body["findings"]))
    assert len(body["findings"]) == 2 and "unit_nam: unknown" in found and '"7" must be' in found
    (folder / "hush.toml").unlink()
    code, out, _ = typed("check", "--offline", "--json")
    assert code == 2 and "file not found" in json.loads(out)["findings"][0]["text"]


def test_a_key_that_others_may_read_is_refused(folder):
    (folder / "hush.key").chmod(0o644)
    code, out, _ = typed("check", "--offline")
    assert code == 2 and "600" in out


def test_a_configuration_that_releases_nothing_is_said_to(folder):
    (folder / "hush.toml").write_text("")
    code, out, _ = typed("check", "--offline")
    assert code == 0 and "there is no [[pipeline]]: nothing will be released" in out
    (folder / "rows.jsonl").write_text('{"a": 1}\n')
    code, _, err = typed("simulate", "rows.jsonl")
    assert code == 2 and "hush.toml has no [[input]]" in err
