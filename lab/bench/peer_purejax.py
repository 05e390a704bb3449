"""PPO on CartPole as PureJaxRL does it, written here anew for timing: a whole training is one XLA program."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]

from lab.bench.peers import Ready
from stride.config.schema import PPOConfig

UNROLLED_STEPS = 16  # steps that XLA unrolls in the scan back over a rollout, as in the published code
Array: TypeAlias = jax.Array
Net = list[tuple[Array, Array]]  # weight and bias of each layer
Nets = tuple[Net, Net]  # actor and critic
Moving = tuple[Nets, Nets, Nets, Array]  # the networks, Adam's first and second moments, its count of steps
State = tuple[Nets, Nets, Nets, Array, Array, Array, Array]  # Moving, then CartPole's states [N, 4], ages [N], key
Row = tuple[Array, Array, Array, Array, Array]  # obs, action, log-probability, value, done
Batch = tuple[Array, Array, Array, Array, Array]  # obs, action, log-probability, advantage, target


def _net(key: Array, size: int, widths: tuple[int, ...], out: int) -> Net:
    sizes = (size, *widths, out)
    keys = jax.random.split(key, len(sizes))
    return [
        (jax.random.normal(k, (a, b)) / math.sqrt(a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
    ]


def _apply(net: Net, x: Array) -> Array:
    for weight, bias in net[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ net[-1][0] + net[-1][1]


def _step(state: Array, age: Array, action: Array, key: Array) -> tuple[Array, Array, Array]:
    x, x_dot, theta, theta_dot = state.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(theta), jnp.sin(theta)
    temp = (force + 0.05 * theta_dot**2 * sine) / 1.1
    theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    x_acc = temp - 0.05 * theta_acc * cosine / 1.1
    moved = (x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc)
    state, age = jnp.stack(moved, 1), age + 1
    done = (jnp.abs(state[:, 0]) > 2.4) | (jnp.abs(state[:, 2]) > 12 * 2 * math.pi / 360) | (age >= 500)
    fresh = jax.random.uniform(key, state.shape, minval=-0.05, maxval=0.05)
    return jnp.where(done[:, None], fresh, state), jnp.where(done, 0, age), done


class Training:
    """Trainings of any length, each of which continues the one before; programs are compiled before they are timed."""

    def __init__(self, config: PPOConfig) -> None:
        self.config = config
        self.programs: dict[int, Callable[[State], State]] = {}  # by the number of iterations
        self.state = _first_state(config)

    def __call__(self, iterations: int) -> Ready:
        if iterations not in self.programs:
            self.programs[iterations] = _program(self.config, iterations).lower(self.state).compile()
        return Ready(partial(self._run, self.programs[iterations]), lambda: None)

    def _run(self, program: Callable[[State], State]) -> None:
        self.state = jax.block_until_ready(program(self.state))


def _first_state(config: PPOConfig) -> State:
    keys = jax.random.split(jax.random.PRNGKey(1), 4)
    nets = (_net(keys[0], 4, config.hidden_dims, 2), _net(keys[1], 4, config.hidden_dims, 1))
    zeros = jax.tree_util.tree_map(jnp.zeros_like, nets)
    start = jax.random.uniform(keys[2], (config.n_envs, 4), minval=-0.05, maxval=0.05)
    return nets, zeros, zeros, jnp.zeros(()), start, jnp.zeros(config.n_envs, jnp.int32), keys[3]


def _program(config: PPOConfig, iterations: int) -> Any:
    """Return a whole training: one scan over its iterations, without Python between them."""

    def iteration(state: State, nothing: None) -> tuple[State, None]:
        return _iteration(state, config.n_steps, config.n_epochs, config.minibatch_size), None

    return jax.jit(lambda state: jax.lax.scan(iteration, state, None, iterations)[0])


def _iteration(state: State, n_steps: int, epochs: int, minibatch: int) -> State:
    nets, first, second, count, worlds, ages, key = state
    actor, critic = nets

    def play(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Row]:
        worlds, ages = carry
        act_key, env_key = jax.random.split(key)
        logits = jax.nn.log_softmax(_apply(actor, worlds))
        action = jax.random.categorical(act_key, logits)
        log_prob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        value = _apply(critic, worlds)[:, 0]
        after, ages, done = _step(worlds, ages, action, env_key)
        return (after, ages), (worlds, action, log_prob, value, done)

    key, play_key, shuffle_key = jax.random.split(key, 3)
    (worlds, ages), rows = jax.lax.scan(play, (worlds, ages), jax.random.split(play_key, n_steps))
    obs, action, log_prob, value, done = rows

    def back(carry: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        ahead, following = carry
        value, done = row
        live = 1.0 - done
        # GAE: delta + gamma lambda ahead; the reward is a constant, as CartPole's is 1 in every step
        ahead = 1.0 + 0.99 * following * live - value + 0.99 * 0.95 * live * ahead
        return (ahead, value), ahead

    last = _apply(critic, worlds)[:, 0]
    _, advantage = jax.lax.scan(back, (jnp.zeros_like(last), last), (value, done), reverse=True, unroll=UNROLLED_STEPS)
    table = jax.tree_util.tree_map(
        lambda x: x.reshape(-1, *x.shape[2:]), (obs, action, log_prob, advantage, advantage + value)
    )

    def epoch(carry: Moving, key: Array) -> tuple[Moving, None]:
        order = jax.random.permutation(key, table[1].shape[0])
        cut = jax.tree_util.tree_map(lambda x: x[order].reshape(-1, minibatch, *x.shape[1:]), table)
        return jax.lax.scan(_update, carry, cut)

    (nets, first, second, count), _ = jax.lax.scan(
        epoch, (nets, first, second, count), jax.random.split(shuffle_key, epochs)
    )
    return nets, first, second, count, worlds, ages, key


def _loss(nets: Nets, batch: Batch) -> Array:
    obs, action, old, advantage, target = batch
    logits = jax.nn.log_softmax(_apply(nets[0], obs))
    ratio = jnp.exp(jnp.take_along_axis(logits, action[:, None], 1)[:, 0] - old)
    weight = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = jnp.minimum(ratio * weight, jnp.clip(ratio, 0.8, 1.2) * weight).mean()
    return 0.5 * jnp.square(_apply(nets[1], obs)[:, 0] - target).mean() - surrogate


def _update(carry: Moving, batch: Batch) -> tuple[Moving, None]:
    nets, first, second, count = carry
    gradient = jax.grad(_loss)(nets, batch)
    leaves = jax.tree_util.tree_leaves(gradient)
    scale = jnp.minimum(1.0, 0.5 / (jnp.sqrt(sum(jnp.square(g).sum() for g in leaves)) + 1e-6))
    count = count + 1
    first = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * scale * g, first, gradient)
    second = jax.tree_util.tree_map(lambda v, g: 0.999 * v + 0.001 * jnp.square(scale * g), second, gradient)
    rate = 3e-4 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    nets = jax.tree_util.tree_map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-5), nets, first, second)
    return (nets, first, second, count), None
