"""The house counted, a checkout or two beside each other: how long, how deep, how explained, how often pasted.

    python -m scripts.house                        this checkout
    python -m scripts.house ../before .            before and after, as one Markdown table
    python -m scripts.house ../before . --names    and after it where each of the last one's counts is to be found

Read from the source by ast and tokenize; nothing of a checkout is imported or run, so any commit can be counted. What
is counted is the product: every Python file that is not under tests/, docs/, runs/ or build/, not hidden, not empty.

- A function's length is from `def` to its last line, decorators left out, methods and inner functions counted, too.
  p95 is the smallest length that 95 % do not exceed.
- Parameters: all that are annotated, of every `def` (lambdas have no annotations), without self and cls, `*args` and
  `**kwargs` with them. `Any` is an annotation that is Any, or a union with it; `dict[str, Any]` is none. A name that
  stands for it (`Tree = Any`), wherever it was imported from, is counted in a row of its own.
- Upward arrows and circles are those of the architecture test, by the storeys which each checkout itself declares.
- A pair of near-equal blocks is two places where six lines of code in a row are equal once names are numbered in the
  order they appear in and numbers are 0. Left out before: blank lines, comments, docstrings, imports; and blocks of
  fewer than 40 tokens, since six lines of arguments or of a table are equal to any others. Blocks that overlap count
  once: a pair is as long as it is.
- Comment lines hold nothing but a comment; those behind code have a row of their own. `noqa`, `type:`, `fmt:` are none.
"""

import argparse
import ast
import io
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from scripts.house_rules import (
    House,
    Source,
    at,
    dotted,
    imports_run_downward,
    no_circles,
    product_files,
    read_house,
    storeys_of,
)

LONG = 50  # lines of a function
BLOCK, TOKENS = 6, 40  # lines of a block, and the fewest tokens in it
ORDERS = ("noqa", "type:", "fmt:")  # comments that are for a program
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Row(NamedTuple):
    """One line of the table, and where what it counts is to be found."""

    name: str
    value: str
    found: Sequence[str] = ()


class Line(NamedTuple):
    """A line of code as its tokens."""

    number: int
    tokens: tuple[str, ...]


class Text(NamedTuple):
    """A file, its comments by their lines, and its lines of code."""

    source: Source
    comments: dict[int, str]
    code: list[Line]
    docs: set[int]


def measure(root: Path) -> list[Row]:
    """Every row of the table."""
    house = {name: source for name, source in read_house(root).items() if source.text.strip()}
    texts = [read(source) for source in house.values()]
    lines = [len(source.text.splitlines()) for source in house.values()]
    functions = [*_functions(house)]
    lengths = [node.end_lineno - node.lineno + 1 for _, node in functions if node.end_lineno]
    long = [at(s, n.lineno, f"{n.name}, {x} lines") for (s, n), x in zip(functions, lengths, strict=True) if x > LONG]
    # a set, as one line may import several names of a module
    hidden = sorted({at(s, i.line, f"imports {i.target}") for s in house.values() for i in s.imports if i.hidden})
    up, circles = [*imports_run_downward(house, storeys_of(root))], [*no_circles(house)]
    pairs = near_equal(texts)
    broad, noqa = (
        [*_broad_excepts(house)],
        [at(t.source, n, c) for t in texts for n, c in t.comments.items() if "noqa" in c],
    )
    train = house.get("train")
    return [
        Row("files", f"{len(house):,}"),
        Row("lines", f"{sum(lines):,}"),
        Row("lines of a file: median / p95 / max", spread(lines)),
        Row("functions", f"{len(functions):,}"),
        Row("lines of a function: median / p95 / max", spread(lengths)),
        Row(f"functions over {LONG} lines", f"{len(long)}", long),
        *_parameters(house, functions),
        Row("imports hidden in functions or classes", f"{len(hidden)}", hidden),
        Row("imports that climb a storey", f"{len(up)}", up),
        Row("circles of imports", f"{len(circles)}", circles),
        Row(f"pairs of near-equal blocks of {BLOCK} lines", f"{len(pairs)}", pairs),
        Row("comment lines, %", share(sum(len(_alone(text)) for text in texts), sum(lines))),
        Row("lines with a comment behind code, %", share(sum(len(_behind(text)) for text in texts), sum(lines))),
        Row("docstring lines, %", share(sum(len(text.docs) for text in texts), sum(lines))),
        Row("broad excepts", f"{len(broad)}", broad),
        Row("`noqa`", f"{len(noqa)}", noqa),
        Row("lines of train.py", f"{len(train.text.splitlines())}" if train else "none"),
    ]


def read(source: Source) -> Text:
    """A file's tokens, sorted into what explains and what runs."""
    docs = {line for node in _texts(source.tree) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    imports = [node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    skipped = docs | {line for node in imports for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    comments, code = {}, defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            comments[line] = token.string
        elif token.type not in LAYOUT and line not in skipped:
            code[line].append("0" if token.type == tokenize.NUMBER else token.string)
    return Text(source, comments, [Line(number, tuple(tokens)) for number, tokens in sorted(code.items())], docs)


def _texts(tree: ast.Module) -> Iterator[ast.Expr]:
    """Statements that are nothing but a text: docstrings, those of fields included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def _explains(comment: str) -> bool:
    return not comment.lstrip("# ").startswith(ORDERS)


def _alone(text: Text) -> list[int]:
    """Lines that are nothing but a comment."""
    lines = text.source.text.splitlines()
    return [n for n, comment in text.comments.items() if lines[n - 1].lstrip().startswith("#") and _explains(comment)]


def _behind(text: Text) -> list[int]:
    """Lines of code that end in a comment."""
    return [n for n, comment in text.comments.items() if _explains(comment) and n not in set(_alone(text))]


def _functions(house: House) -> Iterator[tuple[Source, Function]]:
    for source in house.values():
        for node in ast.walk(source.tree):
            if isinstance(node, Function):
                yield source, node


def _parameters(house: House, functions: Iterable[tuple[Source, Function]]) -> Iterator[Row]:
    """How many parameters there are, and how many of them say nothing of their type."""
    aliases = {(source.name, name) for source in house.values() for name in _names_of_any(source)}
    total, plain, named = 0, Counter[str](), Counter[str]()
    for source, node in functions:
        known = {name for module, name in aliases if module == source.name} | _imported(source, aliases)
        for annotation in annotations(node):
            kinds = {dotted(part) for part in _members(annotation)}
            folder = source.path.rpartition("/")[0] or "."
            total += 1
            plain[folder] += "Any" in kinds
            named[folder] += "Any" not in kinds and bool(kinds & known)
    yield Row("annotated parameters", f"{total:,}")
    for name, found in (("parameters typed `Any`, %", plain), ("parameters typed by a name for `Any`, %", named)):
        yield Row(name, share(found.total(), total), [f"{place}: {n}" for place, n in found.most_common() if n])


def _names_of_any(source: Source) -> Iterator[str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and dotted(node.value) == "Any":
            yield from (dotted(target) for target in node.targets)


def _imported(source: Source, aliases: set[tuple[str, str]]) -> set[str]:
    froms = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name for node in froms for each in node.names if (node.module, each.name) in aliases}


def annotations(node: Function) -> Iterator[ast.expr]:
    """Of every parameter that has one, without self and cls."""
    one = node.args
    for each in (*one.posonlyargs, *one.args, *one.kwonlyargs, one.vararg, one.kwarg):
        if each is not None and each.annotation is not None and each.arg not in ("self", "cls"):
            yield each.annotation


def _members(annotation: ast.expr) -> list[ast.expr]:
    """The types a union is made of."""
    if isinstance(annotation, ast.BinOp):
        return _members(annotation.left) + _members(annotation.right)
    return [annotation]


def _broad_excepts(house: House) -> Iterator[str]:
    for source in house.values():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler):
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                if any(kind is None or dotted(kind) in ("Exception", "BaseException") for kind in kinds):
                    yield at(source, node.lineno, "catches everything")


def near_equal(texts: Iterable[Text]) -> list[str]:
    """A line for each pair of places, `file:line ~ file:line`."""
    alike: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)  # (file, place in its lines of code)
    numbered = [*texts]
    for file, text in enumerate(numbered):
        for place in range(len(text.code) - BLOCK + 1):
            block = text.code[place : place + BLOCK]
            if sum(len(line.tokens) for line in block) >= TOKENS:
                alike[_renamed(block)].append((file, place))
    pairs = {
        (a, b)
        for places in alike.values()
        for a, b in combinations(places, 2)
        if a[0] != b[0] or b[1] - a[1] >= BLOCK  # else a block would be near its own next line
    }
    begins = [((i, m), (j, n)) for (i, m), (j, n) in sorted(pairs) if ((i, m - 1), (j, n - 1)) not in pairs]

    def shown(file: int, place: int) -> str:
        return f"{numbered[file].source.path}:{numbered[file].code[place].number}"

    return [f"{shown(*a)} ~ {shown(*b)}" for a, b in begins]


def _renamed(block: Sequence[Line]) -> tuple[str, ...]:
    """Its tokens, names as 1, 2, .. in the order they appear in."""
    numbers: dict[str, str] = {}
    out: list[str] = []
    for line in block:
        for token in line.tokens:
            is_name = token.isidentifier() and not keyword.iskeyword(token)
            out.append(numbers.setdefault(token, f"{len(numbers) + 1}") if is_name else token)
        out.append("\n")
    return tuple(out)


def spread(lengths: Iterable[int]) -> str:
    """Median (the upper one of two), p95 and maximum."""
    ordered = sorted(lengths) or [0]
    p95 = ordered[-(-95 * len(ordered) // 100) - 1]
    return f"{ordered[len(ordered) // 2]} / {p95} / {ordered[-1]}"


def share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}"


def table(heads: Sequence[str], columns: Sequence[Sequence[Row]]) -> str:
    """The rows of each checkout beside one another."""
    lines = [f"| {' | '.join(['', *heads])} |", f"|---{'|---:' * len(heads)}|"]
    lines += [f"| {' | '.join([rows[0].name, *(row.value for row in rows)])} |" for rows in zip(*columns, strict=True)]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.house", description="Count the house.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()], help="one, or one before and one after")
    parser.add_argument("--names", action="store_true", help="also name what was counted in the last checkout")
    arguments = parser.parse_args(argv)
    for root in arguments.checkouts:
        if not any(product_files(root)):
            parser.error(f"{root} is no checkout: there is no Python file of a product in it")
    columns = [measure(root) for root in arguments.checkouts]
    print(table([root.resolve().name for root in arguments.checkouts], columns))
    for row in columns[-1] if arguments.names else ():
        if row.found:
            print(f"\n{row.name}: {row.value}", *row.found, sep="\n    ")


if __name__ == "__main__":
    main()
