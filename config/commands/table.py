"""The words after `stride`: which file of stride/commands each of them is, and what it is for."""

from typing import NamedTuple


class Command(NamedTuple):
    """`stride NAME` runs stride/commands/FILE.py with these words first."""

    name: str
    file: str
    meaning: str
    words: tuple[str, ...] = ()

    @property
    def at_top(self) -> bool:
        """Whether a checkout has a file of this name at its top: train.py, run_play.py, ..."""
        return self.file == "train" or self.file.startswith("run_")


COMMANDS = (
    Command("train", "train", "train an agent: ENV:VARIANT, and key=value for whatever is to be different"),
    Command("play", "run_play", "watch, film, measure or steer what was trained"),
    Command("inspect", "run_inspect", "look into runs and episodes in the browser"),
    Command("monitor", "monitor", "look on while runs train, in any terminal"),
    Command("publish", "run_publish", "put a run on the Hugging Face Hub; --dry-run shows what would be sent"),
    Command("runs", "runs", "what was trained: find, compare, export, tag, explain, clean up"),
    Command(
        "sweep",
        "sweep",
        "search for hyperparameters that a YAML file in W&B's format describes",
    ),
    Command("list", "train", "what there is to train, and what it reached; TERM tells more", ("--list-envs",)),
    Command("verify", "verify_run", "train a run's first iterations again: does it come to the same?"),
    Command("new", "new", "a project of your own: an environment, its settings, a test; trains at once"),
    Command("check-env", "check_env", "what is wrong with an environment, and how to cure it"),
    Command("export", "export", "a trained policy for programs without this one"),
    Command("setup-wandb-dashboard", "setup_wandb_dashboard", "a page of W&B for the runs of a project"),
    Command("schema", "schema", "the JSON Schema of a YAML file, for editors"),
    Command("completion", "completion", "what bash, zsh or fish needs to complete these words"),
)


def commands() -> dict[str, Command]:
    """All of them by name."""
    return {command.name: command for command in COMMANDS}
