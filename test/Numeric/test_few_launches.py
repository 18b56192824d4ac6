# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Few tokens in two or three launches, on the simulator: bits are those of separate launches."""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "gate", "hidden_size": 256, "num_experts": 8, "top_k": 2,
    "intermediate_size": 128, "routing": {"score": "softmax", "renormalize": True}, "activation": {"kind": "silu"},
}
IDS = {"entry": "ids", "routing": {}}
GROUPS = {"num_experts": 64, "top_k": 4,
          "routing": {"score": "sigmoid", "num_groups": 8, "topk_groups": 2, "selection_bias": True}}
MXFP4 = {"quantization": {"weight": "mxfp4"}}
FP8 = {"quantization": {"weight": "fp8_block128"}}
ALWAYS = ("--set=join-products.most=8,join-sums.always,join-routing.always",)
#: Fields that differ, tokens, options, requirements on inputs, and the kernels that are launched.
FORMS = {
    "ids": (IDS, 3, (), None, {"permute", "experts_hidden_experts_out_output"}),
    "one": ({}, 1, (), None, {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    "eight": (GROUPS, 8, (), "ties", {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    "no_tokens": ({}, 0, (), None, {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    "padding": ({"num_valid_tokens": True}, 5, (), "padding",
                {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    "local": ({"placement": {"local_experts": [7, 0, 3]}}, 6, (), None,
              {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    # Sums of a gemm whose CTAs draw tiles, and of one whose tiles have a fixed order.
    "prepacked": (MXFP4, 4, (), None, None),
    "block_fp8": (FP8, 4, ("--set=quantize-rows.most=4",), None, {"router_logits", "route_0_route_1_experts_hidden_experts_out_output"}),
    "block_fp8_apart": (FP8, 4, ("--disable=quantize-rows",), None,
                        {"router_logits", "hidden_quantized_route_0_route_1", "experts_hidden_experts_out_output"}),
    "ordered": (IDS | MXFP4, 4, ("--config=experts_out:block_m=8 block_n=128 stages=3 dynamic_scheduler=false",), None,
                None),
}


def options_of(tokens: int) -> tuple[str, ...]:
    return (f"--max-tokens={max(tokens, 1)}",)


@pytest.mark.parametrize("name", FORMS)
def test_same_bits(name, runs):
    fields, tokens, more, hard, kernels = FORMS[name]
    case = Case(f"few_launches_{name}", SPEC | fields, tokens, hard=hard)
    options = (*options_of(tokens), *more)
    joined = launched(case, "sm_90a", *options, *ALWAYS)
    if kernels is None:
        assert any(kernel.endswith("_output") for kernel in joined)
    else:
        assert joined == kernels
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options, *ALWAYS)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    apart = runs.get(case, "--device=sim:0", "--target=sm_90a", *options)
    assert apart.check().ok
    assert run.outputs.read_bytes() == apart.outputs.read_bytes()
    runs.forget(run)
    runs.forget(apart)
