# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.transformers on gpt-oss with mxfp4 weights: Transformers' own blocks, in the weight layout of its kernels (which
need a GPU), compared with eager experts of the dequantized values and with the float64 reference."""

from __future__ import annotations

import copy
import types
from typing import Any

import numpy as np
import pytest

import moec
from moec.reference import LayerSpec, decide, evaluate
from moec.reference.numerics import NUMPY_DTYPES

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
transformers = pytest.importorskip(
    "transformers", reason="Transformers is not installed (pip install transformers)"
)
import moec.transformers as moec_transformers  # noqa: E402
from transformers.integrations import mxfp4  # noqa: E402

DEVICES = ["cpu"] + ["cuda:0"] * torch.cuda.is_available()
HIDDEN, WIDTH, EXPERTS, TOP_K, LIMIT = 128, 64, 8, 4, 2.0
SIZES = {
    "vocab_size": 128, "hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256,
    "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K, "swiglu_limit": LIMIT,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}


class Layout:
    """A layout of triton_kernels that only unswizzle_data() can read."""

    def swizzle_data(self, data: torch.Tensor) -> torch.Tensor:
        return torch.flip(data, (1, 2)) ^ 0x5A

    def unswizzle_data(self, data: torch.Tensor) -> torch.Tensor:
        return torch.flip(data ^ 0x5A, (1, 2))


class KernelTensor:
    """The parts of triton_kernels' Tensor for rows [E, rows, bytes]: columns first, swizzled."""

    def __init__(self, rows: torch.Tensor) -> None:
        layout = Layout()
        self.storage = types.SimpleNamespace(layout=layout, data=layout.swizzle_data(rows.mT))


def make_bytes(rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns every pair of elements, and scales from 2^-5 to 2^-2: [E, rows, columns / 2], [E, rows, columns / 32]."""
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (EXPERTS, rows, columns // 2), generator=generator)
    scales = torch.randint(122, 126, (EXPERTS, rows, columns // 32), generator=generator)
    return packed.to(torch.uint8), scales.to(torch.uint8)


def decode(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Returns f32 [E, columns, rows], dequantized as in Transformers for experts without mxfp4."""
    blocks = packed.unflatten(-1, (-1, 16))
    return mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def make_pair(seed: int = 0) -> tuple[Any, Any]:
    """Returns a block with mxfp4 weights as loaded by Transformers, and one with the same values in f32."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP

    config = transformers.GptOssConfig(**SIZES)
    config._experts_implementation = "eager"
    torch.manual_seed(seed)
    plain = GptOssMLP(config).requires_grad_(False)
    plain.router.weight.normal_(0, 0.2)
    plain.router.bias.normal_(0, 0.5)
    experts = mxfp4.Mxfp4GptOssExperts(config)
    for at, (name, rows, columns) in enumerate(
        (("gate_up_proj", 2 * WIDTH, HIDDEN), ("down_proj", HIDDEN, WIDTH))
    ):
        packed, scales = make_bytes(rows, columns, 2 * seed + at)
        getattr(plain.experts, name).copy_(decode(packed, scales))
        # bf16 values, of which f32 is an exact copy.
        bias = torch.randn(EXPERTS, rows).bfloat16().float()
        getattr(plain.experts, f"{name}_bias").copy_(bias)
        getattr(experts, f"{name}_bias").copy_(bias)
        delattr(experts, name)
        setattr(experts, name, KernelTensor(packed))
        setattr(experts, f"{name}_precision_config",
                types.SimpleNamespace(weight_scale=KernelTensor(scales)))
    return mxfp4.Mxfp4GptOssMLP(plain.router, experts).requires_grad_(False), plain


def measure(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@pytest.mark.parametrize("device", DEVICES)
def test_block_is_that_of_eager(device: str) -> None:
    block, plain = make_pair()
    assert moec_transformers.replace(block) == 1
    block, plain = block.to(device), plain.to(device)
    hidden = torch.randn(2, 3, HIDDEN, device=device)
    (found, logits), (wanted, _) = block(hidden), plain(hidden)
    assert found.shape == hidden.shape and logits.shape == (6, EXPERTS)
    assert measure(found, wanted) < 2e-5
    # A second call changes nothing.
    assert moec_transformers.replace(block) == 1
    assert torch.equal(block(hidden)[0], found)


@pytest.mark.parametrize("device", DEVICES)
def test_experts_are_those_of_the_reference(device: str) -> None:
    """In bf16, with ids of other ranks."""
    block, _ = make_pair(1)
    packed = {name: make_bytes(rows, columns, seed) for name, rows, columns, seed in (
        ("experts.w13", 2 * WIDTH, HIDDEN, 2), ("experts.w2", HIDDEN, WIDTH, 3))}
    moec_transformers.replace(block)
    hidden = torch.randn(16, HIDDEN).bfloat16()
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(16)])
    weights = torch.rand(16, TOP_K)
    ids[0], ids[1, 2:] = EXPERTS, 1000
    experts = block.experts.to(device)
    arguments = hidden.to(device), ids.to(device), weights.to(device)
    found = experts(*arguments).cpu()
    spec = LayerSpec.from_json({
        "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": HIDDEN,
        "intermediate_size": WIDTH, "num_experts": EXPERTS, "top_k": TOP_K, "expert_bias": True,
        "activation": {"kind": "swigluoai", "alpha": 1.702, "limit": LIMIT},
        "gate_up_order": "interleaved", "quantization": "mxfp4"})
    tensors = {
        "hidden_states": hidden.float().numpy(), "topk_ids": ids.int().numpy(),
        "topk_weights": weights.numpy(),
        "experts.w13_bias": experts.gate_up_proj_bias.float().cpu().numpy(),
        "experts.w2_bias": experts.down_proj_bias.float().cpu().numpy(),
    }
    for name, (elements, scales) in packed.items():
        tensors |= {name: elements.numpy(),
                    f"{name}_scale": scales.numpy().view(NUMPY_DTYPES["f8e8m0"])}
    wanted = torch.from_numpy(np.asarray(evaluate(spec, tensors, decide(spec, tensors)), np.float64))
    assert not found[0].any() and wanted.abs().max() > 1
    assert measure(found, wanted) < 2.0**-6
    # No version counter sees this write.
    experts.down_proj_bias.data.mul_(4)
    tensors["experts.w2_bias"] *= 4
    changed = torch.from_numpy(np.asarray(evaluate(spec, tensors, decide(spec, tensors)), np.float64))
    assert measure(changed, wanted) > 2.0**-3
    assert measure(experts(*arguments).cpu(), changed) < 2.0**-6


def make_models() -> tuple[Any, Any]:
    """Returns a random model with mxfp4 weights, and one with the same values in f32."""
    config = transformers.GptOssConfig(**SIZES)
    config._attn_implementation = "eager"
    config.experts_implementation = "eager"
    torch.manual_seed(2)
    plain = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    plain.set_experts_implementation("eager")
    for name, parameter in plain.named_parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.1)
    pairs = [make_pair(3 + at) for at in range(2)]
    for layer, (_, eager) in zip(plain.model.layers, pairs):
        layer.mlp = eager
    model = copy.deepcopy(plain)
    for layer, (block, _) in zip(model.model.layers, pairs):
        layer.mlp = block
    return model, plain


@pytest.mark.parametrize("device", DEVICES)
def test_models_decode_alike(device: str) -> None:
    model, plain = make_models()
    assert moec_transformers.replace(model) == 2
    model, plain = model.to(device), plain.to(device)
    tokens = torch.randint(1, 128, (4, 5), device=device)
    with torch.no_grad():
        found, wanted = model(tokens).logits, plain(tokens).logits
        assert measure(found, wanted) < 1e-4
        chosen = [each.generate(tokens[:1], max_new_tokens=16, do_sample=False)
                  for each in (model, plain)]
    assert torch.equal(*chosen)


def test_blocks_compile_as_one_graph() -> None:
    block, _ = make_pair(5)
    moec_transformers.replace(block)
    hidden = torch.randn(1, 6, HIDDEN)
    wanted, _ = block(hidden)
    found, _ = torch.compile(block, fullgraph=True, backend="aot_eager")(hidden)
    assert measure(found, wanted) < 1e-6


def test_weights_are_parameters() -> None:
    """Parameters hold the checkpoint's bytes, and the kernels' layout is freed."""
    block, _ = make_pair(6)
    packed, scales = make_bytes(HIDDEN, WIDTH, 13)
    moec_transformers.replace(block)
    found = dict(block.experts.named_parameters())
    assert torch.equal(found["down_proj"], packed) and torch.equal(found["down_proj_scales"], scales)
    assert not [each for each in vars(block.experts).values() if isinstance(each, KernelTensor)]
    hidden = torch.randn(1, 6, HIDDEN)
    before = block(hidden)[0]
    # The next call uses another scale.
    block.experts.down_proj_scales += 1
    block.experts.down_proj_bias *= 2
    assert measure(block(hidden)[0], 2 * before) < 1e-6


def test_what_cannot_be_replaced_is_refused() -> None:
    config = transformers.GptOssConfig(**SIZES)
    first, _ = make_pair(7)
    unloaded = mxfp4.Mxfp4GptOssMLP(first.router, mxfp4.Mxfp4GptOssExperts(config))
    blocks = torch.nn.ModuleList([first, unloaded])
    with pytest.raises(moec.InvalidArgument, match="gate_up_proj has no scales; call replace.. after"):
        moec_transformers.replace(blocks)
    # No block was replaced.
    assert isinstance(first.experts.down_proj, KernelTensor) and "forward" not in vars(first)
    blocks = torch.nn.ModuleList([first])
    first.experts._is_hooked = True
    with pytest.raises(moec.InvalidArgument, match="its forward is written for tensor or expert parallel"):
        moec_transformers.replace(blocks)
    first.experts._is_hooked = False
    first.experts.down_proj = KernelTensor(torch.zeros(EXPERTS, HIDDEN, 1, dtype=torch.uint8))
    with pytest.raises(moec.InvalidArgument, match=r"down_proj: bytes \[8, 128, 32\] expected, torch.uint8 "
                       r"\[8, 128, 1\] found"):
        moec_transformers.replace(blocks)


def test_biases_without_an_exact_form_are_refused() -> None:
    block, _ = make_pair(8)
    moec_transformers.replace(block)
    block.experts.down_proj_bias += 1e-4
    hidden = torch.randn(6, HIDDEN).bfloat16()
    ids = torch.zeros(6, TOP_K, dtype=torch.int64)
    with pytest.raises(moec.InvalidArgument, match="experts.w2_bias has values that torch.bfloat16"):
        block.experts(hidden, ids, torch.rand(6, TOP_K))
