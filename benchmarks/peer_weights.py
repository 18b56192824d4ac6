# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random weights of a layer as checkpoints store them, their float64 values, and what a call computes of them."""

from __future__ import annotations

import dataclasses
import math

import torch
from peer_rows import Layer

FP8 = torch.float8_e4m3fn
#: Values of fp4 (e2m1) by code.
_FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
_FP4 = (*_FP4, *(-value for value in _FP4))
#: Hidden states and the activation's results stay below these numbers.
_LARGEST_INPUT, _LARGEST_INNER = 8.0, 48.0


@dataclasses.dataclass(frozen=True)
class Format:
    #: "bf16", "fp8", "int4" or "fp4".
    code: str
    #: Standard deviation of random codes.
    deviation: float
    #: Rows and columns that share a scale; 0: all.
    group: tuple[int, int] = (0, 0)
    scale: torch.dtype | None = None
    #: Activations of 8 bits have this scale in moec: "block", "token", "tensor".
    activation: str = ""

    @property
    def bound(self) -> float:
        """Largest relative error of a right kernel, which may round activations to 8 bits where the format does."""
        return 7e-2 if self.activation else 1e-2


FORMATS = {
    "bf16": Format("bf16", 1),
    "fp8_block128": Format("fp8", 64, (128, 128), torch.float32, "block"),
    "fp8_channel": Format("fp8", 64, (1, 0), torch.float32, "token"),
    "fp8_tensor": Format("fp8", 64, (0, 0), torch.float32, "tensor"),
    "fp8_weights": Format("fp8", 64, (128, 128), torch.float32),
    "int4_group32": Format("int4", 4.6, (1, 32), torch.bfloat16),
    "int4_group128": Format("int4", 4.6, (1, 128), torch.bfloat16),
    "mxfp4": Format("fp4", 2.9, (1, 32), torch.uint8),
    "nvfp4": Format("fp4", 2.9, (1, 16), FP8),
}


class Weights:
    """Tensors by short names: w13, w2, w13_scale, w2_scale; of nvfp4 w13_global, w2_global ([E], a factor of scales);
    of fp8 tensors w13_input, w2_input ([1], scales of activations). Elements of 4 bits lie two in a byte, the first in
    the low half; int4 is stored plus 8. Gate rows are first."""

    def __init__(self, layer: Layer, device: torch.device, seed: int = 0) -> None:
        self.layer, self.format, self.device = layer, FORMATS[layer.format], device
        self._generator = torch.Generator(device)
        self._generator.manual_seed(seed)
        self.tensors: dict[str, torch.Tensor] = {}
        # Gate and up have deviation 1, which leaves the activation's results at about 0.6.
        self._draw("w13", 2 * layer.columns, layer.hidden, 1 / math.sqrt(layer.hidden))
        self._draw("w2", layer.hidden, layer.columns, 1.6 / math.sqrt(layer.columns))
        if self.format.activation == "tensor":
            for name, largest in (("w13_input", _LARGEST_INPUT), ("w2_input", _LARGEST_INNER)):
                self.tensors[name] = torch.full((1,), largest / 448, device=device)

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self.tensors.values())

    @property
    def bytes_of_expert(self) -> float:
        return self.bytes / self.layer.local_experts

    def _draw_codes(self, rows: int, columns: int, deviation: float) -> torch.Tensor:
        """Expert by expert, so that no copy of all in 32 bits is needed."""
        experts, code = self.layer.local_experts, self.format.code
        if code in ("int4", "fp4"):
            made = torch.empty(experts, rows, columns // 2, dtype=torch.uint8, device=self.device)
            return made.random_(0, 256, generator=self._generator)
        dtype = torch.bfloat16 if code == "bf16" else FP8
        made = torch.empty(experts, rows, columns, dtype=dtype, device=self.device)
        for part in made:
            numbers = torch.empty(rows, columns, dtype=torch.bfloat16, device=self.device)
            part.copy_(numbers.normal_(0, deviation, generator=self._generator).clamp_(-448, 448))
        return made

    def _draw(self, name: str, rows: int, columns: int, deviation: float) -> None:
        form, experts = self.format, self.layer.local_experts
        if form.scale is None:
            self.tensors[name] = self._draw_codes(rows, columns, deviation)
            return
        self.tensors[name] = self._draw_codes(rows, columns, form.deviation)
        high, wide = (size or whole for size, whole in zip(form.group, (rows, columns)))
        shape = (experts, -(-rows // high), -(-columns // wide))
        factor = deviation / form.deviation
        if form.scale == torch.uint8:
            exponent = 127 + round(math.log2(factor))
            scale = torch.empty(shape, dtype=torch.uint8, device=self.device)
            scale.random_(exponent - 1, exponent + 2, generator=self._generator)
        else:
            if form.scale == FP8:
                spread = torch.rand(experts, device=self.device, generator=self._generator)
                self.tensors[f"{name}_global"] = (0.75 + spread / 2) * factor / 64
                factor = 64
            scale = torch.rand(shape, device=self.device, generator=self._generator)
            scale = ((0.5 + scale) * factor).to(form.scale)
        self.tensors[f"{name}_scale"] = scale

    def dequantize(self, name: str, expert: int) -> torch.Tensor:
        """The values of an expert's matrix in float64."""
        codes = self.tensors[name][expert]
        if self.format.code in ("int4", "fp4"):
            halves = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
            table = _FP4 if self.format.code == "fp4" else range(-8, 8)
            values = torch.tensor(table, dtype=torch.float64, device=self.device)[halves.long()]
        else:
            values = codes.double()
        if self.format.scale is None:
            return values
        scale = self.tensors[f"{name}_scale"][expert]
        scale = torch.exp2(scale.double() - 127) if scale.dtype == torch.uint8 else scale.double()
        for axis, size in enumerate(self.format.group):
            scale = scale.repeat_interleave(size or values.shape[axis], axis).narrow(axis, 0, values.shape[axis])
        if f"{name}_global" in self.tensors:
            scale = scale * self.tensors[f"{name}_global"][expert].double()
        return values * scale


@dataclasses.dataclass(frozen=True)
class Call:
    """Inputs of a call. Ids are those of all experts; local ones are the first."""

    hidden: torch.Tensor
    weights: torch.Tensor
    ids: torch.Tensor

    def count_rows(self, layer: Layer) -> int:
        """Choices of local experts."""
        return int((self.ids < layer.local_experts).sum())

    def count_touched(self, layer: Layer) -> int:
        return int((self.ids.unique() < layer.local_experts).sum())


def draw_calls(layer: Layer, tokens: int, count: int, device: torch.device) -> list[Call]:
    """Calls with uniformly drawn ids. For few tokens, the best of some draws: the number of experts is near its mean."""
    calls: list[Call] = []
    wanted, least = layer.expect_touched(tokens), math.inf
    for seed in range(16 if tokens <= 64 else 1):
        generator = torch.Generator(device)
        generator.manual_seed(seed)
        drawn = []
        for _ in range(count):
            chosen = torch.rand(tokens, layer.num_experts, device=device, generator=generator).topk(layer.top_k)
            weights = torch.rand(tokens, layer.top_k, device=device, generator=generator) + 0.1
            hidden = torch.empty(tokens, layer.hidden, dtype=torch.bfloat16, device=device)
            hidden.normal_(generator=generator)
            drawn.append(Call(hidden, weights / weights.sum(1, keepdim=True), chosen.indices.int()))
        distance = abs(sum(call.count_touched(layer) for call in drawn) / count - wanted)
        if distance < least:
            calls, least = drawn, distance
    return calls


def count_cold_bytes(weights: Weights, calls: list[Call]) -> float:
    """Bytes of the weights that these calls read at least once."""
    touched = torch.cat([call.ids.flatten() for call in calls]).unique()
    return int((touched < weights.layer.local_experts).sum()) * weights.bytes_of_expert


def choose_checked(weights: Weights, calls: list[Call], most: int = 4) -> tuple[int, torch.Tensor]:
    """The index of a call and some of its rows with local experts."""
    for index, call in enumerate(calls):
        local = (call.ids < weights.layer.local_experts).any(1).nonzero().flatten()
        if local.numel():
            return index, local[:: max(1, local.numel() // most)][:most]
    return 0, torch.arange(min(most, calls[0].hidden.shape[0]), device=weights.device)


def compute(weights: Weights, call: Call, rows: torch.Tensor) -> torch.Tensor:
    """Results of these rows in float64."""
    out = torch.zeros(rows.numel(), weights.layer.hidden, dtype=torch.float64, device=weights.device)
    hidden, ids = call.hidden[rows].double(), call.ids[rows]
    for expert in ids.unique().tolist():
        if expert >= weights.layer.local_experts:
            continue
        where, slots = (ids == expert).nonzero(as_tuple=True)
        gate, up = (hidden[where] @ weights.dequantize("w13", expert).T).chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * up
        result = inner @ weights.dequantize("w2", expert).T
        out.index_add_(0, where, result * call.weights[rows][where, slots, None].double())
    return out


def find_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The relative Frobenius norm; of rows without local experts, the norm."""
    norm = float(wanted.norm()) or 1.0
    return float((found.double() - wanted).norm()) / norm
