# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.vllm beside vLLM's own classes, and the stand-ins of the other tests against them, where vLLM is installed. It
needs no GPU. The lane of frameworks has no vLLM, whose wheel asks for other releases of PyTorch and Transformers:

    pip install vllm==0.33.0 && python -m pytest python/tests/test_vllm_engine.py
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed, whose wheel asks for another PyTorch than the lane of frameworks has: "
                    "pip install vllm==0.33.0 in an environment of its own")

import fake_vllm as fake  # noqa: E402
import fake_vllm_quantized as fakes  # noqa: E402
import torch  # noqa: E402

import moec.vllm  # noqa: E402

SIZES = 4, 256, 128


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    moec.vllm.register()


def test_configs_are_registered() -> None:
    from vllm.model_executor.layers.quantization import get_quantization_config

    from moec.vllm.methods import CONFIGS

    for name, config in CONFIGS.items():
        assert get_quantization_config(name) is config


def test_methods_and_experts_are_whole() -> None:
    from moec.vllm import experts, quantized

    for own, ours in quantized._METHODS.items():
        assert ours.__name__ == f"Moec{own.__name__}" and not inspect.isabstract(ours)
    for cls in (experts.MoecExperts, experts.MoecBatchedExperts):
        assert not inspect.isabstract(cls)


def test_signatures() -> None:
    from vllm.model_executor.layers.fused_moe import modular_kernel
    from vllm.model_executor.layers.fused_moe.all2all_utils import maybe_make_prepare_finalize

    from moec.vllm import experts

    for name in ("apply", "workspace_shapes", "moe_problem_size", "finalize_weight_and_reduce_impl"):
        wanted = list(inspect.signature(getattr(modular_kernel.FusedMoEExpertsModular, name)).parameters)
        for cls in (experts.MoecExperts, experts.MoecBatchedExperts, fake.FusedMoEExpertsModular):
            assert list(inspect.signature(getattr(cls, name)).parameters) == wanted, name
    wanted = list(inspect.signature(maybe_make_prepare_finalize).parameters)
    assert list(inspect.signature(fake.maybe_make_prepare_finalize).parameters) == wanted


@pytest.mark.parametrize("dtype", ["int4", "mxfp4", "nvfp4", torch.int8])
def test_quant_configs(dtype: Any) -> None:
    from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig

    scale, points = torch.ones(2), torch.ones(2, dtype=torch.uint8)
    made = FusedMoEQuantConfig.make(
        weight_dtype=dtype, w1_scale=scale, w2_scale=scale, w1_zp=points, w2_zp=points, g1_alphas=scale,
        g2_alphas=scale, w1_bias=None, w2_bias=None,
    )
    assert made.quant_dtype is None and made.block_shape is None and not made.per_act_token_quant
    assert made.w1_scale is scale and made.w2_zp is points and made.g1_alphas is scale


def list_parameters(method: Any, layer: torch.nn.Module, **extra: Any) -> dict[str, tuple]:
    method.create_weights(layer, *SIZES, torch.bfloat16, **extra)
    return {name: (tuple(each.shape), each.dtype) for name, each in layer.named_parameters()}


def make_fakes() -> list[Any]:
    moe = types.SimpleNamespace(has_bias=False, is_act_and_mul=True, w13_num_shards=2)
    biased = types.SimpleNamespace(**vars(moe) | {"has_bias": True})
    found: list[Any] = []
    for bits in (4, 8):
        for symmetric in (True, False):
            for group in (32, None):
                scheme = types.SimpleNamespace(symmetric=symmetric, num_bits=bits, group_size=group,
                                               strategy="group" if group else "channel")
                found.append(fakes.CompressedTensorsWNA16MoEMethod(scheme, None, moe))
        for group in (32, -1):
            found.append(fakes.AutoGPTQMoEMethod(fakes.AutoGPTQConfig(bits, group), moe))
        for has_zp in (True, False):
            config = fakes.MoeWNA16Config(bits, 32, has_zp)
            config.linear_quant_method = "awq"
            found.append(fakes.MoeWNA16Method(config, moe))
    found.append(fakes.AutoAWQMoEMethod(fakes.AutoAWQConfig(4, 32, True), moe))
    found.append(fakes.CompressedTensorsW8A8Int8MoEMethod(None, None, moe))
    for strategy in ("tensor", "channel", "block"):
        scheme = types.SimpleNamespace(strategy=strategy, block_structure=[128, 128], dynamic=strategy != "tensor")
        found.append(fakes.CompressedTensorsW8A8Fp8MoEMethod(scheme, scheme, moe))
    found += [fakes.CompressedTensorsW4A4Mxfp4MoEMethod(moe), fakes.CompressedTensorsW4A4Nvfp4MoEMethod(moe)]
    found += [fakes.Mxfp4MoEMethod(moe), fakes.GptOssMxfp4MoEMethod(biased)]
    found.append(fakes.ModelOptNvFp4FusedMoE(fakes.ModelOptNvFp4Config(), moe))
    return found


@pytest.mark.parametrize("method", make_fakes(), ids=lambda each: type(each).__name__)
def test_parameters_of_stand_ins_are_the_engine_s(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.distributed.parallel_state as state

    from moec.vllm import quantized

    monkeypatch.setattr(state, "_TP", types.SimpleNamespace(world_size=1, rank_in_group=0))
    (own,) = (each for each in quantized._METHODS if each.__name__ == type(method).__name__)
    real = own.__new__(own)
    real.__dict__.update(vars(method))
    # What constructors make of these.
    real.input_dtype, real.group_size = None, getattr(method, "group_size", 16)
    if isinstance(method, fakes.CompressedTensorsWNA16MoEMethod):
        real.packed_factor = 32 // method.num_bits
    if isinstance(method, fakes.CompressedTensorsW8A8Int8MoEMethod):
        real.weight_quant, real.static_input_scales = types.SimpleNamespace(strategy="channel"), False
    if isinstance(method, fakes.CompressedTensorsW4A4Mxfp4MoEMethod):
        real.group_size = 32
    if isinstance(method, fakes.AutoGPTQMoEMethod):
        real.quant_config.quant_type = types.SimpleNamespace(size_bits=method.quant_config.weight_bits)
    if isinstance(method, fakes.ModelOptNvFp4FusedMoE):
        real.quant_config.is_checkpoint_nvfp4_serialized, real.quant_config.group_size = True, 16
        real.use_global_sf = False
    layer = torch.nn.Module()
    layer.moe_config = types.SimpleNamespace(tp_size=1)
    found = list_parameters(real, layer, weight_loader=lambda *_: None, global_num_experts=SIZES[0])
    # In memory that a checkpoint without them leaves empty.
    found = {name: each for name, each in found.items() if each[0] != (0,)}
    assert list_parameters(method, torch.nn.Module()) == found
