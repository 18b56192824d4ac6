# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized weights in the reference: elements, scales, zero points and their tensors."""

import dataclasses
import math
from statistics import NormalDist

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from moec.reference import LayerSpec, SpecError, decide, evaluate, generate
from moec.reference.files import InputError, TensorFile
from moec.reference.numerics import quantize
from moec.reference.quantization import SHORT_NAMES, Operand
from moec.reference.signature import inputs
from moec.reference.weights import elements, scaled_rows, unpack_pairs

SPEC = {
    "moec_spec": 1, "dtype": "f32", "entry": "ids", "hidden_size": 64, "num_experts": 3,
    "top_k": 2, "intermediate_size": 32, "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": 96},
}
NAMES = ("experts.w13", "experts.w2", "shared_experts.w13", "shared_experts.w2")


def weights(dtype, scale, **other):
    return {"weight": {"dtype": dtype, "scale": scale} | other}


FORMS = {
    "mxfp4": {"weight": "mxfp4"},
    "nvfp4": {"weight": "nvfp4"},
    "nf4": weights("nf4", {"group": 32}),
    "int4": weights("int4", {"group": 32}, scale_dtype="bf16"),
    "int4_zero": weights("int4", {"group": 16}, scale_dtype="f16", zero_point=True),
    "int4_channel": weights("int4", "channel", zero_point=True),
    "int4_global": weights("int4", {"block": [24, 8]}, scale_dtype="e4m3", global_scale=True),
    "int4_minima": weights("int4", {"group": 16}, scale_dtype="f16", minimum=True),
    "int8_minima": weights("int8", {"group": 32}, minimum=True),
    "int8": weights("int8", "channel"),
    "int8_zero": weights("int8", {"group": 32}, zero_point=True),
    "e4m3": weights("fp8_e4m3", {"group": 32}, scale_dtype="e8m0"),
    "e4m3_bf16": weights("fp8_e4m3", "tensor", scale_dtype="bf16"),
}


def layer(form, **fields):
    quantization = FORMS[form] if isinstance(form, str) else form
    value = SPEC | {"quantization": quantization} | fields
    return LayerSpec.from_json({key: field for key, field in value.items() if field is not None})


# -- elements, by hand


def test_pairs_have_the_first_in_the_low_half():
    stored = np.array([[0x10, 0x32, 0xF8]], np.uint8)
    assert unpack_pairs(stored).tolist() == [[0, 1, 2, 3, 8, 15]]
    assert unpack_pairs(stored.view(np.int8)).tolist() == [[0, 1, 2, 3, 8, 15]]


ALL_PAIRS = np.array([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE], np.uint8)


def test_values_of_e2m1():
    values = elements(ALL_PAIRS.view(np.int8), Operand("fp4_e2m1", "group", 1, 32))
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    assert values.tolist() == positive + [-x for x in positive]
    assert math.copysign(1.0, values[8]) == -1.0
    other = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(values, other.astype(np.float64))


#: From bitsandbytes' create_normal_map: quantiles of the normal distribution, divided by the largest.
NF4_CODES = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]


def test_values_of_nf4():
    values = elements(ALL_PAIRS, Operand("nf4", "group", 1, 64))
    assert values.tolist() == NF4_CODES
    # Eight quantiles from 0.5 to `offset` above 0 and seven below; the ends are 1 and -1.
    quantile, offset = NormalDist().inv_cdf, 0.9677083
    above = [quantile(p) for p in np.linspace(offset, 0.5, 9)[:-1]]
    below = [-quantile(p) for p in np.linspace(offset, 0.5, 8)[:-1]]
    made = np.array(sorted([*above, *below, 0.0])) / max(above)
    np.testing.assert_allclose(values, made, atol=2e-6)


def test_scales_that_are_powers_of_two():
    # 448 times a power of two has that scale, and anything above has the next one; 0 has the smallest.
    row = np.zeros((1, 6 * 32), np.float32)
    row[0, ::32] = [896.0, np.nextafter(np.float32(896), np.float32(1e9)),
                    448 * 2.0**-20, 0.0, -np.inf, np.nan]
    values, scales = quantize(row, 32, "fp8_e4m3", "e8m0")
    assert scales[0, :4].tolist() == [2.0, 4.0, 2.0**-20, 2.0**-42]
    assert np.isposinf(scales[0, 4]) and np.isnan(scales[0, 5])
    assert values[0, ::32][:4].tolist() == [448.0, 224.0, 448.0, 0.0]


def test_values_of_int4_and_int8():
    int4, int8 = Operand("int4", "channel", 1), Operand("int8", "channel", 1)
    assert elements(ALL_PAIRS, int4).tolist() == list(range(-8, 8))
    zero = dataclasses.replace(int4, zero_point=True)
    assert elements(ALL_PAIRS, zero).tolist() == list(range(16))
    stored = np.array([0, 1, 127, -128, -1], np.int8)
    assert elements(stored, int8).tolist() == [0, 1, 127, -128, -1]
    assert elements(stored.view(np.uint8), int8).tolist() == [0, 1, 127, -128, -1]
    zero = dataclasses.replace(int8, zero_point=True)
    assert elements(stored, zero).tolist() == [0, 1, 127, 128, 255]
    # With minima, elements are unsigned.
    assert elements(ALL_PAIRS, dataclasses.replace(int4, minimum=True)).tolist() == list(range(16))
    assert elements(stored, dataclasses.replace(int8, minimum=True)).tolist() == [0, 1, 127, -128, -1]


def test_values_of_e4m3():
    stored = np.array([0x00, 0x01, 0x08, 0x38, 0x3C, 0x7E, 0xFE, 0x80], np.uint8)
    values = elements(stored.view(ml_dtypes.float8_e4m3fn), Operand("fp8_e4m3", "tensor"))
    assert values.tolist() == [0.0, 2.0**-9, 2.0**-6, 1.0, 1.5, 448.0, -448.0, 0.0]
    assert math.isnan(elements(np.array([0x7F], np.uint8).view(stored.dtype).view(
        ml_dtypes.float8_e4m3fn), Operand("fp8_e4m3", "tensor"))[0])


# -- rows, by hand


def rows_of(form, name="experts.w13", expert=0, **tensors):
    """Returns rows of a weight of a layer with the given tensors."""
    spec = layer(form, hidden_size=32, intermediate_size=32, shared_experts=None)
    held = generate(spec, 1, 1)
    for suffix, values in tensors.items():
        tensor = held[name + suffix]
        tensor.view(f"u{tensor.itemsize}")[expert] = values
    return scaled_rows(spec, held, name, expert, slice(0, 2))


@pytest.mark.parametrize("byte,scale", [
    (0, 2.0**-127), (1, 2.0**-126), (127, 1.0), (128, 2.0), (200, 2.0**73), (254, 2.0**127),
])
def test_scales_of_e8m0(byte, scale):
    stored = np.array([0x80, 0xF7] + 14 * [0x08], np.uint8)
    row = rows_of("mxfp4", **{"": stored, "_scale": byte})[0]
    assert row[:4].tolist() == [0.0, 0.0, 6.0 * scale, -6.0 * scale]
    assert (row[4:] == 0.0).all()


def test_scale_that_is_nan_spoils_zeros():
    assert np.isnan(rows_of("mxfp4", **{"": 0x80, "_scale": 255})).all()


def test_product_of_scales_is_f32():
    # 0x31 is 0.5625; 9/16 times the f32 nearest to 1/3 needs more than 24 bits.
    scale, third = 0.5625, np.float32(1 / 3)
    row = rows_of("nvfp4", **{
        "": 0x22, "_scale": 0x31, "_global_scale": third.view(np.uint32)})[0]
    product = np.float32(np.float32(scale) * third)
    assert float(product) != scale * float(third)
    assert row.tolist() == [float(product)] * 32


def test_zero_points_are_unsigned():
    # 1.5 as f16; groups of 16 with zero points 255 and 3.
    scales = np.full((64, 2), 0x3E00)
    points = np.tile([255, 3], (64, 1))
    row = rows_of("int4_zero", **{"": 0x2F, "_scale": scales, "_zero_point": points})[0]
    assert row[:2].tolist() == [(15 - 255) * 1.5, (2 - 255) * 1.5]
    assert row[16:18].tolist() == [(15 - 3) * 1.5, (2 - 3) * 1.5]
    bits = np.float32(0.25).view(np.uint32)
    row = rows_of("int8_zero", **{"": 255, "_scale": bits, "_zero_point": 128})[0]
    assert row.tolist() == [(255 - 128) * 0.25] * 32


def test_minima_are_subtracted_behind_scales():
    # 1.5 and 0.25, -2 as f16; groups of 16.
    scales, minima = np.full((64, 2), 0x3E00), np.tile([0x3400, 0xC000], (64, 1))
    row = rows_of("int4_minima", **{"": 0x2F, "_scale": scales, "_minimum": minima})[0]
    assert row[:2].tolist() == [15 * 1.5 - 0.25, 2 * 1.5 - 0.25]
    assert row[16:18].tolist() == [15 * 1.5 + 2, 2 * 1.5 + 2]
    bits = np.float32(0.25).view(np.uint32)
    row = rows_of("int8_minima", **{"": 255, "_scale": bits, "_minimum": np.float32(3).view(np.uint32)})[0]
    assert row.tolist() == [-0.25 - 3] * 32


def test_halves_have_global_scales_of_their_own():
    for order, scales in (("gate_up", [1.0, 2.0]), ("up_gate", [1.0, 2.0])):
        spec = layer("nvfp4", gate_up_order=order)
        held = generate(spec, 1, 1)
        held["experts.w13"][...] = 0x22
        held["experts.w13_scale"][...] = 1.0
        held["experts.w13_global_scale"][1] = scales
        values = scaled_rows(spec, held, "experts.w13", 1, slice(0, 64))
        assert (values[:32] == 1.0).all() and (values[32:] == 2.0).all()


# -- tensors of the layer


@pytest.mark.parametrize("form,expected", [
    ("mxfp4", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 2), "f8e8m0")}),
    ("nvfp4", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 4), "f8e4m3"),
               "_global_scale": ((3, 2), "f32")}),
    ("int4", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 2), "bf16")}),
    ("int4_zero", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 4), "f16"),
                   "_zero_point": ((3, 64, 4), "i8")}),
    ("int4_minima", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 4), "f16"),
                     "_minimum": ((3, 64, 4), "f16")}),
    ("int4_channel", {"": ((3, 64, 32), "i8"), "_scale": ((3, 64, 1), "f32"),
                      "_zero_point": ((3, 64, 1), "i8")}),
    ("int4_global", {"": ((3, 64, 32), "i8"), "_scale": ((3, 4, 8), "f8e4m3"),
                     "_global_scale": ((3, 2), "f32")}),
    ("int8", {"": ((3, 64, 64), "i8"), "_scale": ((3, 64, 1), "f32")}),
    ("e4m3_bf16", {"": ((3, 64, 64), "f8e4m3"), "_scale": ((3, 2, 1), "bf16")}),
])
def test_shapes(form, expected):
    tensors = {tensor.name: (tensor.shape, tensor.dtype) for tensor in inputs(layer(form))}
    named = {name for name in tensors if name.startswith("experts.w13")}
    assert {name: tensors[name] for name in named} == {
        f"experts.w13{suffix}": value for suffix, value in expected.items()}


def test_global_scales_follow_halves():
    def shapes(**fields):
        tensors = inputs(layer("nvfp4", **fields))
        return {t.name: t.shape for t in tensors if t.name.endswith("_global_scale")}

    halves = shapes()
    assert halves["experts.w13_global_scale"] == (3, 2)
    assert halves["experts.w2_global_scale"] == (3, 1)
    assert halves["shared_experts.w13_global_scale"] == (2,)
    assert halves["shared_experts.w2_global_scale"] == (1,)
    for fields in ({"gate_up_order": "interleaved"}, {"activation": {"kind": "relu2_no_mul"}}):
        whole = shapes(**fields)
        assert whole["experts.w13_global_scale"] == (3, 1)
        assert whole["shared_experts.w13_global_scale"] == (1,)


@pytest.mark.parametrize("form,fields,name", [
    ("mxfp4", {"hidden_size": 48}, "hidden_size"),
    ("mxfp4", {"intermediate_size": 40}, "intermediate_size"),
    ("mxfp4", {"shared_experts": {"intermediate_size": 40}}, "shared_experts.intermediate_size"),
    ("mxfp4", {"hidden_size": 72, "latent_size": 32}, "hidden_size"),
    ("int4_channel", {"intermediate_size": 33}, "intermediate_size"),
])
def test_rows_of_parts_are_refused(form, fields, name):
    with pytest.raises(SpecError, match=f"field '{name}'"):
        layer(form, **fields)


def test_what_has_no_numbers_is_refused():
    for quantization in (
        weights("fp8_e5m2", "tensor"),
        weights("int8", "tensor") | {"activation": {"dtype": "fp8_e5m2", "scale": "token"}},
    ):
        with pytest.raises(SpecError, match="quantization"):
            inputs(layer(quantization))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_files_may_call_bytes_either(tmp_path, dtype):
    spec = layer("mxfp4")
    tensors = generate(spec, 5, 1)
    expected = evaluate(spec, tensors, decide(spec, tensors))
    stored = {name: t.view(dtype) if t.dtype == np.int8 else t for name, t in tensors.items()}
    if dtype == np.uint8:
        stored |= {name: t.view(np.uint8) for name, t in tensors.items() if name.endswith("_scale")}
    save_file(stored, tmp_path / "t.safetensors")
    file = TensorFile(tmp_path / "t.safetensors")
    assert file.require(inputs(spec)) == 5
    np.testing.assert_array_equal(evaluate(spec, file, decide(spec, file)), expected)
    with pytest.raises(InputError, match="experts.w13.*I8 or U8"):
        save_file(stored | {"experts.w13": stored["experts.w13"].astype(np.int16)},
                  tmp_path / "bad.safetensors")
        TensorFile(tmp_path / "bad.safetensors").require(inputs(spec))


# -- layers


def decode_scalar(spec, tensors, name):
    """Dequantizes a weight element by element, as documented."""
    weight = spec.quantization_of(name).weight
    stored = tensors[name].view(np.uint8)
    pairs = weight.in_pairs
    *_, rows, columns = stored.shape
    columns *= 2 if pairs else 1
    halved = name.endswith("w13") and spec.gate_up_order != "interleaved"
    half = rows // 2 if halved else rows
    height = weight.rows or half
    width = weight.columns or columns
    out = np.empty((*stored.shape[:-1], columns))
    for at in np.ndindex(out.shape):
        *expert, n, c = at
        code = int(stored[(*expert, n, c // 2)]) if pairs else int(stored[at])
        if pairs:
            code = code & 15 if c % 2 == 0 else code // 16
        scale_at = (*expert, n // half * math.ceil(half / height) + n % half // height, c // width)
        if weight.dtype == "fp4_e2m1":
            sign, exponent, mantissa = code // 8, code // 2 % 4, code % 2
            q = mantissa * 0.5 if exponent == 0 else (1 + mantissa * 0.5) * 2.0 ** (exponent - 1)
            q = -q if sign else q
        elif weight.dtype == "nf4":
            q = NF4_CODES[code]
        elif weight.dtype == "fp8_e4m3":
            q = float(tensors[name][at])
        elif weight.zero_point or weight.dtype == "int4":
            q = code
        else:
            q = code - 256 if code >= 128 else code
        z = 8 if weight.dtype == "int4" and not weight.minimum else 0
        if weight.zero_point:
            z = int(tensors[f"{name}_zero_point"].view(np.uint8)[scale_at])
        s = np.float32(tensors[f"{name}_scale"][scale_at])
        if weight.global_scale:
            s = s * tensors[f"{name}_global_scale"][(*expert, n // half)]
        m = float(tensors[f"{name}_minimum"][scale_at]) if weight.minimum else 0.0
        out[at] = (q - z) * float(s) - m
    return out


@pytest.mark.parametrize("order", ["gate_up", "up_gate", "interleaved"])
@pytest.mark.parametrize("form", FORMS)
def test_layer_is_that_of_decoded_weights(form, order):
    spec = layer(form, gate_up_order=order)
    tensors = generate(spec, 4, 1)
    plain = dict(tensors) | {name: decode_scalar(spec, tensors, name) for name in NAMES}
    real = layer(None, gate_up_order=order)
    whole = evaluate(spec, tensors, decide(spec, tensors))
    np.testing.assert_allclose(whole, evaluate(real, plain, decide(real, plain)), rtol=1e-6)
    # Gemm results are about as large as their inputs.
    assert 0.02 < np.abs(whole).mean() < 10


def test_products_are_decoded_by_their_own():
    shared = {"intermediate_size": 32}
    own = {"quantization": FORMS["e4m3"] | {"w13": None}}
    spec = layer({"weight": "mxfp4", "w2": FORMS["int8_zero"]}, shared_experts=shared | own)
    assert spec.quantization_of("experts.w13") == SHORT_NAMES["mxfp4"]
    assert spec.quantization_of("shared_experts.w13") is None
    tensors = generate(spec, 4, 1)
    assert "shared_experts.w13_scale" not in tensors
    assert tensors["shared_experts.w13"].dtype == tensors["hidden_states"].dtype
    decoded = {name: decode_scalar(spec, tensors, name) for name in NAMES
               if spec.quantization_of(name) is not None}
    assert len(decoded) == 3
    plain, real = dict(tensors) | decoded, layer(None, shared_experts=shared)
    whole = evaluate(spec, tensors, decide(spec, tensors))
    np.testing.assert_allclose(whole, evaluate(real, plain, decide(real, plain)), rtol=1e-6)
    assert 0.02 < np.abs(whole).mean() < 10


def test_the_shared_expert_has_activations_of_its_own():
    """Activations of the shared expert have their own scales, whether or not routed experts quantize theirs."""
    int8 = {"weight": {"dtype": "int8", "scale": "channel"},
            "activation": {"dtype": "int8", "scale": "token"}}

    def shared_part(quantization, own):
        """Returns the layer's output minus the output without the shared expert."""
        expert = {"intermediate_size": 32, "quantization": own}
        spec = layer(quantization, shared_experts=expert)
        tensors = generate(spec, 4, 1)
        tensors["experts.w2_scale"][...] = 0
        return evaluate(spec, tensors, decide(spec, tensors))

    alone = shared_part(int8, int8)
    np.testing.assert_array_equal(shared_part(FORMS["int8"], int8), alone)
    assert (shared_part(int8, FORMS["int8"]) != alone).any()


@pytest.mark.parametrize("activation", [
    {"dtype": "int8", "scale": "token"}, {"dtype": "int8", "scale": "tensor"},
    {"dtype": "int8", "scale": "tensor", "static": True},
    {"dtype": "fp8_e4m3", "scale": "token"},
])
def test_quantized_activations_are_near(activation):
    spec = layer(weights("int8", "channel") | {"activation": activation})
    tensors = generate(spec, 20, 1)
    alone = layer("int8")
    exact = evaluate(alone, tensors, decide(alone, tensors))
    quantized = evaluate(spec, tensors, decide(spec, tensors))
    error = np.linalg.norm(quantized - exact) / np.linalg.norm(exact)
    assert 1e-3 < error < (0.4 if activation.get("static") else 0.08)


# -- hard weights


@pytest.mark.parametrize("form", [form for form in FORMS if form != "e4m3_bf16"])
def test_zero_weights(form):
    spec = layer(form)
    tensors = generate(spec, 9, 1, "zero_weights")
    w13 = decode_scalar(spec, tensors, "experts.w13")
    assert (w13[-1] == 0.0).all() and (w13[:-1] != 0.0).any()
    tensors["topk_ids"][0] = [2, 2]
    spec = dataclasses.replace(spec, shared_experts=None)
    out = evaluate(spec, tensors, decide(spec, tensors))
    assert (out[0] == 0.0).all() and (out[1:] != 0.0).any(axis=1).all()


@pytest.mark.parametrize("form", ["mxfp4", "nvfp4", "int4", "int4_zero", "int8_zero"])
def test_scale_ends(form):
    spec = layer(form)
    tensors = generate(spec, 9, 1, "scale_ends")
    scales = tensors["experts.w2_scale"].astype(np.float64)
    assert scales.max() / scales[scales > 0].min() > 1e6 or form == "nvfp4"
    rows = scaled_rows(spec, tensors, "experts.w2", 0, slice(0, 64))
    groups = rows.reshape(*scales[0].shape, -1)
    assert (groups[scales[0] == scales.max()] == 0.0).all()
    out = evaluate(spec, tensors, decide(spec, tensors))
    assert np.isfinite(out).all() and (np.abs(out) < 100).all()


def test_nan_scales():
    spec = layer("mxfp4", shared_experts=None)
    tensors = generate(spec, 9, 1, "nan_scales")
    tensors["topk_ids"][:] = [[0, 1], [2, 1], [0, 2]] * 3
    out = evaluate(spec, tensors, decide(spec, tensors))
    spoiled = np.isnan(out)
    assert (spoiled.sum(axis=1) == [0, 1, 1] * 3).all() and spoiled[1::3, 32].all()


def test_nan_codes():
    spec = layer("e4m3", shared_experts=None)
    tensors = generate(spec, 9, 1, "nan_codes")
    tensors["topk_ids"][:] = [[0, 1], [2, 1], [0, 2]] * 3
    out = evaluate(spec, tensors, decide(spec, tensors))
    spoiled = np.isnan(out)
    assert (spoiled.sum(axis=1) == [0, 2, 2] * 3).all() and spoiled[1::3, 31:33].all()


def test_nan_values_of_two_rows():
    spec = LayerSpec.from_json({
        "moec_spec": 1, "dtype": "f32", "hidden_size": 2, "num_experts": 2, "top_k": 1, "intermediate_size": 4,
        "routing": {}, "activation": {"kind": "silu"},
        "quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "channel"}}})
    tensors = generate(spec, 3, 1, "nan_codes")
    assert (np.isnan(tensors["experts.w2"][-1].astype(np.float32)).sum(axis=1) == 1).all()


def test_least_scales():
    spec = layer("mxfp4")
    tensors = generate(spec, 9, 1, "least_scales")
    assert (tensors["experts.w13_scale"].view(np.uint8) == 0).all()
    out = evaluate(spec, tensors, decide(spec, tensors))
    assert 1e-3 < np.abs(out).mean() < 100


def test_zero_point_ends():
    spec = layer("int8_zero")
    tensors = generate(spec, 9, 1, "zero_point_ends")
    points = tensors["shared_experts.w13_zero_point"].view(np.uint8)
    assert points.min() == 0 and points.max() == 255
    assert np.isfinite(evaluate(spec, tensors, decide(spec, tensors))).all()


@pytest.mark.parametrize("form,rule", [
    ("mxfp4", "ue8m0_scales"), ("int4", "least_scales"), ("int8", "zero_point_ends"),
    ("int8", "nan_codes"),
])
def test_rules_that_need_other_weights(form, rule):
    with pytest.raises(SpecError, match=rule):
        generate(layer(form), 2, 1, rule)


def test_short_names_say_what_they_mean():
    assert layer("nvfp4").quantization == layer(weights(
        "fp4_e2m1", {"group": 16}, scale_dtype="e4m3", global_scale=True)).quantization
    assert layer("mxfp4").quantization.w2 == SHORT_NAMES["mxfp4"]
