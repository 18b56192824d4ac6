# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""int8 gemms on Hopper's tensor cores, with every kind of tile, on the simulator; and by AMX on this machine."""

import subprocess
from pathlib import Path

import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, binary
from schedules import launched, products

CHANNEL = {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}}
TENSOR = {"weight": {"dtype": "int8", "scale": "tensor"}, "activation": {"dtype": "int8", "scale": "tensor"}}
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 272, "num_experts": 4, "top_k": 2,
    "intermediate_size": 144, "routing": {}, "activation": {"kind": "silu"}, "expert_bias": True,
    "quantization": CHANNEL,
}
#: Fields that differ, tokens, values of BLOCK_M, weight rows of a CTA: consumers share one block, or have one or two.
TILES = {
    "shared_block": ({}, 40, "16+48", 64),
    "one_block": ({"gate_up_order": "interleaved"}, 150, "8+24+80+112", 128),
    "two_blocks": ({"gate_up_order": "up_gate"}, 70, "8+24+64", 256),
    "tensor": ({"quantization": TENSOR}, 11, "16", 128),
    # More elements than tensor cores accumulate for e4m3.
    "long_rows": ({"hidden_size": 4096, "intermediate_size": 64}, 5, "16", 64),
}


@pytest.mark.parametrize("name", TILES)
def test_int8(name, runs):
    fields, tokens, block_ms, rows = TILES[name]
    case = Case(f"int8_{name}", SPEC | fields, tokens=tokens)
    options = (f"--max-tokens={tokens}", "--disable=join-products,quantize-inputs",
               f"--config=experts_hidden:block_m={block_ms} block_n={rows // 2} stages=4",
               f"--config=experts_out:block_m={block_ms} block_n={rows} stages=4")
    assert {"experts_hidden", "experts_out"} <= launched(case, "sm_90a", *options)
    assert (block_ms.split("+")[0], str(rows)) in products(case, *options)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


@pytest.mark.parametrize("name", ["shared_block", "one_block", "tensor"])
def test_int8_by_amx(name, runs):
    if "amx_int8" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("needs amx_int8")
    fields, tokens, *_ = TILES[name]
    case = Case(f"int8_amx_{name}", SPEC | {"hidden_size": 256, "intermediate_size": 128} | fields, tokens=tokens)
    run = runs.get(case)
    done = subprocess.run([str(binary("moe-compile")), str(run.inputs.parent / "model.json"), "--emit=tile"],
                          capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout.count("instruction_k = 64") == 2, done.stderr
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
