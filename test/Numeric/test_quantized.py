# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A product that quantizes its results has the bits of one with a kernel behind it, on the simulator."""

import json
import subprocess

import numpy as np
import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, binary
from schedules import launched

from moec.reference import LayerSpec, generate, write_tensors

#: Two groups of columns, whose depth has part of a block.
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 272, "num_experts": 4,
    "top_k": 2, "intermediate_size": 256, "routing": {}, "activation": {"kind": "silu"},
    "quantization": {"weight": "fp8_block128"},
}
NO_GATE = {"activation": {"kind": "relu2_no_mul"}}
BIASED = {"expert_bias": True, "gate_up_order": "interleaved"}
#: Tokens, what differs from SPEC, heights: with rows on M those of 64 and 128, else all of them.
CASES = [
    (1, {}, "8", False),
    (40, {}, "16+40", False),
    (70, NO_GATE, "16+72", False),
    (150, {}, "112", False),
    (60, {"dtype": "f16"}, "64", True),
    (150, BIASED, "24+64+128", True),
    (150, NO_GATE, "16+64+128", True),
]


def make_inputs(spec, tokens, path):
    """Some slots without an expert; rows of zeros, of tiny and huge numbers, with NaN and infinity."""
    tensors = generate(LayerSpec.from_json(spec), tokens, 1, None)
    ids, hidden = tensors["topk_ids"], tensors["hidden_states"]
    if tokens > 20:
        ids[::7, 0] = -1
        # One expert has most rows: tiles of all heights, and rests.
        ids[: tokens // 2, 1] = 2
        hidden[3::16] = 0
        hidden[4::16] *= type(hidden[0, 0])(1e-4)
        hidden[5::16] *= type(hidden[0, 0])(1e4)
        hidden[6::32, 9] = np.nan
        hidden[7::32, 8] = np.inf
    write_tensors(path, tensors)


@pytest.mark.parametrize(
    ("tokens", "fields", "tile_rows", "rows_on_m"), CASES,
    ids=lambda value: "-".join(value) or "plain" if isinstance(value, dict) else str(value),
)
def test_same_bits(tokens, fields, tile_rows, rows_on_m, tmp_path):
    spec = SPEC | fields
    model, inputs = tmp_path / "model.json", tmp_path / "in.safetensors"
    model.write_text(json.dumps(spec))
    make_inputs(spec, tokens, inputs)
    options = [
        f"--max-tokens={tokens}",
        f"--config=experts_hidden:tile_rows={tile_rows} tile_columns=128 stages=3 rows_on_m={str(rows_on_m).lower()}",
    ]
    kernels, outputs = [], []
    # What is compared with needs one schedule.
    for extra, seeds in (([], f"0-{SEEDS - 1}"), (["--disable=quantize-results"], "0")):
        kernels.append(launched(Case("quantized", spec, tokens), "sm_90a", *options, *extra))
        path = tmp_path / f"out{len(outputs)}.safetensors"
        command = [
            binary("moe-run"), model, "--target=sm_90a", f"--device=sim:{seeds}",
            f"--tokens={tokens}", f"--inputs={inputs}", f"--outputs={path}", *options, *extra,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        outputs.append(path.read_bytes())
    assert len(kernels[1] - kernels[0]) == 1 and kernels[0] < kernels[1]
    assert outputs[0] == outputs[1]
