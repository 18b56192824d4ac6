# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Launches that route tokens and count or sort their slots, possibly with a quantization ahead, on the simulator:
bits are those of separate launches."""

import json
import subprocess

import pytest
from cases import HASH, Case
from runs import SEEDS, TIMEOUT, Run, binary
from schedules import launched

from moec.reference import LayerSpec, generate, write_tensors

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "logits", "hidden_size": 16, "num_experts": 8,
    "top_k": 2, "intermediate_size": 8, "routing": {"score": "softmax"}, "activation": {"kind": "silu"},
}
MANY = {"num_experts": 200, "top_k": 5}
GROUPS = {"num_experts": 64, "top_k": 4,
          "routing": {"score": "sigmoid", "num_groups": 8, "topk_groups": 2, "selection_bias": True}}
LOCAL = {"placement": {"local_experts": [199, 0, 64, 63, 100]}}
ZEROS = {"num_zero_experts": 4}
VALID = {"num_valid_tokens": True}
GATE = {"entry": "gate"}
#: So many experts that rows do not fit in a warp's registers, and that a CTA's memory has the rows of eight warps.
STORED = {"num_experts": 1000, "top_k": 3}
#: Hidden states are quantized: one group and part of another per token, or so many that some CTAs only quantize.
FP8 = {"entry": "gate", "hidden_size": 144, "quantization": {"weight": "fp8_block128"}}
WIDE = FP8 | {"hidden_size": 1680}
#: Target, tokens, fields that differ from SPEC, the most slots that one launch sorts, kinds of inputs.
CASES = [
    # Sorted by the CTA that routes: one token, as many tokens as warps, more tokens.
    ("sm_80", 1, {}, None, None),
    ("sm_90a", 16, GATE | MANY, None, None),
    ("sm_90a", 32, {}, None, "ties"),
    ("sm_90a", 9, GROUPS, None, None),
    ("sm_80", 20, MANY | LOCAL, None, None),
    ("sm_90a", 7, ZEROS, None, None),
    ("sm_80", 30, VALID, None, "padding"),
    ("sm_90a", 12, STORED, None, None),
    ("sm_80", 21, {"routing": HASH}, None, None),
    # Quantized ahead, by one CTA and by several; not if rows are not in registers.
    ("sm_90a", 5, FP8, None, None),
    ("sm_90a", 3, WIDE | VALID, None, "padding"),
    ("sm_80", 4, WIDE | GROUPS, None, None),
    ("sm_90a", 2, FP8 | STORED, None, None),
    # Counted by the CTAs that route: partial last chunks, one chunk, more chunks than allowed at that size.
    ("sm_90a", 45, {}, 0, None),
    ("sm_80", 5, MANY, 0, None),
    ("sm_90a", 60, VALID, 0, "padding"),
    ("sm_80", 40, GROUPS | GATE, 0, None),
    ("sm_90a", 37, ZEROS, 0, None),
    ("sm_90a", 2101, {}, 0, None),
    # With as many experts as threads, counts are loaded four at once: for chunks before, after, and between.
    ("sm_90a", 530, {"num_experts": 512}, 0, None),
    ("sm_90a", 17, {"num_experts": 512, "top_k": 10}, 0, "ties"),
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("target", "tokens", "fields", "most", "hard"), CASES,
    ids=[f"{target}-{tokens}-{'counted' if most == 0 else 'ranked'}-{number}"
         for number, (target, tokens, _, most, _) in enumerate(CASES)],
)
def test_same_bits(target, tokens, fields, most, hard, tmp_path):
    spec = SPEC | fields
    case = Case("fused_routing", spec, tokens)
    model, inputs = tmp_path / "model.json", tmp_path / "in.safetensors"
    model.write_text(json.dumps(spec))
    write_tensors(inputs, generate(LayerSpec.from_json(spec), tokens, 1, hard))
    options = [f"--max-tokens={tokens}", "--disable=quantize-rows"]
    if most is not None:
        options.append(f"--set=split-sort.most={most}")
    fused = "route_0_route_1" + ("" if most is None else "_counts")
    if "quantization" in spec and spec["num_experts"] != STORED["num_experts"]:
        fused = f"hidden_quantized_{fused}"
    outputs = []
    # Joined gemms, which follow the routing, are slow on the simulator. Separate launches are only the comparison, for
    # which one schedule suffices.
    for disabled, seeds in (("join-products", f"0-{SEEDS - 1}"), ("join-products,fuse-routing", "0")):
        more = [f"--disable={disabled}"]
        kernels = launched(case, target, *options, *more)
        assert (fused in kernels) == (disabled == "join-products")
        assert ("route_0" in kernels) == (disabled != "join-products")
        outputs.append(tmp_path / f"out{len(outputs)}.safetensors")
        command = [
            str(binary("moe-run")), str(model), f"--target={target}", f"--device=sim:{seeds}",
            f"--tokens={tokens}", f"--inputs={inputs}", f"--outputs={outputs[-1]}", *options, *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        run = Run(case, command, done.returncode, done.stdout + done.stderr, inputs, outputs[-1])
        report = run.check()
        assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
