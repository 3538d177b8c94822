"""JSON Schema of a shape; the records are the JSON that is released anyway."""

from __future__ import annotations

from typing import Any

from .shape import ValueShape

DRAFT = "http://json-schema.org/draft-07/schema#"
_TYPES = {
    "text": "string", "whole": "integer", "real": "number", "number": "number", "truth": "boolean",
}  # fmt: skip


def schema(shape: ValueShape, title: str) -> dict[str, Any]:
    """The schema of a record as plain JSON, with the full name by which registries know it."""
    return {"$schema": DRAFT, "title": title} | _type(shape)


def _type(shape: ValueShape) -> dict[str, Any]:
    body = _own(shape)
    if shape.doc:
        body["description"] = shape.doc
    if not shape.optional:
        return body
    if isinstance(body.get("type"), str) and shape.kind != "record":
        return body | {"type": [body["type"], "null"]}
    return {"oneOf": [{"type": "null"}, body]}


def _own(shape: ValueShape) -> dict[str, Any]:
    if shape.kind == "record":
        fields = {name: _type(inner) for name, inner in shape.fields}
        return {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        }
    if shape.kind == "list":
        return {"type": "array", "items": _type(shape.inner)}
    if shape.kind == "map":
        return {"type": "object", "additionalProperties": _type(shape.inner)}
    if shape.kind == "scalar":
        return {"type": ["string", "integer", "boolean"]}
    return {"type": _TYPES[shape.kind]}
