# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A gemm that quantizes its results has the bits of one with a separate quantization kernel, on the simulator."""

import json
import subprocess

import numpy as np
import pytest
from cases import Case
from runs import SEEDS, TIMEOUT, binary
from schedules import launched

from moec.reference import LayerSpec, generate, write_tensors

#: Two groups of columns, with a partial block in K.
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 272, "num_experts": 4,
    "top_k": 2, "intermediate_size": 256, "routing": {}, "activation": {"kind": "silu"},
    "quantization": {"weight": "fp8_block128"},
}
NO_GATE = {"activation": {"kind": "relu2_no_mul"}}
BIASED = {"expert_bias": True, "gate_up_order": "interleaved"}
#: Tokens, what differs from SPEC, values of BLOCK_M: with rows on M those of 64 and 128, else all of them.
CASES = [
    (1, {}, "8", False),
    (40, {}, "16+40", False),
    (70, NO_GATE, "16+72", False),
    (150, {}, "112", False),
    (60, {"dtype": "f16"}, "64", True),
    (150, BIASED, "24+64+128", True),
    (150, NO_GATE, "16+64+128", True),
]
#: Scales that are given: usual ones, and those whose quotients are below or above all quantized values or whose reciprocal is no
#: normal f32. The fields of CASES, with one of them.
SCALES = (0.031, 1e-41, 3e38)
E4M3 = {"quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
                         "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}}}
INT8 = {"quantization": {"weight": {"dtype": "int8", "scale": "channel"},
                         "activation": {"dtype": "int8", "scale": "tensor", "static": True}}}
MXFP4 = {"hidden_size": 384, "quantization": {
    "weight": {"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"},
    "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}}}
GIVEN = [
    (1, E4M3, "8", False, SCALES[0]),
    (70, INT8, "16+80", False, SCALES[0]),
    (40, E4M3, "16+40", False, SCALES[1]),
    (60, INT8 | {"dtype": "f16"}, "64", True, SCALES[2]),
    (150, E4M3 | BIASED, "24+64+128", True, SCALES[0]),
    (150, INT8 | NO_GATE, "16+64+128", True, SCALES[1]),
    # Weights dequantized in registers.
    (40, MXFP4, "8+16", False, SCALES[0]),
]


def make_inputs(spec, tokens, path, scale=None):
    """Some slots without an expert; rows of zeros, of tiny and huge numbers, with NaN and infinity. The scale of the
    second gemm's rows is static or computed."""
    tensors = generate(LayerSpec.from_json(spec), tokens, 1, None)
    if scale is not None:
        tensors["experts.w2_input_scale"][...] = scale
    ids, hidden = tensors["topk_ids"], tensors["hidden_states"]
    if tokens > 20:
        ids[::7, 0] = -1
        # One expert has most rows: tiles with all values of BLOCK_M, and partial ones.
        ids[: tokens // 2, 1] = 2
        hidden[3::16] = 0
        hidden[4::16] *= type(hidden[0, 0])(1e-4)
        hidden[5::16] *= type(hidden[0, 0])(1e4)
        hidden[6::32, 9] = np.nan
        hidden[7::32, 8] = np.inf
    write_tensors(path, tensors)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("tokens", "fields", "block_m", "no_swap_ab", "scale"), [(*case, None) for case in CASES] + GIVEN,
    ids=lambda value: "-".join(value) or "plain" if isinstance(value, dict) else str(value),
)
def test_same_bits(tokens, fields, block_m, no_swap_ab, scale, tmp_path):
    spec = SPEC | fields
    model, inputs = tmp_path / "model.json", tmp_path / "in.safetensors"
    model.write_text(json.dumps(spec))
    make_inputs(spec, tokens, inputs, scale)
    options = [
        f"--max-tokens={tokens}", "--disable=quantize-rows",
        f"--config=experts_hidden:block_m={block_m} block_n=128 stages=3 no_swap_ab={str(no_swap_ab).lower()}",
    ]
    kernels, outputs = [], []
    # The reference run needs one schedule.
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
