"""Every script is run by its dotted name, from the root or from anywhere, and says how."""

import re
from pathlib import Path

from commands import run_command

ROOT = Path(__file__).resolve().parent.parent.parent
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
    paths = [path for path in sorted((ROOT / "scripts").rglob("*.py")) if MAIN in path.read_text()]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in paths]
    assert {"scripts.bench.train", "scripts.evidence", "scripts.faults.kill", "scripts.write_docs"} <= {*modules}
    done = run_command(walk, *modules, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    said = dict(re.findall(r"^<(scripts[\w.]*)>\n(.*?)^<ended with 0>$", done.stdout, re.M | re.S))
    assert [*said] == modules, done.stdout[-2000:] + done.stderr[-2000:]
    for module, text in said.items():
        assert text.startswith(f"usage: python -m {module} [-h]"), text
        others = set(re.findall(r"python -m (scripts[\w.]*)", text)) - {module}
        assert others <= {*modules}, f"{module} names {others}"
