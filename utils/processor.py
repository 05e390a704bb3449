"""What this processor can do, as Numba compiles for it."""

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from numba.core import config


def _features() -> frozenset[str]:
    """Names of its instruction sets; NUMBA_CPU_FEATURES, where set, counts instead."""
    if config.CPU_FEATURES is not None:  # type: ignore[attr-defined]
        said = str(config.CPU_FEATURES).split(",")  # type: ignore[attr-defined]
        return frozenset(name[1:] for name in said if name.startswith("+"))
    return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)


NAME = str(config.CPU_NAME or llvm.get_host_cpu_name())  # type: ignore[attr-defined]
FEATURES = _features()
