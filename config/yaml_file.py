"""Reads YAML files without YAML 1.1's surprises: 1e-3 is a number, `no` is text, a key given twice is an error.

A tag such as `!!int` must fit its text. Dates and binary data are not read. Errors name file and line, and size and
depth are limited. raw.py reads environments with it, search.py sweeps; nothing here knows the keys of a config."""

import copy
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from stride.utils.user_error import UserError, read_user_file, whole_number

# (tag, pattern of the texts that get it, the characters such a text can begin with); the order is the one of matching
TAG_PATTERNS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?\d[\d_]*", list("-+0123456789")),
    ("float", r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*(?=[eE]))([eE][-+]?\d+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
)  # fmt: skip

UNREAD_TAGS = ("timestamp", "binary", "omap", "pairs")  # such tags are refused

# size of a file, its values after aliases are expanded, and levels of nesting
MAX_BYTES, MAX_NODES, MAX_DEPTH = 1 << 18, 100_000, 24


class Loader(yaml.SafeLoader):
    """A loader for YAML 1.1 without words as booleans (no, off), octal 010, base 60 (1:30) and dates."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (start without PyYAML's own patterns)
    yaml_constructors = {  # noqa: RUF012
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if str(tag).split(":")[-1] not in UNREAD_TAGS
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Raise an error for a key given twice. Merge keys (<<) are expanded later, so overriding those is allowed."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}  # key -> the line of its first use
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                advice = "; merge several with <<: [*a, *b]" if key.value == "<<" else ""
                problem = f"{key.value!r} is given twice, first on line {lines[key.value]}{advice}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            lines[key.value] = line
        return node

    def construct_checked(self, node: yaml.ScalarNode) -> Any:
        """Return the value of a number or boolean; an error if tag and text do not fit (`!!int x`). 010 is ten."""
        text, tag_name = str(self.construct_scalar(node)), node.tag.rpartition(":")[2]
        accepted_tags = (tag_name, "int") if tag_name == "float" else (tag_name,)
        if not any(name in accepted_tags and re.fullmatch(pattern, text) for name, pattern, _ in TAG_PATTERNS):
            raise yaml.MarkedYAMLError(problem=f"{text!r} is not a valid {tag_name}", problem_mark=node.start_mark)
        try:
            return TAG_PARSERS[tag_name](text)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=f"{text!r}: {error}", problem_mark=node.start_mark) from error


TAG_PARSERS: dict[str, Callable[[str], object]] = {  # tag -> the value of its text
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: whole_number(text.replace("_", "")),
    "float": lambda text: float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")),
}
for tag, pattern, first in TAG_PATTERNS:
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first)
for tag in TAG_PARSERS:
    Loader.add_constructor(f"tag:yaml.org,2002:{tag}", Loader.construct_checked)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, as a new copy; UserError, one line with file:line, for anything else."""
    return copy.deepcopy(_mapping(read_user_file(path, MAX_BYTES), path.name))


@lru_cache(maxsize=64)
def _mapping(text: bytes, name: str) -> dict[str, Any]:
    """Parse a file's content; cached, because commands, listings and notebooks read the same file many times."""
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        check_size(root, name)
        data = None if root is None else loader.construct_document(root)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{name}{_explained(error)}") from error
    except RecursionError as error:
        raise UserError(f"{name}: nested too deep") from error
    if not isinstance(data, dict):
        raise UserError(f"{name} {'is empty' if data is None else 'is not a mapping'}; expected keys and values")
    for key in data:
        if not isinstance(key, str):
            raise UserError(f"{name}: the key {key!r} is not text")
    return data


def check_size(root: yaml.Node | None, name: str) -> None:
    """Raise UserError if the file is nested too deep, or its aliases would expand to too many values.

    A few lines of aliases of aliases can stand for billions of values, so they are counted before they are expanded."""
    sizes: dict[int, int] = {}  # id of a node -> the number of values in it, with aliases expanded
    unfinished: set[int] = set()  # ids of the nodes around the present one

    def size(node: yaml.Node) -> int:
        if id(node) in unfinished:
            raise UserError(f"{name}: an alias inside its own anchor is nested too deep")
        if len(unfinished) > MAX_DEPTH:
            raise UserError(f"{name}:{node.start_mark.line + 1}: nested too deep")
        if id(node) not in sizes:
            unfinished.add(id(node))
            sizes[id(node)] = 1
            for item in node.value if isinstance(node, yaml.CollectionNode) else ():
                for child in item if isinstance(item, tuple) else (item,):
                    sizes[id(node)] += size(child)
            unfinished.discard(id(node))
        return sizes[id(node)]

    if root is not None and size(root) > MAX_NODES:
        raise UserError(f"{name}: its aliases expand to more than {MAX_NODES:,} values")


def _explained(error: Exception) -> str:
    """Return `:line: what is wrong` for an error of PyYAML, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        message = " ".join(str(error.problem or error.context).split())
        advice = " (only plain data is read)" if "constructor for the tag" in message else ""
        return f":{error.problem_mark.line + 1}: {message}{advice}"
    if isinstance(error, yaml.reader.ReaderError):
        return f": is not UTF-8 text ({error.reason})"
    return f": {' '.join(str(error).split())}"
