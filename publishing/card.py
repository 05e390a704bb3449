"""README.md of a published run: metadata that the Hub's leaderboards read, results, and commands that work as pasted.

Text only; its numbers come from elsewhere.
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

LIBRARY = "stride-rl"
TASK = "reinforcement-learning"
CURVE, REPLAY = "curve.svg", "replay.mp4"


def write_card(
    repo: str, facts: Mapping[str, object], result: TestResult, files: frozenset[str], refused: str = ""
) -> str:
    """The whole README.md of `repo`, which will hold `files`; `refused` is why nobody can load it from there."""
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
    return "\n\n".join(part for part in sections if part) + "\n"  # a part without a text has no place


def metadata(algo_id: str, env_id: str, score: str, result: TestResult) -> str:
    """The YAML head; leaderboards take mean_reward as "mean +/- std" with two digits each."""
    numbers = {"mean_reward": score, "n_eval_episodes": result.n_eval_episodes, "env_steps": result.env_steps}
    metrics = [{"type": name, "value": value, "name": name, "verified": False} for name, value in numbers.items()]
    model_entry = {
        "task": {"type": TASK, "name": TASK},
        "dataset": {"name": env_id, "type": env_id},
        "metrics": metrics,
    }
    head = {
        "library_name": LIBRARY,
        "pipeline_tag": TASK,
        "tags": [env_id, algo_id, "deep-reinforcement-learning", TASK, LIBRARY],
        "model-index": [{"name": algo_id, "results": [model_entry]}],
    }
    return yaml.safe_dump(head, sort_keys=False, allow_unicode=True)


def results(goal: float | None, result: TestResult) -> list[tuple[str, str]]:
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
    """Commands for a checkout of Stride."""
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
    """The framework's name, linked to where pyproject.toml says that it lives."""
    try:
        urls = metadata_of(LIBRARY).get_all("Project-URL") or []
    except PackageNotFoundError:  # a checkout that was never installed
        urls = []
    return next((f"[Stride]({url.partition(', ')[2]})" for url in urls), "Stride")


def no_use(refused: str) -> str:
    """In the place of commands that would be refused."""
    return (
        f"`hub:` does not load this run, because a download must not name code: {_cell(refused)}. "
        "If that code is installed, the command below trains it again."
    )


def _repeat(config: Config) -> str:
    """The command whose config is this one; where the variant is not a shipped one, the file that makes it."""
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
    """A value for YAML, a schedule in its short form where it has one."""
    return (isinstance(value, Mapping) and short(value)) or value


def origin(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    rows = [("seed", str(facts["seed"])), ("git", str(facts.get("git_hash") or "unknown"))]
    return rows + [(name, str(version_text)) for name, version_text in mapping(facts.get("versions")).items()]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _cell(text: str) -> str:
    """One line that Markdown shows as it stands."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
