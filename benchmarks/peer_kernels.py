# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of peers.py: moec's, and those that vLLM makes a layer of for each of its names for them."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import tempfile
import types
from typing import Any, Iterator, Protocol

import torch
from peer_rows import Layer
from peer_weights import Call, Weights

#: The environment takes precedence. DeepGEMM's exponents as scales would make other weights.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": "",
               "VLLM_USE_DEEP_GEMM_E8M0": "0", "GLOO_SOCKET_IFNAME": "lo"}
_GROUP = {"int4_group32": 32, "int4_group128": 128}
_prefixes = itertools.count()


class Refused(Exception):
    """The reason why a kernel does not take a row."""


class Kernel(Protocol):
    #: The class behind the name, and its version.
    what: str

    def describe(self, call: Call) -> str:
        """Says which table of tuned configs a call uses; "" if the kernel has none. Raises Refused."""

    def run(self, call: Call) -> torch.Tensor:
        """Enqueues a call."""


class MoecKernel:
    """moec's experts, which are compiled by the first call."""

    what = "moec"

    def __init__(self, weights: Weights, tokens: int) -> None:
        from moec.functions.experts import Experts

        layer, tensors = weights.layer, weights.tensors
        self.tensors = tensors["w13"], tensors["w2"]
        self.experts = Experts("silu", make_config(weights))
        if layer.local_experts < layer.num_experts:
            ids = torch.arange(layer.num_experts, dtype=torch.int32)
            self.experts.placed = torch.where(ids < layer.local_experts, ids, -1)
        self.workspace = None
        if weights.device.type == "cuda":
            size = self.experts.workspace_bytes(tokens, *self.tensors, layer.hidden, torch.bfloat16, layer.top_k)
            self.workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=weights.device)

    def describe(self, call: Call) -> str:
        return ""

    def run(self, call: Call) -> torch.Tensor:
        return self.experts.run(call.hidden, *self.tensors, call.weights, call.ids, workspace=self.workspace)


def make_config(weights: Weights) -> Any:
    """The quant_config of moec's experts."""
    from moec import functions

    tensors, form = weights.tensors, weights.format
    if form.scale is None:
        return None
    scales = {"w1_scale": tensors["w13_scale"], "w2_scale": tensors["w2_scale"]}
    if form.activation == "block":
        return functions.fp8_w8a8_moe_quant_config(**scales, block_shape=list(form.group))
    if form.activation == "token":
        return functions.fp8_w8a8_moe_quant_config(**scales, per_act_token_quant=True, per_out_ch_quant=True)
    if form.activation == "tensor":
        return functions.fp8_w8a8_moe_quant_config(
            **scales, a1_scale=tensors["w13_input"], a2_scale=tensors["w2_input"])
    if form.code == "fp8":
        return functions.fp8_w8a16_moe_quant_config(**scales, block_shape=list(form.group))
    if form.code == "int4":
        return functions.int4_w4a16_moe_quant_config(**scales)
    if form.scale == torch.uint8:
        return functions.mxfp4_w4a16_moe_quant_config(**scales)
    return functions.nvfp4_w4a16_moe_quant_config(
        g1_alphas=tensors["w13_global"], g2_alphas=tensors["w2_global"], **scales)


def describe_quantization(format: str) -> tuple[str | None, dict[str, Any]]:
    """vLLM's name of a quantization and its part of config.json."""

    def compress(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        group = {"targets": ["Linear"], "weights": {"symmetric": True, "dynamic": False} | weights,
                 "input_activations": inputs and {"symmetric": True, "dynamic": True} | inputs}
        return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": [],
                "config_groups": {"group_0": group}}

    if format == "bf16":
        return None, {}
    if format == "mxfp4":
        return "mxfp4", {"quant_method": "mxfp4"}
    if format == "nvfp4":
        return "modelopt_fp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    if format in _GROUP:
        return "compressed-tensors", compress("pack-quantized", {
            "type": "int", "num_bits": 4, "strategy": "group", "group_size": _GROUP[format]})
    fp8 = {"type": "float", "num_bits": 8}
    weights, inputs = {
        "fp8_channel": ({"strategy": "channel"}, {"strategy": "token"}),
        "fp8_tensor": ({"strategy": "tensor"}, {"strategy": "tensor", "dynamic": False}),
    }.get(format, ({"strategy": "block", "block_structure": [128, 128]}, {"strategy": "group", "group_size": 128}))
    return "compressed-tensors", compress("float-quantized", fp8 | weights, fp8 | inputs)


def name_parameters(weights: Weights) -> dict[str, torch.Tensor]:
    """The tensors by the names of vLLM's parameters."""
    tensors, experts, named = weights.tensors, weights.layer.local_experts, {}

    def repeat(tensor: torch.Tensor, *shape: int) -> torch.Tensor:
        return tensor.view(experts, *[1 for _ in shape]).expand(experts, *shape)

    for name, halves in (("w13", (2,)), ("w2", ())):
        if weights.format.code == "int4":
            named[f"{name}_weight_packed"] = tensors[name].view(torch.int32)
        else:
            named[f"{name}_weight"] = tensors[name]
        if f"{name}_input" in tensors:
            named[f"{name}_weight_scale"] = repeat(tensors[f"{name}_scale"], *halves)
            named[f"{name}_input_scale"] = tensors[f"{name}_input"].expand(experts)
        elif f"{name}_scale" in tensors:
            named[f"{name}_weight_scale"] = tensors[f"{name}_scale"]
        if f"{name}_global" in tensors:
            named[f"{name}_weight_scale_2"] = repeat(tensors[f"{name}_global"], *halves)
            named[f"{name}_input_scale"] = torch.ones(experts, *halves, device=weights.device)
    return named


def fit(name: str, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A copy in the shape of a parameter, which is larger where vLLM pads a size: zeros behind gate and up."""
    if tensor.shape == shape:
        return tensor.contiguous().clone()
    made = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    parts = 2 if name.startswith("w13") else 1
    for target, source in zip(made.chunk(parts, 1), tensor.chunk(parts, 1)):
        target[:, :source.shape[1], :source.shape[2]] = source
    return made


def has_same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Compares expert by expert, so that the result needs little memory."""
    if (first.dtype, first.shape) != (second.dtype, second.shape) or first.dim() < 3 or not (
            first.is_contiguous() and second.is_contiguous()):
        return False
    return all(torch.equal(*pair) for pair in zip(first.view(torch.uint8), second.view(torch.uint8)))


@contextlib.contextmanager
def bf16_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def start_vllm(device: torch.device) -> str:
    """Initializes the process as one of one rank. Returns vLLM's version. Raises ImportError."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import vllm
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel, model_parallel_is_initialized
    from vllm.v1.worker.workspace import init_workspace_manager, is_workspace_manager_initialized

    if not model_parallel_is_initialized():
        with set_current_vllm_config(VllmConfig()):
            rendezvous = pathlib.Path(tempfile.mkdtemp()) / "ranks"
            init_distributed_environment(1, 0, f"file://{rendezvous}", 0, "gloo")
            initialize_model_parallel(1, 1)
    if not is_workspace_manager_initialized():
        init_workspace_manager(device)
    return vllm.__version__


def make_vllm_layer(layer: Layer, backend: str) -> tuple[Any, Any]:
    """vLLM's configuration and its experts without memory. Raises ValueError with vLLM's reason against it."""
    from vllm.config import KernelConfig, ParallelConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory
    from vllm.model_executor.layers.quantization import get_quantization_config

    ranks = layer.num_experts // layer.local_experts
    config = VllmConfig(kernel_config=KernelConfig(moe_backend=backend),
                        parallel_config=ParallelConfig(enable_expert_parallel=ranks > 1))
    name, fields = describe_quantization(layer.format)
    with set_current_vllm_config(config), bf16_by_default(), torch.device("meta"):
        quantization = get_quantization_config(name).from_config(fields) if name else None
        runner = FusedMoEFactory(
            num_experts=layer.num_experts, top_k=layer.top_k, hidden_size=layer.hidden,
            intermediate_size=layer.columns, params_dtype=torch.bfloat16, quant_config=quantization, tp_size=ranks,
            prefix=f"model.layers.{next(_prefixes)}.mlp.experts")
    return config, runner.routed_experts


class VllmKernel:
    """Experts of vLLM by one of its names. Weights are copied only where vLLM changes them."""

    def __init__(self, weights: Weights, backend: str) -> None:
        from vllm.config import set_current_vllm_config

        self.layer = weights.layer
        self.config, self.experts = make_vllm_layer(weights.layer, backend)
        self.method = self.experts.quant_method
        named = name_parameters(weights)
        for name, parameter in list(self.experts.named_parameters()):
            if name in named:
                tensor = fit(name, named[name], parameter.shape)
            else:
                tensor = torch.zeros(parameter.shape, dtype=parameter.dtype, device=weights.device)
            self.experts.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
        if missing := [name for name in named if not hasattr(self.experts, name)]:
            raise Refused(f"vLLM's layer has no {', '.join(missing)}")
        if self.experts.expert_map is not None:
            self.experts._expert_map = self.experts.expert_map.to(weights.device)
        with set_current_vllm_config(self.config), bf16_by_default(), torch.no_grad():
            # vLLM asks here for the user's choice of a model's activations alone.
            self.config.model_config = types.SimpleNamespace(quantization_config=None)
            self.method.process_weights_after_loading(self.experts)
            self.config.model_config = None
        if self.method.is_monolithic:
            raise Refused("takes no ids")
        for name, tensor in named.items():
            own = getattr(self.experts, name, None)
            if isinstance(own, torch.Tensor) and has_same_bits(own, tensor):
                own.data = tensor
        self.padding = self.experts.moe_config.hidden_dim - weights.layer.hidden
        self.what = type(self.method.moe_kernel.fused_experts).__name__

    def describe(self, call: Call) -> str:
        from vllm.model_executor.layers.fused_moe.fused_moe import get_moe_configs

        experts = self.method.moe_kernel.fused_experts
        if hasattr(experts, "_select_experts_impl"):
            chosen = experts._select_experts_impl(call.hidden, self.experts.w13_weight, self.experts.w2_weight)
            if chosen is experts.fallback_experts:
                raise Refused("vLLM calls Triton for this shape")
            experts = chosen
        if type(experts).__name__ not in ("TritonExperts", "TritonWNA16Experts"):
            return ""
        block = experts.quant_config.block_shape or (None, None)
        found = get_moe_configs(
            self.layer.local_experts, self.layer.columns, experts.quant_config.config_name(torch.bfloat16), *block)
        return "default" if found is None else "tuned"

    def run(self, call: Call) -> torch.Tensor:
        from vllm.config import set_current_vllm_config
        from vllm.forward_context import set_forward_context

        hidden, ids = call.hidden, call.ids
        if self.padding:
            hidden = torch.nn.functional.pad(hidden, (0, self.padding))
        with set_current_vllm_config(self.config), set_forward_context(None, self.config), torch.no_grad():
            out = self.method.apply(
                self.experts, hidden, call.weights, ids.to(self.method.topk_indices_dtype or ids.dtype), None, None)
        return out[:, :self.layer.hidden]
