"""Translates names of Stable-Baselines3, rl-zoo, CleanRL and older Gymnasium: what to write in Stride instead.

Error messages use it: `learning_rate=1e-3` is answered with "in Stride it is called policy_lr".
"""

import re
from collections.abc import Collection

KEYS_HERE = {  # names of keys in other frameworks -> the key here
    "learning_rate": "policy_lr", "lr": "policy_lr", "total_timesteps": "max_timesteps", "n_timesteps": "max_timesteps",
    "max_env_steps": "max_timesteps", "num_envs": "n_envs", "num_steps": "n_steps", "clip_coef": "clip_range",
    "update_epochs": "n_epochs", "net_arch": "hidden_dims", "reward_threshold": "spec.goal", "goal": "spec.goal",
    "threshold_solved": "spec.goal", "normalize_advantage": "normalize_advantages",
    "target_update_interval": "target_freq", "target_network_frequency": "target_freq",
    "exploration_fraction": "epsilon_schedule_end", "exploration_initial_eps": "epsilon_schedule_start_value",
    "exploration_final_eps": "epsilon_schedule_end_value", "start_e": "epsilon_schedule_start_value",
    "end_e": "epsilon_schedule_end_value", "tensorboard_log": "logger", "loggers": "logger",
    "vec_normalize": "normalize_obs", "activation_fn": "activation", "torch_threads": "threads",
    "total_steps": "max_timesteps", "policy_delay": "actor_every", "policy_frequency": "actor_every",
    "target_policy_noise": "target_noise", "policy_noise": "target_noise", "noise_clip": "target_noise_clip",
    "exploration_noise": "action_noise", "n_quantiles": "quantiles",
    "top_quantiles_to_drop_per_net": "drop_quantiles",
    "eval_freq": "eval_freq_steps", "n_eval_episodes": "eval_episodes", "timeout_seconds": "eval_timeout_seconds",
}  # fmt: skip
KEY_ADVICE = {  # keys of other frameworks that have no key here -> what to write
    "verbose": "-q prints one line only", "env": "the environment is the first argument, as in CartPole-v1:ppo",
    "algo": "the algorithm follows the environment, as in CartPole-v1:ppo", "track": "write logger=[wandb]",
    "cuda": "write device=cuda", "torch_deterministic": "runs on the CPU are always deterministic",
    "capture_video": "write video_freq_epochs=10", "wandb_project_name": "write project_id=NAME",
}  # fmt: skip
FLAG_ADVICE = {  # flags of other command lines -> what to write
    **KEY_ADVICE, "env_id": KEY_ADVICE["env"], "tensorboard_log": "write logger=[tensorboard]",
    "eval_freq": "write eval_freq_steps=10000", "save_freq": "write checkpoint_freq_epochs=10",
    "optimize": "use stride sweep to search settings", "n_trials": "use stride sweep to search settings",
    "trained_agent": "--resume continues a run", "learning_rate": "write policy_lr=3e-4",
    "total_timesteps": "write max_timesteps=1e5", "n_timesteps": "write max_timesteps=1e5",
    "num_envs": "write n_envs=8", "hyperparams": "write KEY=VALUE",
}  # fmt: skip
NEAREST_ALGORITHM = {  # algorithms that are not here -> the one that is nearest
    "a2c": "ppo", "trpo": "ppo", "ppo2": "ppo", "impala": "ppo", "appo": "ppo", "ddpg": "td3",
    "crossq": "sac", "redq": "sac", "ddqn": "dqn", "qrdqn": "dqn", "c51": "dqn", "rainbow": "dqn",
    "iqn": "dqn", "dreamerv3": "dreamer", "dreamerv2": "dreamer", "muzero": "dreamer", "vpg": "reinforce",
    "qlearning": "q_learning",
}  # fmt: skip
OLD_ATARI = re.compile(r"(?:ALE/)?([A-Z][A-Za-z]+?)(?:-ram)?(?:NoFrameskip|Deterministic)-v\d")


def key_advice(key: str) -> str:
    """Return `; in Stride it is called policy_lr` for another framework's key; "" for any other text."""
    name = key.lower().replace("-", "_")
    if name in KEYS_HERE:
        return f"; in Stride it is called {KEYS_HERE[name]}"
    return f"; {KEY_ADVICE[name]}" if name in KEY_ADVICE else ""


def flag_advice(flag: str) -> str:
    """Return `; write logger=[wandb]` for a flag of another framework's command line; "" for any other text."""
    name = flag.lstrip("-").partition("=")[0].lower().replace("-", "_")
    return f"; {FLAG_ADVICE[name]}" if name in FLAG_ADVICE else ""


def algorithm_advice(name: str, offered: Collection[str]) -> str:
    """Return `; Stride has no DDPG, the closest is td3` for an algorithm that is not here; "" for any other text.

    `offered`: the names to choose from; the closest one is named only if it is among them."""
    nearest_name = NEAREST_ALGORITHM.get(name.lower())
    if nearest_name is None:
        return ""
    advice = f"; Stride has no {name.upper()}"
    return f"{advice}, the closest is {nearest_name}" if nearest_name in offered else advice


def atari_id(env_id: str) -> str:
    """Return today's id of an Atari game for an old one, ALE/Pong-v5 for PongNoFrameskip-v4; "" for any other id."""
    match = OLD_ATARI.fullmatch(env_id)
    return f"ALE/{match[1]}-v5" if match else ""
