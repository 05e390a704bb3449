"""Compares our compiled MuJoCo tasks with Gymnasium's, step for step.

    python -m lab.parity_bodies                 100,000 steps of every task, with its resets
    python -m lab.parity_bodies --steps 2000 --only Hopper,Ant

Half of the steps use other arguments than Gymnasium's defaults (VARIED). Both get the same actions, and Gymnasium's
environment starts each episode in our state. Observations, rewards, returns and ends must have the same bits.
"""

from typing import Any

from stride.commands.usage import parser_of
from stride.envs_fast import BODIES
from stride.envs_fast.bodies.beside import Beside
from stride.utils import entry

VARIED: dict[str, dict[str, Any]] = {
    "Ant": {"forward_reward_weight": 2, "contact_force_range": (-0.5, 0.7), "main_body": "torso"},
    "HalfCheetah": {"frame_skip": 3, "ctrl_cost_weight": 0.3},
    "Hopper": {"healthy_state_range": (-3.0, 3.0), "exclude_current_positions_from_observation": False},
    "Humanoid": {"contact_cost_range": (0.5, 3.0), "include_cvel_in_observation": False},
    "HumanoidStandup": {"impact_cost_range": (0.5, 3.0), "include_cinert_in_observation": False},
    "InvertedDoublePendulum": {"healthy_reward": 3.0, "reset_noise_scale": 0.3},
    "InvertedPendulum": {"reset_noise_scale": 0.1},
    "Pusher": {"reward_near_weight": 0.7},
    "Reacher": {"reward_control_weight": 0.3},
    "Swimmer": {"ctrl_cost_weight": 0.1, "frame_skip": 2},
    "Walker2d": {"terminate_when_unhealthy": False},
}


def main(argv: list[str]) -> int:
    """Exit code 1: a step differs."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=100_000, metavar="N", help="steps of each task")
    parser.add_argument("--only", default="", metavar="A,B", help="these tasks")
    arguments = parser.parse_args(argv)
    tasks = arguments.only.split(",") if arguments.only else [*VARIED]
    different = 0
    for name in tasks:
        for kwargs in ({}, VARIED[name]):
            beside = Beside(BODIES[f"{name}-v5"], kwargs)
            count = int(beside.begin()) + sum(beside.step() for _ in range(arguments.steps // 2))
            episodes = int(beside.ours.episodes[0]) + 1
            counts = f"{count} of {arguments.steps // 2} steps differ, {episodes} episodes"
            print(f"{name} {kwargs or ''}: {counts}", flush=True)
            beside.close()
            different += count
    return 1 if different else 0


if __name__ == "__main__":
    entry.run(main)
