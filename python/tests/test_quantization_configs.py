# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constructors of quantization configs: what they say, and experts that they describe, against the reference."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from experts_case import Case  # noqa: E402

import moec  # noqa: E402
from moec.functions import quantization_configs as configs  # noqa: E402

FP8 = torch.float8_e4m3fn
SIZES = {"hidden_size": 256, "intermediate_size": 128}
CONSTRUCTORS = {
    name: each for name, each in vars(configs).items() if name.endswith("_moe_quant_config")
}
#: The types of activations and weights that a constructor states; arguments that it needs beside tensors.
TYPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "fp8_w8a8": (FP8, None, {}),
    "int8_w8a8": (torch.int8, None, {}),
    "gptq_marlin": (None, "int4", {"weight_bits": 4, "group_size": 128}),
    "mxfp4_w4a16": (None, "mxfp4", {}),
    "mxfp4_mxfp8": ("mxfp8", "mxfp4", {}),
    "mxfp4_w4a8": ("fp8", "mxfp4", {}),
    "ocp_mx": ("mxfp6_e3m2", "mxfp4", {"quant_dtype": "mxfp6_e3m2", "weight_dtype": "mxfp4"}),
    "nvfp4": ("nvfp4", None, {}),
    "mxfp4": ("mxfp4", "mxfp4", {}),
    "nvfp4_w4a16": (None, "nvfp4", {}),
    "int4_w4a16": (None, "int4", {}),
    "fp8_w8a16": (None, FP8, {}),
    "int8_w8a16": (None, torch.int8, {}),
    "int4_w4afp8": (FP8, "int4", {}),
    "biased": (None, None, {}),
}
#: Arguments whose values a layer has no use for, since other tensors say the same.
UNUSED = {"a1_gscale", "a2_gscale", "g1_alphas", "g2_alphas"}


def test_every_constructor_is_listed() -> None:
    assert {f"{name}_moe_quant_config" for name in TYPES} == set(CONSTRUCTORS)


@pytest.mark.parametrize("name", TYPES)
def test_tensors_have_their_places(name: str) -> None:
    make = CONSTRUCTORS[f"{name}_moe_quant_config"]
    quant_dtype, weight_dtype, given = TYPES[name]
    ends = ("_scale", "_gscale", "_alphas", "_bias", "_zp")
    tensors = {each: torch.rand(2) for each in inspect.signature(make).parameters if each.endswith(ends)}
    made = make(**tensors, **given)
    assert (made.quant_dtype, made.weight_quant_dtype) == (quant_dtype, weight_dtype)
    for each, tensor in tensors.items():
        is_kept = getattr(made, each, None) is tensor
        assert is_kept or each in UNUSED or (name == "mxfp4_mxfp8" and each in ("a1_scale", "a2_scale")), each


def test_what_is_refused() -> None:
    scale = torch.rand(2)
    with pytest.raises(moec.InvalidArgument, match="is_scale_transposed: True found"):
        configs.fp8_w8a8_moe_quant_config(scale, scale, is_scale_transposed=True)
    with pytest.raises(moec.InvalidArgument, match="weight_bits: 3 found; 4 and 8 are accepted"):
        configs.gptq_marlin_moe_quant_config(scale, scale, 3, 128)


INT4 = {"weight": {"dtype": "int4", "scale": {"group": 64}, "scale_dtype": "bf16"}}


@pytest.mark.parametrize(("name", "quantization", "given"), [
    ("fp8_w8a8", "fp8_block128", {"block_shape": [128, 128]}),
    ("int8_w8a8", {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}},
     {"a1_scale": None, "a2_scale": None, "per_act_token_quant": True}),
    ("int4_w4a16", INT4, {"block_shape": [0, 64]}),
    ("gptq_marlin", INT4, {"weight_bits": 4, "group_size": 64}),
    ("mxfp4_w4a16", "mxfp4", {}),
    ("fp8_w8a16", {"weight": {"dtype": "fp8_e4m3", "scale": "channel"}}, {}),
])
def test_experts(name: str, quantization: Any, given: dict[str, Any]) -> None:
    case = Case(quantization=quantization, **SIZES)
    config = CONSTRUCTORS[f"{name}_moe_quant_config"](
        w1_scale=case["experts.w13_scale"], w2_scale=case["experts.w2_scale"], **given)
    for matrix in ("experts.w13", "experts.w2"):
        if case[matrix].shape[2] * 2 == (256 if matrix.endswith("13") else 128):
            case.made[matrix] = case[matrix].view(torch.uint8)
    case.verify(case.run("silu", quant_config=config))
