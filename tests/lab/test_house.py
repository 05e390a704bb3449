"""lab/house.py and lab/quick.py on made-up checkouts, whose counts and imports are known by hand."""

import pytest

from lab.house import main, measure
from lab.house_rules import STOREYS, storeys_of
from lab.quick import touched_tests

BODY = "".join(f"    x{i} = {i}\n" for i in range(50))
BEFORE = {
    "utils/tree.py": '"""Trees."""\n\nclass Row:\n    """A row."""\n    size: int = 3  # of\n',
    "agents/ppo.py": '"""PPO, in\ntwo lines."""\nfrom utils.tree import Row\n\n# why\n'
    "for each in (1, 2):\n    found = each\n",
    "agents/base.py": '"""Base."""\nimport agents.ppo\n\nclass Row:\n    told: int\n',
    "utils/low.py": '"""Low."""\nfrom stride.agents import base\n',
    "train.py": f'"""Train."""\n\nclass Run:\n  def f(self):\n{BODY}',
    "lab/bench/two.py": "",
    "scripts/__init__.py": "",
    "scripts/gpu_check.py": '"""One."""\nfound = 1\nclass Row: ...\n',
    "lab/house.py": "found = 1\n",
    "docs/page.py": "found = 1\n",
    "tests/test_x.py": "found = 1\n",
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


def test_what_is_counted(checkout, capsys):
    rows = counted(checkout(BEFORE))
    one_each = ("class names with several homes", "functions over 50 lines", "`found` assigned", "`each` assigned")
    values = {
        "product: lines": 5 + 7 + 5 + 2 + 4 + 50, "product: syntax nodes": 12 + 17 + 11 + 5 + 207 + 1,
        "laboratory: lines": 4, "laboratory: syntax nodes": 10 + 5 + 1, "tests: lines": 1, "tests: syntax nodes": 5,
        "syntax nodes a code line": round(253 / (2 + 3 + 3 + 1 + 52), 1), "imports upward": 2, "circles of imports": 0,
        "mean length of assigned names": round((4 + 4 + 5 + 4 + 40 * 3) / 44, 1), "modules in scripts/": 1,
        "`told` assigned": 1, **dict.fromkeys(one_each, 1),
    }  # fmt: skip
    counts = {name: row.value for name, row in rows.items() if row.value != "0" or name in values}
    assert counts == {name: str(value) for name, value in values.items()}
    assert rows["class names with several homes"].places == ["Row: agents/base.py, utils/tree.py"]
    assert rows["functions over 50 lines"].places == ["train.py:4: f, 51 lines"]
    assert rows["imports upward"].places[0] == "agents/base.py:2: imports agents.ppo, which stands higher"
    main([str(checkout({})), str(checkout({"utils/a.py": '"""A."""\n'}, "after"))])
    assert capsys.readouterr().out.splitlines()[2] == "| product: lines | 73 | 1 |"
    circle = {"utils/a.py": "from stride.utils import b\n", "utils/b.py": "import stride.utils.a\n"}
    assert counted(checkout(circle, "circle"))["circles of imports"].value == "1"


def test_a_checkout_is_held_to_its_own_storeys(checkout):
    turned = 'STOREYS = (\n    ("train.py",),  # first\n    ("utils/",),\n)\n'
    root = checkout({"tests/test_architecture.py": turned, "utils/a.py": '"""."""\nimport train\n', "train.py": "1\n"})
    assert storeys_of(root) == (("train.py",), ("utils/",))
    assert counted(root)["imports upward"].value == "0"
    assert storeys_of(checkout({"utils/a.py": "1\n"}, "bare")) == STOREYS


# ---- tests that a change touches

FILES = {
    "utils/low.py": "def low(): ...\n", "config/middle.py": 'from stride.utils.low import low\nTEXTS = "texts.yaml"\n',
    "config/texts.yaml": "a: 1\n", "agents/high.py": "from stride.config import middle\n",
    "utils/wings.py": 'HIGH = "stride.agents.high:High"\n', "tests/conftest.py": "",
    "tests/helper.py": "from stride.agents.high import x\n", "tests/test_low.py": "from stride.utils.low import low\n",
    "tests/test_high.py": "from helper import x\n", "tests/test_wings.py": "import stride.utils.wings\n",
    "tests/test_alone.py": "import math\n",
    "tests/durations.json": '{"tests/test_high.py": 2, "tests/test_wings.py": 1}',
}  # fmt: skip


DISTANCES = {
    "utils/low.py": {"test_low": 1, "test_high": 4, "test_wings": 4},
    "config/texts.yaml": {"test_high": 4, "test_wings": 4}, "agents/high.py": {"test_high": 2, "test_wings": 2},
    "tests/__snapshots__/test_alone.ambr": {"test_alone": 1},
    "tests/conftest.py": {"test_alone": 1, "test_high": 1, "test_low": 1, "test_wings": 1}, "README.md": {},
}  # fmt: skip


def test_tests_that_a_change_touches_come_nearest_first(checkout):
    for changed, expected in DISTANCES.items():
        distances = touched_tests(checkout(FILES), [changed])
        assert distances == {f"tests/{name}.py": count for name, count in expected.items()}, changed
        assert list(distances.values()) == sorted(distances.values())
    assert [*touched_tests(checkout(FILES), ["agents/high.py"])] == ["tests/test_wings.py", "tests/test_high.py"]
