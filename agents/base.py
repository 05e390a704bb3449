"""The base of every agent: a LightningModule whose batch is a tick. One tick is one iteration: collect, then learn.

On-policy: collect a rollout, learn from it in a few passes, forget it. Off-policy: collect a few steps, learn what
`Ratio` says is due from all that is remembered. World models: like off-policy, over sequences. An algorithm writes

    iteration()      WHEN: collect, then learn
    learn(work)      HOW OFTEN: epochs x minibatches, or n updates; a socket may replace it
    update(batch)    WHAT: loss -> descend -> metrics

and `configure_optimizers()` where it learns more than its policy's parameters, or none.
"""

import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.experience.collector import Collector, Policy
from stride.agents.experience.finite_guard import flag_non_finite, locate_non_finite, zero_non_finite
from stride.agents.experience.memory import Memory
from stride.agents.experience.shards import SINGLE, ShardGroup, SingleShard
from stride.agents.experience.storage import check_iteration
from stride.agents.laprop import LaProp
from stride.agents.metric_sums import Metrics
from stride.agents.optimizer_step import parameters_of, step_unless
from stride.agents.sockets import Engine, eager
from stride.agents.stopwatch import stopwatch
from stride.config.metrics import check_logged
from stride.config.schema import Config, RolloutConfig
from stride.envs_fast.vec_env import CPU, VecEnv, wrong_action
from stride.utils.counter_rng import Key
from stride.utils.user_error import NumbersError, UserError

CHECKPOINT_VERSION = 1
TICKS = 1 << 31  # Lightning's epoch is only a container: ours are counted by `progress`
PHASES = ("collect", "learn", "evaluate", "save")  # the phases whose seconds are counted, each by its caller
Rated = tuple[list[nn.Parameter], float]  # parameters, and the factor of their learning rate
SKIPS = 100  # iterations without learning, one after the other, at which a training ends

log = logging.getLogger("stride")


class Passes(NamedTuple):
    """The passes over a rollout that is being learnt from, for whoever looks on."""

    done: int
    total: int
    begun: float
    """perf_counter() of the first"""


class Stateful(Protocol):
    """A part whose state a checkpoint must hold."""

    def state_dict(self) -> dict: ...

    def load_state_dict(self, state: dict) -> None: ...


class Agent(L.LightningModule):
    """Owns policy, collector, memory, engine, metrics and the clock. Subclasses are few levels deep."""

    def __init__(
        self,
        config: Config,
        envs: VecEnv,
        policy: Policy,
        rows: int,
        slots: int,
        replayed: bool = True,
        keep_terminal: bool = False,
        rank: int = 0,
        storage: str = "ram",
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config = config
        self.policy = policy
        self.rank = rank
        self.shard: SingleShard = SINGLE
        self.shard_group: ShardGroup | None = None  # of shard 0, where there are several
        self.own_optimizer: Optimizer | None = None  # of a shard that no trainer knows
        self.shards_loaded: list[dict] | None = None  # from a checkpoint, until the training begins
        self.live = SimpleNamespace(**vars(config))  # values that schedules change; the rest stays as configured
        for name, schedule in config.schedules().items():
            setattr(self.live, name, schedule.at(0, config.max_timesteps))
        self.to(envs.device)  # `policy` is there already; this tells Lightning
        self.collector = Collector(envs, policy, config.seed)
        example = self.collector.example()
        check_iteration(config, example, policy.draws, rows, slots)
        frames = config.frame_stack if replayed else 1  # a rollout is short: its observations are kept as they come
        carry = () if replayed else self.collector.carry  # a replay's final observations are not valued by a policy
        self.memory = Memory(example, carry, rows, slots, config.seed, rank, keep_terminal, replayed, storage, frames)
        self.engine: Engine = eager()
        self.metrics = Metrics(example.reward.device, check_logged)
        self.parts: dict[str, Stateful] = {"collector": self.collector, "memory": self.memory, "metrics": self.metrics}
        # the clock, and at which env step the last row of metrics was exported
        self.progress = {"iterations": 0, "env_steps": 0, "updates": 0, "exported": 0}
        self.counter: Tensor | None = None  # iterations, int64 [] on the device, where a graph reads them
        self.loads = 0  # how often a state was loaded, after which tensors are stored elsewhere
        self.stopwatch = stopwatch(envs.device, PHASES)
        self.far = envs.device.type != "cpu"  # to look at a number of the training is to wait for a device
        # flags on the device: something was not finite; it was in what was collected; it was in the loss
        self.broken, self.poisoned, self.lost = torch.zeros(3, dtype=torch.bool, device=envs.device)
        self.guarded = config.nan_guard != "off"
        self.skipped = 0  # iterations without learning, one after the other
        self.accumulate = config.accumulate if isinstance(config, RolloutConfig) else 1
        self.accumulated = 0  # minibatches since the last step
        self.collected = 0  # steps of this iteration
        self.passes: Passes | None = None  # while a rollout is learnt from

    def iteration(self) -> None:
        """One tick: WHEN to collect and to learn. Calls `collect` and `learn_from`, never Lightning.

        Afterwards env_steps and updates are counted; iterations are counted by the caller. It must not wait for the
        device, nor raise for a number that is not finite: flags are checked after it.
        """
        raise NotImplementedError

    def learn(self, work: Any) -> None:  # a Rollout to some, a number to others: they narrow it, `object` forbids that
        """HOW OFTEN: from the work to minibatches, each an `update`.

        The meaning of learning: a socket that replaces it must give the same numbers within rounding.
        """
        raise NotImplementedError

    def join(self, shard: SingleShard) -> None:
        """Become this shard: its draws, and means over all shards."""
        self.shard = self.collector.shard = shard
        self.rank = shard.number

    def configure_optimizers(self) -> Optimizer | None:
        """By default the optimizer of the config, over all parameters of the policy."""
        return build_optimizer(self.config, list(self.policy.parameters()), self.live.policy_lr)

    @property
    def epoch(self) -> int:
        """Finished epochs by our own clock."""
        return self.progress["iterations"] // self.config.epoch_iterations

    @property
    def epoch_ended(self) -> bool:
        """Whether the last iteration was the last of its epoch."""
        return self.progress["iterations"] % self.config.epoch_iterations == 0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of this process, by phase; waits for a GPU that is still busy."""
        return self.stopwatch.read()

    def key(self, purpose: int, index: int | Tensor) -> Key:
        """Names a table of draws of this agent."""
        return Key(self.config.seed, purpose, self.rank, index)

    def collect(self, steps: int) -> None:
        """Play `steps` steps in every world into the memory; counts env steps and seconds.

        Where nan_guard is on, rows that are not finite raise flags on the device; nothing is raised here, and updates
        on them do nothing.
        """
        start_mark = self.stopwatch.begin()
        self.engine.play.collect(self, steps)
        self.collected += steps
        if self.guarded:
            flags = self.poisoned, self.broken
            flag_non_finite(self.memory, steps, *flags)
            if self.shard.count > 1:  # no shard learns from a rollout with such a row in any shard
                for flag, count in zip(flags, self.shard.sum(torch.stack(flags).int()), strict=True):
                    flag.copy_(count)
        self.progress["env_steps"] += steps * self.memory.num_envs * self.shard.count
        self.stopwatch.end("collect", start_mark)

    def learn_from(self, work: object) -> None:
        """Learn from `work`, a Rollout or how many updates are due; counts seconds, not updates.

        It may be views into the memory, valid until the next `collect`.
        """
        start_mark = self.stopwatch.begin()
        self.engine.learn.learn(self, work)
        self.stopwatch.end("learn", start_mark)

    @property
    def optimizer(self) -> Optimizer:
        """The one optimizer of an agent that has one; Lightning's wrapper costs time and counts what we do not use."""
        optimizer = self.own_optimizer or self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, Optimizer)
        return optimizer

    def descend(self, optimizer: Optimizer, loss: Tensor, max_norm: float | None, skip: Tensor | None = None) -> Tensor:
        """One clipped gradient step; nothing changes where `skip` or where the gradient is not a number.

        Returns the norms of the parameters' gradients before clipping, in the optimizer's order.
        """
        values = self.differentiate(optimizer, {"loss": loss})
        return self.step(optimizer, values["loss"], max_norm, skip)

    def differentiate(self, optimizer: Optimizer, values: dict[str, Tensor], loss: str = "loss") -> dict[str, Tensor]:
        """Compute the gradients of `values[loss]`, or add them to those of the minibatches since the last step.

        Where there are several shards, gradients that a step follows, and all values, become means over all shards.
        """
        parameters = parameters_of(optimizer)
        if not self.accumulated:
            for parameter in parameters:  # zero_grad without its record for the profiler
                parameter.grad = None
        (values[loss] if self.accumulate == 1 else values[loss] / self.accumulate).backward()
        self.accumulated = (self.accumulated + 1) % self.accumulate
        if self.shard.count > 1:
            gradients = [] if self.accumulated else [p.grad for p in parameters if p.grad is not None]
            means = self.shard.means([*values.values(), *gradients])
            for gradient, mean in zip(gradients, means[len(values) :], strict=True):
                gradient.copy_(mean)
            values = dict(zip(values, means, strict=False))
        return values

    def step(self, optimizer: Optimizer, loss: Tensor, max_norm: float | None, skip: Tensor | None = None) -> Tensor:
        """The step after `differentiate`, as `descend` makes it.

        While `accumulate` minibatches are gathered only gradients change, and neither the step nor `updates` counts.
        `updates` also counts a step that a flag made nothing: the host does not know.
        """
        gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        if not self.accumulated:  # the step comes with the last of these minibatches
            total_norm = norms.norm()
            if max_norm is not None:
                torch._foreach_mul_(gradients, (max_norm / (total_norm + 1e-6)).clamp(max=1.0))
            step_unless(optimizer, self._unsound(loss, total_norm, skip))
            self.progress["updates"] += 1
        return norms

    def _unsound(self, loss: Tensor, total: Tensor, skip: Tensor | None) -> Tensor:
        """Whether a step must not be made; notes on the device what is not finite, unless nobody checks it."""
        if not self.guarded:
            return torch.zeros_like(self.broken) if skip is None else skip
        value = loss.detach()
        lost = value - value != 0  # 0 where it is finite, else NaN: two operations, where isfinite takes four
        bad_step = lost | (total - total != 0)
        if skip is not None:
            lost = lost & ~skip
            bad_step = bad_step & ~skip
        self.lost |= lost
        self.broken |= bad_step
        unsound = bad_step | self.poisoned
        return unsound if skip is None else unsound | skip

    def train_dataloader(self) -> range:
        return range(TICKS)  # sized, so Lightning does not prefetch; nobody looks at the number

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise UserError("Lightning's own strategies would train one agent per process; shards=N is one for all")
        if self.memory.replayed:
            log.info(str(self.memory))

    def training_step(self, dataloader_iter: Iterator[int]) -> None:
        # by taking the tick itself from an argument of this name an agent is spared Lightning's batch hooks: -40 us
        next(dataloader_iter)
        (self.shard_group or self).tick()

    def on_train_start(self) -> None:
        if self.shard_group:
            self.shard_group.begin(self.shards_loaded)

    def teardown(self, stage: str) -> None:
        if self.shard_group:
            self.shard_group.end()

    def tick(self) -> None:
        """An iteration and its count; errors for what it met."""
        self.collected = 0
        self.iteration()
        self.progress["iterations"] += 1
        memory = self.memory
        broken, overflowed, wrong = self._flags() if self.far else (self.broken, memory.overflowed, False)
        if self.guarded and broken:
            self._not_a_number()
        elif self.skipped:
            self.skipped = 0
        if memory.growth_unreported:
            memory.growth_unreported = False
            log.info(
                f"{self.config.env_id} truncates episodes before its time limit of "
                f"{self.collector.envs.time_limit:,} steps: the memory was extended for their last observations"
            )
        if overflowed:  # of compiled worlds, which end as they declare
            raise RuntimeError(f"{self.config.env_id} truncates episodes more often than its declared time limit")
        if wrong:
            raise wrong_action(self.collector.envs)

    def _flags(self) -> list[bool]:
        """Broken, overflowed, and an action that no world takes, in one copy: the only wait of an iteration."""
        wrong = self.collector.envs.wrong  # None where the worlds check actions themselves
        flags = (self.broken, self.memory.overflowed, torch.zeros_like(self.broken) if wrong is None else wrong)
        return torch.cat([flag.view(1).bool() for flag in flags]).cpu().tolist()

    def _not_a_number(self) -> None:
        """Something in this iteration was not finite, and no update learnt from it: stop, or go on without it."""
        steps = min(self.collected, self.memory.rows)
        env_steps = self.progress["env_steps"]
        bad_number = locate_non_finite(self.memory, steps, env_steps, self, bool(self.lost))
        bad_number = self.shard.earliest(bad_number, self.memory.num_envs, env_steps)
        problem = f"{bad_number} in iteration {self.progress['iterations']} ({env_steps:,} env steps)"
        self.skipped += 1
        if bad_number.description.startswith("weights"):
            raise NumbersError(problem)
        if self.config.nan_guard == "stop":
            raise NumbersError(f"{problem}; the weights are unchanged")
        if self.skipped >= SKIPS:
            raise NumbersError(f"{problem}; {SKIPS} iterations in a row were skipped")
        if self.skipped in (1, 10) and self.shard.number == 0:
            log.warning(f"{problem}; its updates were skipped (nan_guard: skip)")
        if self.memory.replayed:
            zero_non_finite(self.memory, steps)
        for flag in (self.broken, self.poisoned, self.lost):
            flag.zero_()

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        for name in ("state_dict", "optimizer_states"):  # a file does not show where an engine stores tensors
            if name in checkpoint:
                checkpoint[name] = plain(checkpoint[name])
        for group in groups(checkpoint):
            group["lr"] = float(group["lr"])
            if "capturable" in group:
                group["capturable"] = False
        checkpoint["stride"] = {
            "version": CHECKPOINT_VERSION,
            "progress": dict(self.progress),
            "parts": {name: move_data_to_device(part.state_dict(), CPU) for name, part in self.parts.items()},
        }
        if self.shard_group:
            checkpoint["stride"]["shards"] = self.shard_group.states()

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        state = checkpoint["stride"]
        if state["version"] != CHECKPOINT_VERSION:
            raise UserError(f"the checkpoint has version {state['version']}, this Stride reads {CHECKPOINT_VERSION}")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        for group in groups(checkpoint):  # a file knows no device; these become the optimizer's own
            if "capturable" in group:
                group["capturable"] = self.far
        self.progress.update(state["progress"])
        self.shards_loaded = state.get("shards")
        self.loads += 1


def plain(state: object) -> object:
    """A copy on the CPU with every tensor in memory of its own, row by row; dicts and lists are new, too."""
    if isinstance(state, Tensor):
        return state.detach().clone(memory_format=torch.contiguous_format).cpu()
    if isinstance(state, dict):
        return type(state)((key, plain(value)) for key, value in state.items())
    return [plain(value) for value in state] if isinstance(state, list) else state


def groups(checkpoint: dict) -> list[dict]:
    """The settings of its optimizers' parameters; an agent without a gradient has none."""
    return [group for state in checkpoint.get("optimizer_states", ()) for group in state.get("param_groups", ())]


def build_optimizer(config: Config, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """The optimizer a config names; fused where torch has it: that one, and LaProp, can skip a step without a sync.

    `lr` may be a number [] beside the parameters, to be overwritten: a CUDA graph reads it anew in each replay.
    """
    capturable = parameters[0].device.type != "cpu"  # then the counters are there, too: nothing is copied in a step
    first = {name: schedule.at(0, config.max_timesteps) for name, schedule in config.schedules().items()}
    common: dict[str, Any] = {"lr": lr, "weight_decay": first.get("weight_decay", config.weight_decay)}
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, **common, fused=True)
    common["eps"] = first.get("optimizer_eps", config.optimizer_eps)
    match config.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, **common, fused=True, capturable=capturable)
        case "adam":
            return torch.optim.Adam(parameters, **common, fused=True, capturable=capturable)
        case "radam":
            return torch.optim.RAdam(parameters, **common, capturable=capturable)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, **common, capturable=capturable)
        case "laprop":
            return LaProp(parameters, **common, clip=config.adaptive_clip, warmup=config.lr_warmup)


def scaled_optimizer(config: Config, parts: Sequence[Rated], lr: float | Tensor) -> Optimizer:
    """As build_optimizer, over all parts in their order; each learns by so many times the rate."""
    optimizer = build_optimizer(config, [parameter for part, _ in parts for parameter in part], lr)
    [common] = optimizer.param_groups
    if any(scale != 1 for _, scale in parts):
        optimizer.param_groups = [
            {**common, "params": part, "lr": common["lr"] * scale, "lr_scale": scale} for part, scale in parts if part
        ]
    return optimizer
