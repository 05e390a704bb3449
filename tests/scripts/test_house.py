"""scripts/house.py on made-up checkouts whose counts are known by hand."""

import pytest

from scripts.house import main, measure, near_equal, read, spread
from scripts.house_rules import STOREYS, read_house, storeys_of

PASTED = """
def {name}({x}, {y}):
    {x} = {y} * {n} + {x}
    total = {x} - {y} / {n} + len(str({x}))
    if total > {n}:
        total = max({x}, {y}, total) - {n}
    return total, {x} + {y} * {n}, total - {x}
"""

BEFORE = {
    "utils/tree.py": '"""Trees."""\nfrom typing import Any\nTree = Any  # of tensors\n',
    "agents/ppo.py": '"""PPO, in\ntwo lines."""\nfrom typing import Any\nfrom utils.tree import Tree\n\n# why\n'
    "def learn(self, a: Any, b: int, c: Any | None, d: Tree, *e: dict[str, Any], f=1, **g: str) -> Any:\n"
    "    import torch  # noqa: F401\n    try:\n        pass\n    except Exception:\n        raise\n",
    "agents/base.py": '"""Base."""\nimport agents.ppo\n',
    "utils/low.py": '"""Low."""\nimport agents.base\n',
    "train.py": '"""Train."""\n' + PASTED.format(name="f", x="a", y="b", n=3),
    "envs_fast/one.py": '"""One."""\n' + PASTED.format(name="g", x="left", y="right", n=7),
    "envs_fast/empty.py": "",
    "tests/test_x.py": PASTED.format(name="h", x="p", y="q", n=1),
}


@pytest.fixture
def checkout(tmp_path):
    def build(files, name="before"):
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        return tmp_path / name

    return build


def counted(root):
    return {row.name: row for row in measure(root)}


def test_what_is_counted(checkout):
    rows = counted(checkout(BEFORE))
    values = {name: row.value for name, row in rows.items()}
    assert values == {
        "files": "6",  # neither tests nor the empty one
        "lines": f"{3 + 12 + 2 + 2 + 8 + 8}",
        "lines of a file: median / p95 / max": "8 / 12 / 12",
        "functions": "3",
        "lines of a function: median / p95 / max": "6 / 6 / 6",
        "functions over 50 lines": "0",
        "annotated parameters": "6",  # a, b, c, d, e, g
        "parameters typed `Any`, %": "33.3",  # a, c
        "parameters typed by a name for `Any`, %": "16.7",  # d
        "imports hidden in functions or classes": "1",
        "imports that climb a storey": "2",
        "circles of imports": "0",
        "pairs of near-equal blocks of 6 lines": "1",
        "comment lines, %": "2.9",  # one of 35; the noqa is none
        "lines with a comment behind code, %": "2.9",
        "docstring lines, %": "20.0",
        "broad excepts": "1",
        "`noqa`": "1",
        "lines of train.py": "8",
    }
    assert rows["parameters typed `Any`, %"].found == ["agents: 2"]
    assert rows["imports that climb a storey"].found == [
        "agents/base.py:2: imports agents.ppo, which stands higher",
        "utils/low.py:2: imports agents.base, which stands higher",
    ]
    assert rows["pairs of near-equal blocks of 6 lines"].found == ["train.py:3 ~ envs_fast/one.py:3"]


def test_a_long_function_and_a_circle_are_named(checkout):
    body = "".join(f"    x{i} = {i}\n" for i in range(50))
    rows = counted(
        checkout(
            {
                "utils/a.py": f'"""A."""\nimport utils.b\nclass C:\n  def f(self):\n{body}',
                "utils/b.py": '"""B."""\nimport utils.a\n',
            }
        )
    )
    assert rows["functions over 50 lines"].found == ["utils/a.py:4: f, 51 lines"]
    assert rows["circles of imports"].value == "1"
    assert rows["lines of train.py"].value == "none"


def test_near_is_equal_but_for_names_and_numbers(checkout):
    other = PASTED.replace("max(", "min(").replace("/", "//").format(name="g", x="a", y="b", n=3)
    one = PASTED.format(name="f", x="a", y="b", n=3)
    for text, pairs in ((one, 1), (other, 0), (one.replace("b", "a"), 0)):  # another operator; one name for two
        house = read_house(checkout({"a.py": one, "b.py": text}))
        assert len(near_equal(read(source) for source in house.values())) == pairs


def test_overlapping_blocks_are_one_pair(checkout):
    house = read_house(checkout({"a.py": PASTED.format(name="f", x="a", y="b", n=3) * 2}))
    assert len(near_equal(read(source) for source in house.values())) == 1
    longer = "".join(PASTED.format(name=f"f{i}", x="a", y="b", n=3) for i in range(2))
    house = read_house(checkout({"a.py": longer, "b.py": longer}, "two"))
    # f0 ~ f1 in each file, both with both across: f0+f1 is one pair of 12 lines
    assert len(near_equal(read(source) for source in house.values())) == 5


def test_a_checkout_is_held_to_its_own_storeys(checkout):
    turned = 'STOREYS = (\n    ("train.py",),  # first\n    ("utils/",),\n)\n'
    root = checkout({"tests/test_architecture.py": turned, "utils/a.py": '"""."""\nimport train\n', "train.py": "1\n"})
    assert storeys_of(root) == (("train.py",), ("utils/",))
    assert counted(root)["imports that climb a storey"].value == "0"
    assert storeys_of(checkout({"utils/a.py": "1\n"}, "bare")) == STOREYS


def test_two_checkouts_are_one_table(checkout, capsys):
    main([str(checkout(BEFORE)), str(checkout({"utils/a.py": '"""A."""\n'}, "after"))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["|  | before | after |", "|---|---:|---:|", "| files | 6 | 1 |"]
    with pytest.raises(SystemExit):
        main([str(checkout({"tests/a.py": ""}, "nothing"))])


def test_the_spread_of_lengths():
    assert spread(range(1, 101)) == "51 / 95 / 100"
    assert spread([]) == "0 / 0 / 0"
