"""What the processor can do and which kernel variant that selects, before anything compiles."""

from __future__ import annotations

import ctypes
import enum
import functools
import os
import sys

import llvmlite.binding as llvm

_GGML_NAMES = {
    "sse3": "SSE3",
    "ssse3": "SSSE3",
    "avx": "AVX",
    "avx2": "AVX2",
    "f16c": "F16C",
    "fma": "FMA",
    "bmi2": "BMI2",
    "avxvnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512vnni": "AVX512_VNNI",
    "avx512bf16": "AVX512_BF16",
    "amx-int8": "AMX_INT8",
    "neon": "NEON",
    "dotprod": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}

# From Linux's prctl.h.
_PR_SVE_GET_VL = 51
_PR_SVE_VL_LEN_MASK = 0xFFFF


class Variant(enum.StrEnum):
    """How kernels are compiled; an intrinsic that the processor lacks would abort the process."""

    AVX512_VNNI = "avx512-vnni"
    AVX_VNNI = "avx-vnni"
    AVX2 = "avx2"
    GENERIC = "generic"


@functools.cache
def llvm_features() -> frozenset[str]:
    """LLVM's names of the processor's features, or those forced by NUMBA_CPU_FEATURES."""
    forced = os.environ.get("NUMBA_CPU_FEATURES")
    if forced is not None:
        return frozenset(name[1:] for name in forced.split(",") if name.startswith("+"))
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def ggml_features() -> frozenset[str]:
    """The features by the names that ggml prints, such as AVX512_VNNI or SVE_CNT=32."""
    have = llvm_features()
    names = {_GGML_NAMES[name] for name in have if name in _GGML_NAMES}
    if "sve" in have:
        names.add(f"SVE_CNT={_sve_bytes()}")
    return frozenset(names)


def _sve_bytes() -> int:
    """Bytes of an SVE register, 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    answer: int = ctypes.CDLL(None).prctl(_PR_SVE_GET_VL)
    return answer & _PR_SVE_VL_LEN_MASK if answer > 0 else 0


def variant() -> Variant:
    """The best variant this processor runs."""
    have = llvm_features()
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "f16c"} <= have:
        return Variant.AVX512_VNNI
    if {"avx2", "fma", "f16c"} <= have:
        return Variant.AVX_VNNI if "avxvnni" in have else Variant.AVX2
    return Variant.GENERIC


def has_half_conversion() -> bool:
    """Whether f16 <-> f32 is an instruction; else LLVM would call a function that is not linked."""
    return "f16c" in llvm_features() or "neon" in llvm_features()
