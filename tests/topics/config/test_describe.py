"""The template and the reference of all settings agree with the model."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from hushstream.topics.config.describe import documented, rewrite
from hushstream.topics.config.load import loads
from hushstream.topics.config.merge import tables
from hushstream.topics.config.toml.lines import line_index

from .small import _mechanism, small

__all__ = ["_mechanism"]  # a fixture


ROOT = Path(__file__).parents[3]


TEMPLATE = ROOT / "topics" / "config" / "template.toml"


def test_the_template_is_valid_with_and_without_its_comments() -> None:
    text = TEMPLATE.read_text()
    assert small(text).pipeline[0].name == "zones"
    uncommented = re.sub(r"(?m)^( *)# (?=[a-z_.]+ = |\{ kind)", r"\1", text)
    exclusive = (
        r"(?m)^(public_keys_file|inputs|query|clip|derive|follows|learn|session|"
        r"sasl_\w+|ssl_c\w+|ssl_k\w+|time\.zone)\b.*\n"
    )
    config = small(re.sub(exclusive, "", uncommented))
    assert len(config.pipeline[0].aggregate) == 5
    assert config.pipeline[0].budget.limit_epsilon == 12


def test_template_model_and_reference_have_the_same_settings() -> None:
    template = TEMPLATE.read_text()
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text() == rewrite(page.read_text())
    implied = {"sasl_password", "ssl_key_password", "parameters"}
    for name, kind in tables():
        settings = {f.name for f in fields(kind)}
        assert set(documented(kind)) == settings, name
        shown = {s for s in settings - implied if re.search(rf"\b{s}\b(\]\]?)?", template)}
        assert shown == settings - implied, name
    known = {f.name for _, kind in tables() for f in fields(kind)} | {t for t, _ in tables()}
    used = {str(step) for path in line_index(template) for step in path if isinstance(step, str)}
    assert used <= known | {name.strip("[]").rsplit(".", 1)[-1] for name, _ in tables()}


def test_template_comments_show_the_defaults() -> None:
    text = TEMPLATE.read_text()
    engine = text[text.index("[engine]") : text.index("[[input]]")]
    shown = "\n".join(line.removeprefix("# ") for line in engine.splitlines())
    data: dict[str, dict[str, Any]] = tomllib.loads(shown)
    assert loads(shown, environ={}).engine == loads("", environ={}).engine
    assert set(data["engine"]) == {f.name for f in fields(loads("", environ={}).engine)}
