# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.transformers: random models of Transformers' with moec's experts beside their own, on the CPU and,
where there is one, on a GPU."""

from __future__ import annotations

import copy
import gc
import warnings
from typing import Any

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
transformers = pytest.importorskip(
    "transformers", reason="Transformers is not installed (pip install transformers)"
)
moec_transformers = pytest.importorskip("moec.transformers")

DEVICES = ["cpu"] + ["cuda:0"] * torch.cuda.is_available()
SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
#: Of each family: what its config has besides, with experts in every layer.
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 4, "norm_topk_prob": True},
    "deepseek_v3": {
        "n_routed_experts": 8, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 0, "n_shared_experts": 1, "q_lora_rank": 32, "kv_lora_rank": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4,
    },
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 4, "swiglu_limit": 1.0},
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 4},
    "glm4_moe": {
        "n_routed_experts": 8, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 0, "n_shared_experts": 1,
    },
    "llama4_text": {
        "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 32,
    },
}
#: Largest difference of logits, of the largest logit.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 2.0**-5}


@pytest.fixture(autouse=True)
def registered() -> None:
    moec_transformers.register()
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def make_model(family: str, dtype: torch.dtype = torch.float32, device: str = "cpu", **changes: Any):
    config = transformers.AutoConfig.for_model(family, **(SIZES | FAMILIES[family] | changes))
    config._attn_implementation = "eager"
    config.experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        # As large as what the layers are added to, so that experts are seen in the logits.
        width = 0.25 if "experts" in name else 0.1
        if parameter.dim() > 1:
            parameter.data.normal_(0, width, generator=generator)
        elif "bias" in name:
            parameter.data.normal_(0, 0.5, generator=generator)
    model.set_experts_implementation("eager")
    return model.to(dtype).to(device)


def use_moec(model: Any) -> None:
    if model.config.model_type == "llama4_text":
        assert moec_transformers.replace(model) == 2
    moec_transformers.transpose_weights(model)
    model.set_experts_implementation("moec")


def list_experts(model: Any) -> list[Any]:
    return [each for each in model.modules() if type(each).__name__.endswith("Experts")]


def make_block(dtype: torch.dtype = torch.float32, family: str = "qwen3_moe", **changes: Any):
    """The experts of a model, and what a call of them takes."""
    model = make_model(family, dtype, **changes)
    hidden = torch.randn(6, 64).to(dtype)
    ids = torch.stack([torch.randperm(8)[:4] for _ in range(6)])
    return list_experts(model)[0], (hidden, ids, torch.rand(6, 4).to(dtype))


def run_eagerly(block: Any, arguments: tuple) -> Any:
    block.config._experts_implementation = "eager"
    try:
        with torch.no_grad():
            return block(*arguments)
    finally:
        block.config._experts_implementation = "moec"


def run(block: Any, arguments: tuple) -> Any:
    block.config._experts_implementation = "moec"
    with torch.no_grad():
        return block(*arguments)


def assert_near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    error = (found.float() - wanted.float()).abs().max() / wanted.float().abs().max()
    assert error <= TOLERANCES[wanted.dtype], f"error {error}"


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_eager(family: str, dtype: torch.dtype, device: str) -> None:
    model = make_model(family, dtype, device)
    tokens = torch.randint(1, 128, (2, 24), device=device)
    with torch.no_grad():
        wanted = model(tokens).logits
        use_moec(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = model(tokens).logits
        assert_near(found, wanted)
        for block in list_experts(model):
            block.down_proj.zero_()
        without = (model(tokens).logits.float() - wanted.float()).abs().max()
    assert without > 8 * TOLERANCES[dtype] * wanted.float().abs().max(), "experts are not seen"


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_decoding_is_that_of_eager(family: str, device: str) -> None:
    model = make_model(family, device=device)
    tokens = torch.randint(1, 128, (1, 8), device=device)
    options = {"max_new_tokens": 64, "do_sample": False, "use_cache": True}
    wanted = model.generate(tokens, **options)
    use_moec(model)
    assert torch.equal(model.generate(tokens, **options), wanted)
    assert wanted.shape == (1, 72)
