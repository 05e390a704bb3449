"""The yardstick of the training benchmarks: a loop in registers, whatever processor it is compiled for."""

import platform
import re

import numpy as np
import pytest

from lab.bench import limit, measure
from lab.bench.limit import SUMS, VECTOR_FLOATS, Limit
from lab.bench.ratio import Ratio, ratio_of
from stride.agents.engines.fused_cpu.frame import aligned
from stride.agents.engines.fused_cpu.kernels.calls import address_of

X86 = platform.machine().lower() in ("x86_64", "amd64") and "fma" in measure.FEATURES
REGISTERS = {8: "ymm", 16: "zmm"}


def loops(assembly):
    """The instructions of each loop: from a label to the jump back to it."""
    lines = [line.strip() for line in assembly.splitlines()]
    for end, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.?\w+)$", line)
        if jump and f"{jump[1]}:" in lines[:end]:
            begin = lines.index(f"{jump[1]}:")
            yield [text for text in lines[begin + 1 : end + 1] if text and not text.startswith(".")]


def check_registers(assembly, lanes):
    """In loops of multiply-adds each is of the widest registers alone, and nothing there touches memory.

    Some processors get two: an unrolled loop, and one for the rounds left over.
    """
    counting = [loop for loop in loops(assembly) if any("vfmadd" in line for line in loop)]
    assert 1 <= len(counting) <= 2
    register = rf"%{REGISTERS[lanes]}\d+"
    for loop in counting:
        sums = [line for line in loop if line.startswith("vfmadd")]
        wide = re.compile(rf"vfmadd\d+ps\s+({register}(, )?){{3}}")
        assert len(sums) % SUMS == 0 and all(wide.fullmatch(line) for line in sums)
        assert len({line.split("%")[-1] for line in sums}) == SUMS, "sums wait for one another"
        assert not [line for line in loop if "(" in line]
        assert len(loop) - len(sums) <= 4, loop


@pytest.mark.skipif(not X86, reason="reads x86 assembly of AVX2 or wider")
def test_the_kernel_that_is_timed_stays_in_registers():
    address_of(limit.multiply_adds)
    (assembly,) = limit.multiply_adds.inspect_asm().values()
    check_registers(assembly, VECTOR_FLOATS)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_the_loop_multiplies_and_adds_as_often_as_it_is_asked(rounds):
    values = aligned(limit.THREAD_FLOATS)
    line = values.reshape(SUMS + 2, 16)
    line[:SUMS], line[SUMS], line[SUMS + 1] = np.arange(SUMS)[:, None], 0.5, 3.0
    wanted = np.arange(SUMS, dtype=np.float32)
    for _ in range(rounds):
        wanted = wanted * np.float32(0.5) + np.float32(3.0)
    limit.multiply_adds(np.array([values.ctypes.data, rounds]).ctypes.data, 0)
    assert np.array_equal(line[:SUMS, :VECTOR_FLOATS], np.repeat(wanted[:, None], VECTOR_FLOATS, 1))


def test_both_rates_are_measured_and_said_with_their_share(monkeypatch, capsys):
    monkeypatch.setattr(limit, "N_TURNS", 1)
    monkeypatch.setattr(limit, "ROUNDS", 100)
    monkeypatch.setattr(limit, "PRODUCTS", 2)
    assert limit.main(["--threads", "2"]) == 0
    printed = capsys.readouterr().out
    assert "in registers on 1 thread(s)" in printed and "in registers on 2 thread(s)" in printed
    assert str(Limit(2, 2e11, 1.5e11)).endswith(
        "200 GFLOP/s in registers on 2 thread(s); our products of 64 x 64 150, 75% of it"
    )


@pytest.mark.parametrize(
    ("used", "there", "name"),
    [
        ({"avx2", "avx512f"}, {"avx2": True, "avx512f": True}, "AVX-512"),
        ({"avx2"}, {"avx2": True, "avx512f": True}, "AVX2 forced"),
        ({"avx2"}, {"avx2": True, "avx512f": False}, "AVX2"),
        (set(), {}, "no AVX2"),
    ],
)
def test_figures_name_the_instruction_set_in_use(used, there, name, monkeypatch):
    monkeypatch.setattr(measure, "FEATURES", used)
    monkeypatch.setattr(measure.llvm, "get_host_cpu_features", lambda: there)
    assert measure.instruction_set() == name and measure.machine(3).split("\n")[0].endswith(f"{name}, 3 thread(s)")


def test_a_ratio_is_the_median_of_turns_with_its_interval():
    ratio = ratio_of([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    assert ratio.median == 2.0 and ratio.low == 2.0 and ratio.high == 3.0 and ratio.turns == 3
    assert str(ratio) == "2.00 (2.00 to 3.00, 3 turn(s) only)" and str(Ratio(1.5, 1, 2, 7)) == "1.50 (1.00 to 2.00)"
