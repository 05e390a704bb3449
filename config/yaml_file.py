"""Reads YAML the way people expect it: 1e-3 is a number, `no` is a word, a key given twice is an error with its line.

Knows nothing of configs; metrics.yaml is read by it too."""

import re
from pathlib import Path
from typing import Any

import yaml

from utils.user_error import UserError

RESOLVED = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?\d[\d_]*", list("-+0123456789")),
    ("float", r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*(?=[eE]))([eE][-+]?\d+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
)  # fmt: skip


MOST_BYTES, MOST_NODES = 1 << 20, 100_000


class Loader(yaml.SafeLoader):
    """YAML 1.1 less its surprises: no words as booleans, no octal 010, no 1:30 in base 60, no dates."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (PyYAML's own way to start from none)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses a key given twice; here, before merge keys are folded in, since those may be overridden."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                advice = "; merge several with <<: [*a, *b]" if key.value == "<<" else ""
                problem = f"{key.value!r} is given twice, first on line {seen[key.value]}{advice}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen[str(key.value)] = line
        return node

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        """Decimal, whatever the leading zeros."""
        return int(str(self.construct_scalar(node)).replace("_", ""))


for tag, pattern, first in RESOLVED:
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first)
Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_whole)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the file; anything else is a UserError of one line with file:line."""
    try:
        text = path.read_bytes()
        if len(text) > MOST_BYTES:
            raise UserError(f"{path.name}: {len(text):,} bytes are more than a config has")
        loader = Loader(text)
        root = loader.get_single_node()
        check_size(root, path.name)
        data = None if root is None else loader.construct_document(root)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path.name}{_explained(error)}") from error
    except RecursionError as error:
        raise UserError(f"{path.name}: nested too deep") from error
    if not isinstance(data, dict):
        raise UserError(f"{path.name} holds {'nothing' if data is None else 'no mapping'}; expected keys and values")
    for key in data:
        if not isinstance(key, str):
            raise UserError(f"{path.name}: the key {key!r} is not text")
    return data


def check_size(root: yaml.Node | None, name: str) -> None:
    """UserError where aliases of aliases would unfold to more than a config ever holds."""
    sizes: dict[int, int] = {}
    under_way: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in under_way:
            raise UserError(f"{name}: an alias inside its own anchor is nested too deep")
        if id(node) not in sizes:
            under_way.add(id(node))
            inside = node.value if isinstance(node, yaml.CollectionNode) else []
            parts = [part for item in inside for part in (item if isinstance(item, tuple) else (item,))]
            sizes[id(node)] = 1 + sum(map(size, parts))
            under_way.discard(id(node))
        return sizes[id(node)]

    if root is not None and size(root) > MOST_NODES:
        raise UserError(f"{name}: its aliases unfold to more than {MOST_NODES:,} values")


def _explained(error: Exception) -> str:
    """`:line: what is wrong`, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        what = error.problem if error.problem else error.context
        tag = " (only plain data is read)" if "constructor for the tag" in str(what) else ""
        return f":{error.problem_mark.line + 1}: {' '.join(str(what).split())}{tag}"
    if isinstance(error, yaml.reader.ReaderError):
        return f": is not UTF-8 text ({error.reason})"
    return f": {' '.join(str(error).split())}"
