# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.vllm, with stand-ins for vLLM."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from typing import Any

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

import fake_modules  # noqa: E402
import fake_vllm as fake  # noqa: E402
import fake_vllm_quantized  # noqa: E402

from moec.functions import determine_expert_map, fused_experts  # noqa: E402
from moec.functions.quantization import QuantConfig  # noqa: E402


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """moec.vllm where vLLM is, registered."""
    monkeypatch.setattr(fake, "op_registry_oot", {})
    monkeypatch.setattr(fake, "QUANTIZATIONS", {"fp8": fake.Fp8Config})
    modules = fake.list_modules() | fake_vllm_quantized.list_modules()
    fake_modules.install(monkeypatch, "moec.vllm", modules)
    plugin = importlib.import_module("moec.vllm")
    plugin.register()
    plugin.register()
    return plugin


class Layer(torch.nn.Module):
    """A layer's parameters, as vLLM's loader leaves them."""

    def __init__(self, experts: int = 8, hidden: int = 64, width: int = 32, **config: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.moe_config = fake.FusedMoEConfig(hidden_dim=hidden, **config)
        for name, shape in (("w13_weight", (experts, 2 * width, hidden)),
                            ("w2_weight", (experts, hidden, width))):
            values = torch.randn(shape).to(torch.bfloat16) / 8
            setattr(self, name, torch.nn.Parameter(values, requires_grad=False))
        self.activation = self.moe_config.activation
        self.apply_router_weight_on_input = False
        self.global_num_experts, self.expert_map = experts, None
        self.a13_scale = self.a2_scale = None

    def make_call(self, tokens: int = 5, top_k: int = 2) -> tuple[torch.Tensor, ...]:
        ids = torch.stack([torch.randperm(8)[:top_k] for _ in range(tokens)]).to(torch.int32)
        hidden = torch.randn(tokens, self.w13_weight.shape[2]).to(torch.bfloat16)
        return hidden, torch.rand(tokens, top_k), ids


def run(method: Any, layer: Layer, call: tuple[torch.Tensor, ...]) -> torch.Tensor:
    method.process_weights_after_loading(layer)
    return method.apply(layer, *call, None, None)


def make(layer: Layer) -> Any:
    return fake.UnquantizedFusedMoEMethod(layer.moe_config)


def test_experts_of_16_bits(engine: Any) -> None:
    layer = Layer()
    method = make(layer)
    assert type(method).__name__ == "MoecUnquantizedFusedMoEMethod"
    assert method.unquantized_backend == fake.UnquantizedMoeBackend.TRITON
    hidden, weights, ids = call = layer.make_call()
    output = run(method, layer, call)
    wanted = fused_experts(hidden, layer.w13_weight, layer.w2_weight, weights, ids)
    assert torch.equal(output, wanted) and output.any()
    layer.w2_weight.data = layer.w2_weight.data * 2
    again = method.apply(layer, *call, None, None)
    torch.testing.assert_close(again, wanted * 2, rtol=0, atol=0)


def test_signatures_are_those_of_the_engine(engine: Any) -> None:
    experts = sys.modules["moec.vllm.experts"]
    for cls in (experts.MoecExperts, experts.MoecBatchedExperts):
        for name in ("apply", "workspace_shapes", "moe_problem_size",
                     "finalize_weight_and_reduce_impl"):
            wanted = inspect.signature(getattr(fake.FusedMoEExpertsModular, name)).parameters
            assert list(inspect.signature(getattr(cls, name)).parameters) == list(wanted), name


def test_experts_of_other_ranks(engine: Any) -> None:
    layer = Layer()
    call = layer.make_call(9)
    whole = run(make(layer), layer, call)
    total = torch.zeros(9, 64)
    for rank in range(2):
        part = Layer()
        count, part.expert_map, _ = determine_expert_map(2, rank, 8, "round_robin")
        held = part.expert_map >= 0
        for name in ("w13_weight", "w2_weight"):
            setattr(part, name, torch.nn.Parameter(getattr(layer, name)[held].clone(), False))
        total += run(make(part), part, call).float()
        assert part.w13_weight.shape[0] == count
    torch.testing.assert_close(total, whole.float(), rtol=2e-2, atol=2e-2)


def test_weights_on_the_input(engine: Any) -> None:
    layer = Layer()
    layer.apply_router_weight_on_input = True
    hidden, weights, ids = call = layer.make_call(9, top_k=1)
    output = run(make(layer), layer, call)
    wanted = fused_experts(hidden, layer.w13_weight, layer.w2_weight, weights, ids, "silu", True)
    torch.testing.assert_close(output, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("config, parameters", [
    ({"activation": fake.MoEActivation.SILU, "swiglu_limit": 0.5}, {"limit": 0.5}),
    ({"activation": fake.MoEActivation.SWIGLUOAI, "swiglu_limit": 7.0}, {}),
    ({"activation": fake.MoEActivation.SWIGLUOAI_UNINTERLEAVE, "swiglu_limit": 0.5,
      "swiglu_alpha": 1.5, "swiglu_beta": 1.0}, {"alpha": 1.5, "beta": 1.0, "limit": 0.5}),
    ({"activation": fake.MoEActivation.SITU, "activation_situ_beta": 3.0},
     {"beta": 3.0, "linear_beta": 0.0}),
])
def test_parameters_of_activations(engine: Any, config: dict, parameters: dict) -> None:
    layer = Layer(**config)
    hidden, weights, ids = call = layer.make_call()
    output = run(make(layer), layer, call)
    wanted = fused_experts(
        hidden, layer.w13_weight, layer.w2_weight, weights, ids, config["activation"].value,
        activation_parameters=parameters,
    )
    assert torch.equal(output, wanted)


def test_batches(engine: Any) -> None:
    parallel = fake.FusedMoEParallelConfig(2, True, all2all_backend="deepep_low_latency")
    layer = Layer(moe_parallel_config=parallel)
    method = make(layer)
    assert method.unquantized_backend == fake.UnquantizedMoeBackend.BATCHED_TRITON
    hidden, weights, ids = call = layer.make_call()
    output = run(method, layer, call)
    wanted = fused_experts(hidden, layer.w13_weight, layer.w2_weight, weights, ids)
    torch.testing.assert_close(output, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("change, reason", [
    ({"is_lora_enabled": True}, "LoRA"),
    ({"moe_backend": "triton"}, "--moe-backend asks for triton"),
    ({"activation": fake.MoEActivation.OTHER}, "MoEActivation.OTHER activation"),
    ({"in_dtype": torch.float64}, "torch.float64 hidden states"),
    ({"hidden": 60}, "a hidden dim of 60"),
    ({"moe_parallel_config": fake.FusedMoEParallelConfig(2, True, all2all_backend="deepep_high_throughput")},
     "parallel config"),
    ({"moe_parallel_config": fake.FusedMoEParallelConfig(all2all_backend="passthrough")},
     "parallel config"),
    ({"moe_parallel_config": fake.FusedMoEParallelConfig(enable_eplb=True)}, "parallel config"),
    ({"capability": (7, 5)}, "current device"),
    ({"capability": None}, "current device"),
    ({"activation": fake.MoEActivation.GELU, "swiglu_limit": 7.0}, "gelu with a limit of 7.0"),
    ({"activation": fake.MoEActivation.SWIGLUOAI, "swiglu_limit": 5.0}, "with a limit of 5.0"),
])
def test_the_engine_keeps_what_is_refused(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: dict,
    reason: str,
) -> None:
    if "capability" in change:
        monkeypatch.setattr(fake.current_platform, "capability", change.pop("capability"))
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        method = make(Layer(**change))
    assert method.experts_cls is fake.OwnExperts
    assert method.unquantized_backend == fake.UnquantizedMoeBackend.FLASHINFER_CUTLASS
    assert "16-bit experts keep vLLM's kernel" in caplog.text and reason in caplog.text


def quantize(layer: Layer, block: int | None) -> None:
    for name, short in (("w13_weight", "w13"), ("w2_weight", "w2")):
        weight = getattr(layer, name).data.float()
        experts, rows, columns = weight.shape
        if block:
            blocks = weight.view(experts, rows // block, block, columns // block, block)
            scale = blocks.abs().amax((2, 4)) / 448
            weight = (blocks / scale[:, :, None, :, None]).view(weight.shape)
        else:
            scale = weight.abs().amax((1, 2)) / 448
            weight = weight / scale[:, None, None]
        setattr(layer, name, torch.nn.Parameter(weight.to(torch.float8_e4m3fn), False))
        setattr(layer, f"{short}_scale", scale)


@pytest.mark.parametrize("block, scheme", [(128, "dynamic"), (None, "dynamic"), (None, "static")])
def test_experts_of_fp8(engine: Any, block: int | None, scheme: str) -> None:
    layer = Layer(hidden=256, width=128)
    quantize(layer, block)
    shape = [block, block] if block else None
    if scheme == "static":
        layer.a13_scale, layer.a2_scale = torch.tensor(0.01), torch.tensor(0.01)
    config = fake.QUANTIZATIONS["fp8"](True, scheme, ["dense"], shape)
    assert isinstance(config.get_quant_method(Layer(), "dense"), fake.UnquantizedFusedMoEMethod)
    method = config.get_quant_method(layer, "experts")
    assert method.fp8_backend == fake.Fp8MoeBackend.TRITON
    hidden, weights, ids = call = layer.make_call()
    output = run(method, layer, call)
    wanted = fused_experts(
        hidden, layer.w13_weight, layer.w2_weight, weights, ids,
        quant_config=QuantConfig(
            torch.float8_e4m3fn, block_shape=shape, w1_scale=layer.w13_scale,
            w2_scale=layer.w2_scale, a1_scale=layer.a13_scale, a2_scale=layer.a2_scale,
        ),
    )
    assert torch.equal(output, wanted) and output.any()


def test_fp8_that_is_refused(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    config = fake.QUANTIZATIONS["fp8"](weight_block_size=[64, 64])
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        method = config.get_quant_method(Layer(), "experts")
    assert method.experts_cls is fake.OwnExperts and "blocks of [64, 64]" in caplog.text
    batched = Layer(moe_parallel_config=fake.FusedMoEParallelConfig(2, True, all2all_backend="deepep_low_latency"))
    config = fake.QUANTIZATIONS["fp8"](weight_block_size=[128, 128])
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        assert config.get_quant_method(batched, "experts").experts_cls is fake.OwnExperts
    assert "quantization scheme" in caplog.text


def test_wrong_calls_are_refused(engine: Any) -> None:
    layer = Layer()
    method = make(layer)
    hidden, weights, ids = layer.make_call()
    method.process_weights_after_loading(layer)
    experts = method.moe_kernel.fused_experts
    call = dict(
        output=torch.empty_like(hidden), hidden_states=hidden, w1=layer.w13_weight,
        w2=layer.w2_weight, topk_weights=weights, topk_ids=ids, activation=layer.activation,
        global_num_experts=8, expert_map=None, a1q_scale=None, a2_scale=None,
        workspace13=torch.empty(0), workspace2=torch.empty(0), expert_tokens_meta=None,
        apply_router_weight_on_input=False,
    )
    with pytest.raises(moec.InvalidArgument, match="a1q_scale: inputs that are not quantized"):
        experts.apply(**call | {"a1q_scale": torch.ones(1)})
    with pytest.raises(moec.InvalidArgument, match="activation: MoEActivation.SILU expected"):
        experts.apply(**call | {"activation": fake.MoEActivation.GELU})
    experts.post_gemm2_hook = print
    with pytest.raises(moec.InvalidArgument, match="post_gemm2_hook"):
        experts.apply(**call)


def test_the_plugin_is_switched_on_by_name(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    called = []
    monkeypatch.setattr(engine, "register", lambda: called.append(1))
    for value, times in ((None, 0), ("", 0), ("other", 0), ("other, moec", 1)):
        called.clear()
        if value is None:
            monkeypatch.delenv("VLLM_PLUGINS", raising=False)
        else:
            monkeypatch.setenv("VLLM_PLUGINS", value)
        engine.plugin()
        assert len(called) == times


def test_imports_where_vllm_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_modules.install(monkeypatch, "moec.vllm", {})
    monkeypatch.setitem(sys.modules, "vllm", None)
    plugin = importlib.import_module("moec.vllm")
    with pytest.raises(ImportError, match="moec.vllm needs vLLM 0.33"):
        plugin.register()
    monkeypatch.setenv("VLLM_PLUGINS", "moec")
    with caplog.at_level(logging.WARNING, "moec.vllm"):
        plugin.plugin()
    assert "vLLM keeps its own experts" in caplog.text
