# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process survives 10,000 random invalid arguments; they run in a separate process."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import ml_dtypes
import numpy as np

CALLS = 10_000
SEED = 29


def make_argument(rng: random.Random) -> object:
    """Returns an invalid tensor, an object that is not a tensor, or sometimes a valid tensor."""
    from dlpack_maker import Told

    def pick(*values: object) -> object:
        return rng.choice(values)

    rows = pick(0, 1, 4, 5, 5, 5, 63, 64, 65, 200)
    columns = pick(1, 2, 2, 4, 4, 32, 64, 64, 64, 65)
    dtype = pick(ml_dtypes.bfloat16, np.float32, np.int32, np.float16, np.int64, np.uint8,
                 np.complex64, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.float64)
    array = np.ones((rows, columns), dtype)
    kind = rng.randrange(12)
    if kind == 0:
        return pick(None, 0, -1, 2**70, 1.5, "hidden", b"x", (), [], {}, object(), type, len,
                    float("nan"), True, np.float32(3), np.zeros(()), Exception("x"))
    if kind == 1:
        return pick(array[::2], array[:, ::-1], array.T, array[..., None], array.ravel(),
                    np.broadcast_to(array[:1], array.shape), array.astype(object))
    if kind == 2:
        return np.zeros(array.size * array.itemsize + 16, np.uint8)[1:]
    if kind == 3:
        shape = tuple(pick(-(2**63), -1, 0, 1, 5, 64, 2**31, 2**62, 2**63 - 1)
                      for _ in range(rng.randrange(9)))
        strides = tuple(pick(-(2**63), -1, 0, 1, 64, 2**62, 2**63 - 1) for _ in shape)
        # Only shapes that are refused: such a tensor has no memory to read.
        return Told(array, dtype=(31, 7, 3), shape=shape, strides=pick(None, strides))
    if kind == 4:
        return Told(array, rank=pick(-(2**31), -1, 9, 2**31 - 1), dtype=(4, 16, 1))
    if kind == 5:
        return Told(array, device=pick((2, 0), (2, 9), (3, 0), (0, 0), (-1, -1), (13, 0), (10, 1)),
                    dtype=(31, 7, 3))
    if kind == 6:
        return Told(array, major=pick(0, 2, 2**32 - 1), data=pick(None, 0, 1))
    if kind == 7:
        return Told(array, name=pick(b"", b"used_dltensor", b"tensor"), versioned=pick(True, False))
    if kind == 8:
        return Told(array, dtype=pick((0, 0, 0), (255, 255, 65535), (17, 4, 1), (4, 16, 2)))
    if kind == 9:
        answer = pick(None, 3, array, RuntimeError, RecursionError, MemoryError)

        class Strange:
            __dlpack_c_exchange_api__ = pick(None, 1, "x")

            def __dlpack_device__(self) -> object:
                return pick((1, 0), (2, 0), None, "cpu", (), ("a", "b"), 1)

            def __dlpack__(self, *_: object, **__: object) -> object:
                if isinstance(answer, type):
                    raise answer
                return answer

            def __getattr__(self, name: str) -> object:
                raise pick(AttributeError(name), ValueError(name))

        return Strange()
    return array


def fuzz() -> None:
    from small_layer import CALLS as ARGUMENTS
    from small_layer import shared_case

    import moec

    rng = random.Random(SEED)
    cases = [shared_case(entry) for entry in ARGUMENTS]
    refused = accepted = 0
    names = (*moec._core.POSITIONAL_INPUTS, *moec._core.KEYWORD_INPUTS, "out", "stream", "device", "", "experts.w13")
    for _ in range(CALLS):
        case, layer = rng.choice(cases)
        arguments = dict(case.arguments)
        for _ in range(rng.randrange(1, 4)):
            arguments[rng.choice(names)] = make_argument(rng)
        by_position = [make_argument(rng) for _ in range(rng.choice((0, 0, 0, 0, 1, 4, 6)))]
        action = rng.randrange(20)
        try:
            if action == 0:
                layer.clone().bind({rng.choice(names): make_argument(rng)})
            elif action == 1:
                layer.clone().use_workspace(make_argument(rng))
            elif action == 2:
                layer.workspace_bytes(make_argument(rng))
            elif action == 3:
                layer.benchmark(make_argument(rng), repeat=make_argument(rng))
            else:
                layer(*by_position, **arguments)
            accepted += 1
        except (moec.Error, TypeError, ValueError) as error:
            assert str(error), (by_position, arguments)
            refused += 1
    for case, layer in cases:
        case.verify(layer(**case.arguments))
    print(f"{refused} refused, {accepted} accepted")


def test_the_process_never_dies() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__], text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    refused, accepted = (int(word) for word in done.stdout.split() if word.isdigit())
    assert refused + accepted == CALLS and refused > 0.9 * CALLS


if __name__ == "__main__":
    fuzz()
