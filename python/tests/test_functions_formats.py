# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fused_experts with operands quantized in the forms of engines' constructors, against the float64 reference."""

from __future__ import annotations

import types
from typing import Any, Optional

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from experts_case import Case  # noqa: E402

from moec import functions  # noqa: E402
from moec.functions import QuantConfig  # noqa: E402

SIZES = {"hidden_size": 256, "intermediate_size": 128}
FP8 = torch.float8_e4m3fn
MXFP4 = {"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"}
MXFP8 = {"dtype": "fp8_e4m3", "scale": {"group": 32}, "scale_dtype": "e8m0"}


@pytest.fixture(autouse=True)
def forgotten() -> None:
    functions.clear()


def make(weight: Any, activation: Optional[dict[str, Any]] = None, **changes: Any) -> Case:
    """A case whose bytes have the dtypes of engines."""
    quantization = {"weight": weight} | ({"activation": activation} if activation else {})
    case = Case(7, quantization=quantization, **SIZES | changes)
    if case["experts.w13"].dtype == torch.int8:
        case.made |= {name: case[name].view(torch.uint8) for name in ("experts.w13", "experts.w2")}
    return case


def give(case: Case, quant_dtype: Any = None, **fields: Any) -> QuantConfig:
    scales = {"w1_scale": case["experts.w13_scale"], "w2_scale": case["experts.w2_scale"]}
    return QuantConfig(quant_dtype, **scales | fields)


# parity: M31
@pytest.mark.parametrize("scale_dtype", ["f32", "e8m0"])
@pytest.mark.parametrize("block", [[64, 64], [32, 64], [1, 128], [128, 128]], ids=str)
@pytest.mark.parametrize("is_rounded", [False, True])
def test_blocks(block: list[int], scale_dtype: str, is_rounded: bool) -> None:
    scale = {"block": block} if block[0] > 1 else {"group": block[1]}
    activation = {"dtype": "fp8_e4m3", "scale": {"group": block[1]}} if is_rounded else None
    case = make({"dtype": "fp8_e4m3", "scale": scale, "scale_dtype": scale_dtype}, activation)
    case.verify(case.run(quant_config=give(case, FP8 if is_rounded else None, block_shape=block)))


def test_blocks_by_the_description_of_weights() -> None:
    """vLLM's block_shape is None without quantized activations."""
    case = make({"dtype": "fp8_e4m3", "scale": {"block": [64, 64]}})
    own = types.SimpleNamespace(shape=types.SimpleNamespace(row=64, col=64))
    config = types.SimpleNamespace(**vars(give(case)), _w1=own)
    case.verify(case.run(quant_config=config))


@pytest.mark.parametrize("weight, block", [(MXFP8, [1, 32]), (MXFP4, None)], ids=["mxfp8", "mxfp4"])
def test_mxfp8_activations(weight: Any, block: Any) -> None:
    case = make(weight, MXFP8)
    case.verify(case.run(quant_config=give(case, "mxfp8", block_shape=block)))


# parity: M33
@pytest.mark.parametrize("form", ["token", "tensor", "given", "given for each expert"])
def test_mxfp4_with_fp8_activations(form: str) -> None:
    is_given = form.startswith("given")
    activation = {"dtype": "fp8_e4m3", "scale": "tensor" if is_given else form, "static": is_given}
    case = make(MXFP4, activation)
    given = {}
    if is_given:
        given = {"a1_scale": case["experts.w13_input_scale"], "a2_scale": case["experts.w2_input_scale"]}
    if form == "given for each expert":
        # The largest counts.
        given = {name: scale * torch.linspace(0.5, 1, 8).roll(3) for name, scale in given.items()}
    case.verify(case.run(quant_config=give(case, "fp8", per_act_token_quant=form == "token", **given)))


# parity: L76
@pytest.mark.parametrize("has_factors", [False, True])
def test_int4_with_fp8_activations(has_factors: bool) -> None:
    """CUTLASS' form has float8 scales of groups and a factor for each row."""
    weight = {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "f32" if has_factors else "bf16"}
    case = make(weight, {"dtype": "fp8_e4m3", "scale": "token"})
    config = give(case, FP8, per_act_token_quant=True)
    if has_factors:
        made = {"weight_quant_dtype": "int4"}
        for short, name, gemm in (("w1", "w13", "g1"), ("w2", "w2", "g2")):
            scale = case[f"experts.{name}_scale"]
            factor = scale.amax(2, keepdim=True) / 16
            small = (scale / factor).to(FP8)
            case.tensors[f"experts.{name}_scale"][:] = (small.float() * factor).numpy()
            made |= {f"{short}_scale": small, f"{gemm}_alphas": factor}
        config = give(case, FP8, per_act_token_quant=True, **made)
    case.verify(case.run(quant_config=config))
    if has_factors:
        made["g2_alphas"] = None
        with pytest.raises(moec.InvalidArgument, match=r"g2_alphas: \[8, 256\] expected, one for each row, None found"):
            case.run(quant_config=give(case, FP8, per_act_token_quant=True, **made))


def test_int8_activations_beside_other_weights() -> None:
    case = make({"dtype": "fp8_e4m3", "scale": "channel"}, {"dtype": "int8", "scale": "token"})
    case.verify(case.run(quant_config=give(case, torch.int8, per_act_token_quant=True)))


# parity: M35
def test_scales_of_gate_and_up() -> None:
    case = make({"dtype": "fp8_e4m3", "scale": "tensor"}, {"dtype": "fp8_e4m3", "scale": "token"})
    scales = case["experts.w13_scale"].view(8, 2), case["experts.w2_scale"].view(8)
    assert not torch.equal(scales[0][:, 0], scales[0][:, 1])
    case.verify(case.run(quant_config=QuantConfig(
        FP8, per_act_token_quant=True, w1_scale=scales[0], w2_scale=scales[1])))


# parity: M37
@pytest.mark.parametrize("missing", ["w13", "w2"])
def test_one_bias(missing: str) -> None:
    case = Case(9, expert_bias=True)
    case.tensors[f"experts.{missing}_bias"][:] = 0
    given = {"w13": "w2", "w2": "w13"}[missing]
    case.verify(case.run(quant_config=QuantConfig(
        **{f"{given.replace('13', '1')}_bias": case[f"experts.{given}_bias"]})))


def pad(case: Case) -> None:
    for name in ("experts.w13", "experts.w2"):
        padded = torch.full((*case[name].shape[:2], case[name].shape[2] + 128), 9).to(case[name].dtype)
        padded[..., :-128] = case[name]
        case.made[name] = padded[..., :-128]


@pytest.mark.parametrize("weight", [None, MXFP8], ids=["bf16", "mxfp8"])
def test_weights_with_gaps_between_rows(weight: Any) -> None:
    """vLLM pads rows to avoid conflicts of memory channels."""
    case = make(weight) if weight else Case(9, **SIZES)
    pad(case)
    case.verify(case.run(quant_config=give(case) if weight else None))


def test_what_is_refused() -> None:
    case = make({"dtype": "fp8_e4m3", "scale": {"block": [64, 64]}}, {"dtype": "fp8_e4m3", "scale": {"group": 64}})
    for wanted, config in (
        ("quant_dtype: activations of mxfp4 are not supported", give(case, "mxfp4")),
        ("block_shape: activations of int8 have one scale", give(case, torch.int8, block_shape=[64, 64])),
        ("block_shape: blocks of 96 rows do not divide the 128 rows", give(case, FP8, block_shape=[96, 64])),
        (r"w1_scale: \[8, 8, 4\] expected for scales of \[32, 64\], \[8, 4, 4\] found",
         give(case, FP8, block_shape=[32, 64])),
        (r"w2_scale: \[8, 4, 2\] expected .* \[8, 2, 2\] found",
         give(case, FP8, block_shape=[64, 64], w2_scale=torch.ones(8, 2, 2))),
        ("w1_scale: torch.float64 is not", give(case, FP8, w1_scale=torch.ones(8).double())),
        ("a1_scale: given scales", give(case, FP8, w1_scale=torch.ones(8), w2_scale=torch.ones(8),
                                        a1_scale=torch.ones(8))),
        (r"a2_scale: one element or \[8\] expected, \[3\] found", give(
            case, FP8, w1_scale=torch.ones(8), w2_scale=torch.ones(8), a1_scale=torch.ones(8), a2_scale=torch.ones(3))),
    ):
        with pytest.raises(moec.InvalidArgument, match=f"quant_config: {wanted}"):
            case.run(quant_config=config)
    case = make(MXFP4)
    pad(case)
    with pytest.raises(moec.InvalidArgument, match="w1: weights of 4 bits with gaps between rows"):
        case.run(quant_config=give(case))
