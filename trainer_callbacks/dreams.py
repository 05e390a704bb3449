"""At the end of a run with a world model: how far its dreams stray from what is remembered. Told in dreams.json."""

from stride.agents.base import Agent
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.config.schema import Config
from stride.runstore.dreams import STEPS, Dreams, write_dreams
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.open_loop import open_loop

KNOWN = 16  # instants that are seen before the first dream begins
BEGUN = 16  # dreams of each sequence, one after the other
SEQUENCES = 64


def dreams_judged(config: Config, agent: Agent, run: RunDir) -> dict[str, float]:
    """Their metrics, written to the run's folder, too; {} of a policy that does not dream, or remembers too little.

    It takes the memory's next draw: for the end of a run, when its last checkpoint is on the disk.
    """
    length = KNOWN + BEGUN + max(STEPS)
    if not isinstance(agent.policy, ModelPolicy) or not agent.memory.ready(length + 1):
        return {}
    began = agent.stopwatch.begin()
    found = open_loop(agent.policy, agent.memory.sequences(SEQUENCES, length), STEPS, KNOWN)
    known = [quantity.name for quantity in config.spec.observations]
    names = known if len(known) == len(found.names) else [name or "observation" for name in found.names]
    starts = tuple(int(count) for count in found.starts.tolist())
    dreams = Dreams(STEPS, tuple(names), found.dreamt.tolist(), found.unchanged.tolist(), starts)
    write_dreams(run, dreams)
    agent.stopwatch.end("evaluate", began)
    return dreams.metrics()
