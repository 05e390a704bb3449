"""What one device has begun the other goes on with: worlds to the bit, and a run that is resumed and played."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lab.gpu.commands import resumed, runs_folder, trained
from lab.gpu.driven import worlds
from lab.gpu.hashes import actions, bits, trajectory
from lab.gpu.parts import Found, Machine
from stride.agents.trained.loading import load_run
from stride.envs_fast import registry
from stride.envs_gym.make import make_envs
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.evaluate import Evaluate

WORLDS = ("CartPole-v1", "Pendulum-v1")  # Numba compiles each of them here, some seconds; the hashes are of all worlds
SIZE, STEPS, ITERATIONS, EPISODES = 100, 64, 4, 5


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Worlds first, then runs, there and back."""
    wrong, figures = list[str](), dict[str, object](worlds=list(WORLDS))
    for env_id in WORLDS:
        there, here = (make(env_id, SIZE) for make in (partial(worlds, machine), registry.make))
        for name, begun, goes_on in (("here", there, here), ("there", here, there)):
            if not same_rest(begun, goes_on):
                wrong.append(f"{env_id}: worlds do not go on {name} as where they began")
    yield Found(f"{len(WORLDS)} worlds went on on the other device", figures, wrong)
    on_cpu = Machine(device="cpu")
    for engine in machine.engines:
        with runs_folder():
            for name, first, second in (("there to here", machine, on_cpu), ("here to there", on_cpu, machine)):
                engines = [engine if each is machine else "eager" for each in (first, second)]
                half = trained(first, engines[0], ITERATIONS)
                played = mean_return(resumed(half, second, engines[1], 2 * ITERATIONS))
                figures[f"{engine}, {name}"] = played
                wrong += [f"{engine}, {name}: a return of {played}"] if not 1 <= played <= 500 else []
        yield Found("worlds and runs went on on the other device, and played", figures, wrong)


def same_rest(begun: Any, goes_on: Any) -> bool:
    """Whether worlds play the same from a checkpoint on, whoever goes on with it."""
    given = actions(begun, 0, 2 * STEPS).cpu()
    begun.reset(11)
    begun.advance(given[:STEPS].to(begun.device))
    goes_on.reset(12)
    goes_on.load_state_dict(begun.state_dict())
    one, other = (trajectory(env.advance(given[STEPS:].to(env.device))) for env in (begun, goes_on))
    left, right = begun.state_dict(), goes_on.state_dict()
    return one == other and all(bits(left[name]) == bits(right[name]) for name in ("obs", "state", "ages", "episodes"))


def mean_return(run: RunDir) -> float:
    """Of some episodes of its last weights, loaded as a person would to watch them: on the CPU."""
    loaded = load_run(str(run.path), "last")
    config = replace(loaded.config, test_episodes=EPISODES)
    evaluate = Evaluate(config, lambda number: make_envs(config, number))
    tested = evaluate.test(loaded.agent.policy)
    evaluate.close()
    return tested.get("test/roll/ep_rew/mean", math.nan)
