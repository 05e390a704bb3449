"""An agent driven without a Trainer, and every pair of options once: what the tests of engines share."""

from itertools import combinations, product

from stride.agents.engines.choice import build_agent
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs


def agent_for(config_id, *overrides, worlds=make_envs):
    """The agent of ENV:VARIANT with an optimizer, as the Trainer would give it."""
    env_id, variant = config_id.rsplit(":", 1)
    config = load_config(env_id, variant, ["max_timesteps=1e6", *overrides])
    return with_optimizer(build_agent(config, worlds(config, config.n_envs)))


def with_optimizer(agent):
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer
    return agent


def advance(agent, iterations):
    for tick in range(iterations):
        agent.training_step(iter([tick]))
    return agent


def continued(agent, other):
    """`other` as a checkpoint of `agent` would leave it."""
    checkpoint = {"optimizer_states": [agent.optimizer.state_dict()]}
    agent.on_save_checkpoint(checkpoint)
    other.load_state_dict(agent.state_dict())
    other.optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    other.on_load_checkpoint(checkpoint)
    return other


def pairwise(options):
    """Few rows of {name: choice} in which every two choices of different names meet: greedy, always the same."""
    names = list(options)
    missing = {((a, x), (b, y)) for a, b in combinations(names, 2) for x, y in product(options[a], options[b])}
    rows = []
    while missing:
        row = dict([*min(missing, key=repr)])
        for name in names:
            if name not in row:
                gained = {
                    choice: sum(p in missing for p in _pairs(names, {**row, name: choice})) for choice in options[name]
                }
                row[name] = max(gained, key=gained.get)
        missing -= set(_pairs(names, row))
        rows.append({name: row[name] for name in names})
    return rows


def _pairs(names, row):
    given = [(name, row[name]) for name in names if name in row]
    return list(combinations(given, 2))
