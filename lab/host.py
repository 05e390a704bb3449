"""Environment variables that make a processor compute like an older one, with the same bits.

They must be set before Python starts: torch, Numba and others read them when they are imported.
"""

from collections.abc import Mapping

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from stride.utils import kernel_folder

# variables of torch, its libraries and JAX: no wider instructions than AVX2
NO_WIDER = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
# all variables for AVX2; these two are Numba's, which compiles our kernels
AVX2 = NO_WIDER | {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+64bit,+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,"
    "+fma,+bmi,+bmi2,+f16c",
}


def switches(processor: str) -> Mapping[str, str]:
    """Return the variables that give this machine the bits of another `processor`, such as "znver3, AVX2".

    {} if this machine has these bits already, or cannot have them.
    """
    name, capability = processor.split(", ")
    features = [feature for feature, is_present in llvm.get_host_cpu_features().items() if is_present]
    if capability != "AVX2" or "avx2" not in features or name == kernel_folder.NAME:
        return {}
    kept_features = [f"+{feature}" for feature in sorted(features) if not feature.startswith("avx512")]
    return NO_WIDER | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ",".join(kept_features)}
