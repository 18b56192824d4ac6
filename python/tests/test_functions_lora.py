# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fused_experts() with adapters, against PyTorch."""

import pytest

torch = pytest.importorskip("torch")

from moec import InvalidArgument
from moec.functions import Adapters, fused_experts
from moec.modular import Experts

T, H, E, K, I, A, R = 11, 64, 4, 2, 32, 3, 8


def make(dtype=torch.float32):
    torch.manual_seed(1)
    draw = lambda *shape: (torch.randn(shape) / shape[-1] ** 0.5).to(dtype)  # noqa: E731
    x, w1, w2 = draw(T, H) * H ** 0.5, draw(E, 2 * I, H), draw(E, H, I)
    weights, ids = torch.softmax(torch.randn(T, E), 1).topk(K)
    adapters = Adapters(
        (draw(A, E, R, H), draw(A, E, R, H)), (draw(A, E, I, R), draw(A, E, I, R)), draw(A, E, R, I), draw(A, E, H, R))
    return x, w1, w2, weights, ids, adapters


def expect(x, w1, w2, weights, ids, adapters, of_token):
    out = torch.zeros_like(x)
    for t in range(T):
        a = int(of_token[t])
        for w, e in zip(weights[t], ids[t]):
            u = w1[e] @ x[t]
            gate, up = u[:I], u[I:]
            if 0 <= a < A:
                gate = gate + adapters.w13_b[0][a, e] @ (adapters.w13_a[0][a, e] @ x[t])
                up = up + adapters.w13_b[1][a, e] @ (adapters.w13_a[1][a, e] @ x[t])
            h = torch.nn.functional.silu(gate) * up
            y = w2[e] @ h
            if 0 <= a < A:
                y = y + adapters.w2_b[a, e] @ (adapters.w2_a[a, e] @ h)
            out[t] += w * y
    return out


def test_values():
    *given, adapters = make()
    of_token = torch.arange(T) % (A + 2) - 1
    for _ in range(2):
        out = fused_experts(*given, adapters=adapters, adapter_ids=of_token)
        torch.testing.assert_close(out, expect(*given, adapters, of_token), rtol=1e-4, atol=1e-4)
        # In place, as engines load adapters.
        adapters.w2_b[1].mul_(-2)
        adapters.w13_a[0][0].zero_()
    plain = fused_experts(*given)
    assert not torch.equal(plain, out)
    torch.testing.assert_close(plain, expect(*given, adapters, torch.full((T,), -1)), rtol=1e-4, atol=1e-4)


def test_modular_experts():
    x, w1, w2, weights, ids, adapters = make()
    experts = Experts("silu")
    for of_token in (torch.arange(T) % A, torch.arange(T) % 2 - 1):
        experts.use_adapters(adapters, of_token)
        output = torch.empty_like(x)
        empty = torch.empty(0)
        experts.apply(output, x, w1, w2, weights, ids, "silu", E, None, None, None, empty, empty, None, False)
        torch.testing.assert_close(
            output, expect(x, w1, w2, weights, ids, adapters, of_token), rtol=1e-4, atol=1e-4)


def test_what_is_refused():
    *given, adapters = make()
    ids = torch.zeros(T, dtype=torch.int32)
    with pytest.raises(InvalidArgument, match="adapter_ids: goes together with adapters"):
        fused_experts(*given, adapters=adapters)
    with pytest.raises(InvalidArgument, match=r"adapter_ids: \[11\] expected, one for each token, \[10\] found"):
        fused_experts(*given, adapters=adapters, adapter_ids=ids[:-1])
    shared = Adapters(
        tuple(each[:, :1].expand(A, E, R, H) for each in adapters.w13_a), adapters.w13_b, adapters.w2_a, adapters.w2_b)
    with pytest.raises(InvalidArgument, match=r"adapters: lora.gate_a is .* with gaps; .*, contiguous, expected"):
        fused_experts(*given, adapters=shared, adapter_ids=ids)
    one = Adapters(adapters.w13_a[:1], adapters.w13_b[:1], adapters.w2_a, adapters.w2_b)
    with pytest.raises(InvalidArgument, match="adapters: 2 tensors expected of w13_a and w13_b each, 1 and 1 found"):
        fused_experts(*given, adapters=one, adapter_ids=ids)
