# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemms whose groups with many rows have a separate launch, on the simulator.

The simulator reports reads of rows that neither launch has written.
"""

from __future__ import annotations

import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, Run, binary
from schedules import launched

from moec.reference import LayerSpec, generate, write_tensors

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 64, "num_experts": 6,
    "top_k": 1, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: Rows per expert; many rows are more than four tiles of 8 (33 and up) and a quarter of the tokens.
SOME = [33, 0, 32, 60, 7, 1]
ROUTINGS = {
    "some": SOME,
    "none": [32, 30, 0, 31, 9, 32],
    "all": [0, 40, 0, 36, 0, 41],
    "one": [0, 0, 0, 0, 120, 0],
    "nothing": [0, 0, 0, 0, 0, 0],
    "few": [0, 3, 0, 5, 0, 1],
}
#: Fields that differ, the routing, configs of the two gemms and of their groups with many rows, more options.
LOW = ("block_m=8 block_n=64 stages=4", "block_m=8 block_n=128 stages=4")
HIGH = ("block_m=16+48 block_n=32 stages=5", "block_m=32 block_n=64 stages=6")
WIDE = {"intermediate_size": 520, "hidden_size": 136}
FP8 = {"hidden_size": 272, "intermediate_size": 256, "quantization": {"weight": "fp8_block128"}}
LAYERS = {
    **{routing: ({}, rows, LOW, HIGH) for routing, rows in ROUTINGS.items()},
    # By offsets; with many groups a lane has several.
    "offsets": ({}, SOME, LOW, HIGH, "--disable=count-ids"),
    "many_groups": ({"num_experts": 70}, [0] * 31 + SOME + [0] * 33, LOW, HIGH, "--disable=count-ids"),
    "one_group": ({"num_experts": 1}, [50], LOW, HIGH, "--disable=count-ids"),
    "one_low_group": ({"num_experts": 1}, [32], LOW, HIGH, "--disable=count-ids"),
    # The last tile of each launch resets the counter; a launch without tiles leaves it unchanged.
    "dynamic_scheduler": (WIDE, SOME, [f"{config} dynamic_scheduler" for config in LOW], [f"{config} dynamic_scheduler" for config in HIGH]),
    "dynamic_scheduler_one": (WIDE, ROUTINGS["one"], [f"{config} dynamic_scheduler" for config in LOW],
                  [f"{config} dynamic_scheduler" for config in HIGH]),
    "dynamic_scheduler_none": (WIDE, ROUTINGS["none"], [f"{config} dynamic_scheduler" for config in LOW],
                   [f"{config} dynamic_scheduler" for config in HIGH]),
    "in_order": ({}, SOME, LOW, HIGH, "--set=permute-rows.always"),
    "raster_groups": (WIDE, ROUTINGS["one"], LOW, [f"{config} l2_rows=48" for config in HIGH]),
    "not_dependent": ({}, SOME, LOW, HIGH, "--no-dependent-launches"),
    "bias": ({"dtype": "f16", "expert_bias": True}, SOME, LOW, HIGH),
    # The choice for llama4_maverick at up to 8192 tokens.
    "chosen": ({"hidden_size": 264, "intermediate_size": 136}, [3, 353, 70, 0, 9],
               ("block_m=32+72+88 block_n=128 stages=5 l2_rows=1952 dynamic_scheduler", "block_m=16+40+80 block_n=256 stages=5 l2_rows=1216 dynamic_scheduler"),
               ("block_m=152 block_n=128 stages=4 l2_rows=1952 dynamic_scheduler", "block_m=160 block_n=256 stages=4 l2_rows=1216 dynamic_scheduler"),
               "--set=permute-rows.always"),
    # The first one quantizes its results.
    "quantized": (FP8, SOME, ("block_m=8 block_n=128 stages=3 no_swap_ab=false", "block_m=8 block_n=128 stages=4 no_swap_ab=false"),
                  ("block_m=16+64 block_n=128 stages=3 no_swap_ab", "block_m=40 block_n=128 stages=4 no_swap_ab=false")),
    "apart": (FP8, SOME, ("block_m=8 block_n=64 stages=4 no_swap_ab=false", "block_m=8 block_n=128 stages=4 no_swap_ab=false"),
              ("block_m=64 block_n=64 stages=4 no_swap_ab", "block_m=40 block_n=128 stages=4 no_swap_ab=false")),
}
KERNELS = ("experts_hidden", "experts_out", "experts_hidden_large_groups", "experts_out_large_groups")


def make_ids(rows, tokens):
    """Ids of one slot per token, in no order; tokens past the last row have none."""
    ids = np.full(tokens, -1, np.int32)
    ids[: sum(rows)] = np.repeat(np.arange(len(rows), dtype=np.int32), rows)
    return np.random.default_rng(3).permutation(ids)[:, None]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer, tmp_path):
    fields, rows, low, high, *options = LAYERS[layer]
    spec = SPEC | fields
    tokens = max(sum(rows), 40) + 2
    model, inputs, outputs = (tmp_path / name for name in ("model.json", "in.st", "out.st"))
    model.write_text(json.dumps(spec))
    tensors = generate(LayerSpec.from_json(spec), tokens, 1, None)
    tensors["topk_ids"][:] = make_ids(rows, tokens)
    write_tensors(inputs, tensors)
    options += [f"--config={kernel}:{config}" for kernel, config in zip(KERNELS, (*low, *high))]
    options += [f"--max-tokens={tokens}", "--disable=quantize-rows"]
    case = Case(f"large_groups_{layer}", spec, tokens)
    kernels = launched(case, "sm_90a", *options)
    assert kernels >= set(KERNELS)
    assert ("gather_rows" in kernels) == (layer in ("in_order", "chosen"))
    command = [
        str(binary("moe-run")), str(model), "--target=sm_90a", f"--device=sim:0-{SEEDS - 1}",
        f"--tokens={tokens}", f"--inputs={inputs}", f"--outputs={outputs}", *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    run = Run(case, command, done.returncode, done.stdout + done.stderr, inputs, outputs)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


def test_option():
    """In layers as small as these another launch does not pay; without forced configs there is none."""
    case = Case("large_groups_option", SPEC, tokens=80)
    forced = (f"--config=experts_hidden:{LOW[0]}", f"--config=experts_hidden_large_groups:{HIGH[0]}")
    assert "experts_hidden_large_groups" not in launched(case, "sm_90a", "--max-tokens=80")
    assert "experts_hidden_large_groups" in launched(case, "sm_90a", "--max-tokens=80", *forced)
    assert "experts_hidden_large_groups" not in launched(case, "sm_90a", "--max-tokens=80", "--disable=split-large-groups", *forced)
    # Without the split these gemms would be joined.
    low = [f"--config={kernel}:{config}" for kernel, config in zip(KERNELS, LOW)]
    assert "experts_hidden_experts_out" in launched(case, "sm_90a", "--max-tokens=80", *low)
    assert "experts_out" in launched(case, "sm_90a", "--max-tokens=80", *low, forced[1])
    # No group can have so many rows.
    case = Case("large_groups_option", SPEC, tokens=32)
    assert "experts_hidden_large_groups" not in launched(case, "sm_90a", "--max-tokens=32", *forced)


#: Groups with up to 3 rows and those with 4 or more have separate launches. The limit is lower than the compiler's
#: choice, for ids that fit the lanes of a warp.
PLAN = """
plan.program @layer max_tokens 64 {{
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x64xbf16>
  %i = plan.tensor input "i" rows <"tokens"> : memref<?x2xi32>
  %r = plan.tensor input "r" rows <"tokens"> : memref<?x2xf32>
  %w = plan.tensor weight "w" : memref<5x64x64xbf16>
  %y = plan.tensor output "output" rows <"tokens"> : memref<?x64xbf16>
  %o = plan.buffer "o" slot 0 : memref<6xi32>
  %p = plan.buffer "p" slot 1 rows <"tokens"> : memref<?x2xi32>
  %s = plan.buffer "s" slot 2 rows <"tokens * 2"> : memref<?xi32>
  %v = plan.buffer "v" slot 3 rows <"tokens * 2"> : memref<?x1xf32>
  %h = plan.buffer "h" slot 4 rows <"tokens * 2"> : memref<?x64xbf16>
  plan.variant tokens 0 to 64 {{
    plan.launch @rank ins(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %v : memref<6xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
    {launches}
    plan.launch @output ins(%h, %p : memref<?x64xbf16>, memref<?x2xi32>) outs(%y : memref<?x64xbf16>)
  }}
}}
tile.kernel @rank(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %o: memref<6xi32>, %p: memref<?x2xi32>,
    %s: memref<?xi32>, %v: memref<?x1xf32>, %t: i64) {{
  tile.sort_by_expert tokens(%t) ids(%i, %r : memref<?x2xi32>, memref<?x2xf32>)
    outs(%o, %p, %s, %v : memref<6xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) {{num_experts = 5 : i64}}
  tile.return
}}
{kernels}
tile.kernel @output(%h: memref<?x64xbf16>, %p: memref<?x2xi32>, %y: memref<?x64xbf16>, %t: i64) {{
  tile.gather_reduce tokens(%t) ins(%h, %p : memref<?x64xbf16>, memref<?x2xi32>) outs(%y : memref<?x64xbf16>)
  tile.return
}}
"""
LAUNCH = """
    plan.launch @{name} ins(%x, %w, %o, %s, %i : memref<?x64xbf16>, memref<5x64x64xbf16>, memref<6xi32>,
      memref<?xi32>, memref<?x2xi32>) outs(%h : memref<?x64xbf16>)"""
KERNEL = """
tile.kernel @{name}(%x: memref<?x64xbf16>, %w: memref<5x64x64xbf16>, %o: memref<6xi32>, %s: memref<?xi32>,
    %i: memref<?x2xi32>, %h: memref<?x64xbf16>, %t: i64) {{
  tile.gemm tokens(%t) ins(%x, %w : memref<?x64xbf16>, memref<5x64x64xbf16>) offsets(%o : memref<6xi32>)
    source(%s : memref<?xi32>) schedule(ids = %i : memref<?x2xi32>) outs(%h : memref<?x64xbf16>) epilogue {{
    ^bb0(%a: f32):
      tile.yield %a : f32
    }} {{num_experts = 5 : i64{attributes}}}
  tile.return
}}"""
ALL = {"all": ""}
SHARED = {"low": ", group_rows = #tile.group_rows<max = 3>", "middle": ", group_rows = #tile.group_rows<min = 4, max = 9>",
          "high": ", group_rows = #tile.group_rows<min = 10>"}


@pytest.mark.parametrize("tokens", [1, 5, 16, 17, 60])
def test_plans(tokens, tmp_path):
    """Three launches that divide the groups have the bits of one launch for all."""
    random = np.random.default_rng(tokens)
    inputs = tmp_path / "in.st"
    write_tensors(inputs, {
        "x": random.normal(size=(tokens, 64)).astype(ml_dtypes.bfloat16),
        "w": random.normal(size=(5, 64, 64)).astype(ml_dtypes.bfloat16),
        # Some twice in a token, some without an expert.
        "i": random.choice(np.array([0, 1, 1, 1, 3, 4, 4, -1], np.int32), (tokens, 2)),
        "r": np.ones((tokens, 2), np.float32),
    })
    found = []
    for products in (ALL, SHARED):
        plan, outputs = tmp_path / f"plan{len(found)}.mlir", tmp_path / f"out{len(found)}.st"
        plan.write_text(PLAN.format(
            launches="".join(LAUNCH.format(name=name) for name in products),
            kernels="".join(KERNEL.format(name=name, attributes=text) for name, text in products.items())))
        command = [binary("moe-run"), plan, f"--tokens={tokens}", f"--inputs={inputs}", f"--outputs={outputs}",
                   "--target=sm_90a", f"--device=sim:0-{SEEDS - 1}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        found.append(outputs.read_bytes())
    assert found[0] == found[1]
