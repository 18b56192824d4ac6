# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bits of a row do not depend on the other rows of a call: at any number of tokens, at any place, and in kernels of
other ranges of token counts."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases import BASE
from runs import TIMEOUT, binary
from safetensors import safe_open

from moec.reference import LayerSpec, generate, write_tensors

TARGETS = {
    "cpu": ("--target=cpu",),
    "sm_80": ("--target=sm_80", "--device=sim"),
    "sm_90a": ("--target=sm_90a", "--device=sim"),
}
#: Kernels of several ranges, where configs of few tokens split K.
SIZES = {"hidden_size": 256, "intermediate_size": 128, "num_experts": 8, "top_k": 2, "entry": "gate"}
LAYERS = {
    "f16": {"dtype": "f16", "shared_experts": {"intermediate_size": 128}},
    "bf16": {"dtype": "bf16"},
    "fp8": {"dtype": "bf16", "quantization": "fp8_block128"},
    "int4": {"dtype": "bf16",
             "quantization": {"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "bf16"}}},
    "f32": {"dtype": "f32"},
    "lora": {"dtype": "bf16", "lora": {"adapters": 3, "rank": 16}},
}
#: Largest number of tokens of the layers; number of tokens and first row of each call.
LARGEST = 1024
CALLS = ((130, 0), (1, 77), (7, 30), (33, 97))


def run(folder: Path, tensors: dict[str, np.ndarray], first: int, tokens: int, options: tuple[str, ...]) -> np.ndarray:
    """The output of a call with some rows of `hidden_states`, as bytes per row."""
    given = tensors | {name: tensors[name][first:first + tokens]
                       for name in ("hidden_states", "adapter_ids") if name in tensors}
    write_tensors(folder / "in.safetensors", given)
    command = [str(binary("moe-run")), str(folder / "model.json"), f"--tokens={tokens}", f"--max-tokens={LARGEST}",
               f"--inputs={folder / 'in.safetensors'}", f"--outputs={folder / 'out.safetensors'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(folder / "out.safetensors"), framework="np") as file:
        output = file.get_tensor("output")
    return np.ascontiguousarray(output).view(np.uint8).reshape(tokens, -1)


def count_changed(folder: Path, fields: dict, options: tuple[str, ...]) -> int:
    """The number of rows that have other bits in a smaller call than in the largest one."""
    model = BASE | SIZES | fields
    (folder / "model.json").write_text(json.dumps(model))
    tensors = generate(LayerSpec.from_json(model), CALLS[0][0], 1)
    whole = run(folder, tensors, 0, CALLS[0][0], options)
    return sum(
        int((run(folder, tensors, first, tokens, options) != whole[first:first + tokens]).any(axis=1).sum())
        for tokens, first in CALLS[1:]
    )


@pytest.mark.one_of(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAYERS)
def test_rows_are_alone(name: str, target: str, tmp_path: Path) -> None:
    assert count_changed(tmp_path, LAYERS[name] | {"batch_invariant": True}, TARGETS[target]) == 0


def test_other_layers_depend_on_the_batch(tmp_path: Path) -> None:
    """Without the field, the same calls tell orders apart."""
    assert count_changed(tmp_path, LAYERS["f16"], TARGETS["sm_90a"]) > 0


#: A shared expert runs on the rows of each rank.
OVER_RANKS = {
    "dtype": "bf16", "num_experts": 12, "top_k": 3, "shared_experts": {"intermediate_size": 64},
    "batch_invariant": True, "max_tokens": 64,
}
#: Tokens of all ranks together.
TOKENS = 12


def run_ranks(folder: Path, model: dict, tensors: dict[str, np.ndarray], parallel: dict, *options: str) -> np.ndarray:
    """The output of all ranks, as bytes per row."""
    (folder / "ranks.json").write_text(json.dumps(model | ({"parallel": parallel} if parallel else {})))
    write_tensors(folder / "in.safetensors", tensors)
    command = [str(binary("moe-run")), str(folder / "ranks.json"), f"--tokens={TOKENS // parallel.get('dp', 1)}",
               f"--inputs={folder / 'in.safetensors'}", f"--outputs={folder / 'out.safetensors'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(folder / "out.safetensors"), framework="np") as file:
        return np.ascontiguousarray(file.get_tensor("output")).view(np.uint8).reshape(TOKENS, -1)


@pytest.mark.parametrize(("target", "exchanges"), [
    ("cpu", ("direct",)),
    ("sm_90a", ("direct", "peer", "all-to-all")),
])
def test_number_of_ranks_changes_nothing(target: str, exchanges: tuple, tmp_path: Path) -> None:
    model = BASE | SIZES | OVER_RANKS
    tensors = generate(LayerSpec.from_json(model), TOKENS, 3)
    one = run_ranks(tmp_path, model, tensors, {}, *TARGETS[target])
    for exchange in exchanges:
        options = () if exchange == "direct" else (f"--exchange={exchange}",)
        # An all-to-all needs more ranks than most rows have experts.
        for dp, experts in ((2, "linear"), (4, "round_robin"))[exchange == "all-to-all":]:
            found = run_ranks(
                tmp_path, model, tensors, {"dp": dp, "experts": experts}, *TARGETS[target], *options)
            assert (found == one).all(), (dp, exchange)


@pytest.mark.parametrize("parallel", [{"tp": 2, "experts": "linear"}, {"dp": 2}])
def test_partials_of_gemms_are_refused(parallel: dict, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(BASE | SIZES | OVER_RANKS | {"parallel": parallel}))
    done = subprocess.run([str(binary("moe-compile")), str(tmp_path / "model.json"), "--target=cpu", "--emit=plan"],
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert "give 'parallel' whole experts ('experts') and 'tp' = 1, or remove 'batch_invariant'" in done.stderr
