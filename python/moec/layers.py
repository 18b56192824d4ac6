# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers for the package `kernels`, whose kernelize() puts their forward in place of a module's own.

    from kernels import LocalLayerRepository, kernelize, register_kernel_mapping, replace_kernel_forward_from_hub

    replace_kernel_forward_from_hub(Qwen3MoeExperts, "MoecExperts")
    register_kernel_mapping({"MoecExperts": {"cuda": LocalLayerRepository(folder, layer_name="MoecExperts")}})
    model = kernelize(model, mode=Mode.INFERENCE, device="cuda")"""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError("moec.layers needs PyTorch; install it, as with pip install torch") from error

from .module_experts import call

__all__ = ["MoecExperts"]


class MoecExperts(torch.nn.Module):
    """The forward of experts of Transformers, which get a layer that reads their own parameters."""

    has_backward = False
    can_torch_compile = True

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """As moec.transformers.forward()."""
        return call(self, hidden_states, top_k_index, top_k_weights, False)
