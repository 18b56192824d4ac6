# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups whose tiles have two neighbouring values of BLOCK_M, as the dynamic scheduler permits, on the simulator.

Of many experts a lane cuts some groups at a time, by way of the table.
"""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 200, "num_experts": 5,
    "top_k": 2, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: A lane has three groups, and takes four.
MANY = {"num_experts": 70, "top_k": 8, "hidden_size": 72, "intermediate_size": 40}
#: Each lane has six.
MORE = {"num_experts": 161, "top_k": 16, "hidden_size": 72, "intermediate_size": 40}
FP8 = {"hidden_size": 272, "intermediate_size": 144, "quantization": {"weight": "fp8_block128"}}
#: Fields that differ, tokens, values of BLOCK_M of both products' tiles, more options.
TILINGS = {
    "neighbours": ({}, 110, "block_m=16+24", "block_m=24+32"),
    "three": ({}, 110, "block_m=8+16+24", "block_m=16+24+40"),
    "in_raster_groups": ({}, 110, "block_m=16+24 l2_rows=48", "block_m=16+24 l2_rows=24"),
    "in_order": ({}, 110, "block_m=16+24", "block_m=24+32", "--set=permute-rows.always"),
    "fp8": (FP8, 110, "block_m=16+24", "block_m=24+32"),
    "one_expert": ({"num_experts": 1, "top_k": 1}, 100, "block_m=24+32", "block_m=16+24"),
    "many_groups": (MANY, 120, "block_m=8+16", "block_m=8+16"),
    "more_groups": (MORE, 100, "block_m=8+16", "block_m=8+16"),
    "more_ids": (MORE, 16, "block_m=8+16", "block_m=8"),
}


# field-bug: llama.cpp#27792
@pytest.mark.one_of(2)
@pytest.mark.parametrize("tiling", TILINGS)
def test_block_m(tiling, runs):
    fields, tokens, first, second, *more = TILINGS[tiling]
    case = Case(f"m_tiling_{tiling}", SPEC | fields, tokens=tokens)
    flag = "stages=4 dynamic_scheduler=true"
    options = (f"--max-tokens={tokens}", "--disable=join-products,quantize-rows,quantize-inputs",
               f"--config=experts_hidden:{flag} block_n=64 {first}",
               f"--config=experts_out:{flag} block_n=128 {second}", *more)
    assert {"experts_hidden", "experts_out"} <= launched(case, "sm_90a", *options)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
