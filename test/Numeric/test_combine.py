# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""CTAs of gpu.gather_reduce that process several tokens, on the simulator.

In layers as small as those of the other cases each CTA has one token.
"""

import pytest
from cases import BASE, Case
from runs import SEEDS

LOCAL = {"local_experts": [7, 0, 5]}
SIZES = {"num_experts": 24, "top_k": 8, "dtype": "bf16"}

#: Fields that differ from those of the other cases.
LAYERS = {
    "all_rows": {},
    "few_rows": {"placement": LOCAL},
    "f32": {"dtype": "f32", "placement": LOCAL},
    "one_slot": {"top_k": 1, "placement": LOCAL},
    "two_column_tiles": {"hidden_size": 1032, "placement": LOCAL},
    "identity": {"num_zero_experts": 8, "top_k": 9, "placement": LOCAL},
    "padding": {"num_valid_tokens": True, "shared_experts": {"intermediate_size": 40}},
    # More rows than a warp loads at a time.
    "many_slots": {"num_experts": 48, "top_k": 40, "num_zero_experts": 8},
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("layer", LAYERS)
def test_tokens_at_a_time(layer, target, runs):
    case = Case(f"tokens_at_a_time_{layer}", BASE | SIZES | LAYERS[layer], tokens=11,
                hard="padding" if layer == "padding" else None)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", f"--target={target}",
                   "--disable=join-products", "--config=output:token_stride=3")
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
