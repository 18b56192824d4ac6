# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorts by expert in two launches, with few slots too, on the simulator: bits are those of one launch."""

import json
import subprocess

import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, Run, binary
from schedules import launched

from moec.reference import LayerSpec, generate, write_tensors

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 16, "num_experts": 8,
    "top_k": 2, "intermediate_size": 8, "routing": {}, "activation": {"kind": "silu"},
}
MANY = {"num_experts": 200, "top_k": 5}
LOCAL = {"placement": {"local_experts": [199, 0, 64, 63, 100]}}
ZEROS = {"entry": "logits", "num_zero_experts": 4, "routing": {"score": "softmax"}}
VALID = {"entry": "logits", "num_valid_tokens": True, "routing": {"score": "softmax"}}
FP8 = {"hidden_size": 128, "intermediate_size": 128, "quantization": {"weight": "fp8_block128"}}
#: Target, tokens, fields that differ from SPEC, the sort's config, kinds of inputs.
CASES = [
    ("sm_80", 0, {}, "tokens_per_cta=4", None),
    ("sm_80", 1, {}, "tokens_per_cta=4", None),
    ("sm_80", 50, {}, "threads=64 tokens_per_cta=4", "minus_one_ids"),
    # Unaligned chunks; more chunks than allowed at that size.
    ("sm_90a", 97, MANY, "tokens_per_cta=7", "out_of_range_ids"),
    ("sm_90a", 300, {}, "tokens_per_cta=1", "one_expert"),
    # More experts than counters, and threads without counts.
    ("sm_80", 60, MANY, "threads=160 tokens_per_cta=5 experts_at_once=33", None),
    ("sm_80", 60, MANY | LOCAL, "tokens_per_cta=5", "minus_one_ids"),
    ("sm_90a", 40, ZEROS, "tokens_per_cta=3", None),
    ("sm_90a", 60, VALID, "tokens_per_cta=3", "padding"),
    # Hidden states are quantized beside both launches.
    ("sm_90a", 40, FP8, "tokens_per_cta=3", "minus_one_ids"),
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("target", "tokens", "fields", "config", "hard"), CASES,
    ids=[f"{target}-{tokens}-{config}-{hard}" for target, tokens, _, config, hard in CASES],
)
def test_same_bits(target, tokens, fields, config, hard, tmp_path):
    spec = SPEC | fields
    kernel = "permute" if spec["entry"] == "ids" else "route_1"
    case = Case("ranking", spec, tokens)
    model, inputs = tmp_path / "model.json", tmp_path / "in.safetensors"
    model.write_text(json.dumps(spec))
    write_tensors(inputs, generate(LayerSpec.from_json(spec), tokens, 1, hard))
    options = [f"--max-tokens={max(tokens, 1)}", f"--config={kernel}:{config}", "--disable=fuse-routing"]
    if target == "sm_90a":
        options.append("--disable=join-products")
    outputs = []
    # The reference run needs one schedule.
    for counted, seeds in ((True, f"0-{SEEDS - 1}"), (False, "0")):
        more = [*options, "--set=split-sort.most=0" if counted else "--disable=split-sort"]
        kernels = launched(case, target, *more)
        # Without a slot there is nothing to count.
        assert (f"{kernel}_counts" in kernels) == (counted and tokens > 0)
        outputs.append(tmp_path / f"out{len(outputs)}.safetensors")
        command = [
            str(binary("moe-run")), str(model), f"--target={target}", f"--device=sim:{seeds}",
            f"--tokens={tokens}", f"--inputs={inputs}", f"--outputs={outputs[-1]}", *more,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        run = Run(case, command, done.returncode, done.stdout + done.stderr, inputs, outputs[-1])
        report = run.check()
        assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
