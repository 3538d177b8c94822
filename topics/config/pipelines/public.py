"""Public lists of keys and public regions: reading from files, and digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ....errors import ConfigError
from ....mechanisms.spatial.region import Region
from ...geojson import GeoJsonError, region_of
from ..toml.lines import Path as Setting
from ..toml.read import Problem
from .pipeline import PipelineSettings, Scalar

PublicKeys = tuple[tuple[Scalar, ...], ...]


def read_public_keys_file(pipeline: PipelineSettings, folder: Path) -> PipelineSettings:
    """Return ``pipeline`` with the keys of its ``public_keys_file``, if it has one.

    Raises:
        ConfigError: the file cannot be read or is not a list of keys, or both settings are given.
    """
    if pipeline.public_keys_file is None:
        return pipeline
    if pipeline.public_keys is not None:
        raise ConfigError("and public_keys exclude each other")
    path = folder / pipeline.public_keys_file
    try:
        text = path.read_text("utf-8-sig")  # a byte order mark is no part of the first key
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from error
    return replace(pipeline, public_keys=_parse(path, text))


def _parse(path: Path, text: str) -> PublicKeys:
    """Keys of a JSON list, or of lines; a line is a JSON list or a key."""
    if path.suffix == ".json":
        return _keys(path, _json(path, text))
    lines = [line.strip() for line in text.splitlines()]
    return _keys(path, [_json(path, x) if x.startswith("[") else x for x in lines if x])


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also: too many digits, too deep
        raise ConfigError(f"{path} is not valid JSON ({error})") from error


def _keys(path: Path, items: Any) -> PublicKeys:
    if not isinstance(items, list):
        raise ConfigError(f"{path} must contain a list of keys")
    keys = [tuple(item) if isinstance(item, list) else (item,) for item in items]
    if not all(isinstance(value, Scalar) for key in keys for value in key):
        raise ConfigError(f"{path}: a key consists of texts, whole numbers, true or false")
    return tuple(keys)


def digest(keys: PublicKeys) -> str:
    """Return the SHA-256 of a list of keys, independent of order.

    >>> digest((("a",), ("b",))) == digest((("b",), ("a",)))
    True
    """
    lines = sorted(msgspec.json.encode(key) for key in keys)
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def read_regions(data: dict[str, Any], folder: Path) -> list[Problem]:
    """Replace each ``domain.region`` in the tables of a file by its `Region`.

    A region is GeoJSON: a table, a text, or the path of a file, relative to ``folder``. An unusable
    one is removed and returned as a problem.
    """
    problems: list[Problem] = []
    pipelines = data.get("pipeline")
    for place, pipeline in enumerate(pipelines if isinstance(pipelines, list) else ()):
        domain = _inner(_inner(pipeline, "mechanism"), "domain")
        if "region" not in domain:
            continue
        path: Setting = ("pipeline", place, "mechanism", "domain", "region")
        raw = domain.pop("region")
        try:
            domain["region"] = _region(raw, folder) if isinstance(raw, str) else region_of(raw)
        except GeoJsonError as error:
            problems.append(Problem((*path, *error.steps), error.message))
        except ConfigError as error:
            problems.append(Problem(path, str(error)))
        except RecursionError:
            problems.append(Problem(path, "is nested too deeply"))
    return problems


def _inner(table: Any, name: str) -> dict[str, Any]:
    found = table.get(name) if isinstance(table, dict) else None
    return found if isinstance(found, dict) else {}


def _region(text: str, folder: Path) -> Region:
    """A region from GeoJSON or the path of a file with it."""
    inline = text.lstrip().startswith("{")
    name = "this text" if inline else str(folder / text)
    try:
        body = json.loads(text if inline else (folder / text).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} cannot be read ({error})") from error
    except ValueError as error:
        raise ConfigError(f"{name} is not valid JSON ({error})") from error
    try:
        return region_of(body)
    except GeoJsonError as error:
        raise ConfigError(f"{name}: {error}") from error
