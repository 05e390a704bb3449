"""Which kernels an algorithm and its kind of network run.

KERNELS[algorithm] and NETS[kind] map fields of the frame to kernels. bind.py writes them into the frame, through which
kernels call one another by address; warm.py compiles them ahead.
"""

from stride.agents.engines.fused_cpu.kernels import (
    heads,
    lambda_q,
    layers,
    mingru,
    minibatches,
    nets,
    normed,
    pictures,
    policy_gradient,
    q,
    quantiles,
    replay,
    returns,
    sequences,
    shuffle,
    smoothed,
    squashed,
)
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel, KernelTable
from stride.config.schema import Config, PQNConfig

FLAT: KernelTable = {
    "accumulate": layers.accumulate,
    "forward": nets.forward,
    "backward": nets.backward,
    "encode": nets.encode,
    "turn": nets.turn,
}
RELU: KernelTable = {"forward_layer": layers.forward_relu, "backward_layer": layers.backward_relu}
TANH: KernelTable = {"forward_layer": layers.forward_tanh, "backward_layer": layers.backward_tanh}
PICTURES: KernelTable = {
    "accumulate": layers.accumulate,
    "forward": pictures.forward,
    "backward": pictures.backward,
    "encode": pictures.encode,
    "turn": pictures.turn,
    "convolve": pictures.convolve,
    "convolve_back": pictures.convolve_back,
}
NORMED: KernelTable = {
    "forward_layer": layers.forward_linear,
    "backward_layer": layers.backward_relu,
    "norm": normed.norm_relu,
    "norm_back": normed.norm_back,
}
MINGRU: KernelTable = {
    "accumulate": layers.accumulate,
    "forward_cell": layers.forward_linear,
    "forward": mingru.forward,
    "encode": nets.encode,
    "turn": nets.turn,
    "remember": mingru.step,
    "gradient_part": sequences.gradient_part,
    "judge": sequences.judge,
    "shuffle": shuffle.shuffle_sequences,
}
SHARDED: KernelTable = {"shard_gradient": minibatches.shard_gradient, "shard_step": minibatches.shard_step}
NETS: dict[str, KernelTable] = {  # kernels of a kind of network, by `nets_of`; they replace those of the algorithm
    "tanh": {**FLAT, **TANH},
    "relu": {**FLAT, **RELU},
    "mingru_tanh": {**MINGRU, **TANH},
    "mingru_relu": {**MINGRU, **RELU},
    "pictures": {**PICTURES, **RELU},
    "normed": {**FLAT, **NORMED},
    "normed_pictures": {**PICTURES, **NORMED},
}
ROLLOUT: KernelTable = {
    "actor_loss": policy_gradient.actor_loss,
    "critic_loss": policy_gradient.critic_loss,
    "log_probs": heads.log_probs,
    "sample": heads.sample,
    "gradient_part": policy_gradient.gradient_part,
    "log_softmax": heads.log_softmax,
    "values": returns.values,
    "all_log_probs": returns.all_log_probs,
    "moment_sums": returns.moment_sums,
    "shuffle": shuffle.shuffle_epochs,
    "judge": returns.judge,
    "update": minibatches.update,
    "learn": minibatches.learn,
}
REPLAY: KernelTable = {"to_inputs": nets.to_inputs, "learn": replay.learn}
KERNELS: dict[str, KernelTable] = {  # kernels of an algorithm, by `algo_id`
    "ppo": {**ROLLOUT, "weigh": returns.advantages},
    "reinforce": {**ROLLOUT, "weigh": returns.monte_carlo},
    "pqn": {
        "gradient_part": lambda_q.gradient_part,
        "sample": q.act_by_value,
        "values": lambda_q.best_values,
        "weigh": lambda_q.lambda_returns,
        "moment_sums": returns.moment_sums,
        "shuffle": shuffle.shuffle_epochs,
        "judge": returns.judge,
        "update": minibatches.update,
        "learn": minibatches.learn,
    },
    "dqn": {**REPLAY, "gradient_part": q.q_gradient, "sample": q.act_by_value},
    "sac": {**REPLAY, "gradient_part": squashed.sac_gradient, "sample": squashed.act_squashed},
    "tqc": {**REPLAY, "gradient_part": quantiles.tqc_gradient, "sample": squashed.act_squashed},
    "td3": {**REPLAY, "gradient_part": smoothed.td3_gradient, "sample": smoothed.act_smoothed},
}
# called from Python: two that copy parameters; the last, in no field, plays greedy episodes
COPY_KERNELS = (nets.fetch_parameters, nets.give_parameters, q.act_by_value)
CALLED_FROM_PYTHON: dict[str, tuple[CompiledKernel, ...]] = {  # kernels of an algorithm that are in no table above
    "ppo": COPY_KERNELS,
    "reinforce": COPY_KERNELS,
    "pqn": COPY_KERNELS,
    "dqn": (*COPY_KERNELS, replay.draw),
    "sac": (replay.draw,),
    "tqc": (replay.draw,),
    "td3": (replay.draw,),
}


def nets_of(config: Config) -> str:
    """Return the key of NETS for a config: by its pictures, layer norms, memory or activation, such as "tanh"."""
    if isinstance(config, PQNConfig):
        return "normed_pictures" if config.policy == "cnn" else "normed"
    if config.policy == "mingru":
        return f"mingru_{config.activation}"
    return "pictures" if config.policy == "cnn" else config.activation
