"""The words after `stride`: which file each of them is, and what it is for. A file that is not there is not listed."""

from typing import NamedTuple

from utils.places import COMMANDS as PLACE
from utils.places import PROJECT


class Command(NamedTuple):
    """`stride NAME`, which is `python FILE.py WORDS` in a checkout."""

    name: str
    file: str
    meaning: str
    words: tuple[str, ...] = ()

    @property
    def of_scripts(self) -> bool:
        """Whether it is a module of scripts/, run as such, and not one of the files at the top."""
        return self.file.startswith("scripts/")

    @property
    def there(self) -> bool:
        return ((PROJECT if self.of_scripts else PLACE) / f"{self.file}.py").is_file()


COMMANDS = (
    Command("train", "train", "train an agent: ENV:VARIANT, and key=value for whatever is to be different"),
    Command("play", "run_play", "watch, film, measure or steer what was trained"),
    Command("inspect", "run_inspect", "look into runs and episodes in the browser"),
    Command("monitor", "scripts/monitor", "look on while runs train, in any terminal"),
    Command("publish", "run_publish", "put a run on the Hugging Face Hub; --dry-run shows what would be sent"),
    Command("runs", "scripts/runs", "what was trained: find, compare, export, tag, explain, clean up"),
    Command(
        "sweep",
        "scripts/sweep",
        "search for hyperparameters that a YAML file in W&B's format describes",
    ),
    Command("list", "train", "what there is to train, and what it reached; TERM tells more", ("--list-envs",)),
    Command("verify", "scripts/verify_run", "train a run's first iterations again: does it come to the same?"),
    Command("new", "scripts/new", "a project of your own: an environment, its settings, a test; trains at once"),
    Command("check-env", "scripts/check_env", "what is wrong with an environment, and how to cure it"),
    Command("export", "scripts/export", "a trained policy for programs without this one"),
    Command("setup-wandb-dashboard", "scripts/setup_wandb_dashboard", "a page of W&B for the runs of a project"),
    Command("schema", "scripts/schema", "the JSON Schema of a YAML file, for editors"),
    Command("completion", "scripts/completion", "what bash, zsh or fish needs to complete these words"),
)


def commands() -> dict[str, Command]:
    """Those that are there, by name."""
    return {each.name: each for each in COMMANDS if each.there}
