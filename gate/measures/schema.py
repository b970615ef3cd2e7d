"""Whether a JSON text is what a ``response_format`` asked for: a short check, not a validator.

Knows type, enum, properties, required, additionalProperties = false, items, minItems and
maxItems: what the conformance set uses. Other keywords are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gate.grammar import read_schema

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def find_format_faults(text: str, response_format: dict[str, Any]) -> list[str]:
    """Return what is wrong with a complete output, each with the path it is at."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return [f"no JSON: {error}"]
    if response_format.get("type") == "json_object":
        return [] if isinstance(value, dict) else [f"$ is {value!r}, no object"]
    return list(_check(value, read_schema(response_format) or {}, "$"))


def _check(value: object, schema: dict[str, Any], path: str) -> Iterator[str]:
    kinds = TYPES.get(str(schema.get("type")), (object,))
    is_flag = isinstance(value, bool) and bool not in kinds and object not in kinds
    if not isinstance(value, kinds) or is_flag:
        yield f"{path} is {value!r}, no {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path} is {value!r}, none of {schema['enum']}"
    elif isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        yield from _check_array(value, schema, path)


def _check_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is missing"
    for name, inner in value.items():
        if name in properties:
            yield from _check(inner, properties[name], f"{path}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{path}.{name} is not allowed"


def _check_array(value: list[Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not least <= len(value) <= most:
        yield f"{path} holds {len(value)} items, allowed are {least} to {most}"
    for n, inner in enumerate(value):
        yield from _check(inner, schema.get("items", {}), f"{path}[{n}]")
