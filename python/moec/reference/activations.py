# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activations of experts in float64, from the table of docs/use/layers.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: Parameters of each kind and their defaults (None: no clamp).
PARAMETERS: dict[str, dict[str, float | None]] = {
    "silu": {"limit": None},
    "gelu": {"beta": 0.0},
    "gelu_tanh": {},
    "relu": {},
    "relu2": {},
    "swigluoai": {"alpha": 1.702, "limit": 7.0},
    "swigluoai_uninterleave": {"alpha": 1.0, "beta": 0.0, "limit": None},
    "swiglustep": {"limit": 7.0},
    "situ": {"beta": 4.0, "linear_beta": 25.0},
    "silu_no_mul": {},
    "gelu_no_mul": {},
    "gelu_tanh_no_mul": {},
    "relu_no_mul": {},
    "relu2_no_mul": {},
}


@dataclass(frozen=True)
class Activation:
    """A kind with its parameters; None for parameters that the kind lacks."""

    kind: str
    limit: float | None = None
    alpha: float | None = None
    beta: float | None = None
    linear_beta: float | None = None

    @property
    def gated(self) -> bool:
        return not self.kind.endswith("_no_mul")


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1/(1+exp(-x)) without overflow on either side."""
    x = np.asarray(x, np.float64)
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _silu(x):
    # No special case for -inf: the limit is 0, but the formula of the specification gives NaN.
    return x * sigmoid(x)


def _gelu(x):
    return 0.5 * x * (1.0 + _ERF(x / math.sqrt(2.0)))


def _gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _relu(x):
    return np.maximum(x, 0.0)


def _relu2(x):
    return _relu(x) ** 2


_PLAIN = {"silu": _silu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": _relu, "relu2": _relu2}


def _clamp_gate_up(activation: Activation, g, u):
    limit = activation.limit
    if limit is None:
        return g, u
    return np.minimum(g, limit), np.clip(u, -limit, limit)


def apply(activation: Activation, g: np.ndarray, u: np.ndarray | None) -> np.ndarray:
    """Applies the activation to gate values and, for gated kinds, up values."""
    kind = activation.kind
    with np.errstate(all="ignore"):
        if not activation.gated:
            return _PLAIN[kind.removesuffix("_no_mul")](g)
        assert u is not None
        if kind == "silu":
            g, u = _clamp_gate_up(activation, g, u)
            return _silu(g) * u
        if kind in _PLAIN:
            return _PLAIN[kind](g) * (u + (activation.beta or 0.0))
        if kind == "swigluoai":
            g, u = _clamp_gate_up(activation, g, u)
            return (u + 1.0) * g * sigmoid(activation.alpha * g)
        if kind == "swigluoai_uninterleave":
            g, u = _clamp_gate_up(activation, g, u)
            return g * sigmoid(activation.alpha * g) * (u + activation.beta)
        if kind == "swiglustep":
            limit = activation.limit
            return np.minimum(_silu(g), limit) * np.clip(u, -limit, limit)
        if kind == "situ":
            linear = activation.linear_beta
            up = linear * np.tanh(u / linear) if linear > 0 else u
            return activation.beta * np.tanh(g / activation.beta) * sigmoid(g) * up
    raise AssertionError(f"no such activation: {kind}")


def split_gate_up(x: np.ndarray, order: str, gated: bool):
    """Splits the result of the gate and up gemm into gate and up columns; up is None without a gate."""
    if not gated:
        return x, None
    width = x.shape[-1] // 2
    if order == "gate_up":
        return x[..., :width], x[..., width:]
    if order == "up_gate":
        return x[..., width:], x[..., :width]
    assert order == "interleaved"
    return x[..., 0::2], x[..., 1::2]
