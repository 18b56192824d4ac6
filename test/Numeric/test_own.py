# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layers of examples/own, whose activation, routing or weight format no model has, against NumPy."""

import subprocess

import ml_dtypes
import numpy as np
import pytest
from runs import ROOT, TIMEOUT, binary
from safetensors import safe_open

from moec.reference import write_tensors

OPTIONS = {
    "moe": ("--level=moe",),
    "cpu": (),
    "sm_80": ("--target=sm_80", "--device=sim:3"),
    "sm_90a": ("--target=sm_90a", "--device=sim:4"),
}
TOKENS, HIDDEN = 33, 64
#: Of weight_format.mlir.
LOG4 = np.array([0, *(2.0**power for power in range(-6, 1))])
LOG4 = np.concatenate([LOG4, -LOG4])


def bf16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16)


def softsign(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def silu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return gate / (1 + np.exp(-gate)) * up


def softmax_of_two(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    weights = np.exp(np.take_along_axis(logits, ids, 1))
    return ids, weights / weights.sum(1, keepdims=True)


def own_route(logits: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    score = (1 + softsign(logits)) / 2
    groups = (score * (1 + bias)).reshape(len(score), 4, 4)
    best = np.sort(groups, axis=2)[:, :, -2:].sum(2)
    kept = np.argsort(-best, axis=1, kind="stable")[:, :2]
    keys = np.full_like(groups, -np.inf)
    np.put_along_axis(keys, kept[:, :, None], np.take_along_axis(groups, kept[:, :, None], 1), 1)
    ids = np.argsort(-keys.reshape(score.shape), axis=1, kind="stable")[:, :3]
    weights = np.take_along_axis(score, ids, 1) ** 2
    return ids, 2.5 * weights / weights.sum(1, keepdims=True)


def experts(x, ids, weights, w13, w2, activation) -> np.ndarray:
    """For a bf16 layer: values between the gemms are rounded."""
    out = np.zeros_like(x)
    for token, slot in np.ndindex(ids.shape):
        expert = ids[token, slot]
        gate, up = np.split(w13[expert] @ x[token], 2)
        hidden = bf16(activation(gate, up)).astype(float)
        out[token] += weights[token, slot] * (w2[expert] @ hidden)
    return out


def make_plain(rng, num_experts: int, size: int) -> dict[str, np.ndarray]:
    def normal(*shape):
        return bf16(rng.standard_normal(shape) / np.sqrt(shape[-1]))

    return {"hidden_states": bf16(rng.standard_normal((TOKENS, HIDDEN))),
            "gate.weight": bf16(rng.standard_normal((num_experts, HIDDEN)) / 4),
            "experts.w13": normal(num_experts, 2 * size, HIDDEN),
            "experts.w2": normal(num_experts, HIDDEN, size)}


def of_activation(rng):
    tensors = make_plain(rng, 8, 48)
    x, gate, w13, w2 = (value.astype(float) for value in tensors.values())
    ids, weights = softmax_of_two(x @ gate.T)
    return tensors, ids, weights, experts(
        x, ids, weights, w13, w2, lambda g, u: softsign(g) * (0.5 * u))


def of_routing(rng):
    tensors = make_plain(rng, 16, 48)
    x, gate, w13, w2 = (value.astype(float) for value in tensors.values())
    bias = (rng.standard_normal(16) / 8).astype(np.float32)
    ids, weights = own_route(x @ gate.T, bias)
    tensors["gate.selection_bias"] = bias
    return tensors, ids, weights, experts(x, ids, weights, w13, w2, silu)


def of_weight_format(rng):
    tensors = make_plain(rng, 8, 96)
    decoded = {}
    for name in ("experts.w13", "experts.w2"):
        *lead, width = tensors[name].shape
        quantized = rng.integers(0, 16, (*lead, width), dtype=np.uint8)
        scale = bf16(rng.uniform(0.1, 0.3, (*lead, width // 32)))
        tensors[name] = (quantized[..., ::2] | quantized[..., 1::2] << 4).view(np.int8)
        tensors[f"{name}_scale"] = scale
        decoded[name] = LOG4[quantized] * np.repeat(scale.astype(float), 32, axis=-1)
    x, gate = tensors["hidden_states"].astype(float), tensors["gate.weight"].astype(float)
    ids, weights = softmax_of_two(x @ gate.T)
    return tensors, ids, weights, experts(x, ids, weights, *decoded.values(), silu)


#: Names in IR of the types that tensors may have.
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
#: An example, and the type that its tensors have in place of bf16. Decoders are others for each.
CASES = [(of_activation, "bf16"), (of_routing, "bf16"), *((of_weight_format, dtype) for dtype in DTYPES)]


# parity: L16
@pytest.mark.parametrize("level", OPTIONS)
@pytest.mark.parametrize(("make", "dtype"), CASES)
def test_own(make, dtype, level, tmp_path):
    name = make.__name__.removeprefix("of_")
    tensors, ids, weights, expected = make(np.random.default_rng(7))
    given = {key: value.astype(DTYPES[dtype]) if value.dtype == ml_dtypes.bfloat16 else value
             for key, value in tensors.items()}
    write_tensors(tmp_path / "in.safetensors", given)
    model = tmp_path / "layer.mlir"
    model.write_text((ROOT / "examples" / "own" / f"{name}.mlir").read_text().replace("bf16", dtype))
    command = [binary("moe-run"), model, f"--tokens={TOKENS}",
               f"--inputs={tmp_path / 'in.safetensors'}", f"--outputs={tmp_path / 'out.safetensors'}",
               *OPTIONS[level]]
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    with safe_open(str(tmp_path / "out.safetensors"), framework="np") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if level != "moe":
        np.testing.assert_array_equal(found["topk_ids"], ids)
        np.testing.assert_allclose(found["topk_weights"], weights, rtol=1e-5)
    error = np.linalg.norm(found["output"].astype(float) - expected) / np.linalg.norm(expected)
    assert error < 4e-3, error
