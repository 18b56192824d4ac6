# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for what moec.vllm uses of vLLM 0.33, with vLLM's names, fields and signatures: a method makes
a kernel, which calls prepare, experts and finalize with the keywords that vLLM calls them with."""

from __future__ import annotations

import abc
import dataclasses
import enum
from typing import Any, Optional

import torch
from fake_modules import take

# vllm.platforms


class Platform:
    device_name = "fake"
    capability = (9, 0)

    def is_cuda(self) -> bool:
        return self.capability is not None

    def has_device_capability(self, capability: tuple[int, int]) -> bool:
        return self.capability is not None and self.capability >= capability


current_platform = Platform()

# vllm.model_executor.custom_op

op_registry_oot: dict[str, type] = {}


class CustomOp(torch.nn.Module):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(op_registry_oot.get(cls.__name__, cls))

    @classmethod
    def register_oot(cls, _decorated_op_cls: Optional[type] = None, name: Optional[str] = None) -> Any:
        assert _decorated_op_cls is None

        def decorator(op_cls: type) -> type:
            assert name not in op_registry_oot, f"Duplicate op name: {name}"
            op_registry_oot[name] = op_cls
            return op_cls

        return decorator


# vllm.model_executor.layers.quantization.utils.quant_utils


@dataclasses.dataclass(frozen=True)
class QuantKey:
    dtype: Any
    scale: str


FP8 = torch.float8_e4m3fn
KEYS = {
    "kFp8Dynamic128Sym": QuantKey(FP8, "dynamic 128"),
    "kFp8DynamicTensorSym": QuantKey(FP8, "dynamic tensor"),
    "kFp8DynamicTokenSym": QuantKey(FP8, "dynamic token"),
    "kFp8Static128BlockSym": QuantKey(FP8, "static block"),
    "kFp8StaticChannelSym": QuantKey(FP8, "static channel"),
    "kFp8StaticTensorSym": QuantKey(FP8, "static tensor"),
    "kInt8DynamicTokenSym": QuantKey(torch.int8, "dynamic token"),
    "kInt8StaticChannelSym": QuantKey(torch.int8, "static channel"),
    "kInt8Static": QuantKey("uint8b128", "static group"),
    "kInt4Static": QuantKey("uint4b8", "static group"),
    "kInt4StaticAsym": QuantKey("uint4", "static group"),
    "kMxfp4Static": QuantKey(torch.uint8, "static e8m0"),
    "kNvfp4Static": QuantKey(torch.uint8, "static e4m3"),
}

# vllm.model_executor.layers.fused_moe.activation


class MoEActivation(enum.Enum):
    SILU = "silu"
    GELU = "gelu"
    SWIGLUOAI = "swigluoai"
    SWIGLUOAI_UNINTERLEAVE = "swigluoai_uninterleave"
    SITU = "situ"
    RELU2_NO_MUL = "relu2_no_mul"
    OTHER = "other"


@dataclasses.dataclass
class ApplyMoEActivationConfig:
    clamp_limit: Optional[float] = None
    alpha: float = 1.0
    beta: float = 0.0
    activation_situ_beta: Optional[float] = None
    activation_situ_linear_beta: Optional[float] = None


# vllm.model_executor.layers.fused_moe.config


@dataclasses.dataclass
class FusedMoEParallelConfig:
    dp_size: int = 1
    use_ep: bool = False
    enable_eplb: bool = False
    all2all_backend: str = "allgather_reducescatter"

    @property
    def use_all2all_kernels(self) -> bool:
        return self.use_ep and self.dp_size > 1

    @property
    def use_ag_rs_all2all_kernels(self) -> bool:
        return self.use_all2all_kernels and self.all2all_backend == "allgather_reducescatter"

    @property
    def use_passthrough_all2all(self) -> bool:
        return self.all2all_backend == "passthrough"

    @property
    def use_batched_activation_format(self) -> bool:
        return self.use_all2all_kernels and self.all2all_backend == "deepep_low_latency"


@dataclasses.dataclass
class FusedMoEConfig:
    hidden_dim: int = 64
    activation: MoEActivation = MoEActivation.SILU
    moe_parallel_config: FusedMoEParallelConfig = dataclasses.field(
        default_factory=FusedMoEParallelConfig
    )
    in_dtype: torch.dtype = torch.bfloat16
    moe_backend: str = "auto"
    is_lora_enabled: bool = False
    has_bias: bool = False
    swiglu_limit: Optional[float] = None
    swiglu_alpha: Optional[float] = None
    swiglu_beta: Optional[float] = None
    activation_situ_beta: Optional[float] = None
    activation_situ_linear_beta: Optional[float] = None


@dataclasses.dataclass
class FusedMoEQuantConfig:
    quant_dtype: Any = None
    per_act_token_quant: bool = False
    block_shape: Optional[list[int]] = None
    w1_scale: Optional[torch.Tensor] = None
    w2_scale: Optional[torch.Tensor] = None
    w1_zp: Optional[torch.Tensor] = None
    w2_zp: Optional[torch.Tensor] = None
    g1_alphas: Optional[torch.Tensor] = None
    g2_alphas: Optional[torch.Tensor] = None
    w1_bias: Optional[torch.Tensor] = None
    w2_bias: Optional[torch.Tensor] = None
    a1_scale: Optional[torch.Tensor] = None
    a2_scale: Optional[torch.Tensor] = None
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None
    weight_dtype: Any = None

    @staticmethod
    def make(quant_dtype=None, *, weight_dtype=None, **fields) -> FusedMoEQuantConfig:
        assert weight_dtype in ("nvfp4", "mxfp4", "int4", "mxfp8") or not isinstance(weight_dtype, str)
        return FusedMoEQuantConfig(quant_dtype, weight_dtype=weight_dtype, **fields)


# vllm.model_executor.layers.fused_moe.modular_kernel


class FusedMoEActivationFormat(enum.Enum):
    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


@dataclasses.dataclass
class ExpertTokensMetadata:
    expert_num_tokens: Optional[torch.Tensor]
    expert_num_tokens_cpu: Optional[torch.Tensor]
    psum_recv_per_rank: Optional[torch.Tensor] = None
    rank_expert_offset: Optional[int] = None


class TopKWeightAndReduce(abc.ABC):
    @abc.abstractmethod
    def apply(self, output, fused_expert_output, topk_weights, topk_ids,
              apply_router_weight_on_input): ...


class TopKWeightAndReduceNoOP(TopKWeightAndReduce):
    def apply(self, output, fused_expert_output, topk_weights, topk_ids,
              apply_router_weight_on_input):
        return output.copy_(fused_expert_output)


class TopKWeightAndReduceDelegate(TopKWeightAndReduce):
    def apply(self, output, fused_expert_output, topk_weights, topk_ids,
              apply_router_weight_on_input):
        raise RuntimeError("the caller chooses")


class FusedMoEExperts(abc.ABC):
    post_gemm2_hook = None

    def __init__(self, moe_config, quant_config, max_num_tokens=None, num_dispatchers=None):
        is_batched = self.activation_format() == FusedMoEActivationFormat.BatchedExperts
        if is_batched != (max_num_tokens is not None) or is_batched != (num_dispatchers is not None):
            raise ValueError("max_num_tokens and num_dispatchers are for BatchedExperts, and needed there")
        self.moe_config, self.quant_config = moe_config, quant_config
        self.max_num_tokens, self.num_dispatchers = max_num_tokens, num_dispatchers

        def first(one, other, default):
            return one if one is not None else default if other is None else other

        self.activation_config = ApplyMoEActivationConfig(
            first(quant_config.gemm1_clamp_limit, moe_config.swiglu_limit, None),
            first(quant_config.gemm1_alpha, moe_config.swiglu_alpha, 1.0),
            first(quant_config.gemm1_beta, moe_config.swiglu_beta, 0.0),
            moe_config.activation_situ_beta,
            moe_config.activation_situ_linear_beta,
        )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        pass

    @staticmethod
    def is_supported_config(cls, moe_config, weight_key, activation_key, activation_format):
        reason = None
        if not cls._supports_current_device():
            reason = "current device"
        elif not cls._supports_no_act_and_mul() and moe_config.activation.value.endswith("_no_mul"):
            reason = "no act_and_mul MLP layer"
        elif not cls._supports_activation(moe_config.activation):
            reason = f"{moe_config.activation} activation"
        elif not cls._supports_quant_scheme(weight_key, activation_key):
            reason = f"quantization scheme {weight_key}x{activation_key}"
        elif not cls._supports_parallel_config(moe_config.moe_parallel_config):
            reason = f"parallel config {moe_config.moe_parallel_config}"
        elif activation_format != cls.activation_format():
            reason = f"{activation_format.value} activation format"
        elif moe_config.is_lora_enabled and not cls.supports_lora():
            reason = "LoRA"
        return (True, None) if reason is None else (False, f"kernel does not support {reason}")

    @property
    def expects_unquantized_inputs(self) -> bool:
        return False

    @staticmethod
    def supports_lora() -> bool:
        return False

    @property
    def a2_scale(self) -> Optional[torch.Tensor]:
        return self.quant_config.a2_scale

    @staticmethod
    @abc.abstractmethod
    def activation_format(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_current_device(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_no_act_and_mul(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_quant_scheme(weight_key, activation_key): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_activation(activation): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_parallel_config(moe_parallel_config): ...


class FusedMoEExpertsModular(FusedMoEExperts):
    @staticmethod
    def is_monolithic() -> bool:
        return False

    def moe_problem_size(self, a1, w1, w2, topk_ids):
        assert w1.dim() == 3 and w2.dim() == 3
        if a1.dim() == 2:
            assert topk_ids.size(0) == a1.size(0)
            return w1.size(0), a1.size(0), w1.size(1), a1.size(-1), topk_ids.size(1)
        assert a1.dim() == 3 and a1.size(0) == w1.size(0)
        return w1.size(0), a1.size(1), w1.size(1), a1.size(-1), topk_ids.size(1)

    def workspace_dtype(self, act_dtype: torch.dtype) -> torch.dtype:
        return act_dtype

    @abc.abstractmethod
    def workspace_shapes(self, M, N, K, topk, global_num_experts, local_num_experts,
                         expert_tokens_meta, activation): ...

    @abc.abstractmethod
    def finalize_weight_and_reduce_impl(self): ...

    @abc.abstractmethod
    def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation,
              global_num_experts, expert_map, a1q_scale, a2_scale, workspace13, workspace2,
              expert_tokens_meta, apply_router_weight_on_input): ...


class PrepareAndFinalize:
    """Tokens of this rank, as vLLM's without all2all."""

    def prepare(self, a1, topk_weights, topk_ids, num_experts, expert_map,
                apply_router_weight_on_input, quant_config, defer_input_quant):
        assert defer_input_quant or quant_config.quant_dtype is None
        if apply_router_weight_on_input:
            assert topk_ids.size(1) == 1
            a1 = a1 * topk_weights.to(a1.dtype)
        return a1, None, None, None, None

    def finalize(self, output, fused_expert_output, topk_weights, topk_ids,
                 apply_router_weight_on_input, weight_and_reduce_impl):
        weight_and_reduce_impl.apply(
            output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input
        )


class BatchedPrepareAndFinalize:
    """Tokens in batches by expert, as vLLM's reference of that format."""

    max_num_tokens = 16

    def prepare(self, a1, topk_weights, topk_ids, num_experts, expert_map,
                apply_router_weight_on_input, quant_config, defer_input_quant):
        batches = torch.full((num_experts, self.max_num_tokens, a1.size(1)), float("nan"),
                             dtype=a1.dtype)
        counts = torch.zeros(num_experts, dtype=torch.int32)
        self.places = []
        for token, row in enumerate(topk_ids.tolist()):
            for choice, expert in enumerate(row):
                batches[expert, counts[expert]] = a1[token]
                self.places.append((token, choice, expert, int(counts[expert])))
                counts[expert] += 1
        return batches, None, ExpertTokensMetadata(counts, None), None, None

    def finalize(self, output, fused_expert_output, topk_weights, topk_ids,
                 apply_router_weight_on_input, weight_and_reduce_impl):
        assert isinstance(weight_and_reduce_impl, TopKWeightAndReduceDelegate)
        total = torch.zeros(output.shape)
        for token, choice, expert, place in self.places:
            total[token] += topk_weights[token, choice] * fused_expert_output[expert, place].float()
        output.copy_(total)


class FusedMoEKernel:
    def __init__(self, prepare_finalize, fused_experts) -> None:
        self.prepare_finalize, self.fused_experts = prepare_finalize, fused_experts

    def apply(self, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts,
              expert_map, apply_router_weight_on_input):
        experts, dtype = self.fused_experts, hidden_states.dtype
        a1q, scale, meta, _, _ = self.prepare_finalize.prepare(
            hidden_states, topk_weights, topk_ids, global_num_experts, expert_map,
            apply_router_weight_on_input, experts.quant_config,
            defer_input_quant=experts.expects_unquantized_inputs,
        )
        local, most, rows, hidden, top_k = experts.moe_problem_size(a1q, w1, w2, topk_ids)
        first, second, shape = experts.workspace_shapes(
            most, rows, hidden, top_k, global_num_experts, local, meta, activation
        )
        # workspace13 and the output share memory.
        common = torch.full((max(torch.Size(first).numel(), torch.Size(shape).numel()),),
                            float("nan"), dtype=experts.workspace_dtype(dtype))
        output = common[: torch.Size(shape).numel()].view(shape)
        left = experts.apply(
            output=output,
            hidden_states=a1q,
            w1=w1,
            w2=w2,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            activation=activation,
            global_num_experts=global_num_experts,
            expert_map=expert_map,
            a1q_scale=scale,
            a2_scale=experts.a2_scale,
            workspace13=common[: torch.Size(first).numel()].view(first),
            workspace2=torch.empty(second, dtype=experts.workspace_dtype(dtype)),
            expert_tokens_meta=meta,
            apply_router_weight_on_input=apply_router_weight_on_input,
        )
        assert left is None
        result = torch.empty_like(hidden_states)
        self.prepare_finalize.finalize(
            result, output, topk_weights, topk_ids, apply_router_weight_on_input,
            experts.finalize_weight_and_reduce_impl(),
        )
        return result


# The methods of layers.


class UnquantizedMoeBackend(enum.Enum):
    FLASHINFER_CUTLASS = "FlashInfer CUTLASS"
    TRITON = "TRITON"
    BATCHED_TRITON = "BATCHED_TRITON"


class Fp8MoeBackend(enum.Enum):
    TRITON = "TRITON"
    MARLIN = "MARLIN"


class OwnExperts:
    """The experts that vLLM would choose."""


def maybe_make_prepare_finalize(
    moe, quant_config, routing_tables=None, allow_new_interface=False, use_monolithic=False,
    all2all_manager=None, input_dtype=None,
):
    assert allow_new_interface and not use_monolithic
    is_batched = moe.moe_parallel_config.use_batched_activation_format
    return BatchedPrepareAndFinalize() if is_batched else PrepareAndFinalize()


def replace_parameter(layer: torch.nn.Module, name: str, tensor: Optional[torch.Tensor]) -> None:
    if tensor is None:
        setattr(layer, name, None)
    else:
        setattr(layer, name, torch.nn.Parameter(tensor, requires_grad=False))


class FusedMoEMethodBase(abc.ABC):
    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__()
        self.moe, self.moe_quant_config, self.moe_kernel = moe, None, None

    def make_kernel(self, quant_config: FusedMoEQuantConfig) -> None:
        self.moe_quant_config = quant_config
        finalize = maybe_make_prepare_finalize(self.moe, quant_config, allow_new_interface=True)
        options = {}
        if isinstance(finalize, BatchedPrepareAndFinalize):
            options = {"max_num_tokens": finalize.max_num_tokens, "num_dispatchers": 1}
        experts = self.experts_cls(moe_config=self.moe, quant_config=quant_config, **options)
        self.moe_kernel = FusedMoEKernel(finalize, experts)

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        return self.moe_kernel.apply(
            hidden_states=x, w1=layer.w13_weight, w2=layer.w2_weight, topk_weights=topk_weights,
            topk_ids=topk_ids, activation=layer.activation,
            apply_router_weight_on_input=layer.apply_router_weight_on_input,
            global_num_experts=layer.global_num_experts, expert_map=layer.expert_map,
        )


class UnquantizedFusedMoEMethod(FusedMoEMethodBase, CustomOp):
    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        self.unquantized_backend = UnquantizedMoeBackend.FLASHINFER_CUTLASS
        self.experts_cls = OwnExperts

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if self.unquantized_backend == UnquantizedMoeBackend.FLASHINFER_CUTLASS:
            layer.w13_weight.data = layer.w13_weight.data.roll(layer.w13_weight.shape[1] // 2, 1)
        self.make_kernel(FusedMoEQuantConfig())


class QuantizationConfig:
    pass


class Fp8Config(QuantizationConfig):
    def __init__(self, is_checkpoint_fp8_serialized=True, activation_scheme="dynamic",
                 ignored_layers=None, weight_block_size=None, store_dtype=None) -> None:
        self.activation_scheme, self.weight_block_size = activation_scheme, weight_block_size
        self.ignored_layers = ignored_layers or []

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        if prefix in self.ignored_layers:
            return UnquantizedFusedMoEMethod(layer.moe_config)
        return Fp8MoEMethod(self, layer)


class Fp8MoEMethod(FusedMoEMethodBase):
    def __init__(self, quant_config: Fp8Config, layer: torch.nn.Module) -> None:
        super().__init__(layer.moe_config)
        self.quant_config = quant_config
        self.moe_block_shape = quant_config.weight_block_size
        self.block_quant = self.moe_block_shape is not None
        self.per_act_token_quant = False
        self.fp8_backend, self.experts_cls = Fp8MoeBackend.MARLIN, OwnExperts

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        self.make_kernel(FusedMoEQuantConfig(
            quant_dtype=FP8, block_shape=self.moe_block_shape, w1_scale=layer.w13_scale,
            w2_scale=layer.w2_scale, a1_scale=layer.a13_scale, a2_scale=layer.a2_scale,
        ))


QUANTIZATIONS: dict[str, type] = {}


def register_quantization_config(quantization: str) -> Any:
    def decorator(cls: type) -> type:
        assert issubclass(cls, QuantizationConfig)
        QUANTIZATIONS[quantization] = cls
        return cls

    return decorator


def list_modules() -> dict[str, dict[str, Any]]:
    """What moec.vllm imports, by module."""
    layers = "vllm.model_executor.layers"

    return {
        "vllm.platforms": {"current_platform": current_platform},
        "vllm.model_executor.custom_op": take(CustomOp) | {"op_registry_oot": op_registry_oot},
        f"{layers}.quantization": take(register_quantization_config),
        "vllm.model_executor.utils": take(replace_parameter),
        f"{layers}.fused_moe.all2all_utils": take(maybe_make_prepare_finalize),
        f"{layers}.fused_moe.fused_moe_method_base": take(FusedMoEMethodBase),
        f"{layers}.quantization.fp8": take(Fp8Config, Fp8MoEMethod),
        f"{layers}.quantization.utils.quant_utils": take(QuantKey) | KEYS,
        f"{layers}.fused_moe.activation": take(MoEActivation),
        f"{layers}.fused_moe.config": take(
            FusedMoEConfig, FusedMoEParallelConfig, FusedMoEQuantConfig
        ),
        f"{layers}.fused_moe.modular_kernel": take(
            ExpertTokensMetadata, FusedMoEActivationFormat, FusedMoEExperts,
            FusedMoEExpertsModular, FusedMoEKernel, TopKWeightAndReduce,
        ),
        f"{layers}.fused_moe.topk_weight_and_reduce": take(
            TopKWeightAndReduceDelegate, TopKWeightAndReduceNoOP
        ),
        f"{layers}.fused_moe.oracle.fp8": take(Fp8MoeBackend),
        f"{layers}.fused_moe.oracle.unquantized": take(UnquantizedMoeBackend),
        f"{layers}.fused_moe.unquantized_fused_moe_method": take(UnquantizedFusedMoEMethod),
    }
