# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The router's logits by tensor cores whose warps share the depth, on the simulator.

Of layers as small as the other cases the model of time takes few of its configs.
"""

import pytest
from cases import BASE, Case
from runs import SEEDS

#: 33 steps of the depth and 20 columns: warps have different numbers of steps, columns a rest.
LAYER = BASE | {"entry": "gate", "hidden_size": 1056, "num_experts": 20, "top_k": 3}

#: Fields that differ, tokens, config.
ROUTERS = {
    "one_token": ({}, 1, "m=16 n=8 lanes=256"),
    "rows_past_the_end": ({}, 37, "m=16 n=16 lanes=256"),
    "two_tiles_of_rows": ({}, 37, "m=32 n=32 lanes=128"),
    "more_warps_than_steps": ({"hidden_size": 64}, 5, "m=16 n=8 lanes=256"),
    "one_warp": ({"hidden_size": 96}, 5, "m=32 n=64 lanes=32"),
    "f16": ({"dtype": "f16"}, 9, "m=16 n=8 lanes=64"),
    "bias": ({"routing": {"gate_bias": True, "renormalize": True}}, 9, "m=16 n=8 lanes=128"),
    "padding": ({"num_valid_tokens": True}, 21, "m=16 n=8 lanes=128"),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("router", ROUTERS)
def test_tensor_cores(router, target, runs):
    fields, tokens, config = ROUTERS[router]
    case = Case(f"tensor_cores_{router}", LAYER | {"dtype": "bf16"} | fields, tokens=tokens,
                hard="padding" if router == "padding" else None)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", f"--target={target}", "--disable=join-products",
                   f"--config=router_logits:sm80.gemv k=32 {config}")
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
