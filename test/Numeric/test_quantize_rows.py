# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hopper gemms that quantize their input rows as they copy them, on the simulator: bits are those of a separate
quantization launch."""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched

BLOCKS = {"weight": "fp8_block128"}
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 512, "num_experts": 6, "top_k": 2,
    "intermediate_size": 256, "routing": {}, "activation": {"kind": "silu"}, "quantization": BLOCKS,
}


def configs(hidden: str, out: str) -> tuple[str, ...]:
    """Configs that both gemms can have with and without quantized rows, so that sums have one order."""
    return f"--config=experts_hidden:{hidden}", f"--config=experts_out:{out} map_rows=false"


NARROW = configs("block_m=16 block_n=32 stages=5", "block_m=16 block_n=64 stages=6")
WIDE = configs("block_m=8 block_n=64 stages=4", "block_m=8 block_n=128 stages=5")
MANY = configs("block_m=8+16 block_n=64 stages=9", "block_m=8+32 block_n=128 stages=7")
HIGH = configs("block_m=32 block_n=128 stages=4", "block_m=32 block_n=256 stages=3")
JOINED = configs("block_m=16 block_n=32 stages=5", "block_m=16 block_n=64 stages=5")
ORDERED = tuple(option + " dynamic_scheduler=false" for option in WIDE)
STATIC = {"quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
                           "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}}}
INT8 = {"quantization": {"weight": {"dtype": "int8", "scale": "channel"},
                         "activation": {"dtype": "int8", "scale": "tensor", "static": True}}}
#: Fields that differ, tokens, options, and requirements on tensors.
FORMS = {
    "narrow": ({}, 9, NARROW, None),
    "wide": ({}, 9, WIDE, None),
    "many": ({"num_experts": 3}, 40, MANY, None),
    # Five k tiles: a warp leaves as many to others where it goes on with the next tile, as many as there are stages.
    "turns": ({"hidden_size": 640, "num_experts": 3}, 40, configs("block_m=16 block_n=32 stages=5",
                                                                   "block_m=16 block_n=64 stages=4"), None),
    "high": ({"num_experts": 3}, 40, HIGH, None),
    "ordered": ({}, 20, ORDERED, None),
    "offsets": ({}, 20, (*WIDE, "--disable=count-ids"), None),
    "gate": ({"entry": "gate"}, 20, NARROW, None),
    "f16": ({"dtype": "f16"}, 9, NARROW, None),
    "zeros": ({}, 9, NARROW, "zero_groups"),
    "given": (STATIC, 9, NARROW, None),
    "given_nan": (STATIC, 20, WIDE, "nan_hidden"),
    "given_rests": (STATIC | {"hidden_size": 272, "intermediate_size": 144}, 9, MANY, None),
    "given_joined": (STATIC, 9, JOINED, None),
    "given_f16": (STATIC | {"dtype": "f16", "entry": "gate"}, 9, HIGH, None),
    "given_int8": (INT8, 9, NARROW, "nan_hidden"),
    "joined": ({}, 9, JOINED, None),
    "joined_one_token": ({}, 1, JOINED, None),
    "joined_rests": ({"hidden_size": 272, "intermediate_size": 144}, 20, JOINED, "empty_experts"),
    "one_token": ({}, 1, NARROW, None),
    "no_tokens": ({}, 0, WIDE, None),
    "empty_experts": ({}, 20, NARROW, "empty_experts"),
    "nan": ({}, 9, NARROW, "nan_hidden"),
    # The last group of a row is not whole, and fewer k tiles than warps.
    "rests": ({"hidden_size": 272, "intermediate_size": 144}, 9, NARROW, None),
    "short": ({"hidden_size": 64, "intermediate_size": 32}, 9, NARROW, None),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", FORMS)
def test_quantize_rows(name, runs):
    fields, tokens, options, hard = FORMS[name]
    case = Case(f"quantize_rows_{name}", SPEC | fields, tokens=tokens, hard=hard)
    options = (f"--max-tokens={max(tokens, 1)}", *options)
    rows = "--set=quantize-rows.always"
    names = launched(case, "sm_90a", *options, rows)
    assert not [kernel for kernel in names if "quantized" in kernel], names
    assert ("experts_hidden_experts_out" in names) == ("joined" in name), names
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options, rows)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    apart = runs.get(case, "--device=sim:0", "--target=sm_90a", *options, "--disable=quantize-rows,quantize-results,join-products")
    assert apart.check().ok
    assert run.outputs.read_bytes() == apart.outputs.read_bytes()
    runs.forget(run)
    runs.forget(apart)
