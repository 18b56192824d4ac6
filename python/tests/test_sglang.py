# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.sglang, with stand-ins for SGLang."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

import experts_case  # noqa: E402
import fake_modules  # noqa: E402
import fake_sglang as fake  # noqa: E402

from moec.functions import QuantConfig, fused_experts, packing  # noqa: E402


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The SGLang runner with moec registered."""
    monkeypatch.setattr(fake, "FACTORIES", {})
    monkeypatch.setattr(fake, "OWN_CALLS", [])
    monkeypatch.setattr(fake.HookRegistry, "hooks", [])
    fake_modules.install(monkeypatch, "moec.sglang", fake.list_modules())
    plugin = importlib.import_module("moec.sglang")
    plugin.register()
    plugin.register()
    return fake.HookRegistry.apply_hooks()


class Case:
    def __init__(self, tokens: int = 5, top_k: int = 2, hidden: int = 64, width: int = 32) -> None:
        torch.manual_seed(0)
        self.w13 = torch.randn(8, 2 * width, hidden).to(torch.bfloat16) / 8
        self.w2 = torch.randn(8, hidden, width).to(torch.bfloat16) / 8
        self.hidden = torch.randn(tokens, hidden).to(torch.bfloat16)
        ids = torch.stack([torch.randperm(8)[:top_k] for _ in range(tokens)]).to(torch.int32)
        ids[0, 0] = -1
        self.topk = fake.StandardTopKOutput(torch.rand(tokens, top_k), ids, torch.empty(0))

    @property
    def dispatched(self) -> fake.StandardDispatchOutput:
        return fake.StandardDispatchOutput(self.hidden, None, self.topk)

    def run(self, runner: Any, **info: Any) -> torch.Tensor:
        quant_info = fake.TritonMoeQuantInfo(self.w13, self.w2, **info)
        return runner.run(self.dispatched, quant_info).hidden_states

    def expect(self, *options: Any, **named: Any) -> torch.Tensor:
        return fused_experts(
            self.hidden, self.w13, self.w2, self.topk.topk_weights, self.topk.topk_ids, *options,
            **named,
        )


def make(engine: Any, lora: bool = False, **config: Any) -> Any:
    return engine(fake.MoeRunnerBackend.TRITON, fake.MoeRunnerConfig(**config), lora)


def test_experts_of_16_bits(engine: Any) -> None:
    case, runner = Case(), make(engine)
    before = case.hidden.clone()
    output = case.run(runner)
    assert torch.equal(output, case.expect()) and output.any()
    assert torch.equal(case.hidden, before) and not fake.OWN_CALLS
    first = runner.runner_core._experts
    case.run(runner)
    assert runner.runner_core._experts is first


def test_signatures_are_those_of_the_engine(engine: Any) -> None:
    core = make(engine).runner_core
    wanted = inspect.signature(fake.DispatchMoeRunnerCore.run_from_dispatch).parameters
    assert list(inspect.signature(type(core).run_from_dispatch).parameters) == list(wanted)
    assert core.runner_backend is fake.MoeRunnerBackend.TRITON


@pytest.mark.parametrize("config, kind, parameters", [
    ({}, "silu", {}),
    ({"swiglu_limit": 0.5}, "silu", {"limit": 0.5}),
    ({"gemm1_clamp_limit": 0.25}, "silu", {"limit": 0.25}),
    ({"gemm1_alpha": 1.5, "gemm1_clamp_limit": 2.0}, "swigluoai", {"alpha": 1.5, "limit": 2.0}),
    ({"gemm1_alpha": 1.5, "gemm1_clamp_limit": 2.0, "gate_up_interleaved": False},
     "swigluoai_uninterleave", {"alpha": 1.5, "beta": 1.0, "limit": 2.0}),
    ({"activation": "gelu"}, "gelu", {}),
    ({"activation": "situ", "gemm1_alpha": 3.0, "gemm1_clamp_limit": 20.0}, "situ",
     {"beta": 3.0, "linear_beta": 20.0}),
])
def test_activations(engine: Any, config: dict, kind: str, parameters: dict) -> None:
    case = Case()
    output = case.run(make(engine, **config))
    assert torch.equal(output, case.expect(kind, activation_parameters=parameters))
    assert not fake.OWN_CALLS


def test_experts_without_a_gate(engine: Any) -> None:
    case = Case()
    case.w13 = case.w13[:, :32].contiguous()
    output = case.run(make(engine, activation="relu2", is_gated=False))
    assert torch.equal(output, case.expect("relu2_no_mul"))


def test_the_log_says_what_runs(engine: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from moec.sglang import runner

    monkeypatch.setattr(runner, "_told", set())
    with caplog.at_level(logging.INFO, "moec.sglang"):
        for _ in range(2):
            Case().run(make(engine))
    assert caplog.text.count("moec runs the experts of this model's layers (16-bit)") == 1


def test_scale_of_the_sum(engine: Any) -> None:
    case = Case()
    output = case.run(make(engine, routed_scaling_factor=2.5))
    torch.testing.assert_close(output, case.expect() * 2.5, rtol=2e-2, atol=2e-2)


def test_weights_on_the_input(engine: Any) -> None:
    case = Case(top_k=1)
    output = case.run(make(engine, apply_router_weight_on_input=True))
    assert torch.equal(output, case.expect("silu", True))


def test_biases(engine: Any) -> None:
    case = Case()
    biases = {"b13": torch.randn(8, 64).to(torch.bfloat16), "b2": torch.randn(8, 64).to(torch.bfloat16)}
    output = case.run(make(engine), **biases)
    config = QuantConfig(w1_bias=biases["b13"], w2_bias=biases["b2"])
    assert torch.equal(output, case.expect(quant_config=config))


@pytest.mark.parametrize("block", [True, False])
def test_experts_of_fp8(engine: Any, block: bool) -> None:
    case = Case(hidden=256, width=128)
    case.w13, case.w2 = case.w13.to(torch.float8_e4m3fn), case.w2.to(torch.float8_e4m3fn)
    shapes = ((8, 2, 2), (8, 2, 1)) if block else ((8,), (8,))
    scales = [torch.rand(shape) + 0.5 for shape in shapes]
    info = {"use_fp8_w8a8": True, "w13_scale": scales[0], "w2_scale": scales[1],
            "block_shape": [128, 128] if block else None}
    runner = make(engine)
    output = case.run(runner, **info)
    config = QuantConfig(
        torch.float8_e4m3fn, block_shape=info["block_shape"], w1_scale=scales[0], w2_scale=scales[1]
    )
    assert torch.equal(output, case.expect(quant_config=config)) and not fake.OWN_CALLS
    first = runner.runner_core._experts
    case.run(runner, **info)
    assert runner.runner_core._experts is first
    case.run(runner, **info | {"w2_scale": scales[1] * 2})
    assert runner.runner_core._experts is not first


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_point", [False, True])
def test_weights_alone(engine: Any, bits: int, zero_point: bool) -> None:
    """GPTQ and AWQ in SGLang's layout for Triton, compared with the float64 reference."""
    weight = {"dtype": f"int{bits}", "scale": {"group": 32}, "scale_dtype": "bf16", "zero_point": zero_point}
    known = experts_case.Case(7, quantization={"weight": weight})
    case, runner = Case(), make(engine)
    case.hidden = known["hidden_states"]
    case.topk = fake.StandardTopKOutput(known["topk_weights"], known["topk_ids"], torch.empty(0))
    info: dict[str, Any] = {f"use_int{bits}_w{bits}a16": True, "block_shape": [0, 32]}
    for prefix in ("w13", "w2"):
        stored = known[f"experts.{prefix}"].view(torch.uint8)
        setattr(case, prefix, stored if bits == 4 or zero_point else stored ^ 0x80)
        info[f"{prefix}_scale"] = known[f"experts.{prefix}_scale"]
        if zero_point:
            points = known[f"experts.{prefix}_zero_point"].view(torch.uint8).transpose(1, 2)
            points = packing.join_pairs(points) if bits == 4 else points
            info[f"{prefix}_zp"] = points.transpose(1, 2).contiguous()
    output = case.run(runner, **info)
    known.verify(output)
    assert not fake.OWN_CALLS
    first = runner.runner_core._experts
    assert torch.equal(case.run(runner, **info), output) and runner.runner_core._experts is first


@pytest.mark.parametrize("config, reason", [
    ({"no_combine": True}, "no_combine"),
    ({"activation": "silu_rounded"}, "'silu_rounded' is not supported"),
    ({"activation": "tanh", "is_gated": False}, "'tanh' without a gate"),
    ({"gemm1_beta": 2.0}, "gemm1_beta: 2.0 found"),
    ({"apply_router_weight_on_input": True, "routed_scaling_factor": 2.0}, "routed_scaling_factor"),
])
def test_layers_that_are_refused(
    engine: Any, caplog: pytest.LogCaptureFixture, config: dict, reason: str
) -> None:
    with caplog.at_level(logging.WARNING, "moec.sglang"):
        runner = make(engine, **config)
    assert type(runner.runner_core) is fake.TritonRunnerCore and reason in caplog.text
    Case().run(runner)
    assert len(fake.OWN_CALLS) == 1


def test_lora_is_refused(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "moec.sglang"):
        runner = make(engine, lora=True)
    assert type(runner.runner_core) is fake.TritonRunnerCore and "LoRA" in caplog.text


@pytest.mark.parametrize("info, reason", [
    ({"use_mxfp8": True}, "use_mxfp8 is not supported"),
    ({"fuse_swiglu_interleaved": True}, "fuse_swiglu_interleaved is not supported"),
    ({"use_fp8_w8a8": True, "w13_scale": torch.ones(8)}, "weights of torch.bfloat16"),
])
def test_calls_that_are_refused(
    engine: Any, caplog: pytest.LogCaptureFixture, info: dict, reason: str
) -> None:
    runner = make(engine)
    with caplog.at_level(logging.WARNING, "moec.sglang"):
        for _ in range(3):
            Case().run(runner, **info)
    assert len(fake.OWN_CALLS) == 3 and caplog.text.count(reason) == 1
    assert fake.OWN_CALLS[0][2] is runner.config
    assert Case().run(runner).any()


def test_dispatch_that_is_refused(engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    case, runner = Case(), make(engine)
    info = fake.TritonMoeQuantInfo(case.w13, case.w2)
    for changed in (case.dispatched._replace(topk_output=fake.BypassedTopKOutput(case.hidden)),
                    case.dispatched._replace(hidden_states_scale=torch.ones(5, 1))):
        with caplog.at_level(logging.WARNING, "moec.sglang"):
            runner.run(changed, info)
    runner.run(case.dispatched, object())
    assert len(fake.OWN_CALLS) == 3
    assert "BypassedTopKOutput" in caplog.text and "hidden_states_scale" in caplog.text


def test_the_plugin_is_switched_on_by_name(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, called = sys.modules["moec.sglang"], []
    monkeypatch.setattr(plugin, "register", lambda: called.append(1))
    for value, times in (("", 0), ("other", 0), ("moec,other", 1)):
        called.clear()
        monkeypatch.setenv("SGLANG_PLUGINS", value)
        plugin.plugin()
        assert len(called) == times


def test_imports_where_sglang_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_modules.install(monkeypatch, "moec.sglang", {})
    monkeypatch.setitem(sys.modules, "sglang", None)
    plugin = importlib.import_module("moec.sglang")
    with pytest.raises(ImportError, match="moec.sglang needs SGLang 0.5.23"):
        plugin.register()
    monkeypatch.setenv("SGLANG_PLUGINS", "moec")
    with caplog.at_level(logging.WARNING, "moec.sglang"):
        plugin.plugin()
    assert "SGLang keeps its own experts" in caplog.text
