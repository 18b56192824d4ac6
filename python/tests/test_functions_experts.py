# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fused_experts and batched_experts of moec.functions against the float64 reference."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from experts_case import Case, to_torch  # noqa: E402

from moec import functions  # noqa: E402
from moec.functions import QuantConfig, batched_experts, fused_experts  # noqa: E402
from moec.functions import experts as module  # noqa: E402


@pytest.fixture(autouse=True)
def forgotten() -> None:
    functions.clear()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("tokens", [1, 33])
def test_is_the_reference(tokens: int, dtype: str) -> None:
    case = Case(tokens, dtype=dtype)
    case.verify(case.run())


@pytest.mark.parametrize(
    "size", [(1, 128, 128), (33, 2048, 128), (33, 128, 511)], ids=lambda each: "x".join(map(str, each))
)
@pytest.mark.parametrize("experts, top_k", [(8, 2), (64, 6)])
def test_sizes(size: tuple[int, int, int], experts: int, top_k: int) -> None:
    tokens, width, hidden = size
    case = Case(tokens, hidden_size=hidden, intermediate_size=width, num_experts=experts, top_k=top_k)
    case.verify(case.run())


@pytest.mark.parametrize("kind, changes, config", [
    ("gelu", {}, None),
    ("gelu_tanh", {}, None),
    ("relu2_no_mul", {}, None),
    ("silu", {"limit": 1.0}, QuantConfig(gemm1_clamp_limit=1.0)),
    ("swigluoai", {}, None),
    ("swigluoai_uninterleave", {"alpha": 1.5, "beta": 1.0, "limit": 2.0},
     QuantConfig(gemm1_alpha=1.5, gemm1_beta=1.0, gemm1_clamp_limit=2.0)),
])
def test_activations(kind: str, changes: dict, config: Any) -> None:
    order = {"gate_up_order": "interleaved"} if kind == "swigluoai" else {}
    case = Case(17, activation={"kind": kind, **changes}, **order)
    name = "gelu_pytorch_tanh" if kind == "gelu_tanh" else kind
    case.verify(case.run(name, quant_config=config))
    if changes and kind == "silu":
        case.verify(case.run(kind, activation_parameters=changes))
        with pytest.raises(moec.InvalidArgument, match="'silu' takes no alpha"):
            case.run(kind, activation_parameters={"alpha": 1.0})


def test_biases() -> None:
    case = Case(9, expert_bias=True)
    config = QuantConfig(w1_bias=case["experts.w13_bias"], w2_bias=case["experts.w2_bias"])
    case.verify(case.run(quant_config=config))


def test_weight_on_input() -> None:
    case = Case(9, top_k=1, routing={"weight_on_input": True})
    case.verify(case.run("silu", True))
    case = Case(9)
    with pytest.raises(moec.InvalidArgument, match="topk_ids has 2 columns"):
        case.run("silu", True)


FP8 = {"hidden_size": 256, "intermediate_size": 128}


@pytest.mark.parametrize("scale, activation", [
    ({"block": [128, 128]}, {"group": 128}),
    ("channel", "token"),
    ("tensor", "token"),
    ("tensor", "tensor"),
    ("tensor", "static"),
    ("channel", None),
    ({"block": [128, 128]}, None),
])
def test_fp8(scale: Any, activation: Any) -> None:
    given = activation == "static"
    quantization: dict[str, Any] = {"weight": {"dtype": "fp8_e4m3", "scale": scale}}
    if activation:
        quantization["activation"] = {
            "dtype": "fp8_e4m3", "scale": "tensor" if given else activation
        } | ({"static": True} if given else {})
    case = Case(7, quantization=quantization, **FP8)
    first = case.tensors["experts.w13_scale"]
    if scale == "tensor":
        # Engines use one scale for gate and up.
        first[:, 1] = first[:, 0]
        case.made["experts.w13_scale"] = to_torch(first[:, 0, 0])
    config = QuantConfig(
        quant_dtype=torch.float8_e4m3fn if activation else None,
        per_act_token_quant=activation == "token",
        # vLLM's block_shape describes activations: unset without them; weight scales show their groups by shape.
        block_shape=[128, 128] if isinstance(activation, dict) else None,
        w1_scale=case["experts.w13_scale"],
        w2_scale=case["experts.w2_scale"],
        a1_scale=case["experts.w13_input_scale"] if given else None,
        a2_scale=case["experts.w2_input_scale"] if given else None,
    )
    case.verify(case.run(quant_config=config))


def test_int8() -> None:
    case = Case(7, quantization={
        "weight": {"dtype": "int8", "scale": "channel"},
        "activation": {"dtype": "int8", "scale": "token"},
    })
    config = QuantConfig(
        quant_dtype=torch.int8, per_act_token_quant=True,
        w1_scale=case["experts.w13_scale"], w2_scale=case["experts.w2_scale"],
    )
    case.made |= {name: case[name].view(torch.int8) for name in ("experts.w13", "experts.w2")}
    case.verify(case.run(quant_config=config))


@pytest.mark.parametrize("weight", [
    "mxfp4",
    "nvfp4",
    {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "bf16"},
    {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "f16", "zero_point": True},
    {"dtype": "int4", "scale": "channel", "scale_dtype": "bf16"},
    {"dtype": "int8", "scale": {"group": 32}, "scale_dtype": "bf16"},
    {"dtype": "int8", "scale": {"group": 32}, "scale_dtype": "f16", "zero_point": True},
    {"dtype": "int8", "scale": "channel", "scale_dtype": "bf16", "zero_point": True},
], ids=["mxfp4", "nvfp4", "int4", "int4 with zero points", "int4 by channel", "int8", "int8 with zero points",
        "int8 by channel with zero points"])
def test_weights_with_scales_of_groups(weight: Any) -> None:
    case = Case(7, quantization={"weight": weight})
    is_signed = "int8" in str(weight) and "zero_point" not in weight
    stored = torch.int8 if is_signed else torch.uint8
    case.made |= {name: case[name].view(stored) for name in ("experts.w13", "experts.w2")}
    case.made |= {name: each.view(torch.uint8) for name, each in case.made.items() if "zero_point" in name}
    config = QuantConfig(
        w1_scale=case["experts.w13_scale"], w2_scale=case["experts.w2_scale"],
        w1_zp=case.made.get("experts.w13_zero_point"), w2_zp=case.made.get("experts.w2_zero_point"),
        g1_alphas=case.made.get("experts.w13_global_scale"), g2_alphas=case.made.get("experts.w2_global_scale"),
    )
    case.verify(case.run(quant_config=config))


def test_descriptions_of_the_same_tensors_are_one() -> None:
    case = Case(7, expert_bias=True)
    made = [QuantConfig(w1_bias=case["experts.w13_bias"], w2_bias=case["experts.w2_bias"])
            for _ in range(2)]
    case.verify(case.run(quant_config=made[0]))
    (kept,) = module._kept.values()
    case.verify(case.run(quant_config=made[1]))
    assert list(module._kept.values()) == [kept]
    plain = case.run()
    assert list(module._kept.values()) != [kept]
    assert not torch.equal(plain, case.run(quant_config=made[0]))


def test_runs_in_memory_of_the_caller() -> None:
    case = Case(9)
    weights = case["experts.w13"], case["experts.w2"]
    experts = module.Experts(chunk_tokens=8)
    size = experts.workspace_bytes(9, *weights, 64, torch.bfloat16, 2)
    assert size == experts.layer.layer.workspace_bytes(8) > 0
    memory = torch.full((size + 256,), 255, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % 256 :][:size]
    call = case["hidden_states"], *weights, case["topk_weights"], case["topk_ids"]
    case.verify(experts.run(*call, workspace=memory))
    assert not (memory == 255).all()
    case.verify(experts.run(*call, workspace=memory))


def test_what_has_no_form_is_refused() -> None:
    case = Case(5)
    fp8 = {"w1_scale": torch.ones(8), "w2_scale": torch.ones(8)}
    weights = {name: case[name].to(torch.float8_e4m3fn) for name in ("experts.w13", "experts.w2")}
    groups = {"w1_scale": torch.ones(8, 64, 2), "w2_scale": torch.ones(8, 64, 1)}
    unsigned = {name: case[name].to(torch.uint8) for name in ("experts.w13", "experts.w2")}
    pairs = {name: each[..., ::2].contiguous() for name, each in unsigned.items()}
    for wanted, changes, config in (
        ("w1: torch.bfloat16 expected", weights, None),
        ("quant_config: w1_scale: weights of torch.float8_e4m3fn need", weights, QuantConfig()),
        ("quant_config: w1_scale: weights of torch.uint8 need", pairs, QuantConfig()),
        ("quant_config: w1_zp: weights of torch.bfloat16 are not", {}, QuantConfig(w1_zp=torch.zeros(1))),
        (r"quant_config: w1_zp: \[8, 64, 2\] of torch.uint8 expected, one per byte, \[8, 32, 2\] of torch.uint8", pairs,
         QuantConfig(w1_zp=torch.zeros(8, 32, 2, dtype=torch.uint8), **groups)),
        ("quant_config: w2_zp: .* None found", pairs,
         QuantConfig(w1_zp=torch.zeros(8, 64, 2, dtype=torch.uint8), **groups)),
        ("quant_config: w1_zp: weights of fp8_e4m3 with such scales have none", weights,
         QuantConfig(w1_zp=torch.zeros(8, 64, 2, dtype=torch.uint8), **fp8)),
        ("quant_config: w1_zp: weights of 0 to 255 need", unsigned, QuantConfig(**groups)),
        (r"quant_config: g1_alphas: \[8\] or \[8, 2\] expected, None found", pairs,
         QuantConfig(**{name: each.to(torch.float8_e4m3fn) for name, each in groups.items()})),
        ("quant_config: g1_alphas: weights of int4 with such scales", pairs,
         QuantConfig(g1_alphas=torch.ones(8), **groups)),
        ("quant_config: block_shape: blocks of 128 rows do not divide", weights,
         QuantConfig(block_shape=[128, 128], **fp8)),
        ("quant_config: quant_dtype: weights of torch.bfloat16 are not quantized", {},
         QuantConfig(torch.float8_e4m3fn)),
        ("hidden_states: torch.float64 is not supported",
         {"hidden_states": case["hidden_states"].double()}, None),
        (r"w1: \[8, 64, 64\] and w2 \[8, 64, 32\] expected", {"experts.w2": case["experts.w13"]}, None),
    ):
        changed = Case(5)
        changed.made |= changes
        with pytest.raises(moec.InvalidArgument, match=wanted):
            changed.run(quant_config=config)
    with pytest.raises(moec.InvalidArgument, match="activation: 'tanh' found"):
        case.run("tanh")
    with pytest.raises(moec.InvalidArgument, match="expert_map: 9 entries expected"):
        case.run("silu", False, 9, torch.zeros(8, dtype=torch.int32))
    case.made["topk_weights"].requires_grad_()
    with pytest.raises(moec.InvalidArgument, match="topk_weights: requires a gradient"):
        case.run()


@pytest.mark.parametrize("strategy", ["linear", "round_robin"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ranks_add_up(ranks: int, strategy: str) -> None:
    case = Case(33, dtype="f32")
    whole, total = case.run(), torch.zeros(33, 64)
    for rank in range(ranks):
        local, expert_map, _ = functions.determine_expert_map(ranks, rank, 8, strategy)
        held = expert_map >= 0
        assert int(held.sum()) == local
        order = torch.argsort(expert_map[held])
        weights = [case[name][held][order].contiguous() for name in ("experts.w13", "experts.w2")]
        part = fused_experts(
            case["hidden_states"], *weights, case["topk_weights"], case["topk_ids"].long(),
            global_num_experts=8, expert_map=expert_map,
        )
        total += part
        assert functions.count_expert_num_tokens(case["topk_ids"], local, expert_map).tolist() == [
            int((expert_map[case["topk_ids"].long()] == expert).sum()) for expert in range(local)
        ]
    torch.testing.assert_close(total, whole, rtol=1e-5, atol=1e-6)


def test_ids_of_nobody_contribute_nothing() -> None:
    case = Case(9)
    ids = case["topk_ids"]
    ids[2], ids[3, 0], ids[4, 1] = -1, 8, -7
    case.tensors["topk_ids"][:] = ids.numpy()
    case.verify(case.run())
    identity = torch.arange(8, dtype=torch.int32)
    case.verify(case.run("silu", False, -1, identity))


def test_calls_in_chunks() -> None:
    case = Case(50)
    whole = case.run()
    for chunk in (7, 25, 49):
        assert torch.equal(case.run(chunk_tokens=chunk), whole)


# parity: M52
def test_out_and_in_place() -> None:
    case = Case(9)
    out = torch.empty_like(case["hidden_states"])
    assert case.run(out=out) is out
    case.verify(out)
    wide = torch.zeros(9, 128, dtype=torch.bfloat16)
    case.run(out=wide[:, :64])
    assert torch.equal(wide[:, :64], out) and not wide[:, 64:].any()
    case.run(out=case["hidden_states"])
    assert torch.equal(case["hidden_states"], out)


def test_no_tokens() -> None:
    case = Case(5)
    for name in ("hidden_states", "topk_ids", "topk_weights"):
        case.made[name] = case[name][:0]
    assert case.run().shape == (0, 64)


def test_weights_that_change_count() -> None:
    case = Case(9)
    first = case.run()
    case["experts.w2"].mul_(2)
    torch.testing.assert_close(case.run(), first * 2, rtol=0, atol=0)
    assert len(module._kept) == 1


def test_weights_go_when_nobody_has_them() -> None:
    case = Case(9)
    case.run()
    storages = [weakref.ref(case[name]) for name in ("experts.w13", "experts.w2")]
    assert len(module._kept) == 1
    del case
    gc.collect()
    assert not module._kept and [each() for each in storages] == [None, None]


def test_layers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_EXPERTS", 2)
    cases = [Case(3, seed) for seed in range(4)]
    for case in cases * 2:
        case.verify(case.run())
    assert len(module._kept) == 2
    functions.clear()
    assert not module._kept


@pytest.mark.parametrize("rows", [1, 16, 45])
@pytest.mark.parametrize("experts", [8, 64])
def test_batched(experts: int, rows: int) -> None:
    torch.manual_seed(0)
    case = Case(1, num_experts=experts)
    hidden = torch.randn(experts, rows, 64).to(torch.bfloat16)
    counts = torch.randint(0, rows + 1, (experts,), dtype=torch.int32)
    counts[0], counts[1] = 0, rows
    padded = torch.arange(rows) >= counts[:, None]
    hidden[padded] = float("nan")
    output = batched_experts(hidden, case["experts.w13"], case["experts.w2"], counts)
    assert output.shape == hidden.shape and not output[padded].any()
    valid = ~padded
    expert = torch.arange(experts)[:, None].expand(experts, rows)[valid].to(torch.int32).view(-1, 1)
    ones = torch.ones(expert.shape)
    wanted = fused_experts(hidden[valid], case["experts.w13"], case["experts.w2"], ones, expert)
    assert torch.equal(output[valid], wanted)
    again = batched_experts(
        hidden, case["experts.w13"], case["experts.w2"], counts, chunk_tokens=5,
        out=torch.empty_like(hidden),
    )
    assert torch.equal(again, output)
    none = batched_experts(hidden, case["experts.w13"], case["experts.w2"], torch.zeros_like(counts))
    assert not none.any()
    with pytest.raises(moec.InvalidArgument, match="expert_num_tokens"):
        batched_experts(hidden, case["experts.w13"], case["experts.w2"], counts[1:])


def test_weights_that_are_held() -> None:
    """Calls pass no weights; reloaded weights are written to the original memory, which captured graphs read."""
    case, other = Case(9), Case(9, seed=5)
    experts, where = module.Experts(), (64, torch.bfloat16, 2)

    def hold(case: Case, *options: Any) -> module.Held:
        return experts.hold(case["experts.w13"], case["experts.w2"], *options)

    def run(case: Case) -> torch.Tensor:
        nothing = torch.empty(8, 0, 0)
        hidden, weights, ids = (case[name] for name in ("hidden_states", "topk_weights", "topk_ids"))
        return experts.run(hidden, nothing, nothing, weights, ids)

    held = hold(case, *where)
    assert set(held.read) == {"experts.w13", "experts.w2"} and not held.prepared
    case.verify(run(case))
    again = hold(other, *where, held)
    assert all(again.read[name] is each for name, each in held.read.items())
    assert torch.equal(case["experts.w2"], other["experts.w2"])
    other.verify(run(other))

    with pytest.raises(moec.InvalidArgument, match="w1: torch.float32 expected"):
        hold(other, 64, torch.float32, 2)
    other.verify(run(other))
    hold(other, 64, torch.bfloat16, 3)
    with pytest.raises(moec.InvalidArgument, match=r"bfloat16, 3\) expected, \(64, torch.bfloat16, 2\) found"):
        run(other)
