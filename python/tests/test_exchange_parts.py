# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A dispatch or a combine alone, from IR, on ranks that are threads of the CPU (docs/design/parts.md)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from rank_threads import RANKS, on_ranks

import moec
import moec.ranks
from moec.compiler import compile_text

TOKENS, EXPERTS = 5, 8
#: Element types of IR that cross the wire, and how NumPy holds them.
DTYPES = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f8E4M3FN": np.uint8, "i8": np.int8,
}
MESH = f"attributes {{moe.mesh = #moe.mesh<dp = {RANKS}, num_experts = {EXPERTS}>, moe.max_tokens = 64 : i64}}"
PREPARE = """func.func @prepare(%x: tensor<?x32xDTYPE> {moe.name = "hidden_states", moe.role = "input"},
    %s: tensor<?x2xf32> {moe.name = "scales", moe.role = "input"},
    %i: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %l: tensor<?xi32> {moe.name = "loras", moe.role = "input"},
    %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x32xDTYPE> {moe.name = "all_rows"}, tensor<?x2xf32> {moe.name = "all_scales"},
        tensor<?x2xi32> {moe.name = "all_ids"}, tensor<?xi32> {moe.name = "all_loras"}) MESH {
  %0:4 = moe.dispatch <dp> %x, %s, %i, %l destinations(%d : tensor<8xi32>) ids(%i : tensor<?x2xi32>) routed [0, 1]
      : tensor<?x32xDTYPE>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
      -> tensor<?x32xDTYPE>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
  return %0#0, %0#1, %0#2, %0#3 : tensor<?x32xDTYPE>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
}"""
FINALIZE = """func.func @finalize(
    %x: tensor<?x32xDTYPE> {moe.name = "partial", moe.role = "input", moe.rows = "all", moe.partial = ["dp"]})
    -> (tensor<?x32xDTYPE> {moe.name = "output"}) MESH {
  %0 = moe.combine <dp> %x : tensor<?x32xDTYPE>
  return %0 : tensor<?x32xDTYPE>
}"""
OWNERS = (np.arange(EXPERTS) // (EXPERTS // RANKS)).astype(np.int32)


def compile_part(text: str, dtype: str) -> list[moec.Layer]:
    text = text.replace("DTYPE", dtype).replace("MESH", MESH)
    return [compile_text("part.mlir", text, device="cpu") for _ in range(RANKS)]


def run_ranks(work):
    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


# parity: M17
@pytest.mark.parametrize("dtype", DTYPES)
def test_dispatch_alone(dtype: str) -> None:
    rng = np.random.default_rng(1)
    rows = RANKS * TOKENS
    given = {
        "hidden_states": rng.integers(0, 100, (rows, 32)).astype(DTYPES[dtype]),
        "scales": rng.random((rows, 2), np.float32),
        "topk_ids": rng.integers(0, EXPERTS, (rows, 2)).astype(np.int32),
        "loras": rng.integers(-1, 4, rows).astype(np.int32),
    }
    results = {"all_rows": "hidden_states", "all_scales": "scales", "all_ids": "topk_ids", "all_loras": "loras"}
    parts, ranks = compile_part(PREPARE, dtype), moec.ranks.local(RANKS)
    assert parts[0].max_tokens == 64 // RANKS

    def work(rank):
        part = parts[rank].bind({"placement.destinations": OWNERS})
        part.use_communicator(ranks[rank])
        own = {name: value[rank * TOKENS:(rank + 1) * TOKENS].copy() for name, value in given.items()}
        made = {name: np.zeros_like(given[source]) for name, source in results.items()}
        part.run(TOKENS, own | made)
        return made

    for rank, made in enumerate(run_ranks(work)):
        # Rows of other ranks' experts are undefined.
        here = (OWNERS[given["topk_ids"]] == rank).any(1)
        assert 0 < here.sum() < rows
        for name, source in results.items():
            rows_of = here if name in ("all_rows", "all_scales") else slice(None)
            np.testing.assert_array_equal(made[name][rows_of], given[source][rows_of])


# parity: M23
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_combine_alone(dtype: str) -> None:
    partials = np.random.default_rng(2).standard_normal((RANKS, RANKS * TOKENS, 32)).astype(DTYPES[dtype])
    parts, ranks = compile_part(FINALIZE, dtype), moec.ranks.local(RANKS)

    def work(rank):
        parts[rank].use_communicator(ranks[rank])
        output = np.zeros((TOKENS, 32), DTYPES[dtype])
        parts[rank].run(TOKENS, {"partial": partials[rank], "output": output})
        return output

    expected = partials.astype(np.float64).sum(0).astype(DTYPES[dtype])
    np.testing.assert_array_equal(np.concatenate(run_ranks(work)), expected)


def test_rank_that_leaves() -> None:
    """The other rank's combine ends with an error within the limit."""
    parts = compile_part(FINALIZE, "f32")
    ranks = moec.ranks.local(RANKS, limit=0.5)

    def work(rank):
        parts[rank].use_communicator(ranks[rank])
        if rank == 1:
            return None
        tensors = {"partial": np.zeros((RANKS * TOKENS, 32), np.float32), "output": np.zeros((TOKENS, 32), np.float32)}
        with pytest.raises(moec.Error, match="rank 1"):
            parts[rank].run(TOKENS, tensors)
        return None

    run_ranks(work)
