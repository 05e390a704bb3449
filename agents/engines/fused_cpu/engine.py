"""`engine: fused_cpu`: the same agent, config, draws and memory, with collecting and learning in compiled kernels.

It owns scratch memory only. Parameters and their moments are torch's; they are copied in before and out after each
call, which costs a microsecond per thousand and leaves nothing to fall out of step.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from agents.engines.eager import Eager
from agents.engines.fused_cpu import layers, losses, nets, returns, rollout, update
from agents.engines.fused_cpu.calls import address_of
from agents.engines.fused_cpu.frame import TILE, At, Lane, Layer, Moment, Setting, Stat
from agents.engines.fused_cpu.lanes import LANES
from agents.engines.fused_cpu.layout import PARTS, lay_out
from agents.engines.fused_cpu.recipes import main_leaf, normalisation, recipe_of, why_not_played
from agents.engines.fused_cpu.workers import Workers, usable_threads
from agents.experience.nouns import Rollout
from agents.networks.encoders import OneHot, RunningNorm
from agents.networks.heads import Gaussian
from envs_gym.spaces import MASK
from utils.counter_rng import SHUFFLE, counters, normal

FLOPS_PER_CALL = 1.5e10  # about a tenth of a second: Ctrl-C is heard between two calls
MOST_PARTS = 8
ROWS_PER_PART = 128


class FusedCPU:
    """Binds itself to the first agent it is given, at its first call: by then the optimizer is there."""

    name = "fused_cpu"

    def __init__(self, threads: int = 1) -> None:
        self._threads = usable_threads(threads)
        self._agent: Any = None
        self._eager = Eager()

    def collect(self, agent: Any, steps: int) -> None:
        if agent.world_size > 1:  # processes average their gradients in torch
            return self._eager.collect(agent, steps)
        self._bind(agent)
        if self._playing is None:
            agent.collector.collect(steps, agent.memory)
        else:
            self._fetch()
            self._playing(steps)
        self._frame[At.HAS_LOG_PROB] = self._playing is not None

    def learn(self, agent: Any, work: Rollout) -> None:
        if agent.world_size > 1:
            return self._eager.learn(agent, work)
        self._bind(agent)
        policy, config, settings = agent.policy, agent.config, self._settings
        row = work.row
        reward = agent.reward_scale(row.reward, row.terminated | row.truncated) if config.normalize_reward else row.reward
        self._frame[At.REWARD] = reward.data_ptr()
        self._fetch()
        self._set(agent)
        self._stats[:] = 0.0
        key = counters(agent.key(SHUFFLE, agent.progress["iterations"] * config.n_epochs))
        self._workers.run(lambda thread: self._learn(thread, key))
        nets.give_parameters(self._address)
        self._made = settings[Setting.STEP]
        self._counters.fill_(self._made)
        self._tell(agent)
        if isinstance(policy.encoder.leaf[0], RunningNorm):
            policy.encoder.learn(row.obs)
        agent.metrics.add(policy.head.describe())

    def _learn(self, thread: int, key: tuple[int, ...]) -> None:
        returns.judge(self._address, thread, *key)
        for begin in range(0, self._updates, self._updates_per_call):
            update.update(self._address, thread, begin, min(begin + self._updates_per_call, self._updates))

    def _fetch(self) -> None:
        """Torch's parameters and statistics as they are now."""
        leaf = self._agent.policy.encoder.leaf[0]
        if isinstance(leaf, RunningNorm):
            for mine, now in zip(self._normalisation, normalisation(leaf, len(leaf.mean)), strict=False):
                mine.copy_(now)
        nets.fetch_parameters(self._address)
        for net in range(int(self._frame[At.NETS])):
            nets.turn(self._address, net)

    def _set(self, agent: Any) -> None:
        live, settings = agent.live, self._settings
        settings[Setting.GAMMA] = live.gamma
        settings[Setting.LEARNING_RATE] = agent.optimizer.param_groups[0]["lr"]
        settings[Setting.ENTROPY], settings[Setting.VALUE] = live.ent_coef, live.vf_coef
        settings[Setting.MAX_NORM] = _or_infinite(live.max_grad_norm)
        settings[Setting.STEP] = self._made
        if not self._recipe.reinforce:
            settings[Setting.LAMBDA], settings[Setting.CLIP] = live.gae_lambda, live.clip_range
            settings[Setting.VALUE_CLIP] = _or_infinite(live.clip_range_vf)
            settings[Setting.KL_LIMIT] = 1.5 * _or_infinite(live.target_kl)

    def _tell(self, agent: Any) -> None:
        """The same names as the agent's own, as sums over the updates made."""
        stats, live, done = self._stats.tolist(), agent.live, int(self._stats[Stat.UPDATES])
        reinforce, critic = self._recipe.reinforce, agent.policy.critic is not None
        policy, value, entropy = stats[Stat.POLICY_LOSS], stats[Stat.VALUE_LOSS], stats[Stat.ENTROPY]
        total = policy - live.ent_coef * entropy + (live.vf_coef * value if critic else 0.0)
        sums = {"train/loss/policy": policy, "train/loss/total": total, "train/policy/entropy": entropy}
        if critic:
            sums["train/loss/value"] = value
        if not reinforce:
            sums["train/policy/approx_kl"], sums["train/policy/clip_fraction"] = stats[Stat.KL], stats[Stat.CLIPPED]
        for part in agent.policy.parts:
            sums[f"train/grad_norm/{part}"] = stats[Stat.NORM_ACTOR + PARTS.index(part)]
        sums["train/grad_norm/total"] = stats[Stat.NORM_TOTAL]
        if critic:  # of the rollout, so once for each update
            sums["train/value/explained_variance"] = done * stats[Stat.EXPLAINED]
        if reinforce:
            sums["train/return/mean"] = done * stats[Stat.RETURN_MEAN]
        else:
            rows = agent.memory.rows * agent.memory.num_envs
            unbiased = math.sqrt(rows / max(rows - 1, 1))
            sums["train/advantage/mean"] = done * stats[Stat.WEIGHT_MEAN]
            sums["train/advantage/std"] = done * stats[Stat.WEIGHT_STD] * unbiased
            stopped = stats[Stat.STOPPED] + self._updates - done
            sums["train/policy/kl_stopped"] = stopped * done / self._updates
        agent.metrics.add_sums(sums, done)
        agent.progress["updates"] += self._updates
        if stats[Stat.BROKEN]:
            agent.broken.fill_(True)

    # ------------------------------------------------------------------ binding

    def _bind(self, agent: Any) -> None:
        """Lay out memory for this agent; again when its optimizer's state was exchanged, as loading does."""
        state = agent.optimizer.state
        if agent is self._agent and state is self._state and self._places == [p.data_ptr() for p in self._parameters]:
            return
        if agent is not self._agent:
            self._lay_out(agent)
        self._parameters = list(agent.policy.parameters())
        first = state[self._parameters[0]]
        self._made = float(first["step"]) if first else 0.0
        self._counters = torch.full((len(self._parameters),), self._made)  # one memory for what are equal numbers
        for parameter, step in zip(self._parameters, self._counters, strict=True):
            own = state[parameter]
            if not own:
                own["exp_avg"], own["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            own["step"] = step
        self._keep("TENSOR_TABLE", self._layout.tensors(state))
        self._agent, self._state, self._places = agent, state, [p.data_ptr() for p in self._parameters]

    def _keep(self, name: str, array: np.ndarray | Tensor) -> Any:
        """Hold on to memory of ours, or another's, and note where it is."""
        self._held[name] = array
        self._frame[At[name]] = array.data_ptr() if isinstance(array, Tensor) else array.ctypes.data
        return array

    def _lay_out(self, agent: Any) -> None:
        self._agent, self._frame, self._held = agent, np.zeros(len(At), np.int64), {}
        self._address = self._frame.ctypes.data
        config, policy, memory = agent.config, agent.policy, agent.memory
        self._layout, self._recipe = lay_out(policy), recipe_of(config)
        leaf, head = policy.encoder.leaf[0], policy.head
        actions = head.linear.out_features
        steps, worlds, rows = memory.rows, memory.num_envs, memory.rows * memory.num_envs
        parts = max(1, min(MOST_PARTS, config.minibatch_size // ROWS_PER_PART))
        threads = min(self._threads, parts, worlds)
        self._workers = Workers(threads)
        features = policy.encoder.size
        rest = 4 * actions + 6 + 2 * self._layout.widest
        scratch = LANES + TILE * (features + self._layout.hidden + actions + 1 + rest)
        counts = {
            "THREADS": threads, "STEPS": steps, "WORLDS": worlds, "SLOTS": memory.slots, "FEATURES": features,
            "OBS_WIDTH": 0 if isinstance(leaf, OneHot) else features, "ACTIONS": actions,
            "NETS": len(self._layout.nets), "LAYERS": self._layout.nets.shape[1] - 1,
            "VALUE_NET": self._layout.value_net, "VALUE_ROW": self._layout.value_row,
            "GAUSSIAN": isinstance(head, Gaussian), "REINFORCE": self._recipe.reinforce,
            "WHOLE_EPISODE": self._recipe.whole_episode, "NORMALIZE": self._recipe.normalize, "MASKED": policy.masked,
            "EPOCHS": config.n_epochs, "MINIBATCH": config.minibatch_size, "PARTS": parts, "SIZE": self._layout.size,
            "SEGMENTS": len(self._layout.segments), "TENSORS": len(self._layout.places),
            "DECOUPLED": config.optimizer == "adamw", "HIDDEN_SIZE": self._layout.hidden,
            "WIDEST": self._layout.widest, "SCRATCH_SIZE": -(-scratch // LANES) * LANES,
            "LOG_STD": self._layout.log_std,
        }  # fmt: skip
        for name, count in counts.items():
            self._frame[At[name]] = int(count)
        self._take_memory(rows, worlds * memory.slots, worlds, features)
        self._lend(agent)
        self._pieces(config.activation)
        self._updates = config.n_epochs * -(-rows // config.minibatch_size)
        flops = 2 * sum(int(row[Layer.INNER] * row[Layer.WIDTH]) for net in self._layout.nets for row in net)
        self._updates_per_call = max(1, int(FLOPS_PER_CALL / (3 * flops * config.minibatch_size)))
        self._steps_per_call = max(1, int(FLOPS_PER_CALL / (4 * flops * worlds)))
        reason = why_not_played(policy, agent.collector.envs)
        self._playing: Callable[[int], None] | None = None if reason else self._player(agent)

    def _take_memory(self, rows: int, finals: int, worlds: int, features: int) -> None:
        """Everything that is ours, zero, on cache lines."""
        layout, frame = self._layout, self._frame
        singles = {
            "LOG_PROB": rows, "VALUE": rows + worlds, "FINAL_VALUE": finals, "WEIGHT": rows, "TARGET": rows,
            "PARAMETERS": layout.size, "TURNED": layout.turned, "FIRST_MOMENT": layout.size,
            "SECOND_MOMENT": layout.size, "GRADIENT": layout.size, "PARTIAL": frame[At.PARTS] * layout.size,
            "LANES": frame[At.PARTS] * len(Lane) * TILE, "SCRATCH": frame[At.THREADS] * frame[At.SCRATCH_SIZE],
        }  # fmt: skip
        for name, count in singles.items():
            self._keep(name, aligned(int(count)))
        scratch = self._held["SCRATCH"].reshape(int(frame[At.THREADS]), -1)
        scratch[:, 0] = 1.0
        self._keep("COUNTED", np.ones(rows, np.float32))
        self._keep("ORDER", np.zeros(frame[At.EPOCHS] * rows, np.int32))
        self._keep("SPARE", np.zeros(frame[At.THREADS] * 3 * rows, np.int32))
        self._keep("NET_TABLE", layout.nets)
        self._keep("SEGMENT_TABLE", layout.segments)
        self._keep("SQUARES", np.zeros(len(layout.segments)))
        self._keep("MOMENTS", np.zeros((int(frame[At.PARTS]), len(Moment))))
        self._keep("BARRIER", np.zeros(LANES, np.int64))
        self._settings = self._keep("SETTINGS", np.full(len(Setting), math.inf))
        self._stats = self._keep("STATS", np.zeros(len(Stat)))

    def _lend(self, agent: Any) -> None:
        """What the memory, the collector and the encoder own."""
        table, memory = agent.memory.table, agent.memory
        self._keep("OBS", main_leaf(table.obs))
        self._keep("NEXT_OBS", main_leaf(agent.collector.obs))
        self._keep("FINAL_OBS", main_leaf(memory.final.obs))
        if agent.policy.masked:
            self._keep("MASK", table.obs[MASK])
        for name in ("action", "terminated", "truncated", "is_first", "slot"):
            self._keep(name.upper(), getattr(table, name))
        leaf = agent.policy.encoder.leaf[0]
        centre, scale, bound = normalisation(leaf, agent.policy.encoder.size)
        self._normalisation = [self._keep("CENTRE", centre.clone()), self._keep("SCALE", scale.clone())]
        group = agent.optimizer.param_groups[0]
        settings = self._settings
        settings[Setting.BOUND] = bound
        settings[Setting.BETA_1], settings[Setting.BETA_2] = group["betas"]
        settings[Setting.EPSILON], settings[Setting.DECAY] = group["eps"], group["weight_decay"]

    def _pieces(self, activation: str) -> None:
        """Where the kernels lie that others call by address."""
        tanh = activation == "tanh"
        pieces = {
            At.FORWARD_LAYER: layers.forward_tanh if tanh else layers.forward_relu,
            At.BACKWARD_LAYER: layers.backward_tanh if tanh else layers.backward_relu,
            At.ACCUMULATE: layers.accumulate, At.FORWARD: nets.forward, At.BACKWARD: nets.backward,
            At.ENCODE: nets.encode, At.TURN: nets.turn, At.ACTOR_LOSS: losses.actor_loss,
            At.CRITIC_LOSS: losses.critic_loss, At.LOG_PROBS: losses.log_probs, At.SAMPLE: losses.sample,
            At.GRADIENT_PART: update.gradient_part,
        }  # fmt: skip
        for entry, kernel in pieces.items():
            self._frame[entry] = address_of(kernel)

    def _player(self, agent: Any) -> Callable[[int], None]:
        """Plays `steps` steps of this agent's compiled worlds, as Collector.collect does."""
        collector, memory, envs = agent.collector, agent.memory, agent.collector.envs
        table, window, gaussian = memory.table, collector.window, isinstance(agent.policy.head, Gaussian)
        obs, next_obs = table.obs.numpy(), collector.obs.numpy()[None]
        fresh, slot = collector.is_first.view(torch.uint8).numpy(), memory.slot.numpy()
        flags = [x.view(torch.uint8).numpy() for x in (table.terminated, table.truncated, table.is_first)]
        action, reward, slots = table.action.numpy(), table.reward.numpy(), table.slot.numpy()
        told = [np.zeros(reward.shape, np.float32) for _ in range(2)]
        ended = np.zeros_like(next_obs)
        ring = window.ring.numpy()
        arrays = (obs, next_obs, memory.final.obs.numpy(), ended, action, reward, *flags, slots, slot, fresh, *told)
        shards = [(i * len(fresh) // self._workers.threads, (i + 1) * len(fresh) // self._workers.threads)
                  for i in range(self._workers.threads)]  # fmt: skip
        outputs = (action[:1], next_obs, reward[:1], flags[0][:1], flags[1][:1], ended, told[0][:1], told[1][:1])
        head = envs.arguments()
        advance = address_of(envs.world.advance, *(numba.typeof(x) for x in (*head, *outputs)))

        def play(steps: int) -> None:
            noise = collector.noise(steps)
            draws = (normal(noise) if gaussian else noise).numpy()
            arguments = envs.arguments()

            def job(thread: int) -> None:
                lo, hi = shards[thread]
                for begin in range(0, steps, self._steps_per_call):
                    end = min(begin + self._steps_per_call, steps)
                    rollout.play(
                        self._address, thread, begin, end, advance, arguments[:4], lo, hi, arguments[6:], draws, *arrays
                    )

            self._workers.run(job)
            memory.written += steps
            window.count.fill_(rollout.note_episodes(flags[0], flags[1], *told, ring, int(window.count)))

        return play


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else limit


def aligned(count: int) -> np.ndarray:
    """float32 zeros that begin on a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]
