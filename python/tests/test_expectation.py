# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.expect() and moec.find_layers()."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from small_layer import SPEC

import moec

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "test" / "models" / "qwen3-30b-a3b.json"


def test_times_are_those_of_the_explanation() -> None:
    expected = moec.expect(CONFIG, gpu="h200", tokens=[1, 4096])
    assert (expected.target, expected.gpu, expected.rates, expected.ranks) == ("sm_90a", "h200", "an H200", 1)
    one, many = expected.times
    assert (one.tokens, many.tokens) == (1, 4096)
    assert one.floor_seconds < one.seconds < many.seconds
    assert one.seconds == pytest.approx(sum(step.seconds for step in one.steps))
    assert one.bound == "memory" and one.launches == 4
    # The router and 128 experts of 3 x 2048 x 768 elements of two bytes.
    assert expected.weight_bytes == expected.resident_bytes == 2 * 2048 * 128 * (1 + 3 * 768)


def test_the_usual_token_counts() -> None:
    assert [time.tokens for time in moec.expect(CONFIG, gpu="h100").times] == [1, 8, 64, 1024, 4096]
    assert [time.tokens for time in moec.expect(SPEC, gpu="h100", max_tokens=20).times] == [1, 8]


def test_one_rank_of_several() -> None:
    whole = moec.expect(CONFIG, gpu="h200", tokens=64)
    part = moec.expect(CONFIG, gpu="h200", tokens=64, parallel={"tp": 2})
    assert part.ranks == 2 and 0.49 < part.weight_bytes / whole.weight_bytes < 0.51
    assert 0 < part.times[0].exchange_seconds < part.times[0].seconds < whole.times[0].seconds
    assert whole.times[0].exchange_seconds == 0


@pytest.mark.parametrize(("gpu", "target", "parallel"), [
    ("a100", "sm_80", None),
    ("b200", "sm_100a", None),
    # Ranks share the CPU whose rates are measured.
    (None, "cpu", {"tp": 2}),
])
def test_without_rates_there_is_work_and_no_time(gpu, target, parallel, monkeypatch) -> None:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/no/libcuda.so")
    monkeypatch.setattr("moec.compiler._devices", {})
    expected = moec.expect(SPEC, gpu=gpu, tokens=1, parallel=parallel)
    (time,) = expected.times
    assert (expected.target, expected.rates, time.seconds, time.bound) == (target, None, None, None)
    assert time.bytes > 0 and time.operations > 0 and time.workspace_bytes > 0


@pytest.mark.parametrize(("arguments", "message"), [
    ({"gpu": "h999"}, "gpu: 'h999' is unknown; accepted are a100-sxm, sm_80, h100-sxm, h200, "),
    ({"gpu": "h200", "tokens": 10**6}, "tokens: 1000000 found; from 1 to 16384 are accepted; for more, give max_tok"),
    ({"gpu": "h200", "tokens": [0]}, "tokens: an int from 1 to 2147483647 expected, 0 found"),
    ({"gpu": "h200", "tokens": ["1"]}, "tokens: an int expected, str found"),
    ({"gpu": "h200", "tokens": "1,2"}, "tokens: token counts expected, as in [1, 64], str found"),
    ({"gpu": ""}, 'gpu: a name expected, as in "h200", "" found'),
    ({"gpu": 200}, 'gpu: a name expected, as in "h200", int found'),
])
def test_bad_arguments_are_named(arguments, message) -> None:
    with pytest.raises(moec.Error, match="^" + re.escape(message)):
        moec.expect(CONFIG, **arguments)


def test_layers_with_experts() -> None:
    assert moec.find_layers(ROOT / "test" / "models" / "deepseek-v3.json") == tuple(range(3, 61))
    assert moec.find_layers(ROOT / "test" / "models" / "llama-4-maverick.json") == tuple(range(1, 48, 2))
    with pytest.raises(moec.InvalidArgument, match="num_hidden_layers"):
        moec.find_layers({"model_type": "qwen3_moe", "hidden_size": 64, "num_experts": 4})


def test_an_expectation_is_data() -> None:
    expected = moec.expect(SPEC, gpu="h200", tokens=1)
    assert dataclasses.asdict(expected)["times"][0]["steps"][0]["bytes"] > 0
