# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hopper gemms with every tile shape, on the simulator.

Layers are lowered to level tile, where the test replaces the configs of gemms: the compiler would choose only
a few of them for such small layers.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
from cases import Case
from runs import ALL_CASES, SEEDS, TIMEOUT, Run, binary

from moec.reference import LayerSpec, generate, write_tensors

#: Neither sizes nor K are multiples of a tile; rows of both wrap around the pipeline.
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 200, "num_experts": 5,
    "top_k": 2, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: Joined gemms take the simulator several times as long: nightly run only.
APART = () if ALL_CASES else ("--disable=join-products,quantize-rows,quantize-inputs",)
CONFIG = re.compile(r"#tile\.sm90_gemm<[^>]*>")


@dataclass(frozen=True)
class Tile:
    """Weight rows of a CTA, values of BLOCK_M, stages, and the order of operands."""

    rows: int
    block_m: tuple[int, ...]
    stages: int
    no_swap_ab: bool = False

    def config(self, operation: str) -> str:
        """The config for the op in that line."""
        columns = self.rows // (2 if "layout =" in operation else 1)
        maps = ", map_rows" if "map_rows" in operation else ""
        depth = re.search(r"block_k = (\d+)", operation)[1]
        dynamic_scheduler = ", dynamic_scheduler" if "dynamic_scheduler" in operation else ""
        return (f"#tile.sm90_gemm<block_m = {list(self.block_m)}, block_n = {columns}, block_k = {depth}, "
                f"stages = {self.stages}{maps}{', no_swap_ab' if self.no_swap_ab else ''}{dynamic_scheduler}>")

    def __str__(self) -> str:
        name = f"{self.rows}x{'_'.join(map(str, self.block_m))}x{self.stages}"
        return f"{name}-no_swap_ab" if self.no_swap_ab else name


#: Every width with one and with several values of BLOCK_M, which hold all rows of a group or split them.
TILES = [
    Tile(64, (16,), 16), Tile(64, (16, 32, 64), 3), Tile(64, (48,), 12),
    Tile(128, (8,), 4), Tile(128, (8, 24, 48), 3), Tile(128, (72, 256), 4),
    Tile(256, (16,), 3), Tile(256, (16, 40, 160), 4), Tile(256, (88,), 4),
]
#: Input rows on the M side, with one value of BLOCK_M or two; smaller tiles have weights there.
ROWS_ON_M = [
    Tile(128, (64,), 5, True), Tile(128, (64, 128), 4, True),
    Tile(256, (128,), 3, True), Tile(256, (64, 128), 4, True),
    Tile(128, (8, 40, 128), 4, True), Tile(256, (16, 64, 128), 4, True),
]
ORDERS = ("gate_up", "up_gate", "interleaved")
#: Block fp8: rows of whole chunks, parts of blocks in both dimensions, of up to three steps.
FP8_WEIGHTS = {"quantization": {"weight": "fp8_block128"}}
FP8 = SPEC | {"hidden_size": 272, "intermediate_size": 144} | FP8_WEIGHTS
FP8_TILES = [
    Tile(64, (16, 48), 3), Tile(128, (8,), 4), Tile(128, (24, 96, 168), 3),
    Tile(256, (16, 56), 3), Tile(256, (24, 80, 112), 4), *ROWS_ON_M,
]


def ordered(tiles):
    """The orders of gate and up alternate: each width and each kind of operands has all of them. In the nightly run
    each tile has all."""
    turns = [(ORDERS[number % len(ORDERS)], tile) for number, tile in enumerate(tiles)]
    return [(order, tile) for order in ORDERS for tile in tiles] if ALL_CASES else turns


GATED, FP8_GATED = ordered(TILES + ROWS_ON_M), ordered(FP8_TILES)
#: Rows of groups: just below and above each limit of tiles with rows on M.
COUNTS = (1, 63, 0, 64, 65, 127, 128, 0, 129, 200)
#: Each tile in one format, each width and number of BLOCK_M values in both; in the nightly run each tile in both.
ENDS = [
    pytest.param(spec, tile, id=f"{name}-{tile}")
    for number, tile in enumerate(ROWS_ON_M)
    for turn, (name, spec) in enumerate((("bf16", SPEC), ("fp8", FP8)))
    if ALL_CASES or (number // 2 + number) % 2 == turn
]


def run(*command: object) -> tuple[list[str], str]:
    command = list(map(str, command))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return command, done.stdout


def check(tile: Tile, spec: dict, tokens: int, folder, ids=None) -> None:
    """With the ids given, or random ones."""
    model, kernels = folder / "model.json", folder / "layer.mlir"
    inputs, outputs = folder / "in.safetensors", folder / "out.safetensors"
    model.write_text(json.dumps(spec))
    tensors = generate(LayerSpec.from_json(spec), tokens, 1, None)
    if ids is not None:
        tensors["topk_ids"][...] = ids
    write_tensors(inputs, tensors)
    # As in hand-written IR, no launch is dependent. More tokens would only add as many kernels with the same configs.
    _, text = run(binary("moe-compile"), model, "--target=sm_90a", "--emit=tile", f"--max-tokens={tokens}",
                  "--no-dependent-launches", *APART)
    assert len(CONFIG.findall(text)) >= 2
    replaced = [CONFIG.sub(lambda _, line=line: tile.config(line), line) for line in text.splitlines()]
    kernels.write_text("\n".join(replaced))
    compare(Case(str(tile), spec, tokens), kernels, inputs, outputs)


def compare(case: Case, layer, inputs, outputs, *options: str) -> None:
    """Runs the layer on the simulator and checks what it returns."""
    command, messages = run(
        binary("moe-run"), layer, "--target=sm_90a", f"--device=sim:0-{SEEDS - 1}",
        f"--tokens={case.tokens}", f"--inputs={inputs}", f"--outputs={outputs}", *options,
    )
    done = Run(case, command, 0, messages, inputs, outputs)
    report = done.check()
    assert report.ok, done.explain("\n".join([report.summary(), *report.failures]))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("order,tile", GATED, ids=str)
def test_gated(order, tile, tmp_path):
    check(tile, SPEC | {"gate_up_order": order}, 90, tmp_path)


# field-bug: llama.cpp#28113
@pytest.mark.parametrize("tile", TILES[:1] + TILES[3:4] + TILES[6:7] + ROWS_ON_M[3:], ids=str)
def test_few_tokens(tile, tmp_path):
    """Most groups are empty."""
    check(tile, SPEC, 1, tmp_path)


#: Biases and dense gemms with f32 results; an epilogue of one projection.
OPERANDS = {
    "gated": {"entry": "gate", "expert_bias": True, "shared_experts": {"intermediate_size": 136, "gate": "sigmoid"}},
    "no_gate": {"activation": {"kind": "relu2_no_mul"}},
}
OPERAND_TILES = TILES[1:2] + TILES[4:5] + TILES[7:8] + ROWS_ON_M[1::2]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("number", range(len(OPERAND_TILES)), ids=lambda number: str(OPERAND_TILES[number]))
@pytest.mark.parametrize("fields", OPERANDS)
def test_operands(number, fields, tmp_path):
    """Every second tile in f16, the other half with the other operands."""
    dtype = "f16" if (number % 2 == 0) == (fields == "no_gate") else "bf16"
    check(OPERAND_TILES[number], SPEC | {"dtype": dtype} | OPERANDS[fields], 75, tmp_path)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("order", "tile"), FP8_GATED, ids=str)
def test_block_fp8(order, tile, tmp_path):
    check(tile, FP8 | {"gate_up_order": order}, 150, tmp_path)


@pytest.mark.parametrize(("spec", "tile"), ENDS)
def test_ends(tile, spec, tmp_path):
    """Groups with one row less than a tile, exactly a tile, and one row more."""
    ids = np.repeat(np.arange(len(COUNTS)), COUNTS)
    np.random.default_rng(1).shuffle(ids)
    spec = spec | {"num_experts": len(COUNTS), "top_k": 1}
    check(tile, spec, len(ids), tmp_path, ids.reshape(-1, 1))


# field-bug: llama.cpp#26295, llama.cpp#24591
@pytest.mark.parametrize("block_m", (8, 16))
@pytest.mark.parametrize("tokens", (4, 8, 16))
def test_one_expert_twice(block_m, tokens, tmp_path):
    """A caller's ids may name an expert twice: a group has more rows than there are tokens."""
    model = tmp_path / "model.json"
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    model.write_text(json.dumps(SPEC))
    tensors = generate(LayerSpec.from_json(SPEC), tokens, 1, None)
    tensors["topk_ids"][0], tensors["topk_ids"][1:] = 1, 3
    write_tensors(inputs, tensors)
    config = f"stages=4 block_m={block_m}"
    compare(Case(f"twice_{block_m}", SPEC, tokens), model, inputs, outputs, "--max-tokens=16",
            "--disable=join-products,quantize-rows,quantize-inputs",
            f"--config=experts_hidden:block_n=64 {config}", f"--config=experts_out:block_n=128 {config}")


#: More tiles than CTAs, so that CTAs draw further tiles: in the first gemm or in the second. Parameters: that gemm, the
#: configs of both, and the sizes.
NARROW, ON_M = "block_m=16+32 block_n=64", "block_m=16+64 block_n=128 no_swap_ab"
DYNAMIC = {
    "hidden": ("block_m=16+32 block_n=32", NARROW, {"hidden_size": 64, "intermediate_size": 520}),
    "out": (NARROW, NARROW, {"hidden_size": 1032, "intermediate_size": 72}),
    "fp8_hidden": ("block_m=16+64 block_n=64 no_swap_ab", ON_M,
                   {"hidden_size": 272, "intermediate_size": 1040, **FP8_WEIGHTS}),
    "fp8_out": (NARROW, ON_M, {"hidden_size": 2080, "intermediate_size": 272, **FP8_WEIGHTS}),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("product", "options"), [
    *(pytest.param(product, (), id=f"{product}-ids") for product in DYNAMIC),
    *(pytest.param(product, ("--disable=count-ids",), id=f"{product}-offsets") for product in ("hidden", "fp8_out")),
])
def test_dynamic_scheduler(product, options, tmp_path):
    """Both gemms draw from one counter, which the first resets to 0."""
    first, second, sizes = DYNAMIC[product]
    spec = SPEC | {"num_experts": 10} | sizes
    model = tmp_path / "model.json"
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    model.write_text(json.dumps(spec))
    tokens = 60
    write_tensors(inputs, generate(LayerSpec.from_json(spec), tokens, 1, None))
    options += (f"--max-tokens={tokens}", "--disable=join-products,quantize-rows,quantize-inputs",
                f"--config=experts_hidden:stages=4 dynamic_scheduler {first}",
                f"--config=experts_out:stages=4 dynamic_scheduler {second}")
    _, text = run(binary("moe-compile"), model, "--target=sm_90a", "--emit=tile", *options)
    assert len(re.findall(r"tile_counter = %", text)) == 2
    compare(Case(f"queue_{product}", spec, tokens), model, inputs, outputs, *options)
