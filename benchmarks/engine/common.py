# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is measured in the same way in each engine."""

from __future__ import annotations

import math
import statistics
from typing import Any, Callable

import numpy as np
from record import describe_times
from summary import BATCHES, PREFILLS

#: Adds a row to the record: what, and the other fields.
Add = Callable[..., None]
#: Returns once the other engines of the group have measured as much.
Turn = Callable[[], None]
#: Seconds of a call with these prompts and this number of new tokens.
Timed = Callable[[list[list[int]], int], float]
#: Log-probabilities of given tokens, and greedy tokens.
Outputs = tuple[list[float], list[list[int]]]
#: Kernels by name: how often, and microseconds in all.
Kernels = dict[str, tuple[int, float]]
REPEATS = 5
#: Steps of decode are the difference of two calls.
FEW, MANY = 8, 56
#: Token ids that all vocabularies have.
_IDS = (10, 100000)


def draw_prompts(count: int, tokens: int, seed: int = 7) -> list[list[int]]:
    return np.random.default_rng([seed, count, tokens]).integers(*_IDS, (count, tokens)).tolist()


def measure_outputs(
    find: Callable[[], Outputs], add: Add, compare: Callable[[list[float]], list[dict[str, Any]]]
) -> None:
    given, tokens = find()
    again = find()
    add("outputs", same_twice=(given, tokens) == again, not_finite=sum(not math.isfinite(each) for each in given),
        mean=round(statistics.fmean(given), 5), greedy=tokens)
    for difference in compare(given):
        add("log-probabilities", **difference)


def measure_speed(call: Timed, add: Add, turn: Turn) -> None:
    for batch in BATCHES:
        prompts = draw_prompts(batch, 16)
        call(prompts, FEW)
        steps = []
        for _ in range(REPEATS):
            few = call(prompts, FEW)
            many = call(prompts, MANY)
            steps.append((many - few) / (MANY - FEW))
            turn()
        add("decode", size=batch, **describe_times(steps))
    for tokens in PREFILLS:
        prompts = draw_prompts(1, tokens)
        call(prompts, 1)
        times = []
        for _ in range(REPEATS):
            times.append(call(prompts, 1))
            turn()
        add("prefill", size=tokens, **describe_times(times))


def subtract(more: Kernels, less: Kernels, steps: int) -> dict[str, list[float]]:
    """For one step; kernels below half a microsecond are omitted."""
    found = {}
    for name, (count, us) in more.items():
        fewer, below = less.get(name, (0, 0.0))
        if (us - below) / steps >= 0.5:
            found[name] = [round((count - fewer) / steps, 2), round((us - below) / steps, 2)]
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def measure_kernels(call: Timed, profile_call: Callable[[Callable[[], Any]], tuple[Kernels, float]], add: Add) -> None:
    """profile_call runs a call; returns its kernels, and the microseconds in which at least one of them ran."""
    def tell(phase: str, size: int, kernels: dict[str, list[float]], busy_us: float) -> None:
        add("kernels", phase=phase, size=size, gpu_us=round(sum(us for _, us in kernels.values()), 1),
            busy_us=round(busy_us, 1), kernels=kernels)

    for batch in BATCHES:
        prompts = draw_prompts(batch, 16)
        call(prompts, 4)
        (few, few_us), (many, many_us) = (
            profile_call(lambda: call(prompts, tokens)) for tokens in (4, 12))
        tell("decode", batch, subtract(many, few, 8), (many_us - few_us) / 8)
    for tokens in PREFILLS:
        prompts = draw_prompts(1, tokens)
        call(prompts, 1)
        kernels, busy_us = profile_call(lambda: call(prompts, 1))
        tell("prefill", tokens, subtract(kernels, {}, 1), busy_us)
