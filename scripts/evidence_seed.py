"""One seed of the evidence, as a process of its own: trains, plays the final and the best weights, writes the record.

Called by evidence.py:   python scripts/evidence_seed.py ENV:VARIANT SEED GROUP RECORD.json [key=value ...]
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

import numpy as np  # noqa: E402
import torch  # noqa: E402

from agents.experience.collector import Policy  # noqa: E402
from agents.experience.nouns import Tree, leaves, tree_map  # noqa: E402
from agents.networks.actor_critic import ActorCritic  # noqa: E402
from agents.playing.loading import LoadedRun, load_run  # noqa: E402
from config.loader import load_config, parse_config_id  # noqa: E402
from config.schema import Config  # noqa: E402
from envs_gym.gym_env import GymEnv  # noqa: E402
from envs_gym.make import make_envs  # noqa: E402
from envs_gym.transition_table import PUBLISHED, Floats, policy_value, read_table  # noqa: E402
from envs_gym.wrappers.registry import wrappers_of  # noqa: E402
from report.history import TRAIN, VAL  # noqa: E402
from report.metrics_csv import read_csv  # noqa: E402
from report.page import Row, points  # noqa: E402
from scripts.evidence_blackjack import LONGEST, blackjack  # noqa: E402
from scripts.evidence_file import is_solved  # noqa: E402
from trainer_callbacks.evaluate import Evaluate  # noqa: E402
from utils.durable_file import write_json  # noqa: E402
from utils.run_dir import RunDir, list_runs  # noqa: E402
from utils.user_error import UserError  # noqa: E402

SCORES = {  # record -> metric
    "mean": "test/roll/ep_rew/mean", "std": "test/roll/ep_rew/std", "min": "test/roll/ep_rew/min",
    "max": "test/roll/ep_rew/max", "length": "test/roll/ep_len/mean", "episodes": "test/roll/episodes",
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Exit code of the training; its output passes through."""
    variant, seed, group, record, *overrides = argv
    command = [sys.executable, str(ROOT / "train.py"), variant, "--seed", seed, *overrides, "--quiet", "--group", group]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        write_json(Path(record), measure(find_run(group, variant, int(seed))))
    return code


def find_run(group: str, variant: str, seed: int) -> RunDir:
    config = load_config(*parse_config_id(variant))
    for run in list_runs():
        facts = run.facts() if run.config_json.is_file() else {}
        wanted = {"group": group, "env_id": config.env_id, "variant": config.variant, "seed": seed}
        if all(facts.get(key) == value for key, value in wanted.items()):
            return run
    raise UserError(f"the training of {variant} seed {seed} left no run of group {group}")


def measure(run: RunDir) -> dict[str, Any]:
    """The record of a finished run: what it took, what its weights reach, its curve."""
    last, best = load_run(str(run.path), "last"), load_run(str(run.path), "best")
    torch.set_num_threads(last.config.threads)
    rows, outcome = read_csv(run.metrics_csv), last.facts["outcome"]
    tested = [row for row in rows if SCORES["mean"] in row]
    final = tested[-1] if tested else play(last)  # the run's own test, where it made one
    same = best.progress == last.progress
    reached = scores(final) | exact(last)
    return {
        "seed": last.config.seed,
        "status": "finished",
        "solved": is_solved(reached, outcome["goal"]),
        **{key: outcome[key] for key in ("reason", "env_steps", "seconds")},
        "goal": outcome["goal"],
        "final": reached,
        "best": (scores(final) if same else scores(play(best))) | exact(best),
        "best_env_steps": best.progress["env_steps"],
        "run": run.id,
        **{key: last.facts[key] for key in ("command", "git_hash", "versions")},
        "curve": {"val": coordinates(rows, VAL), "train": coordinates(rows, TRAIN)},
    }


def play(loaded: LoadedRun) -> dict[str, float]:
    """100 fresh episodes, in the worlds of the run's own first test."""
    evaluate = Evaluate(loaded.config, lambda n: make_envs(loaded.config, n))
    tested = evaluate.test(loaded.agent.policy)
    evaluate.close()
    return tested


def scores(row: Row) -> dict[str, float]:
    return {key: row[name] for key, name in SCORES.items() if name in row}


def exact(loaded: LoadedRun) -> dict[str, float]:
    """The policy's true value, where the environment publishes its dynamics; else nothing."""
    value = exact_value(loaded.config, loaded.agent.policy)
    return {} if value is None else {"exact": value}


def exact_value(config: Config, policy: Policy) -> float | None:
    """Expected return of an episode under the time limit, of the policy as it is evaluated (greedy or sampled).

    None where the table does not tell everything: other environments, no time limit, a policy that remembers.
    """
    if leaves(policy.initial(1)):
        return None
    if config.env_id == "Blackjack-v1":
        return blackjack_value(config, policy)
    if config.env_id not in PUBLISHED or config.env_kwargs.get("fickle_passenger"):
        return None
    worlds = make_envs(replace(config, env_backend="gym"), 1)
    if not isinstance(worlds, GymEnv) or worlds.time_limit is None:
        return None
    table = read_table(worlds.envs[0])
    return policy_value(table, answers(config, policy, worlds, len(table.start)), worlds.time_limit)


def blackjack_value(config: Config, policy: Policy) -> float | None:
    """The same for hands of cards, under the default rules and seen as they are."""
    if config.env_kwargs or wrappers_of(config) or config.max_episode_steps is not None:
        return None
    table, seen = blackjack()
    obs = {str(place): torch.from_numpy(column.copy()) for place, column in enumerate(seen.T)}
    return policy_value(table, asked(config, policy, obs, 2), LONGEST)


def answers(config: Config, policy: Policy, worlds: GymEnv, states: int) -> Floats:
    """[S, A] probability of each action in each state, asked through the same wrappers that training used."""
    world: Any = worlds.envs[0].unwrapped
    seen = []
    for state in range(states):
        world.initial_state_distrib = np.eye(states)[state]  # an episode that begins there shows what is seen there
        seen.append(tree_map(torch.clone, worlds.reset(0)))
    return asked(config, policy, tree_map(lambda *parts: torch.cat(parts), *seen), len(world.P[0]))


@torch.no_grad()
def asked(config: Config, policy: Policy, obs: Tree, actions: int) -> Floats:
    """[S, A] probability of each action where these are the observations."""
    states = len(leaves(obs)[0])
    first = torch.ones(states, dtype=torch.bool)
    if config.eval_deterministic:
        noise = torch.zeros(states, policy.draws)
        return np.eye(actions)[policy.act(obs, (), first, noise, True).action.numpy()]
    assert isinstance(policy, ActorCritic)
    judged = [policy.evaluate(obs, (), first, torch.full((states,), action)) for action in range(actions)]
    return torch.stack([each.log_prob.double().exp() for each in judged], -1).numpy()


def coordinates(rows: list[dict[str, float]], name: str) -> list[list[float]]:
    """A metric over env steps, short enough for a file that people diff."""
    return [[int(x), float(f"{y:.5g}")] for x, y in points(rows, name)]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
