# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The generator has the same bits in NumPy, in C++ and as a kernel.

`gpu-test --filter='generator/*'` compares the kernel with C++: here on the simulator of PTX, in
test_suite.py on the host, in a run of the suite on a GPU.
"""

import itertools

import numpy as np
import pytest
from gpu_runs import ALL_CASES, gpu_test, read

from moec.generator import DTYPES, generate

DEVIATIONS = (1.0, 0.1, 1 / 64, 3e-6)


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.dtype.itemsize}")


@pytest.mark.parametrize("first", [0, 12345, 2**32 - 5, 2**40])
@pytest.mark.parametrize(
    "dtype,deviation", [*itertools.product(DTYPES, DEVIATIONS), ("i8", 40.0), ("i8", 2400.0)]
)
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


@pytest.mark.parametrize(("target", "seed"),
                         [("sm_80", 0), ("sm_90a", 1)] + ([("sm_80", 1), ("sm_90a", 0)] if ALL_CASES else []))
def test_kernel(target, seed):
    """gpu-test compares with C++: rows with and without padding, indices beyond 32 bits."""
    done = gpu_test(f"--device=sim:{seed}", f"--target={target}", "--filter=generator/*")
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr


def test_bytes_that_wrap_around_use_all_values():
    quantized = generate(1, "w", "i8", 2400.0, 0, 200_000).view(np.uint8)
    counts = np.bincount(quantized, minlength=256)
    assert counts.min() > 600 and counts.max() < 980


def test_is_near_to_normal():
    values = generate(1, "w", "f32", 1.0, 0, 200_000).astype(np.float64)
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
    # A sum of four uniform numbers has other, shorter tails.
    assert 0.04 < (np.abs(values) > 2).mean() < 0.05 and np.abs(values).max() < 3.47
    other = generate(2, "w", "f32", 1.0, 0, 200_000).astype(np.float64)
    assert abs((values * other).mean()) < 0.01
