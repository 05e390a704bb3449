"""Train an agent from a config:   python train.py CartPole-v1:ppo   (python train.py --help explains the rest)

The program is stride/commands/train.py; `stride train` is the same, from any folder.
"""

from runpy import run_module

if __name__ == "__main__":
    run_module("stride.commands.train", run_name="__main__", alter_sys=True)
