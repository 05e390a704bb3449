"""Publish a trained agent on the Hugging Face Hub:   python run_publish.py --dry-run   (--help explains the rest)

The program is stride/commands/run_publish.py; `stride publish` is the same, from any folder.
"""

from runpy import run_module

if __name__ == "__main__":
    run_module("stride.commands.run_publish", run_name="__main__", alter_sys=True)
