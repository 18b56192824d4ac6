# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch tensors as arguments: storage, lazy negation, autograd versions."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

import moec  # noqa: E402
import moec.torch as moec_torch  # noqa: E402
from moec.functions import (  # noqa: E402
    batched_experts, clear, count_expert_num_tokens, fused_experts, fused_topk, grouped_topk, moe_align_block_size,
    moe_permute,
)
from moec.functions import experts as kept_experts  # noqa: E402
from moec.functions.outputs import check_output  # noqa: E402

SPEC = {
    "moec_spec": 1, "name": "small", "dtype": "f32", "hidden_size": 64, "num_experts": 4, "top_k": 2,
    "intermediate_size": 32, "max_tokens": 16, "routing": {"renormalize": True}, "activation": {"kind": "silu"},
}


def make_weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "gate.weight": torch.randn(4, 64),
        "experts.w13": torch.randn(4, 64, 64) / 8,
        "experts.w2": torch.randn(4, 64, 32) / 6,
    }


def compute(weights: dict[str, torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    """Computes docs/use/layers.md in float64."""
    gate, w13, w2, x = (each.double() for each in (*weights.values(), hidden))
    scores = torch.softmax(x @ gate.T, -1)
    best, ids = scores.topk(2)
    best = best / best.sum(-1, keepdim=True)
    products = torch.einsum("th,erh->ter", x, w13)
    act = torch.nn.functional.silu(products[..., :32]) * products[..., 32:]
    outputs = torch.einsum("tei,ehi->teh", act, w2)
    chosen = torch.gather(outputs, 1, ids[..., None].expand(-1, -1, 64))
    return (chosen * best[..., None]).sum(1)


class Small:
    def __init__(self, **changes: object) -> None:
        self.weights = make_weights()
        self.layer = moec.compile(SPEC | changes, device="cpu").bind(self.weights)
        self.hidden = torch.randn(5, 64)

    def verify(self, output: torch.Tensor) -> None:
        torch.testing.assert_close(output.double(), compute(self.weights, self.hidden), rtol=1e-4, atol=1e-4)


def call_operator(layer: moec.Layer, hidden: torch.Tensor) -> torch.Tensor:
    number = moec_torch.register(layer)
    try:
        return torch.ops.moec.forward(hidden, number)
    finally:
        moec_torch.unregister(number)


def call_operator_out(layer: moec.Layer, hidden: torch.Tensor, out: torch.Tensor) -> None:
    number = moec_torch.register(layer)
    try:
        torch.ops.moec.forward_out(out, hidden, number)
    finally:
        moec_torch.unregister(number)


WAYS = {
    "layer": lambda layer, hidden: layer(hidden),
    "module": lambda layer, hidden: moec_torch.MoE(layer)(hidden),
    "operator": call_operator,
}


# field-bug: vllm#29341, vllm-omni#4473, torch_memory_saver#71, megatron-lm#7009
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", ["gate.weight", "experts.w13", "experts.w2"])
def test_released_weights_are_refused(way, name: str) -> None:
    small = Small()
    small.verify(way(small.layer, small.hidden))
    values = small.weights[name].clone()
    storage = small.weights[name].untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    for _ in range(2):
        with pytest.raises(moec.InvalidArgument, match=f"{name}: its storage was released .*bind the weight again"):
            way(small.layer, small.hidden)
    with pytest.raises(moec.InvalidArgument, match=f"{name}: its storage was released"):
        small.layer.benchmark(4, repeat=1)
    with pytest.raises(moec.InvalidArgument, match=f"{name}: its storage has 0 bytes, fewer than the tensor needs"):
        small.layer.bind({name: small.weights[name]})
    # Prevents reuse of the old address.
    other = torch.empty(size, dtype=torch.uint8)
    storage.resize_(size)
    small.weights[name].copy_(values)
    small.layer.bind({name: small.weights[name]})
    small.verify(way(small.layer, small.hidden))
    del other


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_released_inputs_are_refused(way) -> None:
    small = Small()
    for begin in (0, 3):
        hidden = torch.randn(8, 64)[begin : begin + 5]
        hidden.untyped_storage().resize_(0)
        with pytest.raises(moec.InvalidArgument, match="hidden_states: its storage has 0 bytes, fewer"):
            way(small.layer, hidden)
    out = torch.empty(5, 64)
    out.untyped_storage().resize_(0)
    with pytest.raises(moec.InvalidArgument, match="out: its storage has 0 bytes"):
        small.layer(small.hidden, out=out)
    with pytest.raises(moec.InvalidArgument, match="out: its storage has 0 bytes"):
        call_operator_out(small.layer, small.hidden, out)


def test_released_workspace_is_refused() -> None:
    small = Small()
    memory = torch.empty(small.layer.workspace_bytes(16) + 256, dtype=torch.uint8)
    small.layer.use_workspace(memory[-memory.data_ptr() % 256 :])
    small.verify(small.layer(small.hidden))
    memory.untyped_storage().resize_(0)
    with pytest.raises(moec.InvalidArgument, match=r"workspace: its storage was released .*call use_workspace\(\)"):
        small.layer(small.hidden)
    small.layer.use_workspace(None)
    small.verify(small.layer(small.hidden))


def make_fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(5, 64)


NO_MEMORY = {
    "meta": (lambda: torch.empty(5, 64, device="meta"), "a meta tensor"),
    "coo": (lambda: torch.ones(5, 64).to_sparse(), "a tensor of layout torch.sparse_coo"),
    "csr": (lambda: torch.ones(5, 64).to_sparse_csr(), "a tensor of layout torch.sparse_csr"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(5, 64)), "a functional tensor"),
    "fake": (make_fake, "a FakeTensor"),
}


def verify_message(error: pytest.ExceptionInfo, argument: str, what: str) -> None:
    text = str(error.value)
    assert text.startswith(f"{argument}: is {what}"), text
    assert "which has no dense rows" in text and "\n" not in text


@pytest.mark.parametrize(("make", "what"), NO_MEMORY.values(), ids=NO_MEMORY)
def test_tensors_without_memory_are_named(make, what: str) -> None:
    small = Small()
    for argument, call in (
        ("hidden_states", lambda tensor: small.layer(tensor)),
        ("out", lambda tensor: small.layer(small.hidden, out=tensor)),
        ("experts.w13", lambda tensor: small.layer.bind({"experts.w13": tensor})),
        ("workspace", small.layer.use_workspace),
    ):
        with pytest.raises(moec.InvalidArgument) as error:
            call(make())
        verify_message(error, argument, what)
    small.verify(small.layer(small.hidden))


def test_tensors_in_transforms_are_named() -> None:
    small = Small()
    with torch.no_grad(), pytest.raises(moec.InvalidArgument) as error:
        torch.func.vmap(lambda x: small.layer(x))(torch.randn(2, 5, 64))
    verify_message(error, "hidden_states", "a tensor inside a transform of torch.func, such as vmap")


def test_lazy_negation_is_refused_or_resolved() -> None:
    small = Small()
    negated = torch._neg_view(-small.hidden)
    assert negated.is_neg() and torch.equal(negated, small.hidden)
    message = r"is negated lazily .*; give x\.resolve_neg\(\)"
    block = moec_torch.MoE(small.layer)
    for call in (small.layer, block) if moec_torch._is_direct else (small.layer,):
        with pytest.raises(moec.InvalidArgument, match=f"^hidden_states: {message}"):
            call(negated)
    if not moec_torch._is_direct:
        # Before PyTorch 2.10 the module calls the operator.
        small.verify(block(negated))
    with pytest.raises(moec.InvalidArgument, match=f"^out: {message}"):
        small.layer(small.hidden, out=torch._neg_view(torch.zeros(5, 64)))
    weight = torch._neg_view(-small.weights["experts.w2"])
    with pytest.raises(moec.InvalidArgument, match=f"^experts.w2: {message}"):
        small.layer.bind({"experts.w2": weight})
    # The dispatcher passes resolved values to an operator.
    small.verify(call_operator(small.layer, negated))
    out = torch._neg_view(torch.zeros(5, 64))
    if torch.__version__.startswith("2.9."):
        # That dispatcher takes no negated output beside inputs that are left out.
        with pytest.raises(RuntimeError, match="Expected Tensor but got None"):
            call_operator_out(small.layer, small.hidden, out)
    else:
        call_operator_out(small.layer, small.hidden, out)
        small.verify(out)
    # A capsule of an older release cannot have conjugated elements.
    refusal = moec.InvalidType if moec_torch._is_direct else moec.InvalidArgument
    with pytest.raises(refusal, match="^hidden_states: "):
        small.layer(torch.zeros(5, 64, dtype=torch.complex64).conj())


def write_experts(small: Small, out: torch.Tensor, **options: object) -> None:
    ids, weights = torch.zeros(5, 1, dtype=torch.int32), torch.ones(5, 1)
    fused_experts(small.hidden, small.weights["experts.w13"], small.weights["experts.w2"], weights, ids, out=out,
                  **options)


WRITES = {
    "add": lambda small, out: torch.add(small.hidden, 1, out=out),
    "layer": lambda small, out: small.layer(small.hidden, out=out),
    "run": lambda small, out: small.layer.run(5, {"hidden_states": small.hidden, "output": out}),
    "forward_out": lambda small, out: call_operator_out(small.layer, small.hidden, out),
    "fused_experts": write_experts,
    "chunks": lambda small, out: write_experts(small, out, chunk_tokens=2),
}


# field-bug: pytorch#14571, pytorch#186175
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("part", [slice(None), slice(1, 6)], ids=["whole", "view"])
def test_autograd_hears_of_what_is_written(write, part: slice) -> None:
    small = Small()
    factor, memory = torch.ones(6, 64, requires_grad=True), torch.full((6, 64), 3.0)
    memory = memory if part.start else memory[:5].clone()
    loss = (factor[: memory.shape[0]] * memory).sum()
    before = memory._version
    with torch.no_grad():
        write(small, memory[part])
    assert memory._version > before
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        loss.backward()


def test_autograd_hears_of_records_and_not_of_inputs() -> None:
    small = Small(record_ids=True)
    ids, weights, out = torch.zeros(5, 2, dtype=torch.int32), torch.zeros(5, 2), torch.zeros(5, 64)
    small.layer(small.hidden, topk_ids=ids, topk_weights=weights, out=out)
    assert ids._version and weights._version and out._version
    assert small.hidden._version == 0 and not any(each._version for each in small.weights.values())


def test_tensors_of_inference_mode_have_no_version() -> None:
    small = Small()
    with torch.inference_mode():
        out, hidden = torch.zeros(5, 64), small.hidden.clone()
        small.verify(small.layer(hidden, out=out))
        call_operator_out(small.layer, hidden, out.zero_())
        small.verify(out)
        normal = torch.zeros(0)
    normal = torch.zeros(5, 64)
    with torch.inference_mode():
        call_operator_out(small.layer, hidden, normal)
        small.verify(small.layer(hidden, out=normal))
    assert normal._version >= 2
    small.layer(small.hidden, out=out)
    call_operator_out(small.layer, small.hidden, out)
    small.verify(out)


def test_modules_are_copied() -> None:
    small = Small()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), moec_torch.MoE(small.layer)).eval()
    copied = copy.deepcopy(model)
    assert copied[1].number != model[1].number and copied[1].layer is not model[1].layer
    assert not copied[1].training
    del model
    gc.collect()
    small.verify(copied[1](small.hidden))
    small.verify(torch.ops.moec.forward(small.hidden, copied[1].number))
    with pytest.raises(moec.InvalidType, match="a layer is on a device and cannot be pickled; carry a package"):
        pickle.dumps(copied)


#
# moec.functions
#


def make_call() -> dict[str, torch.Tensor]:
    weights = make_weights()
    return {
        "hidden_states": torch.randn(5, 64), "w1": weights["experts.w13"], "w2": weights["experts.w2"],
        "topk_weights": torch.full((5, 1), 2.0), "topk_ids": torch.arange(5, dtype=torch.int32).view(5, 1) % 4,
    }


def compute_call(call: dict[str, torch.Tensor]) -> torch.Tensor:
    x, w1, w2 = (call[name].double() for name in ("hidden_states", "w1", "w2"))
    chosen = call["topk_ids"].view(-1).long()
    products = torch.einsum("th,trh->tr", x, w1[chosen])
    act = torch.nn.functional.silu(products[:, :32]) * products[:, 32:]
    return torch.einsum("ti,thi->th", act, w2[chosen]) * call["topk_weights"].double()


def verify_call(call: dict[str, torch.Tensor], **options: object) -> None:
    torch.testing.assert_close(fused_experts(**call, **options).double(), compute_call(call), rtol=1e-4, atol=1e-4)


def test_experts_with_padded_rows() -> None:
    call = make_call()
    for name in ("w1", "w2"):
        padded = torch.full((*call[name].shape[:2], call[name].shape[2] + 32), float("nan"))
        padded[..., : call[name].shape[2]] = call[name]
        call[name] = padded[..., : call[name].shape[2]]
        assert not call[name].is_contiguous()
        verify_call(call)


def test_outputs_of_experts_are_checked() -> None:
    call = make_call()
    for out in (torch.zeros(4, 64), torch.zeros(5, 64, dtype=torch.bfloat16), torch.zeros(5, 64, device="meta"),
                torch.zeros(1, 64).expand(6, 64)):
        with pytest.raises(moec.InvalidArgument, match=r"^out: \[5, 64\] of torch.float32 on cpu expected, "):
            fused_experts(**call, out=out)
    w2 = call["w2"].clone()
    with pytest.raises(moec.InvalidArgument, match="^out: shares memory with the weight 'experts.w2'"):
        fused_experts(**call, out=call["w2"].view(-1)[: 5 * 64].view(5, 64))
    with pytest.raises(moec.InvalidArgument, match="^out: shares memory with w2"):
        fused_experts(**call, out=call["w2"].view(-1, 128)[:5, ::2])
    assert torch.equal(call["w2"], w2)
    # The input itself, and columns of a wider matrix.
    hidden, wide = call["hidden_states"].clone(), torch.zeros(5, 70)
    right = compute_call(call)
    fused_experts(**call | {"hidden_states": hidden}, out=hidden)
    fused_experts(**call, out=wide[:, 3:67])
    for found in (hidden, wide[:, 3:67]):
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-4)
    batches = torch.randn(4, 3, 64)
    counts = torch.tensor([3, 0, 1, 2], dtype=torch.int32)
    whole = batched_experts(batches, call["w1"], call["w2"], counts)
    part = torch.zeros(4, 4, 64)[:, :3]
    assert torch.equal(batched_experts(batches, call["w1"], call["w2"], counts, out=part), whole)
    assert torch.equal(part, whole)
    with pytest.raises(moec.InvalidArgument, match=r"^out: \[4, 3, 64\]"):
        batched_experts(batches, call["w1"], call["w2"], counts, out=torch.zeros(12, 64))
    with pytest.raises(moec.InvalidArgument, match=r"^rows: \[3, 64\] of torch.float32 on cpu expected, \[2, 64\]"):
        check_output(torch.zeros(2, 64), "rows", (3, 64), hidden)


def test_weights_of_experts_can_be_swapped_saved_and_freed() -> None:
    clear()
    call = make_call()
    verify_call(call)
    other = torch.nn.Parameter(make_call()["w1"] * 2, requires_grad=False)
    call["w1"] = torch.nn.Parameter(call["w1"], requires_grad=False)
    verify_call(call)
    assert len(kept_experts._kept) == 1
    torch.utils.swap_tensors(call["w1"], other)
    verify_call(call)
    file = io.BytesIO()
    torch.save({"w1": call["w1"], "deep": copy.deepcopy(call["w1"])}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["w1"], call["w1"])
    copied = copy.deepcopy(call)
    verify_call(copied)
    # Experts are dropped with their weight's tensor.
    count = len(kept_experts._kept)
    del copied
    gc.collect()
    assert len(kept_experts._kept) == count - 1
    del call, other
    gc.collect()
    assert not kept_experts._kept


def test_sizes_of_routers_are_named() -> None:
    hidden, logits = torch.zeros(3, 16), torch.zeros(3, 8)
    for top_k in (0, 9):
        with pytest.raises(moec.InvalidArgument, match=f"^topk: {top_k} found; 1 to 8, the columns of gating_output"):
            fused_topk(hidden, logits, top_k, True)
    bias = torch.zeros(8)
    for groups, kept, top_k, given, message in (
        (3, 1, 2, None, "num_expert_group: 3 found, and 8 experts are not a multiple of it"),
        (4, 5, 2, None, "topk_group: 5 found; 1 to 4"),
        (4, 0, 2, None, "topk_group: 0 found; 1 to 4"),
        (4, 2, 5, None, "topk: 5 found; 1 to 4, the experts of 2 groups"),
        (8, 4, 2, bias, "num_expert_group: 8 found, .* give at most 4"),
    ):
        with pytest.raises(moec.InvalidArgument, match=f"^{message}"):
            grouped_topk(hidden, logits, top_k, True, groups, kept, e_score_correction_bias=given)
    grouped_topk(hidden, logits, 2, True, 8, 4)
    ids = torch.zeros(3, 2, dtype=torch.int32)
    with pytest.raises(moec.InvalidArgument, match="^num_experts: 0 found, at least 1 expected"):
        moe_align_block_size(ids, 16, 0)
    with pytest.raises(moec.InvalidArgument, match="^num_local_experts: 0 found"):
        count_expert_num_tokens(ids, 0)


def test_given_rows_of_a_permutation_are_not_resized() -> None:
    hidden, ids = torch.randn(3, 64), torch.tensor([[0, 1], [2, 3], [1, 0]], dtype=torch.int32)
    rows = torch.empty(3, 64)
    with pytest.raises(moec.InvalidArgument, match=r"^permuted_hidden_states: \[6, 64\] of .*, \[3, 64\] of "):
        moe_permute(hidden, None, ids, 4, permuted_hidden_states=rows)
    assert rows.shape == (3, 64)
    rows = torch.empty(6, 64)
    found = moe_permute(hidden, None, ids, 4, permuted_hidden_states=rows)
    assert found[0] is rows and torch.equal(rows, hidden[[0, 2, 0, 2, 1, 1]])
