# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hopper gemms that quantize their input rows, on the simulator: bits are those of a separate quantization launch."""

import pytest
from cases import Case
from runs import SEEDS
from schedules import launched

E4M3 = {"weight": {"dtype": "fp8_e4m3", "scale": "channel"}, "activation": {"dtype": "fp8_e4m3", "scale": "token"}}
INT8 = {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}}
STATIC = {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
          "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}}
KEPT = {"weight": {"dtype": "int4", "scale": {"group": 64}, "scale_dtype": "bf16", "zero_point": True},
        "activation": {"dtype": "fp8_e4m3", "scale": "token"}}
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 256, "num_experts": 6, "top_k": 2,
    "intermediate_size": 144, "routing": {}, "activation": {"kind": "silu"}, "expert_bias": True,
    "quantization": E4M3,
}
#: Forced configs of the second gemm: rows copied by threads, and a static tile scheduler.
THREADS = "--config=experts_out:block_m=16+32 block_n=64 stages=4 map_rows=false"
ORDERED = "--config=experts_out:block_m=16+32 block_n=128 stages=4 dynamic_scheduler=false"
DYNAMIC = "--config=experts_out:block_m=8+16 block_n=128 stages=4 dynamic_scheduler"
#: Fields that differ, tokens, options, and requirements on ids.
FORMS = {
    "counted_ids": ({}, 20, (), None),
    "offsets": ({}, 20, ("--disable=count-ids",), None),
    "threads": ({}, 20, (THREADS,), None),
    "threads_offsets": ({}, 20, (THREADS, "--disable=count-ids"), None),
    "ordered": ({}, 20, (ORDERED,), None),
    "dynamic": ({"num_experts": 4}, 90, (DYNAMIC,), None),
    "one_token": ({}, 1, (), None),
    "no_tokens": ({}, 0, (), None),
    "empty_experts": ({}, 20, (), "empty_experts"),
    "nan": ({}, 9, (), "nan_hidden"),
    # Vectors past a row's end, and an odd row without a second one.
    "rests": ({"intermediate_size": 400}, 9, (), None),
    "long_rows": ({"intermediate_size": 2048, "num_experts": 2, "top_k": 1}, 3, (), None),
    "int8": ({"quantization": INT8}, 20, (), None),
    # Activations kept as bf16, with whole packed tiles of weights.
    "kept": ({"quantization": KEPT, "intermediate_size": 192}, 20, (), None),
    "kept_int8": ({"quantization": KEPT | {"activation": INT8["activation"]}, "intermediate_size": 192}, 20, (), "nan_hidden"),
    "kept_given": ({"quantization": KEPT | {"activation": STATIC["activation"]}, "intermediate_size": 192}, 20,
                   ("--disable=quantize-rows,quantize-results",), None),
    "given": ({"quantization": STATIC}, 20, ("--disable=quantize-rows,quantize-results",), None),
    "gate": ({"entry": "gate"}, 20, (), None),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", FORMS)
def test_quantize_inputs(name, runs):
    fields, tokens, options, hard = FORMS[name]
    case = Case(f"quantize_inputs_{name}", SPEC | fields, tokens=tokens, hard=hard)
    options = (f"--max-tokens={max(tokens, 1)}", "--set=quantize-inputs.always", *options)
    names = launched(case, "sm_90a", *options)
    assert [kernel for kernel in names if "quantized_experts_out" in kernel], names
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    apart = runs.get(case, "--device=sim:0", "--target=sm_90a", *options, "--disable=quantize-inputs")
    assert apart.check().ok
    assert run.outputs.read_bytes() == apart.outputs.read_bytes()
    runs.forget(run)
    runs.forget(apart)
