"""lab/house.py on made-up checkouts whose counts are known by hand."""

import pytest

from lab.house import entered_by_training, main, measure
from lab.house_rules import STOREYS, storeys_of

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
    "scripts/bench/one.py": '"""One."""\nfound = 1\nclass Row: ...\n',
    "scripts/house.py": "found = 1\n",
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


def test_what_is_counted(checkout):
    rows = counted(checkout(BEFORE))
    odd = {f"`{name}` assigned": "0" for name in ("lent", "whose", "began", "seen", "known", "kept")}
    assert {name: row.value for name, row in rows.items()} == {
        "product: lines": f"{5 + 7 + 5 + 2 + 4 + 50}",
        "product: syntax nodes": f"{12 + 17 + 11 + 5 + 207 + 1}",
        "laboratory: lines": "4",
        "laboratory: syntax nodes": f"{10 + 5 + 1}",
        "tests: lines": "1",
        "tests: syntax nodes": "5",
        "syntax nodes a code line": f"{253 / (2 + 3 + 3 + 1 + 52):.1f}",
        "mean length of assigned names": f"{(4 + 4 + 5 + 4 + 40 * 3) / 44:.1f}",
        "class names with several homes": "1",
        "`found` assigned": "1",
        "`each` assigned": "1",
        "`told` assigned": "1",
        **odd,
        "functions over 50 lines": "1",
        "imports upward": "2",
        "circles of imports": "0",
        "wings imported by the core": "0",
        "wings imported by other wings": "0",
        "modules in scripts/": "2",
    }
    assert rows["class names with several homes"].places == ["Row: agents/base.py, utils/tree.py"]
    assert rows["functions over 50 lines"].places == ["train.py:4: f, 51 lines"]
    assert rows["imports upward"].places == [
        "agents/base.py:2: imports agents.ppo, which stands higher",
        "utils/low.py:2: imports agents.base, which stands higher",
    ]


def test_the_laboratory_is_the_same_before_and_after_its_move(checkout):
    """Where its files were, where they are, and the launchers that keep their names."""
    before = counted(checkout({"scripts/gpu_check.py": "1\n2\n", "scripts/faults/kill.py": "1\n", "train.py": "1\n"}))
    files = {
        "lab/gpu_check.py": "1\n2\n",
        "lab/faults/kill.py": "1\n",
        "scripts/gpu_check.py": "1\n",
        "train.py": "1\n",
    }
    after = counted(checkout(files, "after"))
    assert (before["laboratory: lines"].value, after["laboratory: lines"].value) == ("3", "4")
    assert before["product: lines"].value == after["product: lines"].value == "1"


WHEEL = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """\
import zipfile
def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(f"{folder}/x-1-py3-none-any.whl", "w") as archive:
        archive.writestr("x.py", "x = 1\\n" * 500)
        archive.writestr("x-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: x\\nVersion: 1\\n")
        archive.writestr("x-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("x-1.dist-info/RECORD", "")
    return "x-1-py3-none-any.whl"
"""


def test_the_wheel_is_counted(checkout):
    root = checkout({"pyproject.toml": WHEEL, "backend.py": BACKEND})
    rows = {row.name: row.value for row in measure(root, wheel=True)}
    assert rows["the wheel's files"] == "4" and rows["the wheel's files unpacked, kB"] == "3"
    broken = checkout({"pyproject.toml": WHEEL, "backend.py": "def build_wheel(*words):\n    return 1 / 0\n"}, "broken")
    with pytest.raises(SystemExit, match="no wheel of"):
        measure(broken, wheel=True)


def test_a_circle_below_one_name_is_found(checkout):
    files = {"utils/a.py": "from stride.utils import b\n", "utils/b.py": "import stride.utils.a\n"}
    assert counted(checkout(files))["circles of imports"].value == "1"


def test_files_that_a_training_enters(checkout):
    files = {
        "train.py": "from utils import a, b\ndef command(words):\n    return a.f()\n",
        "utils/a.py": "def f():\n    return 0\n",
        "utils/b.py": "def f():\n    return 0\nf()\n",
    }
    assert entered_by_training(checkout(files)) == ["train.py", "utils/a.py"]
    with pytest.raises(SystemExit, match="ended with 3"):
        entered_by_training(checkout({**files, "utils/a.py": "def f():\n    return 3\n"}))


def test_a_checkout_is_held_to_its_own_storeys(checkout):
    turned = 'STOREYS = (\n    ("train.py",),  # first\n    ("utils/",),\n)\n'
    root = checkout({"tests/test_architecture.py": turned, "utils/a.py": '"""."""\nimport train\n', "train.py": "1\n"})
    assert storeys_of(root) == (("train.py",), ("utils/",))
    assert counted(root)["imports upward"].value == "0"
    assert storeys_of(checkout({"utils/a.py": "1\n"}, "bare")) == STOREYS


def test_two_checkouts_are_one_table(checkout, capsys):
    main([str(checkout(BEFORE)), str(checkout({"utils/a.py": '"""A."""\n'}, "after"))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["|  | before | after |", "|---|---:|---:|", "| product: lines | 73 | 1 |"]
    with pytest.raises(SystemExit):
        main([str(checkout({"tests/a.py": ""}, "nothing"))])
