# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels add in the order that their certificate states (docs/use/layers.md, "Bits of a row").

The logits of a router come back as its weights, in f32. Here they are added once more in the stated order, and must
have the same bits. Inputs are such that another order has other bits. Mutants that swap two products of a sum have
other bits than the kernel, so that each product's place is held."""

import functools
import itertools
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cases import BASE
from runs import TIMEOUT, binary
from safetensors import safe_open

from moec.reference import LayerSpec, generate, write_tensors

TOKENS, HIDDEN = 3, 512
MODEL = BASE | {
    "dtype": "bf16", "entry": "gate", "hidden_size": HIDDEN, "intermediate_size": 32, "num_experts": 32, "top_k": 8,
    "routing": {"score": "identity"}, "record_ids": True, "max_tokens": 8,
}
#: The target, the config of the router's gemm, and the order that it states without the certificate's defaults.
KERNELS = {
    "cpu": ("cpu", "cpu.gemm register_rows=2 register_columns=4 block_k=16 lanes=8 instruction_k=1",
            "unit = fma, k = 1, splits = 8, adjacent = 2"),
    "cpu-pairs": ("cpu", "cpu.gemm register_rows=4 register_columns=4 block_k=32 lanes=16 instruction_k=2",
                  "unit = dot, k = 2, splits = 16, adjacent = 2"),
    "cpu-tiles": ("cpu", "cpu.gemm register_rows=32 register_columns=32 block_k=32 columns_per_cta=32 lanes=16 "
                         "instruction_k=32", "unit = dot, k = 32"),
    "sm80": ("sm_80", "sm80.gemm", "unit = tensor_core, k = 16"),
    "gemv": ("sm_80", "gpu.gemv", "unit = fma, k = 1, splits = 64, adjacent = 8"),
    "sm90": ("sm_90a", "sm90.gemm block_n=128 stages=4", "unit = tensor_core, k = 16"),
    "sm90-split": ("sm_90a", "sm90.gemm block_n=64 stages=4",
                   "unit = tensor_core, k = 16, splits = 2, adjacent = 32"),
    "sm90-cluster": ("sm_90a", "sm90.gemm block_n=128 stages=4 split_k=4",
                     "unit = tensor_core, k = 16, splits = 4, adjacent = 64"),
    "sm90-split-cluster": ("sm_90a", "sm90.gemm block_n=64 stages=4 split_k=2",
                           "unit = tensor_core, k = 16, splits = 4, adjacent = 32"),
}
#: Flags of /proc/cpuinfo without which a machine cannot run a kernel.
NEEDED = {"cpu-pairs": "avx512_bf16", "cpu-tiles": "amx_bf16"}


def reduce_parts(parts: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """Adds parts whose numbers differ in a bit, one bit after another."""
    parts = parts.reshape((2,) * len(bits) + parts.shape[1:])
    for step, bit in enumerate(bits):
        axis = sum(other > bit for other in bits[step:])
        parts = parts.take(0, axis) + parts.take(1, axis)
    return parts


def add_products(sums: np.ndarray, hidden: np.ndarray, weight: np.ndarray, numbers: Iterable[int]) -> np.ndarray:
    """FMAs of one element of K after another."""
    for k in numbers:
        # The sum of both is exact before its one rounding.
        exact = sums.astype(np.longdouble) + np.outer(hidden[:, k], weight[:, k])
        sums = exact.astype(np.float32)
    return sums


def add_dots(sums: np.ndarray, hidden: np.ndarray, weight: np.ndarray, numbers: np.ndarray, k: int) -> np.ndarray:
    """A CPU's instructions of k elements: VDPBF16PS and TDPBF16PS, by Intel's manual."""
    for step in numbers.reshape(-1, k):
        if k == 2:
            sums = add_products(sums, hidden, weight, step[::-1])
        else:
            even, odd = (add_products(np.zeros_like(sums), hidden, weight, step[first::2]) for first in (0, 1))
            sums = sums + (even + odd)
    return sums


def add_in_order(order: dict, hidden: np.ndarray, weight: np.ndarray) -> Iterator[np.ndarray]:
    """The logits, with parts one after another, and with each order of bits of a part's number. The simulator's tensor cores add one product after another, as FMAs do."""
    splits, adjacent = order.get("splits", 1), order.get("adjacent", 0) or HIDDEN
    numbers = np.arange(HIDDEN).reshape(-1, splits, adjacent)
    parts = []
    for part in range(splits):
        sums = np.zeros((len(hidden), len(weight)), np.float32)
        own = numbers[:, part].reshape(-1)
        if order["unit"] == "dot":
            parts.append(add_dots(sums, hidden, weight, own, order["k"]))
        else:
            parts.append(add_products(sums, hidden, weight, own))
    yield functools.reduce(np.add, parts)
    for bits in itertools.permutations(range(splits.bit_length() - 1)):
        yield reduce_parts(np.stack(parts), bits)


def draw(seed: int, model: dict = MODEL, tokens: int = TOKENS) -> dict[str, np.ndarray]:
    """Tensors of the layer. Products of neighbours differ by up to 2^20, so that each order loses other digits."""
    random = np.random.default_rng(seed)

    def values(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * np.exp2(random.integers(-5, 6, shape))).astype(ml_dtypes.bfloat16)

    tensors = generate(LayerSpec.from_json(model), tokens, seed)
    return tensors | {"hidden_states": values(tokens, HIDDEN), "gate.weight": values(32, HIDDEN)}


def find_logits(folder: Path, target: str, config: str, tensors: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Ids and logits of the selected experts."""
    (folder / "model.json").write_text(json.dumps(MODEL))
    write_tensors(folder / "in.safetensors", tensors)
    command = [str(binary("moe-run")), str(folder / "model.json"), f"--target={target}", f"--tokens={TOKENS}",
               f"--inputs={folder / 'in.safetensors'}", f"--outputs={folder / 'out.safetensors'}",
               f"--config=router_logits:{config}", *(["--device=sim"] if target != "cpu" else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(folder / "out.safetensors"), framework="np") as file:
        return file.get_tensor("topk_ids"), file.get_tensor("topk_weights")


def read_order(folder: Path, target: str, config: str) -> str:
    done = subprocess.run(
        [str(binary("moe-compile")), str(folder / "model.json"), f"--target={target}", "--emit=tile",
         f"--config=router_logits:{config}"], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return re.search(r"sum_orders = \{.*?router_logits = #tile\.sum_order<(.*?)>", done.stdout)[1]


def parse_order(text: str) -> dict:
    fields = dict(field.split(" = ") for field in text.split(", "))
    return {name: value if name in ("unit", "joined") else int(value) for name, value in fields.items()}


@pytest.mark.parametrize("name", KERNELS)
def test_certificate_says_how_a_kernel_adds(name: str, tmp_path: Path) -> None:
    target, config, stated = KERNELS[name]
    if name in NEEDED and NEEDED[name] not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"needs {NEEDED[name]}")
    tensors = draw(5)
    ids, logits = find_logits(tmp_path, target, config, tensors)
    assert read_order(tmp_path, target, config) == stated
    hidden, weight = (tensors[each].astype(np.float64) for each in ("hidden_states", "gate.weight"))

    def count_equal(order: str) -> int:
        """The most logits that one of the trees gives bit by bit."""
        return max(int((np.take_along_axis(found.astype(np.float32), ids.astype(np.int64), 1) == logits).sum())
                   for found in add_in_order(parse_order(order), hidden, weight))

    assert count_equal(stated) == logits.size
    for other in {order for _, _, order in KERNELS.values()} - {stated}:
        assert count_equal(other) < logits.size, other


#: Tokens of calls that run all code of a kernel, of which one shows each swap: a thread of a gemv adds so few products
#: that some orders have equal sums.
SWAPS = {"sm80": [128], "gemv": [8, 1] * 8, "sm90": [128], "sm90-split": [128]}


@pytest.mark.parametrize("name", SWAPS)
def test_swapped_products_are_noticed(name: str, tmp_path: Path) -> None:
    target, config, _ = KERNELS[name]
    model = MODEL | {"max_tokens": max(SWAPS[name])}
    (tmp_path / "model.json").write_text(json.dumps(model))
    package = tmp_path / "layer.moepkg"
    subprocess.run([binary("moe-compile"), tmp_path / "model.json", f"--target={target}", "-o", package,
                    f"--config=router_logits:{config}"], check=True, timeout=TIMEOUT)
    cases = []
    for seed, tokens in enumerate(SWAPS[name]):
        path = tmp_path / f"{seed}.safetensors"
        write_tensors(path, draw(seed, model, tokens))
        cases.append(f"--case={path}:{tokens}")
    done = subprocess.run([binary("ptx-mutate"), package, *cases, "--kernel=router_logits", "--sum-orders"],
                          capture_output=True, text=True, timeout=TIMEOUT)
    found = re.search(r"order +(\d+) mutants, (\d+) missed", done.stdout)
    assert found and int(found[1]) > 0 and int(found[2]) == 0, done.stdout + done.stderr
    assert done.returncode == 0
