"""Watch or measure a trained agent:   python run_play.py --run-id @last   (--help explains the rest)

The program is stride/commands/run_play.py; `stride play` is the same, from any folder.
"""

from runpy import run_module

if __name__ == "__main__":
    run_module("stride.commands.run_play", run_name="__main__", alter_sys=True)
