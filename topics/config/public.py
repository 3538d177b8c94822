"""Public lists of keys: reading from files, and digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ConfigError
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
        text = path.read_text("utf-8")
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
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON ({error})") from error


def _keys(path: Path, items: Any) -> PublicKeys:
    if not isinstance(items, list):
        raise ConfigError(f"{path} must contain a list of keys")
    keys = [tuple(item) if isinstance(item, list) else (item,) for item in items]
    if not all(isinstance(value, Scalar) for key in keys for value in key):
        raise ConfigError(f"{path}: a key consists of texts, whole numbers, true or false")
    return tuple(keys)


def digest(keys: PublicKeys) -> str:
    """Return the SHA-256 of a list of keys, whatever its order.

    >>> digest((("a",), ("b",))) == digest((("b",), ("a",)))
    True
    """
    lines = sorted(msgspec.json.encode(key) for key in keys)
    return hashlib.sha256(b"\n".join(lines)).hexdigest()
