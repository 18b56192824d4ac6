# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Projections as published checkpoints store them, by the rules of each format, and their values. Uses no code of
moec or vLLM."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional

import torch

FP8, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
#: Magnitudes of fp4 (e2m1) by their quantized values.
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
#: AWQ stores element AWQ[i] of eight at position i of a word.
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)

#: The tensors of one projection by the suffixes of their names, and its values [N, K] in f32.
Stored = tuple[dict[str, torch.Tensor], torch.Tensor]
Store = Callable[[torch.Tensor], Stored]


def repeat(scale: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Scales of groups along K or of blocks, one for each element."""
    for axis in (0, 1):
        scale = scale.repeat_interleave(weight.shape[axis] // scale.shape[axis], axis)
    return scale


def pack(elements: torch.Tensor, bits: int, order: Optional[tuple[int, ...]] = None) -> torch.Tensor:
    """Packs the last axis into words of 32 bits; position i of a word has element order[i]."""
    each = 32 // bits
    groups = elements.long().reshape(*elements.shape[:-1], -1, each)
    words = sum(groups[..., e] << (bits * place) for place, e in enumerate(order or range(each)))
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).contiguous()


def store_16_bits(weight: torch.Tensor) -> Stored:
    stored = weight.to(torch.bfloat16)
    return {"weight": stored}, stored.float()


def store_fp8(
    scale_name: str, block: int = 0, channel: bool = False, input_scale: float = 0, is_exponent: bool = False
) -> Store:
    def store(weight: torch.Tensor) -> Stored:
        rows, columns = weight.shape
        if block:
            scale = weight.view(rows // block, block, columns // block, block).abs().amax((1, 3)) / 448
            if is_exponent:
                scale = torch.exp2(scale.log2().ceil()).to(E8M0).float()
        elif channel:
            scale = weight.abs().amax(1, keepdim=True) / 448
        else:
            # Gate and up have equal ones, since vLLM would otherwise round them again.
            scale = torch.full((1, 1), 1 / 448)
        quantized = (weight / repeat(scale, weight)).to(FP8)
        stored = scale.to(E8M0) if is_exponent else scale
        tensors = {"weight": quantized, scale_name: stored if block or channel else scale.view(())}
        if input_scale:
            tensors["input_scale"] = torch.tensor(input_scale)
        return tensors, quantized.float() * repeat(scale, weight)

    return store


def store_int8(weight: torch.Tensor) -> Stored:
    scale = weight.abs().amax(1, keepdim=True) / 127
    quantized = (weight / scale).round().to(torch.int8)
    return {"weight": quantized, "weight_scale": scale}, quantized.float() * scale


def store_int8_of_16_bits(weight: torch.Tensor) -> Stored:
    tensors, numbers = store_16_bits(weight)
    return tensors, store_int8(numbers)[1]


def round_to_integers(
    weight: torch.Tensor, bits: int, group: int, has_zero_point: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Elements (unsigned) [N, K], scales and zero points [N, K / group], and values."""
    rows, columns = weight.shape
    grouped = weight.view(rows, -1, columns if group == -1 else group)
    most = (1 << bits) - 1
    if has_zero_point:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scale = ((high - low) / most).to(torch.bfloat16)
        point = (-low / scale.float()).round().clamp(0, most)
    else:
        scale = (grouped.abs().amax(2) / (most // 2)).to(torch.bfloat16)
        point = torch.full(scale.shape, float(1 << (bits - 1)))
    elements = (grouped / scale.float()[..., None] + point[..., None]).round().clamp(0, most)
    numbers = (elements - point[..., None]) * scale.float()[..., None]
    return elements.view(weight.shape), scale, point, numbers.view(weight.shape)


def store_packed_integers(bits: int, group: int, has_zero_point: bool) -> Store:
    """compressed-tensors' pack-quantized: words along K, zero points along N."""

    def store(weight: torch.Tensor) -> Stored:
        elements, scale, point, numbers = round_to_integers(weight, bits, group, has_zero_point)
        tensors = {"weight_packed": pack(elements, bits), "weight_scale": scale,
                   "weight_shape": torch.tensor(weight.shape)}
        if has_zero_point:
            tensors["weight_zero_point"] = pack(point.t(), bits).t().contiguous()
        return tensors, numbers

    return store


def store_gptq(bits: int, group: int) -> Store:
    def store(weight: torch.Tensor) -> Stored:
        elements, scale, point, numbers = round_to_integers(weight, bits, group, False)
        return {
            "qweight": pack(elements, bits).t().contiguous(),
            "scales": scale.t().contiguous(),
            # GPTQ stores a zero point less one. vLLM drops its g_idx.
            "qzeros": pack(point.t() - 1, bits),
        }, numbers

    return store


def store_awq(group: int) -> Store:
    def store(weight: torch.Tensor) -> Stored:
        elements, scale, point, numbers = round_to_integers(weight, 4, group, True)
        return {"qweight": pack(elements.t(), 4, AWQ), "scales": scale.t().contiguous(),
                "qzeros": pack(point.t(), 4, AWQ)}, numbers

    return store


def round_to_fp4(numbers: torch.Tensor) -> torch.Tensor:
    """Indices of the nearest values."""
    nearest = (numbers.abs()[..., None] - FP4).abs().argmin(-1)
    return nearest + 8 * (numbers < 0)


def join_fp4(quantized: torch.Tensor) -> torch.Tensor:
    return (quantized[:, 0::2] + 16 * quantized[:, 1::2]).to(torch.uint8)


def read_fp4(quantized: torch.Tensor) -> torch.Tensor:
    return torch.cat([FP4, -FP4])[quantized]


def store_mxfp4(name: str) -> Store:
    def store(weight: torch.Tensor) -> Stored:
        rows, columns = weight.shape
        exponent = (weight.view(rows, -1, 32).abs().amax(2) / 6).log2().ceil()
        scale = repeat(torch.exp2(exponent), weight)
        quantized = round_to_fp4(weight / scale)
        return {name: join_fp4(quantized), "weight_scale": (exponent + 127).to(torch.uint8)}, read_fp4(quantized) * scale

    return store


def store_mxfp8(weight: torch.Tensor) -> Stored:
    exponent = (weight.view(weight.shape[0], -1, 32).abs().amax(2) / 448).log2().ceil()
    scale = repeat(torch.exp2(exponent), weight)
    quantized = (weight / scale).to(FP8)
    return {"weight": quantized, "weight_scale": (exponent + 127).to(torch.uint8)}, quantized.float() * scale


def store_nvfp4(name: str, global_name: str) -> Store:
    """One global scale for all projections; compressed-tensors stores its reciprocal."""
    largest = torch.tensor(1 / 1024)

    def store(weight: torch.Tensor) -> Stored:
        rows, columns = weight.shape
        scale = (weight.view(rows, -1, 16).abs().amax(2) / 6 / largest).to(FP8)
        whole = repeat(scale.float(), weight) * largest
        quantized = round_to_fp4(weight / whole)
        is_reciprocal = global_name == "weight_global_scale"
        stored = (1 / largest).view(1) if is_reciprocal else largest
        inputs = {"input_global_scale": stored} if is_reciprocal else {"input_scale": stored}
        return {name: join_fp4(quantized), "weight_scale": scale, global_name: stored, **inputs}, read_fp4(quantized) * whole

    return store


@dataclasses.dataclass
class Format:
    #: vLLM's name, and quantization_config of config.json.
    quantization: Optional[str]
    config: dict[str, Any]
    store: Store
    #: Relative error against float32, for 16-bit activations and for those rounded to 8 bits.
    bound: float = 6e-3
    #: Compute capability of the GPU for which vLLM constructs the format.
    capability: tuple[int, int] = (9, 0)


def make_compressed(format: str, weights: dict[str, Any], inputs: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    def fill(given: Optional[dict[str, Any]]) -> Any:
        return given and {"type": "int", "symmetric": True, "dynamic": False} | given

    return {
        "quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed", "ignore": [],
        "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": fill(weights), "input_activations": fill(inputs),
        }},
    }


FLOAT8 = {"num_bits": 8, "type": "float"}


def list_formats() -> dict[str, Format]:
    found = {"16 bits": Format(None, {}, store_16_bits)}
    rounded = 6e-2
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    found["fp8 blocks"] = Format(
        "fp8", fp8 | {"weight_block_size": [128, 128]}, store_fp8("weight_scale_inv", 128), rounded)
    found["fp8 blocks of 64"] = Format(
        "fp8", fp8 | {"weight_block_size": [64, 64]}, store_fp8("weight_scale_inv", 64), rounded)
    found["fp8 blocks, exponents as scales"] = Format(
        "fp8", fp8 | {"weight_block_size": [128, 128], "scale_fmt": "ue8m0"},
        store_fp8("weight_scale_inv", 128, is_exponent=True), rounded)
    found["fp8 tensors"] = Format("fp8", fp8, store_fp8("weight_scale"), rounded)
    found["fp8 tensors, given scales"] = Format(
        "fp8", fp8 | {"activation_scheme": "static"}, store_fp8("weight_scale", input_scale=0.1), rounded)
    name = "compressed-tensors"
    for strategy, inputs, store in (
        ("channel", {"strategy": "token", "dynamic": True}, store_fp8("weight_scale", channel=True)),
        ("tensor", {"strategy": "tensor", "dynamic": True}, store_fp8("weight_scale")),
        ("tensor", {"strategy": "tensor"}, store_fp8("weight_scale", input_scale=0.1)),
        ("block", {"strategy": "group", "group_size": 128, "dynamic": True}, store_fp8("weight_scale", 128)),
    ):
        weights = FLOAT8 | {"strategy": strategy}
        if strategy == "block":
            weights["block_structure"] = [128, 128]
        kind = f"{name} fp8 of {strategy}{'' if inputs.get('dynamic') else ', given scales'}"
        found[kind] = Format(
            name, make_compressed("float-quantized", weights, FLOAT8 | inputs), store, rounded)
    # vLLM has no kernel for GPUs without fp8 that rounds activations.
    for kind in ("fp8 blocks", "fp8 tensors, given scales", f"{name} fp8 of channel"):
        found[f"{kind}, sm_80"] = dataclasses.replace(found[kind], bound=6e-3, capability=(8, 0))
    mxfp8 = FLOAT8 | {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
    found[f"{name} mxfp8"] = Format(
        name, make_compressed("mxfp8-quantized", mxfp8, mxfp8 | {"dynamic": True}), store_mxfp8)
    found[f"{name} int4 with fp8 activations"] = Format(
        name, make_compressed("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 128},
                              FLOAT8 | {"strategy": "token", "dynamic": True}),
        store_packed_integers(4, 128, False), rounded)
    found[f"{name} int8"] = Format(name, make_compressed(
        "int-quantized", {"num_bits": 8, "strategy": "channel"},
        {"num_bits": 8, "strategy": "token", "dynamic": True}), store_int8, rounded)
    for bits in (4, 8):
        for group in (32, 128, -1):
            # vLLM has no kernel for 8-bit weights with zero points and does not construct such a layer.
            for has_zero_point in (False, True)[: 2 if bits == 4 else 1]:
                weights = {"num_bits": bits, "symmetric": not has_zero_point}
                weights |= {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}
                kind = f"{name} W{bits}A16 g{group}{' zero points' if has_zero_point else ''}"
                # vLLM's choice on Hopper, Humming, does not support channel scales.
                capability = (8, 0) if group == -1 else (9, 0)
                found[kind] = Format(name, make_compressed("pack-quantized", weights),
                                     store_packed_integers(bits, group, has_zero_point), capability=capability)
    fp4 = {"num_bits": 4, "type": "float", "scale_dtype": "torch.uint8"}
    found[f"{name} mxfp4"] = Format(name, make_compressed(
        "mxfp4-pack-quantized", fp4 | {"strategy": "group", "group_size": 32}), store_mxfp4("weight_packed"))
    found[f"{name} mxfp4 with fp8 activations"] = Format(name, make_compressed(
        "mxfp4-pack-quantized", fp4 | {"strategy": "group", "group_size": 32},
        FLOAT8 | {"strategy": "token", "dynamic": True}), store_mxfp4("weight_packed"), rounded)
    fp4["scale_dtype"] = "torch.float8_e4m3fn"
    found[f"{name} nvfp4"] = Format(name, make_compressed(
        "nvfp4-pack-quantized", fp4 | {"strategy": "tensor_group", "group_size": 16}),
        store_nvfp4("weight_packed", "weight_global_scale"))
    for bits in (4, 8):
        for group in (128, -1):
            config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True}
            found[f"GPTQ int{bits} g{group}"] = Format("auto_gptq", config, store_gptq(bits, group))
            if group == 128:
                found[f"moe_wna16 of GPTQ int{bits}"] = Format("moe_wna16", config, store_gptq(bits, group))
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    found["AWQ"] = Format("auto_awq", awq, store_awq(128))
    found["moe_wna16 of AWQ"] = Format("moe_wna16", awq, store_awq(128))
    found["mxfp4"] = Format("mxfp4", {"quant_method": "mxfp4"}, store_mxfp4("weight"))
    found["gpt-oss mxfp4"] = Format("gpt_oss_mxfp4", {"quant_method": "mxfp4"}, store_mxfp4("weight"))
    found["ModelOpt fp8"] = Format(
        "modelopt", {"quant_method": "modelopt", "quant_algo": "FP8"}, store_fp8("weight_scale", input_scale=0.1),
        rounded)
    found["ModelOpt mxfp8"] = Format(
        "modelopt_mxfp8", {"quant_method": "modelopt", "quant_algo": "MXFP8"}, store_mxfp8)
    found["mxfp8"] = Format("mxfp8", {"quant_method": "mxfp8", "ignored_layers": []}, store_mxfp8)
    found["ModelOpt nvfp4"] = Format(
        "modelopt_fp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        store_nvfp4("weight", "weight_scale_2"))
    found["experts_int8"] = Format(
        "experts_int8", {"quant_method": "experts_int8"}, store_int8_of_16_bits, 1.2e-2)
    return found
