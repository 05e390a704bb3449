"""lab/quick.py on a made-up checkout whose imports are known."""

import pytest

from lab import quick
from lab.quick import touched_tests
from stride.utils.user_error import UserError

FILES = {
    "utils/low.py": "def low(): ...\n",
    "config/middle.py": 'from stride.utils.low import low\nTEXTS = "texts.yaml"\n',
    "config/texts.yaml": "a: 1\n",
    "agents/high.py": "from stride.config import middle\n",
    "utils/wings.py": 'HIGH = "stride.agents.high:High"\n',
    "tests/conftest.py": "",
    "tests/helper.py": "from stride.agents.high import x\n",
    "tests/test_low.py": "from stride.utils.low import low\n",
    "tests/test_high.py": "from helper import x\n",
    "tests/test_wings.py": "import stride.utils.wings\n",
    "tests/test_alone.py": "import math\n",
}


@pytest.fixture
def root(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "changed, expected",
    [
        ("utils/low.py", {"test_low": 1, "test_high": 4, "test_wings": 4}),
        ("config/texts.yaml", {"test_high": 4, "test_wings": 4}),
        ("agents/high.py", {"test_high": 2, "test_wings": 2}),
        ("tests/__snapshots__/test_alone.ambr", {"test_alone": 1}),
        ("tests/conftest.py", {"test_alone": 1, "test_high": 1, "test_low": 1, "test_wings": 1}),
        ("README.md", {}),
    ],
)
def test_distances(root, changed, expected):
    distances = touched_tests(root, [changed])
    assert distances == {f"tests/{name}.py": count for name, count in expected.items()}
    assert list(distances.values()) == sorted(distances.values())


def test_of_this_checkout(capsys):
    assert quick.main(["--of", "agents/returns.py", "--list"]) == 0
    assert "  1 tests/agents/test_returns.py" in capsys.readouterr().out.splitlines()


def test_a_commit_that_is_not_there_is_one_line():
    with pytest.raises(UserError, match="nosuchcommit"):
        quick.main(["nosuchcommit", "--list"])
