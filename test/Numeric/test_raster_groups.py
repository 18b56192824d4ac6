# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemms with raster groups, on the simulator.

Groups have up to some hundred rows, in tiles of 16 to 128 rows; a raster group has one tile, some or all.
"""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 64, "num_experts": 4,
    "top_k": 2, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: With few columns some CTAs have no tile; with many each has several.
WIDE_HIDDEN = {"intermediate_size": 520}
WIDE_OUT = {"hidden_size": 1032}
FP8 = {"hidden_size": 272, "intermediate_size": 144, "quantization": {"weight": "fp8_block128"}}
#: Fields that differ, tokens, configs of the two gemms, more options.
APART = "--disable=join-products"
RASTER_GROUPS = {
    "hidden": (WIDE_HIDDEN, 90, "block_m=16 block_n=32 l2_rows=32", "block_m=16 block_n=64", APART),
    "out": (WIDE_OUT, 90, "block_m=16 block_n=32", "block_m=16 block_n=64 l2_rows=32", APART),
    "two_block_m": (WIDE_HIDDEN, 90, "block_m=16+48 block_n=32 l2_rows=96", "block_m=8+24 block_n=128 l2_rows=24", APART),
    "a_tile_each": ({}, 60, "block_m=16 block_n=32 l2_rows=8", "block_m=24 block_n=128 l2_rows=1", APART),
    "one_raster_group": ({}, 60, "block_m=16 block_n=32 l2_rows=200", "block_m=16 block_n=64 l2_rows=1000000", APART),
    "fp8": (FP8, 110, "block_m=16+64 block_n=64 l2_rows=64 no_swap_ab", "block_m=24+40 block_n=128 l2_rows=48", APART),
    "in_order": ({}, 90, "block_m=16 block_n=32 l2_rows=32", "block_m=16 block_n=64 l2_rows=16", APART,
                 "--set=permute-rows.always"),
    "one_expert": ({"num_experts": 1, "top_k": 1}, 100, "block_m=16 block_n=32 l2_rows=48",
                   "block_m=16 block_n=64 l2_rows=32", APART),
    "joined": ({}, 60, "block_m=16 block_n=32 l2_rows=32", "block_m=16 block_n=64 l2_rows=16"),
}
#: With a static tile scheduler each round of the CTAs starts at another tile of a raster group.
CASES = [(groups, dynamic_scheduler) for groups in RASTER_GROUPS for dynamic_scheduler in (False, True)
         if (groups, dynamic_scheduler) != ("joined", True)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("groups", "dynamic_scheduler"), CASES)
def test_raster_groups(groups, dynamic_scheduler, runs):
    fields, tokens, first, second, *more = RASTER_GROUPS[groups]
    case = Case(f"raster_groups_{groups}_{dynamic_scheduler}", SPEC | fields, tokens=tokens)
    flag = f"stages=4 dynamic_scheduler={str(dynamic_scheduler).lower()}"
    options = (f"--max-tokens={tokens}", f"--config=experts_hidden:{flag} {first}",
               f"--config=experts_out:{flag} {second}", *more)
    kernels = launched(case, "sm_90a", *options)
    assert ("experts_hidden_experts_out" in kernels) == (groups == "joined")
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


@pytest.mark.parametrize("rows", (16, 40))
def test_raster_groups_of_a_router(rows, runs):
    """Adjacent CTAs take all columns of a tile, or of two; the last tile is partial."""
    case = Case(f"raster_groups_router_{rows}", SPEC | {"entry": "gate", "num_experts": 200}, tokens=75)
    options = ("--max-tokens=75", "--disable=join-products",
               f"--config=router_logits:sm90.gemm block_m=16 block_n=64 stages=4 l2_rows={rows}")
    assert "router_logits" in launched(case, "sm_90a", *options)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
