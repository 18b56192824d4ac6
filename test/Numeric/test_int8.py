# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of int8 by int8 on Hopper's tensor cores, in every kind of tile, on the simulator."""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched, products

CHANNEL = {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}}
TENSOR = {"weight": {"dtype": "int8", "scale": "tensor"}, "activation": {"dtype": "int8", "scale": "tensor"}}
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 272, "num_experts": 4, "top_k": 2,
    "intermediate_size": 144, "routing": {}, "activation": {"kind": "silu"}, "expert_bias": True,
    "quantization": CHANNEL,
}
#: Fields that differ, tokens, heights, weight rows of a CTA: consumers share one block, or have one or two.
TILES = {
    "shared_block": ({}, 40, "16+48", 64),
    "one_block": ({"gate_up_order": "interleaved"}, 150, "8+24+80+112", 128),
    "two_blocks": ({"gate_up_order": "up_gate"}, 70, "8+24+64", 256),
    "tensor": ({"quantization": TENSOR}, 11, "16", 128),
    # More than tensor cores add up of e4m3.
    "long_rows": ({"hidden_size": 4096, "intermediate_size": 64}, 5, "16", 64),
}


@pytest.mark.parametrize("name", TILES)
def test_int8(name, runs):
    fields, tokens, heights, rows = TILES[name]
    case = Case(f"int8_{name}", SPEC | fields, tokens=tokens)
    options = (f"--max-tokens={tokens}", "--disable=join-products,quantize-inputs",
               f"--config=experts_hidden:tile_rows={heights} tile_columns={rows // 2} stages=4",
               f"--config=experts_out:tile_rows={heights} tile_columns={rows} stages=4")
    assert {"experts_hidden", "experts_out"} <= launched(case, "sm_90a", *options)
    assert (heights.split("+")[0], str(rows)) in products(case, *options)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
