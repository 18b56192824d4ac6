# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized experts of moec.vllm, from parameters as vLLM's loader leaves them, against the float64 reference."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
import types
from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

import fake_modules  # noqa: E402
import fake_vllm as fake  # noqa: E402
import fake_vllm_quantized as quantized  # noqa: E402
from experts_case import Case  # noqa: E402

from moec.functions import QuantConfig, fused_experts, packing  # noqa: E402

AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
PREFIXES = ("w13", "w2")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """moec.vllm where vLLM is, registered."""
    monkeypatch.setattr(fake, "op_registry_oot", {})
    monkeypatch.setattr(fake, "QUANTIZATIONS", {})
    fake_modules.install(monkeypatch, "moec.vllm", fake.list_modules() | quantized.list_modules())
    plugin = importlib.import_module("moec.vllm")
    plugin.register()
    return plugin


class Layer(torch.nn.Module):
    """Routed experts of vLLM's, of the sizes of a case."""

    def __init__(self, case: Case, activation: Any = fake.MoEActivation.SILU, **config: Any) -> None:
        super().__init__()
        spec = case.spec
        self.sizes = spec.num_experts, spec.hidden_size, spec.intermediate_size
        self.moe_config = fake.FusedMoEConfig(hidden_dim=spec.hidden_size, activation=activation, **config)
        self.activation, self.apply_router_weight_on_input = activation, False
        self.global_num_experts, self.expert_map = spec.num_experts, None
        self._loaded_expert_biases: set[str] = set()

    def _expert_routing_tables(self) -> None:
        return None

    def load(self, **values: torch.Tensor) -> None:
        """Into the parameters that vLLM's create_weights() has made."""
        for name, value in values.items():
            parameter = getattr(self, name)
            assert parameter.shape == value.shape and parameter.dtype == value.dtype, name
            parameter.data.copy_(value)


def take(name: str, layer: Layer, *options: Any) -> Any:
    """The method of vLLM's config of this name, with its parameters made."""
    method = fake.QUANTIZATIONS[name](*options).get_quant_method(layer, "experts")
    assert type(method).__name__.startswith("Moec"), type(method)
    method.create_weights(layer, *layer.sizes, torch.bfloat16)
    return method


def verify(case: Case, method: Any, layer: Layer) -> None:
    method.process_weights_after_loading(layer)
    output = method.apply(
        layer, case["hidden_states"], case["topk_weights"], case["topk_ids"], None, None
    )
    case.verify(output)
    assert output.any() and method.moe_quant_config is method.moe_kernel.fused_experts.quant_config


def pack(elements: torch.Tensor, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Along the last dimension, into words; element order[i] of each word stands at place i."""
    each = 32 // bits
    groups = elements.numpy().astype(np.uint32).reshape(*elements.shape[:-1], -1, each)
    words = np.zeros(groups.shape[:-1], np.uint32)
    for place, element in enumerate(order or range(each)):
        words |= groups[..., element] << np.uint32(place * bits)
    return torch.from_numpy(words.view(np.int32))


def make_integers(bits: int, scale: Any, zero_point: bool) -> Case:
    weight = {"dtype": f"int{bits}", "scale": scale, "scale_dtype": "bf16", "zero_point": zero_point}
    return Case(7, quantization={"weight": weight})


def read_elements(case: Case, prefix: str) -> torch.Tensor:
    """Integers of 4 or 8 bits, [E, N, K], as checkpoints have them: from 0 on."""
    stored = case[f"experts.{prefix}"].view(torch.uint8)
    if stored.shape[2] * 2 == (case.spec.hidden_size if prefix == "w13" else case.spec.intermediate_size):
        return packing.split_pairs(stored)
    return stored if f"experts.{prefix}_zero_point" in case.made else stored ^ 0x80


def read_points(case: Case, prefix: str) -> torch.Tensor:
    return case[f"experts.{prefix}_zero_point"].view(torch.uint8)


Choice = Callable[[Case, Layer], Any]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scale", [{"group": 32}, "channel"], ids=["groups", "channels"])
@pytest.mark.parametrize("zero_point", [False, True])
def test_compressed_tensors_integers(engine: Any, bits: int, scale: Any, zero_point: bool) -> None:
    case = make_integers(bits, scale, zero_point)
    layer = Layer(case)
    scheme = types.SimpleNamespace(
        symmetric=not zero_point, num_bits=bits, strategy="group", actorder=None,
        group_size=None if scale == "channel" else 32,
    )
    method = take("compressed-tensors", layer,
                  lambda moe: quantized.CompressedTensorsWNA16MoEMethod(scheme, None, moe))
    for prefix in PREFIXES:
        layer.load(**{
            f"{prefix}_weight_packed": pack(read_elements(case, prefix), bits),
            f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"],
        })
        if zero_point:
            along = read_points(case, prefix).transpose(1, 2)
            words = pack(along, bits).transpose(1, 2)
            layer.load(**{f"{prefix}_weight_zero_point": words})
    verify(case, method, layer)


@pytest.mark.parametrize("bits, group_size, bias", [(4, 32, False), (8, 32, False), (4, -1, False), (4, 32, True)])
def test_gptq(engine: Any, bits: int, group_size: int, bias: bool) -> None:
    case = make_integers(bits, "channel" if group_size == -1 else {"group": group_size}, False)
    if bias:
        case = Case(7, expert_bias=True, quantization={
            "weight": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "bf16"}})
    layer = Layer(case)
    method = take("gptq", layer, bits, group_size)
    for prefix in PREFIXES:
        elements = read_elements(case, prefix)
        layer.load(**{
            f"{prefix}_qweight": pack(elements, bits).transpose(1, 2),
            f"{prefix}_scales": case[f"experts.{prefix}_scale"].transpose(1, 2),
        })
        # What the loader leaves where a symmetric checkpoint has some.
        getattr(layer, f"{prefix}_qzeros").data.fill_(0x77777777)
        # Memory that was never loaded into counts for nothing.
        getattr(layer, f"{prefix}_bias").data.fill_(torch.nan)
        if bias:
            layer.load(**{f"{prefix}_bias": case[f"experts.{prefix}_bias"]})
            layer._loaded_expert_biases.add(f"{prefix}_bias")
    verify(case, method, layer)


@pytest.mark.parametrize("zero_point", [True, False])
@pytest.mark.parametrize("name", ["awq", "auto_awq"])
def test_awq(engine: Any, name: str, zero_point: bool) -> None:
    case = make_integers(4, {"group": 32}, zero_point)
    layer = Layer(case)
    method = take(name, layer, 4, 32, zero_point)
    for prefix in PREFIXES:
        layer.load(**{
            f"{prefix}_qweight": pack(read_elements(case, prefix).transpose(1, 2), 4, AWQ),
            f"{prefix}_scales": case[f"experts.{prefix}_scale"].transpose(1, 2),
        })
        if zero_point:
            along = read_points(case, prefix).transpose(1, 2)
            layer.load(**{f"{prefix}_qzeros": pack(along, 4, AWQ)})
    verify(case, method, layer)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_point", [False, True])
def test_moe_wna16(engine: Any, bits: int, zero_point: bool) -> None:
    case = make_integers(bits, {"group": 32}, zero_point)
    layer = Layer(case)
    method = take("moe_wna16", layer, bits, 32, zero_point)
    for prefix in PREFIXES:
        elements = read_elements(case, prefix)
        layer.load(**{
            f"{prefix}_qweight": packing.join_pairs(elements) if bits == 4 else elements,
            f"{prefix}_scales": case[f"experts.{prefix}_scale"],
        })
        if zero_point:
            points = read_points(case, prefix).transpose(1, 2)
            points = packing.join_pairs(points) if bits == 4 else points
            layer.load(**{f"{prefix}_qzeros": points.transpose(1, 2)})
    verify(case, method, layer)


@pytest.mark.parametrize("name", ["mxfp4", "gpt_oss_mxfp4"])
def test_mxfp4(engine: Any, name: str) -> None:
    is_gpt_oss = name == "gpt_oss_mxfp4"
    changes = {"activation": {"kind": "swigluoai"}, "gate_up_order": "interleaved", "expert_bias": True}
    case = Case(7, quantization={"weight": "mxfp4"}, **changes if is_gpt_oss else {})
    kind = fake.MoEActivation.SWIGLUOAI if is_gpt_oss else fake.MoEActivation.SILU
    layer = Layer(case, kind, has_bias=is_gpt_oss)
    method = take(name, layer)
    assert method.mxfp4_backend is quantized.Mxfp4MoeBackend.TRITON
    for prefix in PREFIXES:
        layer.load(**{
            f"{prefix}_weight": case[f"experts.{prefix}"].view(torch.uint8),
            f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"].view(torch.uint8),
        })
        if is_gpt_oss:
            layer.load(**{f"{prefix}_bias": case[f"experts.{prefix}_bias"]})
    verify(case, method, layer)


def test_compressed_tensors_mxfp4(engine: Any) -> None:
    case = Case(7, quantization={"weight": "mxfp4"})
    layer = Layer(case)
    method = take("compressed-tensors", layer, quantized.CompressedTensorsW4A4Mxfp4MoEMethod)
    for prefix in PREFIXES:
        layer.load(**{
            f"{prefix}_weight_packed": case[f"experts.{prefix}"].view(torch.uint8),
            f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"].view(torch.uint8),
        })
    verify(case, method, layer)


@pytest.mark.parametrize("name", ["modelopt_fp4", "modelopt_mixed", "compressed-tensors"])
def test_nvfp4(engine: Any, name: str) -> None:
    case = Case(7, quantization={"weight": "nvfp4"})
    layer = Layer(case)
    is_modelopt = name != "compressed-tensors"
    options = () if is_modelopt else (quantized.CompressedTensorsW4A4Nvfp4MoEMethod,)
    method = take(name, layer, *options)
    weight, scale = ("weight", "weight_scale_2") if is_modelopt else ("weight_packed", "weight_global_scale")
    for prefix in PREFIXES:
        largest = case[f"experts.{prefix}_global_scale"]
        # compressed-tensors has its reciprocal, of which vLLM takes the reciprocal.
        stored = largest if is_modelopt else 1 / largest
        layer.load(**{
            f"{prefix}_{weight}": case[f"experts.{prefix}"].view(torch.uint8),
            f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"].view(torch.float8_e4m3fn),
            f"{prefix}_{scale}": stored.view(getattr(layer, f"{prefix}_{scale}").shape),
        })
    verify(case, method, layer)


def test_compressed_tensors_int8(engine: Any) -> None:
    case = Case(7, quantization={"weight": {"dtype": "int8", "scale": "channel"},
                                 "activation": {"dtype": "int8", "scale": "token"}})
    layer = Layer(case)
    method = take("compressed-tensors", layer,
                  lambda moe: quantized.CompressedTensorsW8A8Int8MoEMethod(None, None, moe))
    for prefix in PREFIXES:
        layer.load(**{f"{prefix}_weight": case[f"experts.{prefix}"].view(torch.int8),
                      f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"]})
    verify(case, method, layer)


FP8 = {"hidden_size": 256, "intermediate_size": 128}


@pytest.mark.parametrize("name, strategy, scale, activation", [
    ("compressed-tensors", "channel", "channel", {"scale": "token"}),
    ("compressed-tensors", "tensor", "tensor", {"scale": "tensor"}),
    ("compressed-tensors", "tensor", "tensor", {"scale": "tensor", "static": True}),
    ("compressed-tensors", "block", {"block": [128, 128]}, {"scale": {"group": 128}}),
    ("modelopt", "tensor", "tensor", {"scale": "tensor", "static": True}),
])
def test_fp8(engine: Any, name: str, strategy: str, scale: Any, activation: dict) -> None:
    is_static = "static" in activation
    case = Case(7, **FP8, quantization={"weight": {"dtype": "fp8_e4m3", "scale": scale},
                                        "activation": {"dtype": "fp8_e4m3", **activation}})
    if strategy == "tensor":
        # vLLM has one scale for gate and up.
        case.tensors["experts.w13_scale"][:, 1] = case.tensors["experts.w13_scale"][:, 0]
        case.made["experts.w13_scale"][:, 1] = case.made["experts.w13_scale"][:, 0]
    layer = Layer(case)
    weights = types.SimpleNamespace(strategy=strategy, block_structure=[128, 128])
    inputs = types.SimpleNamespace(strategy="token" if strategy == "channel" else "tensor", dynamic=not is_static)
    options = () if name == "modelopt" else (
        lambda moe: quantized.CompressedTensorsW8A8Fp8MoEMethod(weights, inputs, moe),)
    method = take(name, layer, *options)
    assert method.fp8_backend is fake.Fp8MoeBackend.TRITON
    for prefix in PREFIXES:
        parameter = getattr(layer, f"{prefix}_weight_scale")
        layer.load(**{f"{prefix}_weight": case[f"experts.{prefix}"],
                      f"{prefix}_weight_scale": case[f"experts.{prefix}_scale"].view(parameter.shape)})
        if is_static:
            getattr(layer, f"{prefix}_input_scale").data.fill_(float(case[f"experts.{prefix}_input_scale"]))
    verify(case, method, layer)


def test_int8_from_16_bits(engine: Any) -> None:
    case = Case(7)
    layer = Layer(case)
    method = take("experts_int8", layer)
    layer.load(w13_weight=case["experts.w13"], w2_weight=case["experts.w2"])
    method.process_weights_after_loading(layer)
    call = case["hidden_states"], case["topk_weights"], case["topk_ids"]
    output = method.apply(layer, *call, None, None)
    assert layer.w13_weight.dtype == torch.int8
    exact = Case(7)
    exact.made |= {f"experts.{prefix}": (
        getattr(layer, f"{prefix}_weight").float() * getattr(layer, f"{prefix}_scale")[..., None]
    ).to(torch.bfloat16) for prefix in PREFIXES}
    torch.testing.assert_close(output, exact.run(), rtol=3e-2, atol=3e-2)
    wanted = fused_experts(call[0], layer.w13_weight, layer.w2_weight, *call[1:], quant_config=QuantConfig(
        w1_scale=layer.w13_scale, w2_scale=layer.w2_scale))
    assert torch.equal(output, wanted)


def refuse(name: str, layer: Layer, *options: Any) -> Any:
    method = fake.QUANTIZATIONS[name](*options).get_quant_method(layer, "experts")
    assert not type(method).__name__.startswith("Moec") and method.experts_cls is fake.OwnExperts
    return method


def make_scheme(**changes: Any) -> Choice:
    scheme = types.SimpleNamespace(**{
        "symmetric": True, "num_bits": 4, "strategy": "group", "actorder": None, "group_size": 32, **changes})
    return lambda moe: quantized.CompressedTensorsWNA16MoEMethod(scheme, None, moe)


def make_fp8(block: list[int]) -> Choice:
    scheme = types.SimpleNamespace(strategy="block", block_structure=block, dynamic=True)
    return lambda moe: quantized.CompressedTensorsW8A8Fp8MoEMethod(scheme, scheme, moe)


@pytest.mark.parametrize("make, reason", [
    (make_scheme(actorder="group"), "groups in the order of activations"),
    (make_scheme(num_bits=3), "weights of 3 bits"),
    (make_fp8([64, 64]), r"weights in blocks of [64, 64]"),
    (lambda moe: quantized.Mxfp4MoEMethod(moe, "fp8"), "activations of fp8"),
    (quantized.CompressedTensorsW4A8Fp8MoEMethod, "CompressedTensorsW4A8Fp8MoEMethod experts keep vLLM's kernel"),
])
def test_formats_that_are_refused(
    engine: Any, caplog: pytest.LogCaptureFixture, make: Choice, reason: str
) -> None:
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        refuse("compressed-tensors", Layer(Case(1)), make)
    assert reason in caplog.text


def test_orders_of_columns_are_refused(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    """vLLM loads no g_idx, whatever the checkpoint says; read as groups of neighbours, weights would be others."""
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        for kind, name, options in (("GPTQ", "gptq", (4, 32)), ("moe_wna16", "moe_wna16", (4, 32, False))):
            config = fake.QUANTIZATIONS[name](*options, desc_act=True)
            method = config.get_quant_method(Layer(Case(1)), "experts")
            assert not type(method).__name__.startswith("Moec")
            assert f"{kind} experts keep vLLM's kernel: groups in the order of activations" in caplog.text
    # One group has one order.
    config = fake.QUANTIZATIONS["gptq"](4, -1, desc_act=True)
    assert type(config.get_quant_method(Layer(Case(1)), "experts")).__name__.startswith("Moec")


def test_activations_of_4_bits_are_refused(
    engine: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a GPU multiplies them; on others vLLM, too, takes activations as they are.
    assert take("modelopt_fp4", Layer(Case(1)), "NVFP4").nvfp4_backend is quantized.NvFp4MoeBackend.MARLIN
    monkeypatch.setattr(quantized.ModelOptNvFp4FusedMoE, "chosen", quantized.NvFp4MoeBackend.VLLM_CUTLASS)
    monkeypatch.setattr(quantized.CompressedTensorsW4A4Mxfp4MoEMethod, "has_cutlass", True)
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        refuse("modelopt_fp4", Layer(Case(1)), "NVFP4")
        refuse("compressed-tensors", Layer(Case(1)), quantized.CompressedTensorsW4A4Mxfp4MoEMethod)
    assert caplog.text.count("activations of 4 bits") == 2
    take("modelopt_fp4", Layer(Case(1)), "W4A16_NVFP4")


@pytest.mark.parametrize("change, reason", [
    ({"moe_parallel_config": fake.FusedMoEParallelConfig(2, True, all2all_backend="deepep_low_latency")},
     "quantization scheme"),
    ({"moe_parallel_config": fake.FusedMoEParallelConfig(enable_eplb=True)}, "parallel config"),
    ({"moe_backend": "marlin"}, "--moe-backend asks for marlin"),
    ({"activation": fake.MoEActivation.OTHER}, "MoEActivation.OTHER activation"),
])
def test_layers_that_are_refused(
    engine: Any, caplog: pytest.LogCaptureFixture, change: dict, reason: str
) -> None:
    layer = Layer(Case(1), **change)
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        method = refuse("gptq", layer, 4, 32)
    assert "GPTQ experts keep vLLM's kernel: " in caplog.text and reason in caplog.text
    # The method is vLLM's still.
    method.create_weights(layer, *layer.sizes, torch.bfloat16)
    method.process_weights_after_loading(layer)
    assert method.moe_kernel is None


def test_nvfp4_with_interleaved_rows_is_refused(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        refuse("modelopt_fp4", Layer(Case(1), fake.MoEActivation.SWIGLUOAI))
    assert "a global scale each" in caplog.text


def test_other_layers_are_the_engine_s(engine: Any) -> None:
    config = fake.QUANTIZATIONS["compressed-tensors"](None)
    assert config.get_quant_method(torch.nn.Linear(2, 2), "dense") is None
    dense = fake.QUANTIZATIONS["awq"](4, 32, True).get_quant_method(Layer(Case(1)), "dense")
    assert isinstance(dense, fake.UnquantizedFusedMoEMethod)


def test_names_of_the_engine_stay_in_those_of_methods(engine: Any) -> None:
    """vLLM's loader of weights asks for "ModelOpt" and "compressed" in them, and sends configs to processes."""
    methods = sys.modules["moec.vllm.quantized"]._METHODS
    assert len(methods) == 14
    for own, ours in methods.items():
        assert ours.__name__ == f"Moec{own.__name__}" and issubclass(ours, own)
    for config in fake.QUANTIZATIONS.values():
        assert pickle.loads(pickle.dumps(config)) is config
    assert {"fp8", "gptq", "awq", "compressed-tensors", "modelopt_fp4", "gpt_oss_mxfp4"} <= set(fake.QUANTIZATIONS)
