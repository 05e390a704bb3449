"""What every agent is: a LightningModule whose batch is a tick. One tick is one iteration: collect, then learn.

On-policy: collect a rollout, learn from it in a few passes, forget it. Off-policy: collect a few steps, learn what
`Ratio` says is due from all that is remembered. World models: the same over sequences. An algorithm writes four words:

    configure_optimizers()
    iteration()      WHEN: collect, then learn
    learn(work)      HOW OFTEN: epochs x minibatches, or n updates; a socket may replace it
    update(batch)    WHAT: loss -> descend -> metrics
"""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Protocol

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.experience.collector import Collector, Policy
from stride.agents.experience.finite_guard import flag_non_finite, locate_non_finite, zero_non_finite
from stride.agents.experience.memory import Memory
from stride.agents.experience.storage import check_iteration
from stride.agents.laprop import LaProp
from stride.agents.metric_sums import Metrics
from stride.agents.sockets import Engine, eager
from stride.agents.stopwatch import stopwatch
from stride.config.schema import Config, RolloutConfig
from stride.envs_fast.vec_env import VecEnv, wrong_action
from stride.utils.counter_rng import Key
from stride.utils.user_error import NumbersError, UserError

CHECKPOINT_VERSION = 1
TICKS = 1 << 31  # Lightning's epoch is only a container: ours are counted by `progress`
PHASES = ("collect", "learn", "evaluate", "save")  # what seconds are counted of, each by whoever does it
SKIPS = 100  # iterations in a row that nothing could be learnt from

log = logging.getLogger("stride")


class Stateful(Protocol):
    """A part whose state a checkpoint must hold."""

    def state_dict(self) -> dict: ...

    def load_state_dict(self, state: dict) -> None: ...


class Agent(L.LightningModule):
    """Owns policy, collector, memory, engine, metrics and the clock. Subclasses are one level deep."""

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
        self.config, self.policy, self.rank, self.world_size = config, policy, rank, 1
        self.live = SimpleNamespace(**vars(config))  # what schedules move; the rest stays as configured
        for name, schedule in config.schedules().items():
            setattr(self.live, name, schedule.at(0, config.max_timesteps))
        self.to(envs.device)  # where `policy` lies already: Lightning's word for it, too
        self.collector = Collector(envs, policy, config.seed, rank=rank)
        example = self.collector.example()
        check_iteration(config, example, policy.draws, rows, slots)
        frames = config.frame_stack if replayed else 1  # a rollout is short: its observations are kept as they come
        kept = (keep_terminal, replayed, storage, frames)
        carry = () if replayed else self.collector.carry  # a replay's final observations are not valued by a policy
        self.memory = Memory(example, carry, rows, slots, config.seed, rank, *kept)
        self.engine: Engine = eager()
        self.metrics = Metrics(example.reward.device)
        self.parts: dict[str, Stateful] = {
            "collector": self.collector,
            "memory": self.memory,
            "metrics": self.metrics,
        }
        # the clock, and at which env step the last row of numbers was told
        self.progress = {"iterations": 0, "env_steps": 0, "updates": 0, "exported": 0}
        self.counter: Tensor | None = None  # iterations, int64 [] on the device, where a graph reads them
        self.loads = 0  # how often a state was loaded, after which things lie elsewhere
        self.stopwatch = stopwatch(envs.device, PHASES)
        self.far = envs.device.type != "cpu"  # to look at a number of what is learnt from is to wait
        # flags on the device: something was not finite; it was in what was collected; it was in the loss
        self.broken, self.poisoned, self.lost = torch.zeros(3, dtype=torch.bool, device=envs.device)
        self.guarded, self.skipped = config.nan_guard != "off", 0
        self.accumulate = config.accumulate if isinstance(config, RolloutConfig) else 1
        self.accumulated, self.collected = 0, 0  # minibatches since the last step; steps of this iteration

    def iteration(self) -> None:
        """One tick: WHEN to collect and to learn. Calls `collect` and `learn_from`, never Lightning.

        Afterwards env_steps and updates are counted; iterations are counted by the caller. It must not wait for the
        device, nor raise for a number that is not finite: flags are looked at behind it.
        """
        raise NotImplementedError

    def learn(self, work: Any) -> None:  # a Rollout to some, a number to others: they narrow it, `object` forbids that
        """HOW OFTEN: from the work to minibatches, each an `update`.

        The meaning of learning: a socket that replaces it must give the same numbers within rounding.
        """
        raise NotImplementedError

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
        """Of this process, by phase; waits for a GPU that is still at it."""
        return self.stopwatch.read()

    def key(self, purpose: int, index: int | Tensor) -> Key:
        """Names a table of draws of this agent."""
        return Key(self.config.seed, purpose, self.rank, index)

    def collect(self, steps: int) -> None:
        """Play `steps` steps in every world into the memory; counts env steps and seconds.

        Where nan_guard is on, rows that are not finite raise flags on the device; nothing is raised here, and updates
        on them do nothing.
        """
        began = self.stopwatch.begin()
        self.engine.play.collect(self, steps)
        self.collected += steps
        if self.guarded:
            flag_non_finite(self.memory, steps, self.poisoned, self.broken)
        self.progress["env_steps"] += steps * self.memory.num_envs * self.world_size
        self.stopwatch.end("collect", began)

    def learn_from(self, work: object) -> None:
        """Learn from `work`, a Rollout or how many updates are due; counts seconds, not updates.

        It may be views into the memory, valid until the next `collect`.
        """
        began = self.stopwatch.begin()
        self.engine.learn.learn(self, work)
        self.stopwatch.end("learn", began)

    @property
    def optimizer(self) -> Optimizer:
        """The one optimizer of an agent that has one; Lightning's wrapper costs time and counts what we do not use."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, Optimizer)
        return optimizer

    def descend(
        self,
        optimizer: Optimizer,
        loss: Tensor,
        max_norm: float | None,
        skip: Tensor | None = None,
    ) -> Tensor:
        """One clipped gradient step; nothing changes where `skip` or where the gradient is not a number.

        Returns the norms of the parameters' gradients before clipping, in the optimizer's order. Averages over
        processes by itself: under manual optimisation Lightning's DDP does not, and a fused engine has no hooks.

        While `accumulate` minibatches are gathered only gradients change, and neither the step nor `updates` counts.
        `updates` also counts a step that a flag made nothing: the host does not know.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if not self.accumulated:
            for parameter in parameters:  # what zero_grad does, less its record for the profiler
                parameter.grad = None
        (loss if self.accumulate == 1 else loss / self.accumulate).backward()
        self.accumulated = (self.accumulated + 1) % self.accumulate
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.accumulated:  # the step comes with the last of these minibatches
            return torch.stack(torch._foreach_norm(gradients))
        if self.world_size > 1:
            average(gradients)
        norms = torch.stack(torch._foreach_norm(gradients))
        total = norms.norm()
        if max_norm is not None:
            torch._foreach_mul_(gradients, (max_norm / (total + 1e-6)).clamp(max=1.0))
        step_unless(optimizer, self._unsound(loss, total, skip))
        self.progress["updates"] += 1
        return norms

    def _unsound(self, loss: Tensor, total: Tensor, skip: Tensor | None) -> Tensor:
        """Whether a step is not to be made; notes on the device what is not finite, unless nobody looks at it."""
        if not self.guarded:
            return torch.zeros_like(self.broken) if skip is None else skip
        value = loss.detach()
        lost = value - value != 0  # 0 where it is finite, else NaN: two operations, where isfinite takes four
        broken = lost | (total - total != 0)
        if skip is not None:
            lost, broken = lost & ~skip, broken & ~skip
        self.lost |= lost
        self.broken |= broken
        return broken | self.poisoned if skip is None else broken | self.poisoned | skip

    def train_dataloader(self) -> range:
        return range(TICKS)  # sized, so Lightning does not prefetch; nobody looks at the number

    def setup(self, stage: str) -> None:
        self.world_size = self.trainer.world_size
        if self.world_size > 1:
            self.engine = eager("several processes average their gradients in torch")
        if self.memory.replayed:
            log.info(str(self.memory))

    def training_step(self, dataloader_iter: Iterator[int]) -> None:
        # by taking the tick itself from an argument of this name an agent is spared Lightning's batch hooks: -40 us
        next(dataloader_iter)
        self.collected = 0
        self.iteration()
        self.progress["iterations"] += 1
        broken, overflowed, wrong = self._flags() if self.far else (self.broken, self.memory.overflowed, False)
        if self.guarded and broken:
            self._not_a_number()
        else:
            self.skipped = 0
        if self.memory.untold:
            self.memory.untold, limit = False, self.collector.envs.time_limit
            log.info(
                f"{self.config.env_id} truncates episodes before its time limit of {limit:,} steps: "
                "the memory made room for their last observations"
            )
        if overflowed:  # of compiled worlds, which end as they declare
            raise RuntimeError(f"{self.config.env_id} truncates episodes more often than its declared time limit")
        if wrong:
            raise wrong_action(self.collector.envs)

    def _flags(self) -> list[bool]:
        """Broken, overflowed, and an action that no world takes, in one copy: the only wait of an iteration."""
        wrong = self.collector.envs.wrong  # None where the worlds look for themselves
        flags = (self.broken, self.memory.overflowed, torch.zeros_like(self.broken) if wrong is None else wrong)
        return torch.cat([flag.view(1).bool() for flag in flags]).cpu().tolist()

    def _not_a_number(self) -> None:
        """Something in this iteration was not finite, and no update learnt from it: stop, or go on without it."""
        steps, env_steps = min(self.collected, self.memory.rows), self.progress["env_steps"]
        place = locate_non_finite(self.memory, steps, env_steps, self, bool(self.lost))
        where = f"in iteration {self.progress['iterations']} ({env_steps:,} env steps)"
        self.skipped += 1
        sick = place.words.startswith("weights")
        if sick or self.config.nan_guard == "stop":
            raise NumbersError(f"{place} {where}" + ("" if sick else "; the weights are as before it"))
        if self.skipped >= SKIPS:
            raise NumbersError(f"{place} {where}; nothing could be learnt from {SKIPS} iterations in a row")
        if self.skipped in (1, 10):
            log.warning(f"{place} {where}; nothing was learnt from it (nan_guard: skip)")
        if self.memory.replayed:
            zero_non_finite(self.memory, steps)
        for flag in (self.broken, self.poisoned, self.lost):
            flag.zero_()

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        for part in ("state_dict", "optimizer_states"):  # where an engine keeps them is no part of what they are
            if part in checkpoint:
                checkpoint[part] = plain(checkpoint[part])
        for group in groups(checkpoint):
            group.update(lr=float(group["lr"]), **({"capturable": False} if "capturable" in group else {}))
        checkpoint["stride"] = {
            "version": CHECKPOINT_VERSION,
            "progress": dict(self.progress),
            "parts": {name: on_cpu(part.state_dict()) for name, part in self.parts.items()},
        }

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        state = checkpoint["stride"]
        if state["version"] != CHECKPOINT_VERSION:
            raise UserError(f"a checkpoint of version {state['version']}, this program reads {CHECKPOINT_VERSION}")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        for group in groups(checkpoint):  # a file knows no device; these become the optimizer's own
            group.update({"capturable": self.far} if "capturable" in group else {})
        self.progress.update(state["progress"])
        self.loads += 1


def average(gradients: list[Tensor]) -> None:
    """Mean over all processes, in place, by one all-reduce of one flat vector."""
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def step_unless(optimizer: Optimizer, skip: Tensor) -> None:
    """optimizer.step(), or nothing at all (moments and counters included) where the flag `skip` is set; no sync.

    An optimizer of one's own keeps everything beside its parameters (`capturable`), or a copy of its counters waits.
    """
    if isinstance(optimizer, LaProp) or optimizer.defaults.get("fused"):
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]  # the door torch's own GradScaler uses
        optimizer.step()
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = {id(x): x.clone() for p in parameters for x in (p, *_moments(optimizer, p))}
    optimizer.step()
    with torch.no_grad():
        for p in parameters:
            for now in (p, *_moments(optimizer, p)):
                old = before.get(id(now), torch.zeros_like(now))  # moments begin at zero, in the first step itself
                now.copy_(torch.where(skip, old, now))


def _moments(optimizer: Optimizer, parameter: nn.Parameter) -> list[Tensor]:
    return [x for x in optimizer.state[parameter].values() if isinstance(x, Tensor)]


def plain(state: object) -> object:
    """The same on the CPU with every tensor in memory of its own, row by row; dicts and lists are new, too."""
    if isinstance(state, Tensor):
        return state.detach().clone(memory_format=torch.contiguous_format).cpu()
    if isinstance(state, dict):
        return type(state)((key, plain(value)) for key, value in state.items())
    return [plain(each) for each in state] if isinstance(state, list) else state


def on_cpu(state: Any) -> Any:
    """The same with every tensor on the CPU, copied only where it is not there yet: what a checkpoint holds."""
    if isinstance(state, Tensor):
        return state.cpu()
    if isinstance(state, dict):
        return {key: on_cpu(value) for key, value in state.items()}
    return type(state)(map(on_cpu, state)) if type(state) in (list, tuple) else state


def groups(checkpoint: dict) -> list[dict]:
    """The settings of its optimizers' parameters; an agent without a gradient has none."""
    return [group for state in checkpoint.get("optimizer_states", ()) for group in state.get("param_groups", ())]


def build_optimizer(config: Config, parameters: list[nn.Parameter], lr: float | Tensor) -> Optimizer:
    """The optimizer a config names; fused where torch has it: that one, and LaProp, can skip a step without a sync.

    `lr` may be a number [] beside the parameters, to be overwritten: what a CUDA graph reads anew in each replay.
    """
    eps, decay = config.optimizer_eps, config.weight_decay
    far = parameters[0].device.type != "cpu"  # then the counters lie there, too: nothing is copied in a step
    match config.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, lr, eps=eps, weight_decay=decay, fused=True, capturable=far)
        case "adam":
            return torch.optim.Adam(parameters, lr, eps=eps, weight_decay=decay, fused=True, capturable=far)
        case "sgd":
            return torch.optim.SGD(parameters, lr, weight_decay=decay, fused=True)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, lr, eps=eps, weight_decay=decay, capturable=far)
        case "laprop":
            clip, warmup = config.adaptive_clip, config.lr_warmup
            return LaProp(parameters, lr, eps=eps, weight_decay=decay, clip=clip, warmup=warmup)
