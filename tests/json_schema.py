"""The part of JSON Schema that config/json_schema.py makes use of, as its specification (draft 7) has it."""

import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float)}
KNOWN = {"$schema", "title", "description", "default", "definitions", "$ref", "type", "enum", "const", "pattern",
         "minimum", "exclusiveMinimum", "maximum", "items", "minItems", "maxItems", "required", "properties",
         "patternProperties", "additionalProperties", "propertyNames", "anyOf", "if", "then", "else"}  # fmt: skip


def faults(value, schema, root=None, place=""):
    """A line for each thing that is wrong."""
    root = root or schema
    assert not schema.keys() - KNOWN, f"{place}: what is {schema.keys() - KNOWN}?"
    if "$ref" in schema:
        found = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return faults(value, found, root, place)
    lines = [f"{place}: {value!r} is not {schema[key]!r} ({key})" for key in schema if not fits(key, value, schema)]
    if "anyOf" in schema and all(faults(value, each, root, place) for each in schema["anyOf"]):
        lines.append(f"{place}: {value!r} is none of {schema['anyOf']}")
    if "if" in schema:
        branch = "else" if faults(value, schema["if"], root, place) else "then"
        lines += faults(value, schema.get(branch, {}), root, place)
    if isinstance(value, list) and "items" in schema:
        lines += [line for k, item in enumerate(value) for line in faults(item, schema["items"], root, f"{place}[{k}]")]
    return lines + (of_object(value, schema, root, place) if isinstance(value, dict) else [])


def fits(key, value, schema):
    limit, is_number = schema[key], isinstance(value, int | float) and not isinstance(value, bool)
    match key:
        case "type" if limit == "integer":
            return is_number and value == int(value)
        case "type":
            return isinstance(value, TYPES[limit]) and (limit != "number" or is_number)
        case "enum":
            return any(value == each and type(value) is type(each) for each in limit)
        case "const":
            return value == limit
        case "pattern":
            return not isinstance(value, str) or re.search(limit, value) is not None
        case "minimum":
            return not is_number or value >= limit
        case "exclusiveMinimum":
            return not is_number or value > limit
        case "maximum":
            return not is_number or value <= limit
        case "minItems":
            return not isinstance(value, list) or len(value) >= limit
        case "maxItems":
            return not isinstance(value, list) or len(value) <= limit
        case "required":
            return not isinstance(value, dict) or all(name in value for name in limit)
    return True


def of_object(value, schema, root, place):
    lines, named, patterns = [], schema.get("properties", {}), schema.get("patternProperties", {})
    for name, item in value.items():
        below = f"{place}.{name}"
        lines += faults(name, schema.get("propertyNames", {}), root, below)
        wanted = [named[name]] if name in named else []
        wanted += [each for pattern, each in patterns.items() if re.search(pattern, name)]
        rest = schema.get("additionalProperties", True)
        if not wanted and rest is False:
            lines.append(f"{below}: there is no such key")
        wanted = wanted or ([rest] if isinstance(rest, dict) else [])
        lines += [line for each in wanted for line in faults(item, each, root, below)]
    return lines
