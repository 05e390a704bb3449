"""Reads YAML the way people expect it: 1e-3 is a number, `no` is a word, a key given twice is an error with its line.

A tag says what its text is or the text is refused; there are no dates and no bytes. Knows nothing of configs;
metrics.yaml is read by it too."""

import copy
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from stride.utils.user_error import UserError, read_user_file, whole_number

TAG_PATTERNS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?\d[\d_]*", list("-+0123456789")),
    ("float", r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*(?=[eE]))([eE][-+]?\d+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
)  # fmt: skip

UNREAD_TAGS = ("timestamp", "binary", "omap", "pairs")

MAX_BYTES, MAX_NODES, MAX_DEPTH = 1 << 18, 100_000, 24


class Loader(yaml.SafeLoader):
    """YAML 1.1 less its surprises: no words as booleans, no octal 010, no 1:30 in base 60, no dates."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's own way to start from none)
    yaml_constructors = {  # noqa: RUF012
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if str(tag).split(":")[-1] not in UNREAD_TAGS
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses a key given twice; here, before merge keys are folded in, since those may be overridden."""
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
        """The value of the text of a number or a flag; `!!int x` is an error. Decimal, whatever the leading zeros."""
        text, tag_name = str(self.construct_scalar(node)), node.tag.rpartition(":")[2]
        accepted_tags = (tag_name, "int") if tag_name == "float" else (tag_name,)
        if not any(name in accepted_tags and re.fullmatch(pattern, text) for name, pattern, _ in TAG_PATTERNS):
            raise yaml.MarkedYAMLError(problem=f"{text!r} is not a valid {tag_name}", problem_mark=node.start_mark)
        try:
            return TAG_PARSERS[tag_name](text)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=f"{text!r}: {error}", problem_mark=node.start_mark) from error


TAG_PARSERS: dict[str, Callable[[str], object]] = {
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: whole_number(text.replace("_", "")),
    "float": lambda text: float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")),
}
for tag, pattern, first in TAG_PATTERNS:
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first)
for tag in TAG_PARSERS:
    Loader.add_constructor(f"tag:yaml.org,2002:{tag}", Loader.construct_checked)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the file; anything else is a UserError of one line with file:line."""
    return copy.deepcopy(_mapping(read_user_file(path, MAX_BYTES), path.name))


@lru_cache(maxsize=64)
def _mapping(text: bytes, name: str) -> dict[str, Any]:
    """Parsed once: a command asks for a file again, a group of seeds, listings and notebooks many times."""
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
    """UserError where it is deeper, or aliases of aliases would unfold to more, than a config ever is."""
    sizes: dict[int, int] = {}
    unfinished: set[int] = set()  # nodes around the present one

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
    """`:line: what is wrong`, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        message = " ".join(str(error.problem or error.context).split())
        advice = " (only plain data is read)" if "constructor for the tag" in message else ""
        return f":{error.problem_mark.line + 1}: {message}{advice}"
    if isinstance(error, yaml.reader.ReaderError):
        return f": is not UTF-8 text ({error.reason})"
    return f": {' '.join(str(error).split())}"
