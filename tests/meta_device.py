"""Torch's `meta` device in the place of a GPU: tensors have shapes and no numbers, so whoever wants one is found out.

Meta itself refuses item, bool, nonzero and masks, and most mixtures of devices. It lets pass what only costs time on
a GPU: copies from the CPU, and indices that lie there. `Quiet` refuses those, too, and counts what is read.
"""

from importlib import import_module
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stride.agents.experience.nouns import tree_map
from stride.envs_fast.vec_env import Step
from stride.envs_gym.spaces import zeros

META = torch.device("meta")
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten._foreach_copy_.default)
WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.equal.default)
STEPS = (  # of optimizers, of which there are none on meta
    torch.ops.aten._fused_sgd_.default,
    torch.ops.aten._fused_sgd_.tensor_lr,
    torch.ops.aten._fused_adam_.tensor_lr,
    torch.ops.aten._fused_adamw_.tensor_lr,
)
MADE = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)  # of the host's numbers: a copy, and a wait
OPTIMIZERS = [f"torch.optim.{name}" for name in ("optimizer", "adam", "adamw", "radam", "sgd", "rmsprop")]
SUPPORTED = ("fused_kernels", "foreach_kernels", "capturable")


class Quiet(TorchDispatchMode):
    """Raises AssertionError where the host waits for the device; a whole copy to the CPU is answered by zeros, and
    counted in `reads`. A copy that says it waits for nobody (non_blocking) is none."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode they come whole
                return func.decompose(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        far, near = ([x for x in tensors if x.device.type == kind] for kind in ("meta", "cpu"))
        if func is COPIES[0] and far and kwargs.get("device", META).type == "cpu":
            self.reads += 1
            return torch.zeros(far[0].shape, dtype=kwargs.get("dtype") or far[0].dtype)
        if func is COPIES[1] and far and near and args[2:] == (True,):
            return args[0]
        assert not (far and func in WAITS), f"{func} waits for the device"
        assert not (near and kwargs.get("device") == META), f"{func} copies to the device"
        assert not (far and near and func in COPIES), f"{func} copies between devices"
        assert not (far and any(x.dim() for x in near)), f"{func} mixes devices"
        return None if far and func in STEPS else func(*args, **kwargs)


class NothingMade(TorchFunctionMode):
    """Refuses tensors that are made of the host's numbers on a device, which dispatch modes do not see."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        there = any(made is each for each in args)  # as_tensor of what lies there already is that
        assert there or not (func in MADE and made.device == META), f"{func} copies the host's numbers to the device"
        return made


def optimizers_on_meta():
    """Lets torch's fused, foreach and capturable optimizers run there as they do on CUDA."""
    places = [(each, f"_get_{kind}_supported_devices") for each in map(import_module, OPTIMIZERS) for kind in SUPPORTED]
    known = ["cpu", "cuda", "meta"]
    return [mock.patch.object(*place, lambda *_, **__: known) for place in places if place[1] in vars(place[0])]


class MetaWorlds:
    """Worlds of these spaces on the device."""

    device, resume, reward_threshold = META, "exact", None

    def __init__(self, num_envs, observation_space, action_space, time_limit=500) -> None:
        self.num_envs, self.time_limit = num_envs, time_limit
        self.observation_space, self.action_space = observation_space, action_space
        self.obs = tree_map(lambda x: x.to(META), zeros(observation_space, num_envs))
        self.action = zeros(action_space, num_envs)
        self.wrong = torch.zeros(1, dtype=torch.int32, device=META)
        number, flag = (torch.zeros(num_envs, dtype=kind, device=META) for kind in (torch.float32, torch.bool))
        self.told = Step(self.obs, number, flag, flag, self.obs, number, number)

    def reset(self, seed):
        return self.obs

    def step(self, action):
        assert action.device == META and action.shape == self.action.shape and action.dtype == self.action.dtype
        return self.told

    def state_dict(self):
        return {"obs": self.obs}

    def load_state_dict(self, state):
        pass

    def close(self):
        pass
