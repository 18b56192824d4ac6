# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fp8 in the reference: quantization of rows, scales, and results of layers."""


import ml_dtypes
import numpy as np
import pytest

from moec.reference import LayerSpec, decide, evaluate, generate
from moec.reference.numerics import quantize, quantize_by, tensor_scale
from moec.reference.signature import inputs, scale_column, scale_row

E4M3 = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
SPEC = {
    "moec_spec": 1, "dtype": "f32", "entry": "ids", "hidden_size": 200, "num_experts": 4,
    "top_k": 2, "intermediate_size": 144, "activation": {"kind": "silu"},
    "quantization": {"weight": "fp8_block128"}, "shared_experts": {"intermediate_size": 72},
}


def test_scale_is_a_quotient_of_f32():
    values, scale = quantize(np.array([[1.0, -3.0, 0.5]]))
    expected = np.float32(3.0) / np.float32(448.0)
    assert scale.tolist() == [[float(expected)]]
    assert values[0, 1] == -448.0
    assert values[0, 0] == np.float32(1.0 / expected).astype(ml_dtypes.float8_e4m3fn)


def test_ties_go_to_even_values():
    # With a largest value of 448 the scale is 1.
    halves = (E4M3[:-1] + E4M3[1:]) / 2
    for at in range(0, len(halves), 127):
        row = np.concatenate([[448.0], halves[at : at + 127]])
        values, scale = quantize(row[None])
        assert scale.tolist() == [[1.0]]
        even = np.where(np.arange(at, at + len(row) - 1) % 2 == 0, E4M3[at : at + len(row) - 1],
                        E4M3[at + 1 : at + len(row)])
        np.testing.assert_array_equal(values[0, 1:], even)


def test_groups_do_not_see_each_other():
    row = np.zeros((1, 300))
    row[0, 130] = 2.0
    row[0, 299] = np.nan
    values, scale = quantize(row)
    least = float(np.float32(1e-10) / np.float32(448.0))
    assert scale[0, 0] == least and scale[0, 1] == float(np.float32(2.0) / np.float32(448.0))
    assert np.isnan(scale[0, 2]) and np.isnan(values[0, 256:]).all()
    assert (values[0, :256] == 0.0).sum() == 255 and values[0, 130] == 448.0


def test_infinity_is_its_own_scale():
    values, scale = quantize(np.array([[np.inf, 1.0, -np.inf]]))
    assert scale[0, 0] == np.inf
    assert np.isnan(values[0, [0, 2]]).all() and values[0, 1] == 0.0


@pytest.mark.parametrize("order,rows", [
    ("gate_up", [0] * 128 + [1] * 16 + [2] * 128 + [3] * 16),
    ("up_gate", [0] * 128 + [1] * 16 + [2] * 128 + [3] * 16),
    ("interleaved", [0] * 128 + [1] * 128 + [2] * 32),
])
def test_halves_have_blocks_of_their_own(order, rows):
    spec = LayerSpec.from_json(SPEC | {"gate_up_order": order})
    assert scale_row(spec, "experts.w13", 288).tolist() == rows
    assert scale_row(spec, "experts.w2", 200).tolist() == [0] * 128 + [1] * 72
    shapes = {tensor.name: (tensor.shape, tensor.dtype) for tensor in inputs(spec)}
    assert shapes["experts.w13"] == ((4, 288, 200), "f8e4m3")
    assert shapes["experts.w13_scale"] == ((4, rows[-1] + 1, 2), "f32")
    assert shapes["experts.w2_scale"] == ((4, 2, 2), "f32")
    assert shapes["shared_experts.w2_scale"] == ((2, 1), "f32")


def fp8(scale, **other):
    return {"dtype": "fp8_e4m3", "scale": scale} | other


BY_TENSOR = {"weight": fp8("tensor"), "activation": fp8("tensor")}
STATIC = {"weight": fp8("tensor"), "activation": fp8("tensor", static=True)}
BY_CHANNEL = {"weight": fp8("channel"), "activation": fp8("token")}
FORMS = {
    "block": {"weight": "fp8_block128"}, "tensor": BY_TENSOR, "static": STATIC,
    "channel": BY_CHANNEL,
}


def test_rows_by_token():
    values, scale = quantize(np.array([[1.0, -3.0] * 100, [0.0] * 200, [np.nan] * 200]), None)
    least = np.float32(1.0 / 512.0) / np.float32(448.0)
    assert scale[:2].tolist() == [[float(np.float32(3.0) / np.float32(448.0))], [float(least)]]
    assert least == np.float32(1.0 / (448.0 * 512.0))
    assert (values[1] == 0.0).all() and np.isnan(values[2]).all() and np.isnan(scale[2]).all()


def test_scale_of_a_tensor_is_that_of_its_finite_numbers():
    rows = np.array([[1.0, -7.0], [np.nan, 2.0], [np.inf, 3.0]])
    assert tensor_scale(rows) == np.float32(7.0) / np.float32(448.0)
    least = np.float32(1e-10) / np.float32(448.0)
    assert tensor_scale(np.zeros((3, 2))) == least and tensor_scale(np.zeros((0, 2))) == least


def test_given_scale_has_ends():
    values = quantize_by(np.array([[448.0, 449.0, 1e30, -np.inf, np.nan, 0.3]]), np.float32(1.0))
    assert values[0, :4].tolist() == [448.0, 448.0, 448.0, -448.0]
    assert np.isnan(values[0, 4]) and values[0, 5] == 0.3125


@pytest.mark.parametrize("form,w13,w2,shared", [
    ("tensor", (4, 2, 1), (4, 1, 1), (2, 1)), ("static", (4, 2, 1), (4, 1, 1), (2, 1)),
    ("channel", (4, 288, 1), (4, 200, 1), (144, 1)),
])
def test_shapes_of_scales(form, w13, w2, shared):
    spec = LayerSpec.from_json(SPEC | {"quantization": FORMS[form]})
    shapes = {tensor.name: tensor.shape for tensor in inputs(spec)}
    assert shapes["experts.w13_scale"] == w13 and shapes["experts.w2_scale"] == w2
    assert shapes["shared_experts.w13_scale"] == shared
    given = {name for name in shapes if name.endswith("_input_scale")}
    names = ("experts.w13", "experts.w2", "shared_experts.w13", "shared_experts.w2")
    assert given == ({f"{name}_input_scale" for name in names} if form == "static" else set())


def test_some_rows_share_the_scale_of_all():
    spec = LayerSpec.from_json(SPEC | {"quantization": BY_TENSOR})
    tensors = generate(spec, 12, 5)
    tensors["hidden_states"][7] *= 16.0
    decision = decide(spec, tensors)
    whole = evaluate(spec, tensors, decision)
    rows = np.array([2, 9])
    np.testing.assert_array_equal(evaluate(spec, tensors, decision.rows(rows), rows), whole[rows])
    tensors["hidden_states"][7] /= 16.0
    assert not np.array_equal(evaluate(spec, tensors, decision)[2], whole[2])


def test_a_spoiled_row_leaves_the_others():
    spec = LayerSpec.from_json(SPEC | {"quantization": BY_TENSOR})
    tensors = generate(spec, 6, 5)
    decision = decide(spec, tensors)
    tensors["hidden_states"][3, 0] = np.nan
    out = evaluate(spec, tensors, decision)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, axis=0)).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ["gate_up", "up_gate", "interleaved"])
def test_layer_is_near_to_that_of_real_weights(order, form):
    """The results differ only by the quantization of activations to four significant bits."""
    spec = LayerSpec.from_json(SPEC | {"gate_up_order": order, "quantization": FORMS[form]})
    tensors = generate(spec, 20, 1)
    plain = dict(tensors)
    for name, weight in tensors.items():
        if f"{name}_scale" in tensors:
            rows = scale_row(spec, name, weight.shape[-2])
            columns = scale_column(spec, name, weight.shape[-1])
            scale = tensors[f"{name}_scale"].astype(np.float64)
            plain[name] = weight.astype(np.float64) * scale[..., rows, :][..., columns]
    quantized = evaluate(spec, tensors, decide(spec, tensors))
    real = LayerSpec.from_json(SPEC | {"gate_up_order": order, "quantization": None})
    exact = evaluate(real, plain, decide(real, plain))
    error = np.linalg.norm(quantized - exact) / np.linalg.norm(exact)
    # Static scales clip elements beyond their range.
    assert 0.01 < error < (0.4 if form == "static" else 0.08)


def test_weights_alone():
    """Weight-only quantization equals dequantized weights with unquantized activations."""
    spec = LayerSpec.from_json(SPEC | {"quantization": {"weight": fp8("channel")}})
    tensors = generate(spec, 9, 3)
    plain = dict(tensors)
    for name in ("experts.w13", "experts.w2", "shared_experts.w13", "shared_experts.w2"):
        plain[name] = tensors[name].astype(np.float64) * tensors[f"{name}_scale"]
    real = LayerSpec.from_json(SPEC | {"quantization": None})
    np.testing.assert_allclose(
        evaluate(spec, tensors, decide(spec, tensors)),
        evaluate(real, plain, decide(real, plain)), rtol=1e-6)


# -- int8


def test_int8_rounds_to_even_and_has_no_least_value():
    values, scale = quantize(np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -127.0]]), None, "int8")
    assert scale.tolist() == [[1.0]]
    assert values.tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -127.0]]
    values, scale = quantize(np.array([[3.0, -1.0, 0.0]]), None, "int8")
    expected = np.float32(3.0) / np.float32(127.0)
    assert scale.tolist() == [[float(expected)]] and values.tolist() == [[127.0, -42.0, 0.0]]
    values, scale = quantize(np.zeros((1, 4)), None, "int8")
    assert scale[0, 0] == np.float32(1e-10) / np.float32(127.0) and (values == 0.0).all()


def test_int8_spoils_rows_through_their_scale():
    values, scale = quantize(np.array([[np.nan, 1.0], [-np.inf, 1.0]]), None, "int8")
    assert np.isnan(scale[0, 0]) and scale[1, 0] == np.inf and (values == 0.0).all()


def test_int8_by_a_given_scale_has_ends():
    row = np.array([[127.0, 128.0, 1e30, -np.inf, np.nan, -126.5]])
    values = quantize_by(row, np.float32(1.0), "int8")
    assert values.tolist() == [[127.0, 127.0, 127.0, -127.0, 0.0, -126.0]]
    assert tensor_scale(row[:, :2], "int8") == np.float32(128.0) / np.float32(127.0)
