# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Monolithic experts: vLLM passes logits, and the layer selects experts itself.

vLLM creates methods and experts from a FusedMoEConfig, which lacks parts of a model's routing. The router that vLLM
created has them; it is found beside the layer once weights are loaded, and the kind of experts is chosen then."""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    FusedMoEQuantConfig,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.router.custom_routing_router import CustomRoutingRouter
from vllm.model_executor.layers.fused_moe.router.fused_moe_router import FusedMoERouter
from vllm.model_executor.layers.fused_moe.router.fused_topk_bias_router import FusedTopKBiasRouter
from vllm.model_executor.layers.fused_moe.router.fused_topk_router import FusedTopKRouter
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter
from vllm.model_executor.layers.quantization.utils import quant_utils as keys
from vllm.v1.worker.workspace import current_workspace_manager

from .. import InvalidArgument
from ..functions.routing import describe_grouped_topk, describe_topk
from ..functions.selecting_experts import SelectingExperts
from ..layer_pool import DTYPES
from . import exchange
from .experts import MoecExperts, MoecSupport, as_workspace, get_parameters, is_batch_invariant
from .report import tell_modular

#: vLLM's routing methods that are custom functions of a model.
_FUNCTIONS = {
    RoutingMethodType.Llama4: {"score": "identity", "weight": "sigmoid"},
    RoutingMethodType.Sigmoid: describe_topk("sigmoid", False),
    RoutingMethodType.SigmoidRenorm: describe_topk("sigmoid", True),
}


def describe_router(router: Any) -> tuple[dict[str, Any], Optional[torch.Tensor]]:
    """Returns `routing` of a spec for a vLLM router, and its bias. Raises InvalidArgument, with the reason, for
    unsupported routers."""
    kind = type(router)
    bias = getattr(router, "e_score_correction_bias", None)
    if router.eplb_state is not None:
        raise InvalidArgument("experts move between ranks (EPLB)")
    if kind is FusedTopKRouter:
        return describe_topk(router.scoring_func, router.renormalize), None
    if kind is FusedTopKBiasRouter:
        if router._hash_indices_table is not None:
            raise InvalidArgument("a hash of tokens selects the experts")
        if router.bias_vl is not None:
            raise InvalidArgument("image tokens have a separate bias")
        return describe_topk(router.scoring_func, router.renormalize, router.routed_scaling_factor), bias
    if kind is GroupedTopKRouter:
        groups = router.num_expert_group
        if router.global_num_experts % groups or router.global_num_experts <= groups:
            raise InvalidArgument(f"{router.global_num_experts} experts in {groups} groups")
        routing = describe_grouped_topk(
            router.scoring_func, router.renormalize, router.routed_scaling_factor, groups, router.topk_group
        )
        return routing, bias
    if kind is CustomRoutingRouter and router.routing_method_type in _FUNCTIONS:
        return dict(_FUNCTIONS[router.routing_method_type]), None
    raise InvalidArgument(f"{kind.__name__} has its own selection rules")


class MoecMonolithicExperts(MoecSupport, mk.FusedMoEExpertsMonolithic):
    """The format [T, H], with logits instead of ids and weights. vLLM instantiates experts from a class without passing
    the routing, so each layer gets its own class from of()."""

    #: Results of describe_router().
    routing: dict[str, Any]
    selection_bias: Optional[torch.Tensor]
    #: Local ids of the experts; None if all are on this rank.
    expert_map: Optional[torch.Tensor]
    #: Whether vLLM returns the experts of each token.
    records: bool

    @classmethod
    def of(cls, router: FusedMoERouter, layer: torch.nn.Module, records: bool = False) -> type[MoecMonolithicExperts]:
        """Returns the class for a vLLM layer. Raises InvalidArgument as describe_router() does."""
        routing, bias = describe_router(router)
        if layer.apply_router_weight_on_input:
            routing["weight_on_input"] = True
        fields = {"routing": routing, "selection_bias": bias, "expert_map": layer.expert_map, "records": records}
        return type(cls.__name__, (cls,), fields)

    def __init__(
        self,
        moe_config: FusedMoEConfig,
        quant_config: FusedMoEQuantConfig,
        max_num_tokens: Optional[int] = None,
        num_dispatchers: Optional[int] = None,
    ) -> None:
        super().__init__(moe_config, quant_config, max_num_tokens, num_dispatchers)
        self.experts = SelectingExperts(
            moe_config.activation, quant_config, routing=self.routing, num_experts=moe_config.num_experts,
            top_k=moe_config.experts_per_token, selection_bias=self.selection_bias,
            logits_dtype=moe_config.router_logits_dtype, parameters=get_parameters(
                moe_config.activation, self.activation_config), batch_invariant=is_batch_invariant(),
            records=self.records,
        )
        self.experts.placed = self.expert_map

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: FusedMoEParallelConfig) -> bool:
        # With a dispatch between selection and experts, vLLM selects before it: ids have fewer bytes than logits.
        config = moe_parallel_config
        return (
            not config.use_all2all_kernels and config.dp_size == 1 and config.pcp_size == 1
            and not config.is_sequence_parallel and not config.use_passthrough_all2all
            # vLLM's router maps experts that move, and counts their load.
            and not config.enable_eplb
        )

    @staticmethod
    def _supports_routing_method(
        routing_method: RoutingMethodType, weight_key: Optional[keys.QuantKey], activation_key: Optional[keys.QuantKey]
    ) -> bool:
        # The router has complete information: describe_router().
        return True

    @staticmethod
    def _supports_router_logits_dtype(
        router_logits_dtype: Optional[torch.dtype], routing_method: RoutingMethodType
    ) -> bool:
        return router_logits_dtype is None or router_logits_dtype in DTYPES

    def supports_routing_replay_capture(self) -> bool:
        return self.records

    def apply(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        router_logits: torch.Tensor,
        activation: MoEActivation,
        global_num_experts: int,
        expert_map: Optional[torch.Tensor],
        a1q_scale: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        num_expert_group: Optional[int] = None,
        e_score_correction_bias: Optional[torch.Tensor] = None,
        routed_scaling_factor: Optional[float] = None,
        topk_group: Optional[int] = None,
        routing_replay_out: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        # The router has already given the routing in these arguments.
        self._check(activation, a1q_scale)
        self.experts.placed = expert_map
        return self.experts.select_and_run(
            hidden_states, w1, w2, router_logits, _find_padding(hidden_states.shape[0]),
            _find_workspace if hidden_states.is_cuda else lambda size: None, routing_replay_out,
        )


def _find_padding(tokens: int) -> Optional[torch.Tensor]:
    """Returns a mask of the rows that a CUDA graph has beyond the batch."""
    found = get_forward_context().is_padding if is_forward_context_available() else None
    return None if found is None else found[:tokens]


def _find_workspace(size: int) -> Optional[torch.Tensor]:
    (workspace,) = current_workspace_manager().get_simultaneous(((size,), torch.uint8))
    return as_workspace(workspace)


def choose_entry(
    config: VllmConfig,
    layer: torch.nn.Module,
    weight_key: Optional[keys.QuantKey],
    activation_key: Optional[keys.QuantKey],
) -> tuple[type[mk.FusedMoEExperts], Optional[str]]:
    """Returns the experts for a layer that runs in MoecExperts: a class that replaces the selection of vLLM's router,
    or MoecExperts and the reason.

    Selection in the layer replaces a launch of vLLM and adds none to the layer for up to 32 tokens (docs/use/engines.md).
    It is used for each routing that a layer can express."""
    modular = MoecExperts.of(layer)
    if os.environ.get("MOEC_VLLM_ROUTER") == "0":
        return modular, "MOEC_VLLM_ROUTER is 0"
    if layer.expert_map_manager.num_fused_shared_experts:
        return modular, "shared experts are counted as routed ones"
    runner = config.compilation_config.static_forward_context.get(layer.layer_name)
    if runner is None:
        return modular, f"vLLM has no runner called {layer.layer_name}"
    cls = MoecMonolithicExperts
    supported, reason = cls.is_supported_config(
        cls, layer.moe_config, weight_key, activation_key, cls.activation_format()
    )
    if not supported:
        return modular, reason
    try:
        return cls.of(runner.router, layer, config.aux_output_config.enable_return_routed_experts), None
    except InvalidArgument as error:
        return modular, str(error)


class Selecting:
    """Mixin ahead of a vLLM method with moec's experts: lets them select experts if they can."""

    #: Name for the log.
    moec_kind: str
    moec_config: VllmConfig
    #: Arguments of choose().
    moec_keys: tuple[Optional[keys.QuantKey], Optional[keys.QuantKey]]

    def create_weights(self, layer: torch.nn.Module, **arguments: Any) -> None:
        # There may be no current configuration later.
        self.moec_config = get_current_vllm_config()
        super().create_weights(layer, **arguments)

    @property
    def moec_selects(self) -> bool:
        return issubclass(self.experts_cls, MoecMonolithicExperts)

    def moec_put_exchange(self) -> None:
        """Lets moec exchange rows with other ranks, if the environment asks for it."""
        if self.moe_kernel is not None:
            self.moe_kernel = exchange.replace(self.moe_kernel, self.moe)

    def moec_choose_entry(self, layer: torch.nn.Module) -> None:
        """Chooses the entry before the kernel is made, once the runner exists. Reloading weights does not change the
        choice."""
        if self.moe_kernel is not None or self.experts_cls is not MoecExperts:
            return
        self.experts_cls, reason = choose_entry(self.moec_config, layer, *self.moec_keys)
        if reason is not None:
            tell_modular(self.moec_kind, reason)
