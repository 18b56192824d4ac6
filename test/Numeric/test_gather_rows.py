# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Permuted rows and columns: tile.gather_rows alone, and layers that start with it.

Alone it has every width and type, in a hand-written plan, on the CPU, in the interpreter and on the simulator.
"""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, binary
from schedules import launched

from moec.reference import write_tensors

TOKENS, TOP_K = 21, 3
#: Rows of 37 positions in 4 groups, one of them empty; positions behind them have no row.
OFFSETS = np.array([0, 5, 5, 20, 37], np.int32)

PLAN = """
plan.program @layer max_tokens 64 {{
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x{row}>
  %o = plan.tensor input "o" : memref<5xi32>
  %s = plan.tensor input "s" rows <"tokens * {top_k}"> : memref<?xi32>{c_tensor}
  %y = plan.tensor output "output" rows <"tokens * {top_k}"> : memref<?x{row}>
  plan.variant tokens 0 to 64 {{
    plan.launch @gather ins(%x, %o, %s{c_value} : memref<?x{row}>, memref<5xi32>, memref<?xi32>{c_type}) outs(%y : memref<?x{row}>)
  }}
}}
tile.kernel @gather(%x: memref<?x{row}>, %o: memref<5xi32>, %s: memref<?xi32>{c_argument}, %y: memref<?x{row}>, %t: i64) {{
  tile.gather_rows tokens(%t) ins(%x : memref<?x{row}>) offsets(%o : memref<5xi32>) source(%s : memref<?xi32>){c_clause}
    outs(%y : memref<?x{row}>) {{top_k = {top_k} : i64}}
  tile.return
}}
"""

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
          "f8E4M3FN": ml_dtypes.float8_e4m3fn}
#: Columns: chunks of 1 to 16 bytes; one round of a warp and a remainder, 8 rounds and some, less than one round.
ROWS = [("f32", 1), ("f32", 130), ("bf16", 1), ("bf16", 37), ("bf16", 1444), ("bf16", 2880),
        ("f16", 6), ("f16", 4096), ("f8E4M3FN", 5), ("f8E4M3FN", 33), ("f8E4M3FN", 272)]
DEVICES = {
    "cpu": ("--target=cpu",),
    "interpreter": ("--target=cpu", "--level=tile"),
    "sm_80": ("--target=sm_80", f"--device=sim:0-{SEEDS - 1}"),
    "sm_90a": ("--target=sm_90a", f"--device=sim:0-{SEEDS - 1}"),
}


def columns_of(width: int) -> dict[str, str]:
    """The plan's column indices, which may be absent."""
    kind = f"memref<4x{width}xi32>"
    return {"c_tensor": f'\n  %c = plan.tensor input "c" : {kind}', "c_value": ", %c", "c_type": f", {kind}",
            "c_argument": f", %c: {kind}", "c_clause": f" columns(%c : {kind})"}


@pytest.mark.parametrize("ordered", [False, True], ids=["as they are", "ordered"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "columns"), ROWS)
def test_copies(dtype, columns, device, ordered, tmp_path):
    random = np.random.default_rng(1)
    source = np.full(TOKENS * TOP_K, -1, np.int32)
    source[: OFFSETS[-1]] = random.integers(0, TOKENS, OFFSETS[-1])
    rows = random.normal(size=(TOKENS, columns)).astype(DTYPES[dtype])
    plan, inputs, outputs = (tmp_path / name for name in ("plan.mlir", "in.st", "out.st"))
    said = columns_of(columns)
    plan.write_text(PLAN.format(row=f"{columns}x{dtype}", top_k=TOP_K,
                                **(said if ordered else dict.fromkeys(said, ""))))
    tensors = {"x": rows, "o": OFFSETS, "s": source}
    if ordered:
        # Each group has its own order; an invalid column counts as the last one.
        tensors["c"] = np.stack([random.permutation(columns) for _ in OFFSETS[1:]]).astype(np.int32)
        tensors["c"][2, 0], tensors["c"][3, columns // 2] = -3, columns
    write_tensors(inputs, tensors)
    command = [binary("moe-run"), plan, f"--tokens={TOKENS}", f"--inputs={inputs}",
               f"--outputs={outputs}", *DEVICES[device]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    # The output is the only tensor, behind a header of the size that the file begins with.
    found = outputs.read_bytes()
    expected = rows[source[: OFFSETS[-1]]]
    if ordered:
        numbers = np.where(tensors["c"] < 0, columns - 1, np.minimum(tensors["c"], columns - 1))
        groups = np.searchsorted(OFFSETS, np.arange(OFFSETS[-1]), side="right") - 1
        expected = np.take_along_axis(expected, numbers[groups], axis=1)
    expected = expected.tobytes()
    assert found[8 + int.from_bytes(found[:8], "little"):][: len(expected)] == expected


ORDER_PLAN = """
plan.program @layer max_tokens 64 {{
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x{row}>
  %c = plan.tensor input "c" : memref<1x{columns}xi32>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x{row}>
  plan.variant tokens 0 to 64 {{
    plan.launch @order ins(%x, %c : memref<?x{row}>, memref<1x{columns}xi32>) outs(%y : memref<?x{row}>)
  }}
}}
tile.kernel @order(%x: memref<?x{row}>, %c: memref<1x{columns}xi32>, %y: memref<?x{row}>, %t: i64) {{
  tile.gather_rows tokens(%t) ins(%x : memref<?x{row}>) columns(%c : memref<1x{columns}xi32>) outs(%y : memref<?x{row}>)
  tile.return
}}
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "columns"), [("f32", 130), ("bf16", 37), ("bf16", 2880), ("f16", 4096)])
def test_orders_rows_as_they_are(dtype, columns, device, tmp_path):
    random = np.random.default_rng(2)
    rows = random.normal(size=(TOKENS, columns)).astype(DTYPES[dtype])
    order = random.permutation(columns).astype(np.int32)
    plan, inputs, outputs = (tmp_path / name for name in ("plan.mlir", "in.st", "out.st"))
    plan.write_text(ORDER_PLAN.format(row=f"{columns}x{dtype}", columns=columns))
    write_tensors(inputs, {"x": rows, "c": order[None]})
    command = [binary("moe-run"), plan, f"--tokens={TOKENS}", f"--inputs={inputs}",
               f"--outputs={outputs}", *DEVICES[device]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    found = outputs.read_bytes()
    assert found[8 + int.from_bytes(found[:8], "little"):] == rows[:, order].tobytes()


#: Neither sizes nor depths are multiples of a tile.
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 200, "num_experts": 5,
    "top_k": 2, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: Scales of 12 bytes per row.
FP8 = {"hidden_size": 272, "intermediate_size": 144, "quantization": {"weight": "fp8_block128"}}
#: Most tokens have no row here.
FEW_LOCAL = {"num_experts": 24, "placement": {"local_experts": [20, 3]}}
#: Fields that differ, tokens, more options.
APART = "--disable=join-products"
LAYERS = {
    "one_token": ({}, 1, APART),
    "bf16": ({}, 19, APART),
    "more": ({}, 90, APART),
    "f16": ({"dtype": "f16", "entry": "gate", "expert_bias": True}, 19, APART),
    "fp8": (FP8, 19, APART),
    "fp8_no_swap_ab": (FP8, 70, APART,
                      "--config=experts_hidden:block_m=16+64 block_n=64 stages=4 no_swap_ab"),
    "local": (FEW_LOCAL, 45, APART),
    "nothing_local": (FEW_LOCAL, 1, APART),
    "dynamic_scheduler": ({"intermediate_size": 520}, 60, APART,
              "--config=experts_hidden:block_m=16+32 block_n=32 stages=4 dynamic_scheduler"),
    "in_order": ({}, 19, APART, "--no-dependent-launches"),
    "offsets": ({}, 19, APART, "--disable=count-ids"),
    "padding": ({"entry": "logits", "num_valid_tokens": True}, 19, APART),
    # The gemms would be joined otherwise.
    "join": ({}, 19, "--config=experts_hidden:block_m=16 block_n=64 stages=4",
             "--config=experts_out:block_m=16 block_n=128 stages=4"),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer, runs):
    """The first gemm reads, by tensor maps, the rows that the kernel before it has copied."""
    fields, tokens, *options = LAYERS[layer]
    case = Case(f"in_order_{layer}", SPEC | fields, tokens=tokens,
                hard="padding" if layer == "padding" else None)
    options += ["--set=permute-rows.always", "--disable=quantize-rows", f"--max-tokens={tokens}"]
    kernels = launched(case, "sm_90a", *options)
    assert kernels >= {"gather_rows", "experts_hidden", "experts_out"}
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


@pytest.mark.parametrize("options", [("--disable=permute-rows",), ()], ids=["never", "auto"])
def test_option(options):
    """In layers as small as these a copy does not pay; other targets have no tensor maps."""
    case = Case("in_order_option", SPEC, tokens=19)
    assert "gather_rows" not in launched(case, "sm_90a", *options)
    assert "gather_rows" not in launched(case, "sm_80", "--set=permute-rows.always")
