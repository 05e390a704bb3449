"""Writes README.md of a published run (its "model card"): metadata for the Hub's leaderboards, results, commands.

The commands work as they are pasted. Nothing is measured here; folder.py gives the results.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import metadata as metadata_of

import yaml

from stride.config.diff import BOLD_NOTE, changed_keys, command_of, differing, settings_rows, short
from stride.config.loader import from_plain, to_plain
from stride.config.schema import Config
from stride.publishing.result import TestResult
from stride.runstore.run_facts import few, finite, mapping
from stride.utils.places import PLAY, TRAIN
from stride.utils.statistics import iqm

LIBRARY_NAME = "stride-rl"
TASK_NAME = "reinforcement-learning"
CURVE, REPLAY = "curve.svg", "replay.mp4"


def write_card(
    repo: str, facts: Mapping[str, object], result: TestResult, files: frozenset[str], refused: str = ""
) -> str:
    """Return README.md for the repository `repo`.

    `facts`: config.json of the published run. `files`: names of the other files, so that the card shows only what is
    there. `refused`: why nobody will be able to load the run from the Hub; "" if they will."""
    config, env_id = mapping(facts["config"]), str(facts["env_id"])
    score = f"{result.mean_reward:.2f} +/- {result.std_reward:.2f}"
    replay_html = (
        f'<video src="https://huggingface.co/{repo}/resolve/main/{REPLAY}" controls autoplay loop muted></video>'
    )
    sections = [
        f"---\n{metadata(config['algo_id'], env_id, score, result)}---",
        f"# {config['algo_id']} on {env_id}",
        _cell(str(config.get("description", ""))),
        f"A policy for {env_id}, trained with {_stride()}, a reinforcement-learning framework on PyTorch Lightning.",
        replay_html if REPLAY in files else "",
        "## Results",
        _table(("what", "value"), results(finite(facts["goal"]), result)),
        f"![Return and evaluation over env steps]({CURVE})" if CURVE in files else "",
        "## Use it",
        no_use(refused) if refused else usage(repo),
        "## Train it again",
        _repeat(from_plain(config)),
        "## Hyperparameters",
        f"Different from the defaults of {config['algo_id']}{BOLD_NOTE if facts.get('changes') else ''}:",
        _table(("key", "value"), settings_rows(differing(config), changed_keys(facts))),
        "## Where it comes from",
        _table(("what", "value"), origin(facts)),
        "The weights are safetensors and the rest is text: loading them runs no code.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def metadata(algo_id: str, env_id: str, score: str, result: TestResult) -> str:
    """Return the YAML head of the card; leaderboards read mean_reward as "mean +/- std" with two digits each."""
    numbers = {"mean_reward": score, "n_eval_episodes": result.n_eval_episodes, "env_steps": result.env_steps}
    metrics = [{"type": name, "value": value, "name": name, "verified": False} for name, value in numbers.items()]
    model_entry = {
        "task": {"type": TASK_NAME, "name": TASK_NAME},
        "dataset": {"name": env_id, "type": env_id},
        "metrics": metrics,
    }
    head = {
        "library_name": LIBRARY_NAME,
        "pipeline_tag": TASK_NAME,
        "tags": [env_id, algo_id, "deep-reinforcement-learning", TASK_NAME, LIBRARY_NAME],
        "model-index": [{"name": algo_id, "results": [model_entry]}],
    }
    return yaml.safe_dump(head, sort_keys=False, allow_unicode=True)


def results(goal: float | None, result: TestResult) -> list[tuple[str, str]]:
    """Return the rows (what, value) of the table of results, without empty ones."""
    mean_reward = result.mean_reward
    goal_result = f"met{few([result.n_eval_episodes])}" if goal is not None and mean_reward >= goal else "not met"
    verdict = "" if goal is None else f"{goal:g}, {goal_result}"
    episodes = f"{result.n_eval_episodes}, seed {result.seed}, most likely action"
    rows = [
        ("return", f"**{mean_reward:.2f} +/- {result.std_reward:.2f}**"),
        ("interquartile mean", f"{iqm(result.returns):.2f}"),
        ("lowest, highest", f"{min(result.returns):.2f}, {max(result.returns):.2f}"),
        ("episodes", episodes),
        ("goal", verdict),
        ("checkpoint", f"{result.checkpoint}, after {result.env_steps:,} env steps"),
    ]
    return [row for row in rows if row[1]]


def usage(repo: str) -> str:
    """Return the section with commands and Python code that play the run, in a checkout of Stride."""
    return (
        f"In a checkout of {_stride()}:\n\n"
        "```sh\n"
        "pip install -e '.[hub,video]'\n"
        f"{PLAY} --run-id hub:{repo}\n"
        "```\n\n"
        f"`--headless --episodes 100 --json` measures it, `--video out.mp4` records it, `hub:{repo}@<commit>` pins it."
        " From Python:\n\n"
        "```python\n"
        "import stride\n\n"
        f'run = stride.load("hub:{repo}")\n'
        "env = run.make_env()\n"
        "obs, _ = env.reset(seed=0)\n"
        "action = run.agent.act(obs)\n"
        "```"
    )


def _stride() -> str:
    """Return the framework's name, as a link to the address in pyproject.toml."""
    try:
        urls = metadata_of(LIBRARY_NAME).get_all("Project-URL") or []
    except PackageNotFoundError:  # a checkout that was never installed
        urls = []
    return next((f"[Stride]({url.partition(', ')[2]})" for url in urls), "Stride")


def no_use(refused: str) -> str:
    """Return the text that replaces the commands if the run cannot be loaded from the Hub."""
    return (
        f"`hub:` does not load this run, because a download must not name code: {_cell(refused)}. "
        "If that code is installed, the command below trains it again."
    )


def _repeat(config: Config) -> str:
    """Return the command that trains this config again; with a YAML file if its variant is not a shipped one."""
    command_text = command_of(config)
    if command_text:
        return f"```sh\n{TRAIN} {command_text}\n```"
    changed = {key: _plain(value) for key, value in differing(to_plain(config)).items()}
    block = {"algo_id": config.algo_id, **changed, "spec": {"goal": config.spec.goal}}
    yaml_text = yaml.safe_dump(
        {"env_id": config.env_id, config.variant: block}, sort_keys=False, default_flow_style=None
    )
    return (
        f"Its environment is not shipped with Stride. Save this as `mine.yaml`:\n\n```yaml\n{yaml_text}```\n\n"
        f"```sh\n{TRAIN} --config mine.yaml\n```"
    )


def _plain(value: object) -> object:
    """Return a value for YAML; a schedule in its short form (lin_0.001) if it has one."""
    return (isinstance(value, Mapping) and short(value)) or value


def origin(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return rows with the seed, the git commit and the versions of packages."""
    rows = [("seed", str(facts["seed"])), ("git", str(facts.get("git_hash") or "unknown"))]
    return rows + [(name, str(version_text)) for name, version_text in mapping(facts.get("versions")).items()]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _cell(text: str) -> str:
    """Return a text on one line that Markdown shows unchanged, also inside a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
