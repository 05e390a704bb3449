"""The base class of every agent: a LightningModule for which one batch is one iteration ("tick"): collect, then learn.

On-policy agents collect a rollout, learn from it in a few passes and forget it. Off-policy agents collect a few steps,
then make the updates that `Ratio` says are due, from a replay memory; world models likewise. An algorithm writes

    iteration()      WHEN: collect, then learn
    learn(work)      HOW OFTEN: epochs x minibatches, or n updates; an engine may replace it
    update(batch)    WHAT: loss -> descend -> metrics

and `configure_optimizers()` if it learns more than its policy's parameters, or has no gradient.
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
MAX_TICKS = 1 << 31  # length of Lightning's only epoch, never reached; `progress` counts our iterations and epochs
PHASES = ("collect", "learn", "evaluate", "save")  # phases whose seconds the stopwatch counts; the caller starts it
ScaledPart = tuple[list[nn.Parameter], float]  # parameters, and what their learning rate is multiplied by
MAX_SKIPPED = 100  # iterations in a row without learning, after which a training ends with an error

log = logging.getLogger("stride")


class Passes(NamedTuple):
    """How far the passes over the present rollout have come; the console shows it."""

    done: int
    total: int
    begun: float
    """time.perf_counter() when the first pass began"""


class Stateful(Protocol):
    """A part of an agent whose state is stored in checkpoints."""

    def state_dict(self) -> dict: ...

    def load_state_dict(self, state: dict) -> None: ...


class Agent(L.LightningModule):
    """Owns the policy, collector, memory, engine, metrics and counters of a training. Algorithms are subclasses."""

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
        """`rows`, `slots`: time steps, and final observations, that the memory has for each environment.

        `replayed`: a replay memory, not one rollout. `keep_terminal`: store final observations of terminations, too.
        """
        super().__init__()
        self.automatic_optimization = False
        self.config = config
        self.policy = policy
        self.rank = rank
        self.shard: SingleShard = SINGLE
        self.shard_group: ShardGroup | None = None  # shard 0 of several has it, and runs them all
        self.own_optimizer: Optimizer | None = None  # of a shard other than 0, which has no Lightning trainer
        self.shards_loaded: list[dict] | None = None  # states of the shards in a checkpoint, until the training begins
        self.live = SimpleNamespace(**vars(config))  # the config, with the present values of scheduled keys
        for name, schedule in config.schedules().items():
            setattr(self.live, name, schedule.at(0, config.max_timesteps))
        self.to(envs.device)  # the policy is on it already; this sets Lightning's `self.device`
        self.collector = Collector(envs, policy, config.seed)
        example = self.collector.example()
        check_iteration(config, example, policy.draws, rows, slots)
        frames = config.frame_stack if replayed else 1  # a rollout is short: it stores complete stacks of frames
        carry = () if replayed else self.collector.carry  # a replay memory stores no carry with final observations
        self.memory = Memory(example, carry, rows, slots, config.seed, rank, keep_terminal, replayed, storage, frames)
        self.engine: Engine = eager()
        self.metrics = Metrics(example.reward.device, check_logged)
        self.parts: dict[str, Stateful] = {"collector": self.collector, "memory": self.memory, "metrics": self.metrics}
        # the counters of the training; `exported` is the env step of the last exported row of metrics
        self.progress = {"iterations": 0, "env_steps": 0, "updates": 0, "exported": 0}
        self.counter: Tensor | None = None  # copy of progress["iterations"] on the device, int64 [], for CUDA graphs
        self.loads = 0  # how often a checkpoint was loaded; each load gives tensors new addresses
        self.stopwatch = stopwatch(envs.device, PHASES)
        self.far = envs.device.type != "cpu"  # then the host waits for the device when it reads a number
        # flags on the device, for one iteration: anything was non-finite; a collected row was; a loss was
        self.broken, self.poisoned, self.lost = torch.zeros(3, dtype=torch.bool, device=envs.device)
        self.guarded = config.nan_guard != "off"
        self.skipped = 0  # iterations in a row without learning
        self.accumulate = config.accumulate if isinstance(config, RolloutConfig) else 1
        self.accumulated = 0  # minibatches since the last optimizer step
        self.collected = 0  # steps per environment in this iteration
        self.passes: Passes | None = None  # None outside `learn`

    def iteration(self) -> None:
        """Run one tick: call `collect` and `learn_from` (WHEN), and never Lightning.

        These two count env_steps and updates; `tick`, the caller, counts iterations. An iteration must not wait for the
        device, nor raise an error for a non-finite number: `tick` checks the flags after it.
        """
        raise NotImplementedError

    def learn(self, work: Any) -> None:  # Any, because subclasses narrow the type: a Rollout, or a number of updates
        """Make every `update` of this work (HOW OFTEN). An engine that replaces it gives the same up to rounding."""
        raise NotImplementedError

    def join(self, shard: SingleShard) -> None:
        """Make this agent one of several shards: it draws as shard `number`, and averages over all shards."""
        self.shard = self.collector.shard = shard
        self.rank = shard.number

    def configure_optimizers(self) -> Optimizer | None:
        """Return the optimizer that the config names, over all parameters of the policy; algorithms may override it."""
        return build_optimizer(self.config, list(self.policy.parameters()), self.live.policy_lr)

    @property
    def epoch(self) -> int:
        """Number of finished epochs, of `epoch_iterations` iterations each."""
        return self.progress["iterations"] // self.config.epoch_iterations

    @property
    def epoch_ended(self) -> bool:
        """Whether the last iteration was the last of its epoch."""
        return self.progress["iterations"] % self.config.epoch_iterations == 0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds this process has spent in each of PHASES; waits for a GPU that is still busy."""
        return self.stopwatch.read()

    def key(self, purpose: int, index: int | Tensor) -> Key:
        """Return the key of a table of random numbers: the config's seed, their purpose, this shard, and an index."""
        return Key(self.config.seed, purpose, self.rank, index)

    def collect(self, steps: int) -> None:
        """Play `steps` steps in every environment into the memory; count env steps and seconds.

        With nan_guard, non-finite rows set the flags `poisoned` and `broken` on the device. No error is raised here,
        but no update of this iteration changes any weight.
        """
        start_mark = self.stopwatch.begin()
        self.engine.play.collect(self, steps)
        self.collected += steps
        if self.guarded:
            flags = self.poisoned, self.broken
            flag_non_finite(self.memory, steps, *flags)
            if self.shard.count > 1:  # a non-finite row in one shard: no shard learns
                for flag, count in zip(flags, self.shard.sum(torch.stack(flags).int()), strict=True):
                    flag.copy_(count)
        self.progress["env_steps"] += steps * self.memory.num_envs * self.shard.count
        self.stopwatch.end("collect", start_mark)

    def learn_from(self, work: object) -> None:
        """Learn from `work`: a number of updates, or a Rollout (views, valid until the next `collect`)."""
        start_mark = self.stopwatch.begin()
        self.engine.learn.learn(self, work)
        self.stopwatch.end("learn", start_mark)

    @property
    def optimizer(self) -> Optimizer:
        """The agent's optimizer, without Lightning's wrapper, which costs time and counts what we do not use."""
        optimizer = self.own_optimizer or self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, Optimizer)
        return optimizer

    def descend(self, optimizer: Optimizer, loss: Tensor, max_norm: float | None, skip: Tensor | None = None) -> Tensor:
        """Make one optimizer step on `loss` [], with the gradient clipped to `max_norm` (None: not clipped).

        Nothing changes if the flag `skip` [] is set or the gradient is non-finite. Returns `step`'s gradient norms.
        """
        values = self.differentiate(optimizer, {"loss": loss})
        return self.step(optimizer, values["loss"], max_norm, skip)

    def differentiate(self, optimizer: Optimizer, values: dict[str, Tensor], loss: str = "loss") -> dict[str, Tensor]:
        """Compute the gradients of `values[loss]`, added to those of earlier minibatches since the last step.

        Returns `values`. With several shards these, and gradients before a step, become means over all shards.
        """
        parameters = parameters_of(optimizer)
        if not self.accumulated:
            for parameter in parameters:  # as zero_grad, but without its costly profiler record
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
        """Make the step that follows `differentiate`; return the norm of each parameter's gradient before clipping.

        With the key `accumulate` only every accumulate-th call makes a step and counts it in progress["updates"].
        A step that a flag turned into nothing is counted, too, because the host does not read the flag.
        """
        gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        if not self.accumulated:  # this was the last of `accumulate` minibatches
            total_norm = norms.norm()
            if max_norm is not None:
                torch._foreach_mul_(gradients, (max_norm / (total_norm + 1e-6)).clamp(max=1.0))
            step_unless(optimizer, self._unsound(loss, total_norm, skip))
            self.progress["updates"] += 1
        return norms

    def _unsound(self, loss: Tensor, total: Tensor, skip: Tensor | None) -> Tensor:
        """Return whether this step must change nothing, [] bool; with nan_guard, also set `lost` and `broken`."""
        if not self.guarded:
            return torch.zeros_like(self.broken) if skip is None else skip
        value = loss.detach()
        lost = value - value != 0  # x - x is 0 if x is finite, else NaN: 2 operations; isfinite needs 4
        bad_step = lost | (total - total != 0)
        if skip is not None:
            lost = lost & ~skip
            bad_step = bad_step & ~skip
        self.lost |= lost
        self.broken |= bad_step
        unsound = bad_step | self.poisoned
        return unsound if skip is None else unsound | skip

    def train_dataloader(self) -> range:
        return range(MAX_TICKS)  # has a length, so Lightning does not prefetch; the numbers are not used

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > 1:
            raise UserError("Lightning's own strategies would train one agent per process; shards=N is one for all")
        if self.memory.replayed:
            log.info(str(self.memory))

    def training_step(self, dataloader_iter: Iterator[int]) -> None:
        # an argument of this name makes Lightning leave out its batch hooks, which saves 40 us a tick
        next(dataloader_iter)
        (self.shard_group or self).tick()

    def on_train_start(self) -> None:
        if self.shard_group:
            self.shard_group.begin(self.shards_loaded)

    def teardown(self, stage: str) -> None:
        if self.shard_group:
            self.shard_group.end()

    def tick(self) -> None:
        """Run and count one iteration; then raise an error if a flag says that something went wrong in it."""
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
        if overflowed:  # only compiled environments: they promise their time limit, others may cut earlier
            raise RuntimeError(f"{self.config.env_id} truncates episodes more often than its declared time limit")
        if wrong:
            raise wrong_action(self.collector.envs)

    def _flags(self) -> list[bool]:
        """Return [broken, overflowed, wrong action] in one copy to the host, an iteration's only wait for a GPU."""
        wrong = self.collector.envs.wrong  # None if environments check actions themselves
        flags = (self.broken, self.memory.overflowed, torch.zeros_like(self.broken) if wrong is None else wrong)
        return torch.cat([flag.view(1).bool() for flag in flags]).cpu().tolist()

    def _not_a_number(self) -> None:
        """Handle a non-finite number, which no update has used: raise NumbersError, or go on without it."""
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
        if self.skipped >= MAX_SKIPPED:
            raise NumbersError(f"{problem}; {MAX_SKIPPED} iterations in a row were skipped")
        if self.skipped in (1, 10) and self.shard.number == 0:
            log.warning(f"{problem}; its updates were skipped (nan_guard: skip)")
        if self.memory.replayed:
            zero_non_finite(self.memory, steps)
        for flag in (self.broken, self.poisoned, self.lost):
            flag.zero_()

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        for name in ("state_dict", "optimizer_states"):  # files must not depend on how an engine stores tensors
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
        for group in groups(checkpoint):  # files have no device, but the optimizer takes over these settings
            if "capturable" in group:
                group["capturable"] = self.far
        self.progress.update(state["progress"])
        self.shards_loaded = state.get("shards")
        self.loads += 1


def plain(state: object) -> object:
    """Return a deep copy of dicts, lists and tensors, with each tensor contiguous on the CPU and sharing no memory."""
    if isinstance(state, Tensor):
        return state.detach().clone(memory_format=torch.contiguous_format).cpu()
    if isinstance(state, dict):
        return type(state)((key, plain(value)) for key, value in state.items())
    return [plain(value) for value in state] if isinstance(state, list) else state


def groups(checkpoint: dict) -> list[dict]:
    """Return the param_groups of all optimizers in a checkpoint; [] for an agent without an optimizer."""
    return [group for state in checkpoint.get("optimizer_states", ()) for group in state.get("param_groups", ())]


def build_optimizer(config: Config, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """Return the optimizer that the config names; torch's fused versions and LaProp can skip a step without a sync.

    `lr` may be a tensor [] on the device, which is overwritten later: a CUDA graph reads it in each replay.
    """
    capturable = parameters[0].device.type != "cpu"  # step counters on the GPU: no copies in a step
    first_values = {name: schedule.at(0, config.max_timesteps) for name, schedule in config.schedules().items()}
    common: dict[str, Any] = {"lr": lr, "weight_decay": first_values.get("weight_decay", config.weight_decay)}
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, **common, fused=True)
    common["eps"] = first_values.get("optimizer_eps", config.optimizer_eps)
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


def scaled_optimizer(config: Config, parts: Sequence[ScaledPart], lr: float | Tensor) -> Optimizer:
    """Return the optimizer that the config names, over all parts in order, each with its factor of the rate `lr`."""
    optimizer = build_optimizer(config, [parameter for part, _ in parts for parameter in part], lr)
    [common] = optimizer.param_groups
    if any(scale != 1 for _, scale in parts):
        optimizer.param_groups = [
            {**common, "params": part, "lr": common["lr"] * scale, "lr_scale": scale} for part, scale in parts if part
        ]
    return optimizer
