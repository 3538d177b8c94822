"""The line of a setting that is refused after the file was read, for example by a mechanism."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ..errors import ConfigError, HushError
from ..topics.config.load import read_text
from ..topics.config.toml.lines import line_index

_NAMED = re.compile(r"(pipeline|view|input) '([^']+)': (?:([a-z_][\w.]*)(?=:| = ))?")


def with_line(error: HushError, file: str) -> HushError:
    """Return the error with the line of its setting, or of its table, before the message.

    Args:
        error: unchanged if it is no `ConfigError` or names no table.
        file: the configuration.
    """
    found = _NAMED.match(str(error)) if isinstance(error, ConfigError) else None
    if found is None:
        return error
    try:
        text = read_text(Path(file))
        tables = tomllib.loads(text).get(found[1], [])
        lines = line_index(text)
    except (ConfigError, ValueError, RecursionError):
        return error
    places = [(found[1], n) for n, table in enumerate(tables) if table.get("name") == found[2]]
    if not places:  # a query names it
        return error
    setting = (found[3] or "").rpartition(".")[2]
    here = {path: line for path, line in lines.items() if path[:2] == places[0]}
    named = [path for path in here if path[-1] == setting]
    if str(error)[found.end() :].startswith(" = "):  # a mechanism's, which may be named alike
        named.sort(key=lambda path: path[-2] != "mechanism")
    line = here[named[0]] if named else here[places[0]]
    return ConfigError(f"{file}:{line}: {error}")
