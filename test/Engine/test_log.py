# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's log about the plugin, and the effects of a missing package or an error in moec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import load, make_layer
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from moec.vllm import quantized, report

FORMATS = list_formats()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_taken", "_waiting", "_selecting", "_told"):
        monkeypatch.setattr(report, name, type(getattr(report, name))())


def read(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == "vllm.moec"]


def test_a_line_for_all_layers_of_a_kind(engine: VllmConfig, log: pytest.LogCaptureFixture) -> None:
    formats = [FORMATS[name] for name in ("16 bits", "experts_int8", "16 bits", "16 bits")]
    layers = [make_layer(engine, format) for format in formats]
    for layer, format in zip(layers, formats):
        load(layer, format)
        layer.quant_method.process_weights_after_loading(layer)
    assert read(log) == ["moec runs the experts of 1 layers (int8 weights), with selection", "moec runs the experts of 3 layers (16-bit), with selection"]
    # Reloaded weights are not logged again.
    layers[0].quant_method.process_weights_after_loading(layers[0])
    assert len(read(log)) == 2


def test_a_line_for_a_reason(
    engine: VllmConfig, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.kernel_config, "moe_backend", "marlin")
    for _ in range(3):
        layer = make_layer(engine, FORMATS["GPTQ int4 g128"])
        assert not type(layer.quant_method).__module__.startswith("moec")
    assert read(log) == ["moec: GPTQ experts keep vLLM's kernel: --moe-backend asks for marlin"]
    assert [record.levelname for record in log.records if record.name == "vllm.moec"] == ["WARNING"]


def test_an_error_of_moec_s_leaves_the_engine_its_kernel(
    engine: VllmConfig, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise KeyError("a field of another vLLM")

    monkeypatch.setattr(quantized, "choose", fail)
    for _ in range(2):
        layer = make_layer(engine, FORMATS["fp8 blocks"])
        assert not type(layer.quant_method).__module__.startswith("moec")
    assert read(log) == ["moec: fp8 experts keep vLLM's kernel: KeyError: 'a field of another vLLM'"]
    monkeypatch.setenv("MOEC_STRICT", "1")
    with pytest.raises(KeyError, match="another vLLM"):
        make_layer(engine, FORMATS["fp8 blocks"])


def test_an_error_while_weights_are_processed(
    engine: VllmConfig, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's method continues with the parameters as loaded."""
    format, taken_back = FORMATS["GPTQ int4 g128"], []
    layer, other = make_layer(engine, format), make_layer(engine, format)
    method = layer.quant_method
    own = method.moec_own
    load(layer, format)
    before = {name: each.clone() for name, each in layer.named_parameters()}
    monkeypatch.setattr(type(own), "process_weights_after_loading", lambda self, layer: taken_back.append(self))

    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no memory")

    load(other, format)
    other.quant_method.process_weights_after_loading(other)
    monkeypatch.setattr(quantized.FusedMoEQuantConfig, "make", fail)
    method.process_weights_after_loading(layer)
    assert layer.quant_method is own and taken_back == [own]
    for name, each in layer.named_parameters():
        assert torch.equal(each.view(torch.uint8), before[name].view(torch.uint8)), name
    assert read(log) == [
        "moec: GPTQ experts keep vLLM's kernel: RuntimeError: no memory", "moec runs the experts of 1 layers (GPTQ), with selection"]
    monkeypatch.setenv("MOEC_STRICT", "1")
    with pytest.raises(RuntimeError, match="no memory"):
        method.process_weights_after_loading(layer)


def test_a_missing_package_takes_its_own_formats_alone() -> None:
    """compressed-tensors needs loguru, and vLLM's GPTQ and AWQ need compressed-tensors."""
    program = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["loguru"] = None
import conftest
import moec.vllm
moec.vllm.register()
from vllm.model_executor.custom_op import op_registry_oot
from moec.vllm import quantized
assert "UnquantizedFusedMoEMethod" in op_registry_oot
print(sorted({ours.__module__ for ours in quantized._METHODS.values()}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, Path(__file__).parent], capture_output=True, text=True, check=True)
    taken = [f"moec.vllm.formats.{name}" for name in ("experts_int8", "fp8", "modelopt", "mxfp4")]
    assert done.stdout.splitlines()[-1] == str(taken)
    lines = [line for line in done.stderr.splitlines() if "moec: " in line]
    assert len(lines) == 2 and all("loguru" in line for line in lines), lines


def test_another_plugin_s_method_is_left(engine: VllmConfig) -> None:
    method = UnquantizedFusedMoEMethod.__new__(UnquantizedFusedMoEMethod)
    assert quantized.hand_over(method) is method and quantized.hand_over(None) is None
