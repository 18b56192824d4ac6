# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that a layer keeps in memory, and weights that vLLM reloads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, compute, load, make_call, make_layer, run, verify
from torch.multiprocessing.reductions import StorageWeakRef
from vllm.config import ModelConfig, VllmConfig
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
    record_metadata_for_reloading,
)

import moec
from moec import layer_pool

FORMATS = list_formats()
WORDS = ("experts.w13", "experts.w2", "experts.w13_scale", "experts.w2_scale")


class Preparing:
    """A layer on the CPU that treats its weights as sm_90a layers do: calls read prepared tensors, here copies."""

    def __init__(self, layer: moec.Layer) -> None:
        self.layer = layer
        self.words: dict[str, torch.Tensor] = {}
        self.copies: dict[str, torch.Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.layer(*arguments, **named)

    def clone(self) -> Preparing:
        return Preparing(self.layer.clone())

    @property
    def tensors(self) -> list[moec.TensorInfo]:
        return [dataclasses.replace(info, read_by_calls=info.name not in WORDS) for info in self.layer.tensors]

    @property
    def prepared_tensors(self) -> list[moec.TensorInfo]:
        return [dataclasses.replace(info, name=f"{info.name}_prepacked", role="prepared", alignment=256)
                for info in self.layer.tensors if info.name in WORDS]

    def bind(self, tensors: dict[str, torch.Tensor]) -> None:
        # Adapters are bound alone, and change no preparation.
        self.words |= {name: tensors[name] for name in WORDS if name in tensors}
        self.layer.bind({name: each for name, each in tensors.items() if name not in WORDS})

    def bind_memory(self, name: str, memory: torch.Tensor) -> None:
        self.copies[name.removesuffix("_prepacked")] = memory

    def release_weights(self) -> list[str]:
        for name, copy in self.copies.items():
            copy.view(torch.uint8).copy_(self.words.pop(name).contiguous().view(torch.uint8))
        self.layer.bind(self.copies)
        return list(self.copies)


@pytest.fixture
def preparing(monkeypatch: pytest.MonkeyPatch) -> None:
    compile = layer_pool.compile
    monkeypatch.setattr(layer_pool, "compile", lambda *given, **named: Preparing(compile(*given, **named)))
    monkeypatch.setattr(layer_pool, "_layers", {})


@pytest.fixture(params=[False, True], ids=["read", "prepared"])
def is_prepared(request: pytest.FixtureRequest) -> bool:
    if request.param:
        request.getfixturevalue("preparing")
    return request.param


def list_memory(layer: Any) -> dict[str, tuple[int, torch.Size]]:
    return {name: (each.data_ptr(), each.shape) for name, each in layer.named_parameters()}


@pytest.mark.parametrize("name", ["compressed-tensors W4A16 g128", "AWQ", "compressed-tensors nvfp4", "experts_int8"])
def test_what_calls_do_not_read_goes(engine: VllmConfig, preparing: None, name: str) -> None:
    format = FORMATS[name]
    layer, call = make_layer(engine, format), make_call()
    numbers = load(layer, format)
    # experts_int8 has made its weights by now.
    is_made = layer.quant_method.moec_held is not None
    storages = {name: StorageWeakRef(each.untyped_storage()) for name, each in layer.named_parameters()
                if each.dim() > 1 and not name.endswith("_shape") and not is_made}
    layer.quant_method.process_weights_after_loading(layer)
    assert not [name for name, storage in storages.items() if not storage.expired()]
    kept = {name for name, each in layer.named_parameters() if each.numel() > 2 * EXPERTS}
    assert kept == {f"moec_{name.replace('.', '_')}_prepacked" for name in WORDS}
    verify(run(layer, call), compute(numbers, call), format.bound)


@pytest.mark.parametrize("name", ["compressed-tensors W4A16 g128", "GPTQ int4 g128", "compressed-tensors nvfp4", "fp8 blocks", "experts_int8"])
def test_weights_are_loaded_again(engine: VllmConfig, is_prepared: bool, name: str) -> None:
    """vLLM's own reload, after which captured graphs use the same memory: the layer has the bits of one created with
    these weights, at the same addresses."""
    format, call = FORMATS[name], make_call()
    layer, fresh = make_layer(engine, format), make_layer(engine, format)
    record_metadata_for_reloading(layer)
    load(layer, format)
    layer.quant_method.process_weights_after_loading(layer)
    first, before = run(layer, call), list_memory(layer)
    held = layer.quant_method.moec_held
    where = {name: each.data_ptr() for name, each in (held.prepared | held.read).items()}
    assert bool(held.prepared) == is_prepared

    load(fresh, format, seed=2)
    fresh.quant_method.process_weights_after_loading(fresh)
    wanted = run(fresh, call)
    assert not torch.equal(first, wanted)
    for _ in range(2):
        initialize_layerwise_reload(layer)
        numbers = load(layer, format, seed=2)
        finalize_layerwise_reload(layer, engine.model_config)
        assert torch.equal(run(layer, call), wanted)
        assert list_memory(layer) == before
        held = layer.quant_method.moec_held
        assert {name: each.data_ptr() for name, each in (held.prepared | held.read).items()} == where
    verify(wanted, compute(numbers, call), format.bound)


def test_what_does_not_compile_is_the_engine_s(
    engine: VllmConfig, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    format, taken_back = FORMATS["compressed-tensors W4A16 g128"], []
    layer = make_layer(engine, format)
    own = layer.quant_method.moec_own
    load(layer, format)
    before = {name: (each.clone(), each.data_ptr()) for name, each in layer.named_parameters()}

    def fail(*given: Any, **named: Any) -> Any:
        raise moec.InvalidArgument("no kernel takes it")

    monkeypatch.setattr(layer_pool, "compile", fail)
    monkeypatch.setattr(layer_pool, "_layers", {})
    monkeypatch.setattr(type(own), "process_weights_after_loading", lambda self, layer: taken_back.append(self))
    layer.quant_method.process_weights_after_loading(layer)
    assert layer.quant_method is own and taken_back == [own]
    assert "no kernel takes it" in log.text
    assert {name: each.data_ptr() for name, each in layer.named_parameters()} == {
        name: where for name, (_, where) in before.items()}
    assert all(torch.equal(each, before[name][0]) for name, each in layer.named_parameters())


def test_an_error_while_weights_are_loaded_again_is_the_caller_s(
    engine: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    format = FORMATS["compressed-tensors W4A16 g128"]
    layer = make_layer(engine, format)
    record_metadata_for_reloading(layer)
    load(layer, format)
    layer.quant_method.process_weights_after_loading(layer)

    def fail(*given: Any, **named: Any) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(layer_pool.PooledLayer, "bind", fail)
    initialize_layerwise_reload(layer)
    with pytest.raises(RuntimeError, match="no memory"):
        load(layer, format, seed=2)
        finalize_layerwise_reload(layer, engine.model_config)


def test_calls_are_those_that_weights_were_held_for(engine: VllmConfig) -> None:
    format, (hidden, weights, ids) = FORMATS["compressed-tensors W4A16 g128"], make_call()
    layer = make_layer(engine, format)
    load(layer, format)
    layer.quant_method.process_weights_after_loading(layer)
    with pytest.raises(moec.InvalidArgument, match="has one hidden size, dtype and top_k"):
        run(layer, (hidden.float(), weights, ids))
