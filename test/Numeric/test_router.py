# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The router's logits by tensor cores, with warps that share K, on the simulator.

For layers as small as those of the other cases the cost model chooses few of its configs.
"""

import pytest
from cases import BASE, Case
from runs import SEEDS

#: 33 k tiles and 20 columns: warps have different numbers of k tiles, and columns a remainder.
LAYER = BASE | {"entry": "gate", "hidden_size": 1056, "num_experts": 20, "top_k": 3}

#: Fields that differ, tokens, config.
ROUTERS = {
    "one_token": ({}, 1, "block_m=16 block_n=8 threads=256"),
    "rows_past_the_end": ({}, 37, "block_m=16 block_n=16 threads=256"),
    "two_tiles_of_rows": ({}, 37, "block_m=32 block_n=32 threads=128"),
    "more_warps_than_steps": ({"hidden_size": 64}, 5, "block_m=16 block_n=8 threads=256"),
    "one_warp": ({"hidden_size": 96}, 5, "block_m=32 block_n=64 threads=32"),
    "f16": ({"dtype": "f16"}, 9, "block_m=16 block_n=8 threads=64"),
    "bias": ({"routing": {"gate_bias": True, "renormalize": True}}, 9, "block_m=16 block_n=8 threads=128"),
    "padding": ({"num_valid_tokens": True}, 21, "block_m=16 block_n=8 threads=128"),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("router", ROUTERS)
def test_tensor_cores(router, target, runs):
    fields, tokens, config = ROUTERS[router]
    case = Case(f"tensor_cores_{router}", LAYER | {"dtype": "bf16"} | fields, tokens=tokens,
                hard="padding" if router == "padding" else None)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", f"--target={target}", "--disable=join-products,quantize-inputs",
                   f"--max-tokens={tokens}", f"--config=router_logits:gpu.gemv block_k=32 {config}")
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
