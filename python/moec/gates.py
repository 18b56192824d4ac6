# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Identifies the activation of docs/use/layers.md that a PyTorch function computes.

A model's gate is code, so it is probed: it is called on numbers from the whole range, and the result is compared with
each formula, for each order of gate and up. A gate that matches no formula cannot be expressed in a spec, and the
caller refuses it. Probes are elementwise; a function that mixes elements matches no formula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional

import torch

#: Order of gate and up in the rows of the gate and up gemm.
ORDERS = ("gate_up", "interleaved", "up_gate")
_TAILS = (1e-3, 30.0, 100.0, 1e3, 1e4, 1e6)


def _silu(g: torch.Tensor) -> torch.Tensor:
    return g * torch.sigmoid(g)


def _clamp(g: torch.Tensor, u: torch.Tensor, limit: Optional[float]) -> tuple[torch.Tensor, ...]:
    return (g, u) if limit is None else (g.clamp(max=limit), u.clamp(-limit, limit))


def _of_gate(kind: str, g: torch.Tensor) -> torch.Tensor:
    if kind == "silu":
        return _silu(g)
    if kind == "gelu":
        return 0.5 * g * torch.erfc(-g / math.sqrt(2))
    if kind == "gelu_tanh":
        return 0.5 * g * (1 + torch.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))
    return g.clamp(min=0) ** (2 if kind == "relu2" else 1)


def _evaluate(activation: Mapping[str, Any], g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Evaluates the formula of docs/use/layers.md in the dtype of the arguments."""
    kind, limit = activation["kind"], activation.get("limit")
    if kind.endswith("_no_mul"):
        return _of_gate(kind.removesuffix("_no_mul"), g)
    if kind == "situ":
        beta, linear = activation["beta"], activation["linear_beta"]
        return beta * torch.tanh(g / beta) * torch.sigmoid(g) * linear * torch.tanh(u / linear)
    if kind == "swiglustep":
        return _silu(g).clamp(max=limit) * u.clamp(-limit, limit)
    g, u = _clamp(g, u, limit)
    if kind in ("swigluoai", "swigluoai_uninterleave"):
        beta = 1.0 if kind == "swigluoai" else activation["beta"]
        return g * torch.sigmoid(activation["alpha"] * g) * (u + beta)
    return _of_gate(kind, g) * u


def _find_numbers(owner: Any, word: str) -> list[float]:
    """Returns numeric attributes with `word` in their names, of a module and of its act_fn."""
    found = []
    for each in (owner, getattr(owner, "act_fn", None)):
        for name, value in getattr(each, "__dict__", {}).items():
            if word in name and isinstance(value, (int, float)) and value > 0:
                found.append(float(value))
    return sorted(set(found))


def _list_gated(owner: Any) -> Iterator[dict[str, Any]]:
    """Yields gated activations with the parameters that the module may have for them."""
    limits, alphas = _find_numbers(owner, "limit"), _find_numbers(owner, "alpha")
    caps = _find_numbers(owner, "softcap")
    for kind in ("silu", "gelu", "gelu_tanh", "relu", "relu2"):
        yield {"kind": kind}
    for limit in limits:
        yield {"kind": "silu", "limit": limit}
        yield {"kind": "swiglustep", "limit": limit}
    for alpha, limit in itertools.product(alphas, limits):
        yield {"kind": "swigluoai", "alpha": alpha, "limit": limit}
    for alpha, limit, beta in itertools.product([*alphas, 1.702], [None, *limits], (0.0, 1.0)):
        bound = {} if limit is None else {"limit": limit}
        yield {"kind": "swigluoai_uninterleave", "alpha": alpha, "beta": beta, **bound}
    for beta, linear in itertools.product(caps, caps):
        yield {"kind": "situ", "beta": beta, "linear_beta": linear}


def _make_numbers(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns all pairs of gate and up values, as f32 rows."""
    tails = torch.tensor([*_TAILS, *(-each for each in _TAILS), 0.0])
    gates = torch.cat([torch.linspace(-16.3, 17.1, 84), tails])
    ups = torch.cat([torch.linspace(-8.7, 9.1, 18), tails])
    gate, up = torch.meshgrid(gates, ups, indexing="ij")
    return gate.contiguous().to(device), up.contiguous().to(device)


def _agrees(found: torch.Tensor, wanted: torch.Tensor, scale: torch.Tensor) -> bool:
    """Returns whether an f32 result equals the formula's up to roundings relative to the factors."""
    if found.shape != wanted.shape:
        return False
    return bool(((found.double() - wanted).abs() <= 1e-4 * wanted.abs() + 1e-6 * scale).all())


def find_gated(
    owner: Any, gate: Callable[[torch.Tensor], torch.Tensor], device: torch.device
) -> Optional[tuple[dict[str, Any], str]]:
    """Returns the activation and the order of gate and up that `gate` computes, from [rows, 2 I] to [rows, I]; None if
    it matches no formula of docs/use/layers.md.

    owner: the module, whose attributes (limit, alpha, ...) are tried as parameters."""
    g, u = _make_numbers(device)
    answers = {}
    for order in ORDERS:
        pair = (u, g) if order == "up_gate" else (g, u)
        joined = torch.stack(pair, -1).flatten(-2) if order == "interleaved" else torch.cat(pair, -1)
        answers[order] = gate(joined).float()
    scale = g.abs().clamp(min=1).double() * u.abs().clamp(min=1).double()
    for activation in _list_gated(owner):
        wanted = _evaluate(activation, g.double(), u.double())
        for order, answer in answers.items():
            if _agrees(answer, wanted, scale):
                return activation, order
    return None


def find_ungated(
    function: Callable[[torch.Tensor], torch.Tensor], device: torch.device
) -> Optional[dict[str, Any]]:
    """Returns the activation without a gate that `function` computes elementwise; None if it matches none."""
    g, _ = _make_numbers(device)
    answer = function(g.clone()).float()
    scale = g.abs().clamp(min=1).double()
    for kind in ("silu", "gelu", "gelu_tanh", "relu", "relu2"):
        activation = {"kind": f"{kind}_no_mul"}
        if _agrees(answer, _evaluate(activation, g.double(), g.double()), scale):
            return activation
    return None
