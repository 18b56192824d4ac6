# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer parts of moec.functions: they are cached, and they compile for GPUs too."""

from __future__ import annotations

from pathlib import Path

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec import functions  # noqa: E402
from moec.functions import permutation, routing, sublayers  # noqa: E402


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the IR of calls instead of running it."""
    found: list[str] = []
    for module in (permutation, routing):
        monkeypatch.setattr(module, "run", lambda text, *_: found.append(text))
    return found


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_parts_compile_for_gpus(texts: list[str], tmp_path: Path, target: str) -> None:
    logits, rows = torch.randn(5, 256), torch.randn(40, 64).to(torch.bfloat16)
    functions.fused_topk(logits, logits, 8, True)
    functions.fused_topk_bias(logits, logits, "sqrtsoftplus", torch.randn(256), 6, True)
    functions.grouped_topk(logits, logits, 8, True, 8, 4, "sigmoid", 2.5, torch.randn(256))
    permutation.sort_slots(torch.zeros(5, 8, dtype=torch.int32), 512)
    functions.moe_unpermute(rows[:5].clone(), rows, torch.rand(5, 8), torch.arange(40))
    assert len(texts) == 6
    source = tmp_path / "part.mlir"
    for text in texts:
        source.write_text(text)
        assert moec.compile_package(source, target, cache=False, use_ptxas=False)


def test_parts_are_kept() -> None:
    logits = torch.randn(40, 8)
    functions.fused_topk(logits, logits, 2, True)
    before = sublayers._compile_part.cache_info()
    for tokens in (1, 7, 40):
        functions.fused_topk(logits[:tokens], logits[:tokens], 2, True)
    after = sublayers._compile_part.cache_info()
    assert after.misses == before.misses and after.hits == before.hits + 3
    functions.fused_topk(logits, logits, 3, True)
    assert sublayers._compile_part.cache_info().misses == before.misses + 1
    assert after.maxsize == 128


def test_parts_are_for_powers_of_two() -> None:
    sizes = [sublayers.round_tokens(tokens) for tokens in (0, 1, 16384, 16385, 100000)]
    assert sizes == [16384, 16384, 16384, 32768, 131072]
    ids = torch.randint(0, 4, (20000, 2), dtype=torch.int32)
    counts = functions.count_expert_num_tokens(ids, 4)
    assert counts.tolist() == torch.bincount(ids.flatten(), minlength=4).tolist()


def test_other_devices_are_refused() -> None:
    logits = torch.empty(3, 8, device="meta")
    with pytest.raises(moec.InvalidArgument, match="gating_output: a device of type meta"):
        functions.fused_topk(logits, logits, 2, True)
    with pytest.raises(moec.InvalidArgument, match="out: torch.float64 is not supported"):
        functions.moe_unpermute(
            torch.empty(2, 8).double(), torch.empty(4, 8).double(), torch.rand(2, 2), torch.arange(4)
        )
