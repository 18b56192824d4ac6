# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator has the same bits in NumPy, in C++ and as a kernel.

The kernel runs here as PTX in the simulator; `gpu-test --filter='generator/*'` compares it with
C++ on the device (test_suite.py does so on the host).
"""

import numpy as np
import pytest
from gpu_runs import gpu_test, read

from moec.generator import DTYPES, factor, generate, stream_key
from moec.simulator import Machine, Program

DEVIATIONS = (1.0, 0.1, 1 / 64, 3e-6)
#: Elements that a CTA of the kernel makes.
CTA = 4096


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.dtype.itemsize}")


@pytest.mark.parametrize("first", [0, 12345, 2**32 - 5, 2**40])
@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cpp(dtype, deviation, first, tmp_path):
    path = tmp_path / "values.safetensors"
    count = 10_001
    wanted = generate(3, "experts.w2", dtype, deviation, first, count)
    done = gpu_test(
        f"--generate=3,experts.w2,{dtype},{deviation!r},{first},{count}", f"--outputs={path}"
    )
    assert done.returncode == 0, done.stderr
    written = read(path)
    np.testing.assert_array_equal(bits(written["values"].view(DTYPES[dtype])), bits(wanted))
    np.testing.assert_array_equal(written["numbers"], wanted.astype(np.float64))


@pytest.fixture(scope="module", params=["sm_80", "sm_90a"])
def program(request):
    done = gpu_test(f"--emit-generator={request.param}")
    assert done.returncode == 0, done.stderr
    return Program(done.stdout)


@pytest.mark.parametrize("first", [0, 2**32 - 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel(dtype, first, program):
    count, columns, padding = CTA + 300, 100, 28
    for deviation in DEVIATIONS:
        machine = Machine(program, 1 << 20)
        width = columns + padding
        size = -(-count // columns) * width
        address = machine.allocate(size * DTYPES[dtype].itemsize)
        scale = int(np.array(factor(deviation)).view(np.uint32))
        key = stream_key(5, "shared_experts.w13")
        machine.launch(
            f"generate_{dtype}",
            -(-count // CTA),
            [address, key, first, count, scale, columns, padding],
        )
        seen = machine.read(address, DTYPES[dtype], (size // width, width))
        wanted = generate(5, "shared_experts.w13", dtype, deviation, first, count)
        rows = bits(seen)[:, :columns].reshape(-1)
        np.testing.assert_array_equal(rows[:count], bits(wanted))
        # Padding, and what comes after the last element, is as it was.
        untouched = bits(np.full(1, 0xFF, np.uint8).repeat(seen.dtype.itemsize).view(seen.dtype))[0]
        assert (bits(seen)[:, columns:] == untouched).all()
        assert (rows[count:] == untouched).all()


def test_is_near_to_normal():
    values = generate(1, "w", "f32", 1.0, 0, 200_000).astype(np.float64)
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
    # Four uniform numbers have tails of their own, and no far ones.
    assert 0.04 < (np.abs(values) > 2).mean() < 0.05 and np.abs(values).max() < 3.47
    other = generate(2, "w", "f32", 1.0, 0, 200_000).astype(np.float64)
    assert abs((values * other).mean()) < 0.01
