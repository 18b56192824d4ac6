# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every format of the plugin's table through the real vLLM: its configuration, its construction of the layer, its
loader with tensors under published names, its processing of weights, and one forward of the experts on the CPU,
compared with float32."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pickle
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from checkpoints import Format, list_formats
from vllm.config import ModelConfig, VllmConfig
from vllm.model_executor.layers.fused_moe import FusedMoEFactory
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.quantization import get_quantization_config, modelopt, mxfp4
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w8a8_mxfp8,
)
from vllm.model_executor.models.gpt_oss import GptOssRoutedExperts
from vllm.platforms import current_platform
from vllm.platforms.interface import DeviceCapability

from moec.vllm import formats, quantized
from moec.vllm.experts import MoecExperts
from moec.vllm.monolithic import MoecMonolithicExperts

FORMATS = list_formats()
EXPERTS, HIDDEN, WIDTH, TOP_K, TOKENS = 8, 256, 256, 2, 5
_count = itertools.count()


def make_runner(format: Format, **options: Any) -> Any:
    """vLLM's MoERunner, whose experts have parameters that are not loaded."""
    quantization = None
    if format.quantization is not None:
        quantization = get_quantization_config(format.quantization).from_config(format.config)
    arguments = dict(
        num_experts=EXPERTS, top_k=TOP_K, hidden_size=HIDDEN, intermediate_size=WIDTH,
        params_dtype=torch.bfloat16, router_logits_dtype=torch.float32, quant_config=quantization,
        prefix=f"model.layers.{next(_count)}.mlp.experts",
    )
    return FusedMoEFactory(**arguments | options)


def make_layer(config: VllmConfig, format: Format, **options: Any) -> Any:
    """vLLM's RoutedExperts."""
    return make_runner(format, **options).routed_experts


def make_weights(seed: int = 0) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    sizes = {"gate_proj": (WIDTH, HIDDEN), "up_proj": (WIDTH, HIDDEN), "down_proj": (HIDDEN, WIDTH)}
    return {
        f"{expert}.{name}": (torch.rand(size, dtype=torch.float32) - 0.5) / 2
        for expert in range(EXPERTS) for name, size in sizes.items()
    }


def load(layer: Any, format: Format, seed: int = 0) -> dict[str, torch.Tensor]:
    """Values of the layer's projections in f32."""
    numbers, tensors = {}, []
    for name, weight in make_weights(seed).items():
        stored, numbers[name] = format.store(weight)
        tensors += [(f"{name}.{end}", tensor) for end, tensor in stored.items()]
    assert list(layer.load_weights(tensors))
    return numbers


def make_call() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(TOKENS)]).to(torch.int32)
    hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.float32).to(torch.bfloat16)
    weights = torch.rand(TOKENS, TOP_K, dtype=torch.float32) + 0.1
    return hidden, weights / weights.sum(1, keepdim=True), ids


def make_logits(call: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Logits whose softmax chooses these ids, with these weights."""
    _, weights, ids = call
    return torch.full((TOKENS, EXPERTS), -50.0, dtype=torch.float32).scatter(1, ids.long(), weights.log())


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def compute(
    numbers: dict[str, torch.Tensor], call: tuple[torch.Tensor, ...], act: Callable[..., torch.Tensor] = swiglu
) -> torch.Tensor:
    hidden, weights, ids = call
    output = torch.zeros(TOKENS, HIDDEN, dtype=torch.float32)
    for token, choice in itertools.product(range(TOKENS), range(ids.shape[1])):
        expert, row = int(ids[token, choice]), hidden[token].float()
        gate, up = (numbers[f"{expert}.{name}"] @ row for name in ("gate_proj", "up_proj"))
        output[token] += weights[token, choice] * (numbers[f"{expert}.down_proj"] @ act(gate, up))
    return output


def verify(output: torch.Tensor, wanted: torch.Tensor, bound: float) -> None:
    error = float((output.float() - wanted).norm() / wanted.norm())
    assert error < bound, error


def run(layer: Any, call: tuple[torch.Tensor, ...]) -> torch.Tensor:
    method = layer.quant_method
    if method.is_monolithic:
        return method.apply_monolithic(layer, call[0], make_logits(call))
    return method.apply(layer, *call, None, None)


#: A format whose parameters vLLM processes, and one whose words moec reads.
WITHOUT_SELECTION = ("fp8 blocks", "GPTQ int4 g128")


@pytest.mark.parametrize(
    "name, selects",
    [(name, True) for name in FORMATS if name != "gpt-oss mxfp4"] + [(name, False) for name in WITHOUT_SELECTION],
)
def test_format(engine: VllmConfig, name: str, selects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    format = FORMATS[name]
    if not selects:
        monkeypatch.setenv("MOEC_VLLM_ROUTER", "0")
    monkeypatch.setattr(type(current_platform), "capability", DeviceCapability(*format.capability))
    layer = make_layer(engine, format)
    assert type(layer.quant_method).__module__.startswith("moec.vllm")
    numbers = load(layer, format)
    layer.quant_method.process_weights_after_loading(layer)
    experts = layer.quant_method.moe_kernel.fused_experts
    assert isinstance(experts, MoecMonolithicExperts if selects else MoecExperts)
    call = make_call()
    verify(run(layer, call), compute(numbers, call), format.bound)


@pytest.mark.parametrize("name, module, backend", [
    ("compressed-tensors mxfp8", compressed_tensors_moe_w8a8_mxfp8, Fp8MoeBackend.TRITON_MXFP8),
    ("ModelOpt mxfp8", modelopt, Fp8MoeBackend.TRITON_MXFP8),
    ("mxfp4", mxfp4, Mxfp4MoeBackend.FLASHINFER_TRTLLM_MXFP4_MXFP8),
    ("mxfp4", mxfp4, Mxfp4MoeBackend.DEEPGEMM_MXFP4),
])
def test_activations_of_the_backend(
    engine: VllmConfig, name: str, module: Any, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM chooses such a backend for other GPUs, or if its package is installed."""
    for function in ("select_mxfp8_moe_backend", "select_deepseek_v4_mxfp4_moe_backend"):
        monkeypatch.setattr(module, function, lambda *moe, **config: (backend, None), raising=False)
    layer = make_layer(engine, FORMATS[name])
    numbers = load(layer, FORMATS[name])
    layer.quant_method.process_weights_after_loading(layer)
    config = layer.quant_method.moe_kernel.fused_experts.quant_config
    group = [1, 128] if backend is Mxfp4MoeBackend.DEEPGEMM_MXFP4 else None
    assert config.quant_dtype == (torch.float8_e4m3fn if group else "mxfp8")
    call = make_call()
    wanted = compute(numbers, call)
    output = run(layer, call).float()
    # Rounded to 8 bits, so neither exact nor wrong.
    assert 1e-2 < (output - wanted).norm() / wanted.norm() < 6e-2


def test_activations_of_4_bits_are_refused(
    engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    chosen = Mxfp4MoeBackend.CUTLASS_MXFP4_MXFP4, None
    monkeypatch.setattr(mxfp4, "select_deepseek_v4_mxfp4_moe_backend", lambda moe: chosen)
    assert not type(make_layer(engine, FORMATS["mxfp4"]).quant_method).__module__.startswith("moec")
    assert "moec: mxfp4 experts keep vLLM's kernel: activations of 4 bits" in log.text


# field-bug: flashinfer#3334
def test_gpt_oss(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its model's configuration and its own loader, interleaved rows of gate and up, biases."""
    format = FORMATS["gpt-oss mxfp4"]
    (tmp_path / "config.json").write_text(json.dumps({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": HIDDEN,
        "intermediate_size": WIDTH, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 64, "swiglu_limit": 7.0,
        "layer_types": ["full_attention"], "quantization_config": format.config,
    }))
    model = ModelConfig(model=str(tmp_path), skip_tokenizer_init=True, dtype="bfloat16")
    assert model.quantization == format.quantization
    monkeypatch.setattr(engine, "model_config", model)
    layer = make_layer(engine, format, activation="swigluoai", has_bias=True, routed_experts_cls=GptOssRoutedExperts)
    method = layer.quant_method
    assert type(method).__module__.startswith("moec.vllm") and method.weight_dtype == "gpt_oss_mxfp4"
    torch.manual_seed(0)
    numbers = {}
    for expert, (prefix, rows, columns) in itertools.product(
        range(EXPERTS), (("w13", 2 * WIDTH, HIDDEN), ("w2", HIDDEN, WIDTH))
    ):
        tensors, weight = format.store((torch.rand(rows, columns, dtype=torch.float32) - 0.5) / 2)
        bias = torch.randn(rows)
        numbers[expert, prefix] = weight, bias.float()
        # Blocks of 32 elements, as published.
        tensors["weight"] = tensors["weight"].view(rows, -1, 16)
        for name, tensor in {**tensors, "bias": bias}.items():
            parameter = getattr(layer, f"{prefix}_{name}")
            parameter.weight_loader(parameter, tensor, f"{prefix}_{name}", f"gpt_oss_{prefix}", expert)
    method.process_weights_after_loading(layer)
    hidden, weights, ids = call = make_call()
    wanted = torch.zeros(TOKENS, HIDDEN, dtype=torch.float32)
    for token, choice in itertools.product(range(TOKENS), range(TOP_K)):
        expert = int(ids[token, choice])
        (w13, b13), (w2, b2) = numbers[expert, "w13"], numbers[expert, "w2"]
        both = w13 @ hidden[token].float() + b13
        gate, up = both[0::2].clamp(max=7), both[1::2].clamp(-7, 7)
        wanted[token] += weights[token, choice] * (w2 @ ((up + 1) * gate * torch.sigmoid(1.702 * gate)) + b2)
    verify(run(layer, call), wanted, format.bound)


def test_configs_are_registered() -> None:
    """vLLM sends them to other processes."""
    for name in formats.NAMES:
        for quantization, config in importlib.import_module(f"moec.vllm.formats.{name}").CONFIGS.items():
            assert get_quantization_config(quantization) is config and pickle.loads(pickle.dumps(config)) is config


#: Attributes of vLLM's methods that are replaced.
OVERRIDDEN = {
    "apply_monolithic", "create_weights", "process_weights_after_loading", "get_fused_moe_quant_config", "supports_pre_processed_weights",
}


def test_fields_of_the_engine_hide_nothing() -> None:
    for own, ours in quantized._METHODS.items():
        # The loader asks for names of classes.
        assert ours.__name__ == own.__name__ and issubclass(ours, own) and not inspect.isabstract(ours)
        for cls in ours.__mro__[: ours.__mro__.index(own)]:
            names = {name for name in vars(cls) if not name.startswith(("__", "_abc"))}
            assert all(name.startswith(("moec_", "_moec_")) for name in names - OVERRIDDEN), (cls, names)
