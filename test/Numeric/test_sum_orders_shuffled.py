# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders that are promoted or shuffled, and those of quantized weights (docs/use/layers.md, "Bits of a row").

A gemm alone, with an f32 result, is added once more in the order that its kernel states. Which elements a shuffled
order takes first is found out by calls of the kernel: it must be the same in every group, row and column."""

import functools
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from runs import TIMEOUT, binary
from safetensors import safe_open
from test_sum_orders import add_products, parse_order, reduce_parts

from moec.reference import write_tensors

SIZE_K, COLUMNS = 512, 128
GROUP = 128
BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn

#: The type of the rows, quantizations, the type of the weights, and that of their scales.
FORMS = {
    "bf16": ("bf16", "", f"tensor<{COLUMNS}x{SIZE_K}xbf16>", ""),
    "int4": ("bf16", "weight_quant = #moe.quant<storage = i4, scale = bf16, granularity = group, block = [1, 128], "
                     "packing = pairs>, ", f"tensor<{COLUMNS}x{SIZE_K // 2}xi8>", "bf16"),
    "fp8": ("f8E4M3FN", "input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, "
                        "block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, "
                        "granularity = block, block = [128, 128]>, ", f"tensor<{COLUMNS}x{SIZE_K}xf8E4M3FN>", "f32"),
}
#: The form, the target, the config, and the order that it states without the certificate's defaults.
KERNELS = {
    "sm90-fp8": ("fp8", "sm_90a", "sm90.gemm block_n=128 block_k=128 stages=4",
                 "unit = tensor_core, k = 32, promoted = 128"),
    "sm90-fp8-split": ("fp8", "sm_90a", "sm90.gemm block_n=64 block_k=128 stages=4",
                       "unit = tensor_core, k = 32, splits = 2, adjacent = 64, promoted = 128"),
    "sm90-fp8-cluster": ("fp8", "sm_90a", "sm90.gemm block_n=128 block_k=128 stages=4 split_k=2",
                         "unit = tensor_core, k = 32, splits = 2, adjacent = 128, promoted = 128"),
    "sm90-int4": ("int4", "sm_90a", "sm90.gemm block_n=128 block_k=128 stages=4",
                  "unit = tensor_core, k = 16, shuffled = 64"),
    "sm90-int4-cluster": ("int4", "sm_90a", "sm90.gemm block_n=128 block_k=128 stages=4 split_k=2",
                          "unit = tensor_core, k = 16, shuffled = 64, splits = 2, adjacent = 128"),
    "sm80-fp8": ("fp8", "sm_80", "sm80.gemm", "unit = tensor_core, k = 16, shuffled = 16, promoted = 128"),
    "sm80-int4": ("int4", "sm_80", "sm80.gemm", "unit = tensor_core, k = 16, shuffled = 32, promoted = 64"),
    "gemv-tensor": ("bf16", "sm_80", "gpu.gemv block_m=16 block_n=8 block_k=32 threads=32",
                    "unit = tensor_core, k = 16, shuffled = 32"),
    "gemv-tensor-split": ("bf16", "sm_80", "gpu.gemv block_m=16 block_n=8 block_k=32 threads=128",
                          "unit = tensor_core, k = 16, shuffled = 32, splits = 4, adjacent = 32"),
    "cpu-fp8": ("fp8", "cpu", "cpu.gemm register_rows=4 register_columns=4 block_k=64 lanes=16 instruction_k=1",
                "unit = fma, k = 1, splits = 16, adjacent = 1, promoted = 128, joined = true"),
    "cpu-int4": ("int4", "cpu", "cpu.gemm register_rows=2 register_columns=4 block_k=64 lanes=8 instruction_k=1",
                 "unit = fma, k = 1, splits = 8, adjacent = 1, promoted = 128, joined = true"),
}


class Gemm:
    """One kernel, compiled for each call."""

    def __init__(self, folder: Path, name: str) -> None:
        self.form, self.target, config, _ = KERNELS[name]
        element, quantization, weight, scale = FORMS[self.form]
        row_scales = ", %xs: tensor<?x4xf32> {moe.name = \"xs\", moe.role = \"input\"}" if self.form == "fp8" else ""
        groups = "1x4" if self.form == "fp8" else f"{COLUMNS}x4"
        weight_scales = f", %ws: tensor<{groups}x{scale}> {{moe.name = \"ws\", moe.role = \"weight\"}}" if scale else ""
        self.path = folder / "gemm.mlir"
        self.path.write_text(
            f"func.func @gemm(%x: tensor<?x{SIZE_K}x{element}> {{moe.name = \"x\", moe.role = \"input\"}}{row_scales},\n"
            f"    %w: {weight} {{moe.name = \"w\", moe.role = \"weight\"}}{weight_scales})\n"
            f"    -> (tensor<?x{COLUMNS}xf32> {{moe.name = \"output\"}}) attributes {{moe.max_tokens = 64 : i64}} {{\n"
            f"  %y = moe.grouped_matmul %x, %w : tensor<?x{SIZE_K}x{element}>, {weight}\n"
            + ("      input_scale(%xs : tensor<?x4xf32>)\n" if row_scales else "")
            + (f"      weight_scale(%ws : tensor<{groups}x{scale}>)\n" if scale else "")
            + f"      {{{quantization}moe.name = [\"y\"]}} -> tensor<?x{COLUMNS}xf32>\n"
            f"  return %y : tensor<?x{COLUMNS}xf32>\n}}\n")
        self.options = [f"--target={self.target}", f"--config=y:{config}"]

    def read_order(self) -> str:
        done = subprocess.run([str(binary("moe-compile")), str(self.path), "--emit=tile", *self.options],
                              capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        return re.search(r"sum_orders = \{y = #tile\.sum_order<(.*?)>", done.stdout)[1]

    def __call__(self, x: np.ndarray, w: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """x [T, K] and w [N, K] are values of the elements; scales are those of groups of 128 of all rows, [K / 128]."""
        tensors = {"x": x.astype(E4M3 if self.form == "fp8" else BF16)}
        if self.form == "int4":
            # Codes are unsigned; 8 stands for 0.
            codes = (w + 8).astype(np.int8)
            tensors["w"] = (codes[:, ::2] & 15 | codes[:, 1::2] << 4).astype(np.int8)
            tensors["ws"] = np.broadcast_to(scales, (COLUMNS, 4)).astype(BF16)
        else:
            tensors["w"] = w.astype(E4M3 if self.form == "fp8" else BF16)
        if self.form == "fp8":
            tensors |= {"xs": np.ones((len(x), 4), np.float32), "ws": scales.astype(np.float32)[None]}
        folder = self.path.parent
        write_tensors(folder / "in.safetensors", tensors)
        done = subprocess.run(
            [str(binary("moe-run")), str(self.path), f"--tokens={len(x)}", f"--inputs={folder / 'in.safetensors'}",
             f"--outputs={folder / 'out.safetensors'}", *self.options,
             *(["--device=sim"] if self.target != "cpu" else [])], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stdout + done.stderr
        with safe_open(str(folder / "out.safetensors"), framework="np") as file:
            return file.get_tensor("output")


def find_places(gemm: Gemm, order: dict) -> np.ndarray:
    """The elements of a group in the order in which they are added.

    Element 0 of K comes ahead of the second group of its part. Its product is so large that small ones are lost beside it, until
    element a of the second group takes it away again: row a has what is added later."""
    shuffled = order["shuffled"]
    first = shuffled * (order["splits"] if order.get("adjacent") == shuffled else 1)
    group = range(first, first + shuffled)
    x, w = np.zeros((shuffled, SIZE_K)), np.zeros((COLUMNS, SIZE_K))
    if gemm.form == "fp8":
        # Column b counts element b alone, 2^-12 beside multiples of 2^2 and 2^16.
        x[:, group], w[:, group] = 2.0**-6, 2.0**8
        w[range(shuffled), group] = 2.0**-6
        large = w[:, 0] = 2.0**8
    else:
        x[:, group] = w[:, group] = w[:, 0] = 1
        large = 2.0**30
    x[:, 0] = large
    x[range(shuffled), group] = -large
    found = gemm(x, w, np.ones(SIZE_K // GROUP))
    if gemm.form == "fp8":
        is_later = found[:, :shuffled] % 1 != 0
        np.fill_diagonal(is_later, False)
        later = is_later.sum(1)
    else:
        later = found[:, 0].astype(int)
    ranks = shuffled - 1 - later
    assert sorted(ranks) == list(range(shuffled))
    return np.argsort(ranks)


def draw(form: str, seed: int, tokens: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Products of neighbours differ so much that each order loses other digits; scales are powers of two."""
    random = np.random.default_rng(seed)

    def values(rows: int) -> np.ndarray:
        bound = 7 if form == "fp8" else 14
        exponents = random.integers(-bound, bound + 1, (rows, SIZE_K))
        found = random.choice([-1, 1], exponents.shape) * np.exp2(exponents) * random.choice([1, 1.25, 1.5, 1.75],
                                                                                             exponents.shape)
        return found.astype(E4M3 if form == "fp8" else BF16).astype(np.float64)

    w = random.integers(-8, 8, (COLUMNS, SIZE_K)).astype(np.float64) if form == "int4" else values(COLUMNS)
    return values(tokens), w, np.exp2(random.integers(-2, 3, SIZE_K // GROUP) * (form != "bf16"))


def add_in_order(order: dict, places: np.ndarray, x: np.ndarray, w: np.ndarray,
                 scales: np.ndarray) -> Iterator[np.ndarray]:
    """The results, with each tree of the parts. Scales are powers of two, so that a product with them is exact wherever
    it is made."""
    splits, adjacent = order.get("splits", 1), order.get("adjacent", 0) or SIZE_K
    promoted = order.get("promoted", 0) or SIZE_K
    own = w if "promoted" in order else w * np.repeat(scales, GROUP)
    zeros = np.zeros((len(x), COLUMNS), np.float32)
    numbers = np.arange(SIZE_K).reshape(-1, len(places))[:, places].reshape(-1, splits, adjacent)
    #: By block and part.
    sums = np.stack([
        np.stack([add_products(zeros, x, own, part[part // promoted == block]) for block in range(SIZE_K // promoted)])
        for part in numbers.transpose(1, 0, 2).reshape(splits, -1)], 1)
    if "promoted" in order:
        sums = sums * scales[np.arange(len(sums)) * promoted // GROUP, None, None, None]
    sums = sums.astype(np.float32)

    def chain(blocks: np.ndarray) -> np.ndarray:
        total = blocks[0]
        for block in blocks[1:]:
            total = total + block
        return total

    # A tree of parts joins those whose numbers differ in a bit, or one after another.
    trees = [functools.partial(reduce_parts, bits=bits)
             for bits in itertools.permutations(range(splits.bit_length() - 1))]
    for tree in [*trees, chain]:
        yield chain(np.stack([tree(block) for block in sums])) if "joined" in order else tree(chain(sums))


@pytest.mark.parametrize("name", KERNELS)
def test_certificate_says_how_a_kernel_adds(name: str, tmp_path: Path) -> None:
    form, _, _, stated = KERNELS[name]
    gemm = Gemm(tmp_path, name)
    assert gemm.read_order() == stated
    order = parse_order(stated)
    shuffled = order.get("shuffled", 1)
    places = find_places(gemm, order) if shuffled > 1 else np.zeros(1, int)
    x, w, scales = draw(form, 3)
    found = gemm(x, w, scales)

    def count_equal(order: dict, places: np.ndarray) -> int:
        """The most results that one of the trees gives bit by bit."""
        return max(int((each == found).sum()) for each in add_in_order(order, places, x, w, scales))

    assert count_equal(order, places) == found.size
    others = [parse_order(text) for own, _, _, text in KERNELS.values() if own == form and text != stated]
    for other in others:
        if other.get("shuffled", 1) == shuffled:
            assert count_equal(other, places) < found.size, other
    if shuffled > 1:
        assert count_equal(order, places[::-1]) < found.size
