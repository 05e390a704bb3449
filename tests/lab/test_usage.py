"""Every script is run by its dotted name, from the root or from anywhere, and says how; old names lead to it."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from commands import run_command

from lab import quick, same_bits, smoke_test_envs
from lab.bench import envs, pairs, rate, train
from lab.evidence import campaign
from lab.faults import __main__ as faults
from stride.utils import entry

ROOT = Path(__file__).resolve().parent.parent.parent
RUN_LAB = '["run_lab"]'
MAIN = 'if __name__ == "__main__":'
WALK = """\
import runpy, sys
for module in sys.argv[1:]:
    sys.argv = [module, "--help"]
    print(f"\\n<{module}>")
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        print(f"<ended with {ended.code}>")
"""


def test_every_script_has_a_help_with_its_own_name(tmp_path):
    """One warm process walks through all of them, in another folder than the project's."""
    walk = tmp_path / "walk.py"
    walk.write_text(WALK)
    files = [*sorted((ROOT / "lab").rglob("*.py")), *sorted((ROOT / "scripts").rglob("*.py"))]
    paths = [path for path in files if MAIN in (text := path.read_text()) and RUN_LAB not in text]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in paths]
    assert {"lab.bench.train", "lab.evidence", "lab.faults", "lab.write_docs"} <= {*modules}
    done = run_command(walk, *modules, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    said = dict(re.findall(r"^<((?:lab|scripts)[\w.]*)>\n(.*?)^<ended with 0>$", done.stdout, re.M | re.S))
    assert [*said] == modules, done.stdout[-2000:] + done.stderr[-2000:]
    for module, text in said.items():
        assert text.startswith(f"usage: python -m {module} [-h]"), text
        others = set(re.findall(r"python -m ((?:lab|scripts)[\w.]*)", text)) - {module}
        assert others <= {*modules}, f"{module} names {others}"


WRONG = [
    (same_bits, ". --only nothing", "no configuration begins with nothing"),
    (same_bits, "nowhere", "nowhere is no checkout"), (pairs, "nowhere train.py", "nowhere is no checkout"),
    (pairs, ".", "nothing to compare"), (rate, "0", "at least 1"), (rate, "8 Nope-v1", "no fast environment 'Nope-v1'"),
    (rate, "CartPole-v1:pppo", "did you mean ppo?"), (rate, "CartPole-v1:ppo n_env=3", "did you mean n_envs?"),
    (envs, "--env CartPol", "'CartPol'; did you mean CartPole-v1"),
    (train, "pog", "no work is called 'pog'; did you mean pong"),
    (campaign, "campaign --only CartPol-v1:pp", "is called 'CartPol-v1:pp'; did you mean CartPole-v1:ppo"),
    (campaign, "campaign --hours 0", "--hours"),
    (quick, "nosuchcommit --list", "nosuchcommit"), (faults, "kil", "no fault 'kil'; did you mean kill?"),
    (smoke_test_envs, "--limit 0", "--limit takes a number from 1"),
    (smoke_test_envs, "--filter CartPole-v1:reinforcement", "CartPole-v1:reinforcement"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "words", "fragment"), WRONG, ids=[f"{row[0].__name__} {row[1]}" for row in WRONG])
def test_what_is_wrong_is_one_line(module, words, fragment, monkeypatch, capsys):
    """Nothing compared must never look like nothing different."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as left:
        sys.exit(entry.ended(module.main, words.split()))
    *usage, line = capsys.readouterr().err.splitlines()
    assert left.value.code == 2 and fragment in line and (not usage or module in (same_bits, pairs, rate))


# ---- names in scripts/ that the laboratory had before

LAUNCHERS = {path.stem: path for path in sorted((ROOT / "scripts").glob("*.py")) if RUN_LAB in path.read_text()}
MODULES = {name: re.search(r'\["run_lab"\]\("([\w.]+)"\)', path.read_text())[1] for name, path in LAUNCHERS.items()}
NAMES = {"smoke_train_envs", "smoke_test_envs", "gpu_check", "brax_train_policy", "brax_eval_policy"}


def test_an_old_name_is_short_becomes_its_module_in_a_clone_and_says_that_it_needs_one_elsewhere(tmp_path):
    assert {*LAUNCHERS} >= NAMES
    for name, path in LAUNCHERS.items():
        assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 5, path
        assert (ROOT / MODULES[name].replace(".", "/")).with_suffix(".py").is_file(), name
    done = run_command(LAUNCHERS["gpu_check"], "--help", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m lab.gpu_check "), done.stderr
    for file in ("scripts/gpu_check.py", "utils/clone.py"):
        (tmp_path / file).parent.mkdir()
        shutil.copy(ROOT / file, tmp_path / file)
    done = run_command(tmp_path / "scripts" / "gpu_check.py", "--help", cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == f"this command needs a clone of the project; there, run python -m {MODULES['gpu_check']}\n"
