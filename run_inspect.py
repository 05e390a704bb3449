"""Look into runs and episodes in the browser:   python run_inspect.py --run-id @last   (--help explains the rest)

The program is stride/commands/run_inspect.py; `stride inspect` is the same, from any folder.
"""

from runpy import run_module

if __name__ == "__main__":
    run_module("stride.commands.run_inspect", run_name="__main__", alter_sys=True)
