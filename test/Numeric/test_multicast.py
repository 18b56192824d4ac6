# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemms whose CTAs share weights in clusters of two, on the simulator: bits are those without clusters."""

from __future__ import annotations

import json
import subprocess

import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, Run, binary
from test_large_groups import make_ids

from moec.reference import LayerSpec, generate, write_tensors

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 136, "num_experts": 6,
    "top_k": 1, "intermediate_size": 72, "routing": {}, "activation": {"kind": "silu"},
}
#: Experts with 1, 2, 3 and 4 tiles, and without rows.
ROWS = [33, 0, 16, 60, 7, 40]
FP8 = {"hidden_size": 272, "intermediate_size": 256, "quantization": {"weight": "fp8_block128"}}
LOW = ("block_m=8+24 block_n=64 stages=3", "block_m=16 block_n=128 stages=4")
HIGH = ("block_m=64 block_n=64 stages=3 no_swap_ab", "block_m=16+64 block_n=128 stages=3 no_swap_ab")
DYNAMIC = tuple(f"{config} dynamic_scheduler" for config in LOW)
#: Fields that differ, rows of each expert, configs of the two gemms, more options.
LAYERS = {
    "ids": ({}, ROWS, LOW),
    "offsets": ({}, ROWS, LOW, "--disable=count-ids"),
    "one": ({"num_experts": 1}, [70], LOW),
    "nothing": ({}, [0] * 6, LOW),
    "dynamic": ({}, ROWS, DYNAMIC),
    "raster_groups": ({}, [0, 140, 0, 0, 9, 0], tuple(f"{config} l2_rows=24" for config in DYNAMIC)),
    "in_order": ({}, [130, 3, 0, 64, 65, 200], HIGH, "--set=permute-rows.always"),
    "block_fp8": (FP8, ROWS, ("block_m=8+24 block_n=64 stages=3 dynamic_scheduler", HIGH[1])),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_same_bits(layer, tmp_path):
    fields, rows, configs, *options = LAYERS[layer]
    spec, tokens = SPEC | fields, max(sum(rows), 40) + 2
    model, inputs = tmp_path / "model.json", tmp_path / "in.st"
    model.write_text(json.dumps(spec))
    tensors = generate(LayerSpec.from_json(spec), tokens, 1, None)
    tensors["topk_ids"][:] = make_ids(rows, tokens)
    write_tensors(inputs, tensors)
    case = Case(f"multicast_{layer}", spec, tokens)
    outputs = []
    for more, seeds in ((" multicast_weights", f"0-{SEEDS - 1}"), ("", "0")):
        chosen = [f"--config={kernel}:{config}{more}" for kernel, config in zip(("experts_hidden", "experts_out"), configs)]
        chosen += [*options, f"--max-tokens={tokens}", "--disable=join-products,quantize-rows"]
        outputs.append(tmp_path / f"out{len(outputs)}.st")
        command = [str(binary("moe-run")), str(model), "--target=sm_90a", f"--device=sim:{seeds}", f"--tokens={tokens}",
                   f"--inputs={inputs}", f"--outputs={outputs[-1]}", *chosen]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        run = Run(case, command, done.returncode, done.stdout + done.stderr, inputs, outputs[-1])
        report = run.check()
        assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_rewrite(tmp_path):
    """The rewrite sets the config where groups have two tiles, if asked."""
    model = tmp_path / "model.json"
    model.write_text(json.dumps(SPEC | {"hidden_size": 4096, "intermediate_size": 4096, "num_experts": 8, "top_k": 2}))
    command = [str(binary("moe-compile")), str(model), "--target=sm_90a", "--emit=tile", "--max-tokens=8192"]

    def count(*options):
        return subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout.count("multicast_weights")

    assert count() == 0
    assert count("--set=multicast-weights.always") > 0
    assert count("--set=multicast-weights.always", "--disable=multicast-weights") == 0
