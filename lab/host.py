"""Environment variables by which a processor computes as an older one does, to the bit. Imports read them."""

from collections.abc import Mapping

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from stride.utils import kernel_folder

# of torch, its libraries and JAX
NO_WIDER = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
# everybody's switches for AVX2; the first two are Numba's, by which our kernels are compiled
AVX2 = NO_WIDER | {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+64bit,+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,"
    "+fma,+bmi,+bmi2,+f16c",
}


def switches(processor: str) -> Mapping[str, str]:
    """By which this machine has the bits of a record's class, as "znver3, AVX2"; none where it is so or cannot be."""
    name, capability = processor.split(", ")
    features = [feature for feature, has in llvm.get_host_cpu_features().items() if has]
    if capability != "AVX2" or "avx2" not in features or name == kernel_folder.NAME:
        return {}
    kept = [f"+{feature}" for feature in sorted(features) if not feature.startswith("avx512")]
    return NO_WIDER | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ",".join(kept)}
