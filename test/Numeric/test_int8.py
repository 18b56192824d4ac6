# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""int8 gemms on Hopper's tensor cores, with every kind of tile, on the simulator; and by AMX and VNNI on this machine."""

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
    options = (f"--max-tokens={tokens}", "--disable=join-products,quantize-rows,quantize-inputs",
               f"--config=experts_hidden:block_m={block_ms} block_n={rows // 2} stages=4",
               f"--config=experts_out:block_m={block_ms} block_n={rows} stages=4")
    assert {"experts_hidden", "experts_out"} <= launched(case, "sm_90a", *options)
    assert (block_ms.split("+")[0], str(rows)) in products(case, *options)
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


#: Name of a CPU, the flag of /proc/cpuinfo without which a machine cannot run its code, and the instruction's products.
CPUS = {
    "amx": ("host", "amx_int8", 64), "avx512_vnni": ("icelake-server", "avx512_vnni", 4),
    "avx_vnni": ("alderlake", "avx_vnni", 4),
}


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", ["shared_block", "one_block", "tensor"])
def test_int8_of_the_cpu(name, cpu, runs):
    host, flag, products_of_k = CPUS[cpu]
    if flag not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"needs {flag}")
    fields, tokens, *_ = TILES[name]
    case = Case(f"int8_{cpu}_{name}", SPEC | {"hidden_size": 256, "intermediate_size": 128} | fields, tokens=tokens)
    run = runs.get(case, f"--cpu={host}")
    done = subprocess.run(
        [str(binary("moe-compile")), str(run.inputs.parent / "model.json"), "--emit=tile", f"--cpu={host}"],
        capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout.count(f"instruction_k = {products_of_k},") + \
        done.stdout.count(f"instruction_k = {products_of_k}>") == 2, done.stderr
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


def test_sums_of_int8_are_exact(runs):
    """AMX and VPDPBUSD of two widths give equal bits."""
    present = [host for host, flag, _ in CPUS.values() if flag in Path("/proc/cpuinfo").read_text()]
    if len(present) < 2:
        pytest.skip("needs two of " + ", ".join(CPUS))
    case = Case("int8_exact", SPEC | {"hidden_size": 2048, "intermediate_size": 128}, tokens=9)
    done = [runs.get(case, f"--cpu={host}") for host in present]
    assert len({run.outputs.read_bytes() for run in done}) == 1, done[0].explain("the outputs differ")
    for run in done:
        runs.forget(run)
