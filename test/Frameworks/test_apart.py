# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families whose blocks test_blocks.py cannot run as they are: of two stacks, with a fault, or with a router that mixes
tokens."""

from __future__ import annotations

import blocks
import moec
import pytest
import torch
from transformers import DogeConfig, NllbMoeConfig, SwitchTransformersConfig

TOKENS, HIDDEN, WIDTH, EXPERTS = 7, 64, 48, 8
STACKS = {
    "vocab_size": 128, "d_model": HIDDEN, "num_experts": EXPERTS, "encoder_sparse_step": 2, "decoder_sparse_step": 2,
}  # fmt: skip


def build(config, folder):
    """Makes a model of random weights and saves it; returns it and states of hidden size."""
    from transformers import AutoModel

    generator = torch.Generator().manual_seed(TOKENS)
    config.dtype = "float32"
    model = AutoModel.from_config(config).float().eval()
    blocks.randomize(model, 1)
    model.save_pretrained(folder)
    return model, torch.randn(1, TOKENS, HIDDEN, generator=generator)


def compare(folder, layer, states, output, record, name, *options, logits=None):
    inputs = {"hidden_states": states[0].numpy()}
    if logits is not None:
        inputs["router_logits"] = logits.detach().numpy()
    block = blocks.Block(layer, inputs, output[0].detach().numpy(), None, list(options))
    record(name, {}, "agrees", moec.compare(moec.run(folder, block, folder), block))


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_switch(part, tmp_path, record):
    """No expert has more tokens than its capacity, so none is left out."""
    config = SwitchTransformersConfig(**STACKS, d_ff=WIDTH, num_layers=2, num_decoder_layers=2, num_heads=4, d_kv=16,
                                      expert_capacity=TOKENS)  # fmt: skip
    model, states = build(config, tmp_path)
    block = getattr(model, part).block[1].layer[-1].mlp
    options = ["--part=encoder"] if part == "encoder" else []
    compare(tmp_path, 1, states, block(states), record, "SwitchTransformersConfig", f"--max-tokens={TOKENS}", *options)
    with pytest.raises(moec.Refused, match=f"'expert_capacity' is {TOKENS}, and a call may have {TOKENS + 1} tokens"):
        moec.call("moe-compile", tmp_path, f"--max-tokens={TOKENS + 1}", *options)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_nllb(part, tmp_path, record):
    """Experts and router are the model's. Transformers 5 takes the mask of chosen experts for their ids in the loop
    over experts, which thus is fairseq's here."""
    config = NllbMoeConfig(**STACKS, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                           decoder_attention_heads=4, encoder_ffn_dim=WIDTH, decoder_ffn_dim=WIDTH + 16)  # fmt: skip
    model, states = build(config, tmp_path)
    block = getattr(model, part).layers[1].ffn
    _, weights, _ = block.router(states[0])
    assert ((weights > 0).sum(1) == 2).all(), "no token is left out"
    output = sum(weights[:, e, None] * block.experts[f"expert_{e}"](states[0]) for e in range(EXPERTS))
    options = ["--part=encoder"] if part == "encoder" else []
    compare(tmp_path, 1, states, (output * (1 - config.moe_token_dropout))[None], record, "NllbMoeConfig", *options)
    config.moe_eval_capacity_token_fraction = 0.5
    config.save_pretrained(tmp_path)
    with pytest.raises(moec.Refused, match="'moe_eval_capacity_token_fraction' must be 1, not 0.5"):
        moec.call("moe-compile", tmp_path)


def test_doge(tmp_path, record):
    """The logits are those of the model's router, whose halves it splits over all tokens of the call."""
    config = DogeConfig(vocab_size=128, hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=2, is_moe=True,
                        num_attention_heads=4, num_experts=64, num_experts_per_tok=5)  # fmt: skip
    model, states = build(config, tmp_path)
    block = model.layers[1].mlp
    rows, columns = block.router_gate(states).view(2, TOKENS, -1)
    logits = (rows[:, :, None] + columns[:, None]).reshape(TOKENS, -1)
    dense = block.down_proj(block.act_fn(block.gate_proj(states)) * block.up_proj(states))
    compare(tmp_path, 1, states, block(states)[0] - dense, record, "DogeConfig", logits=logits)
