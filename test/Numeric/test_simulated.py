# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases through the kernels for GPUs, on the simulator of PTX, under several schedules.

All cases are run for both targets with MOEC_ALL_CASES set (scripts/simulate --all, every night), else so many that
each feature that a case has is in one of them with each entry, for one of the targets, and alone for both.

moe-run fails if the simulator finds a race, a missing fence, a read of unwritten memory and the like under any seed,
and if the bits of the output depend on the seed.

All CTAs of a kernel of two products, or of one that quantizes its rows, stay until its end, which takes the simulator
several times as long: on sm_90a only the cases join_* and those of test_quantize_inputs.py have such kernels.
"""

import re
from dataclasses import replace

import pytest
from cases import CASES
from runs import SEEDS
from schedules import SIMULATED, count_cases, for_tokens, launched, never_chosen

JOINED = [case for case in CASES if case.name.startswith("join_")]
#: The second gemm's rows are copied without tensor maps.
UNMAPPED = ("--config=experts_hidden:block_m=16+32 block_n=64 stages=4",
            "--config=experts_out:block_m=16+32 block_n=64 stages=4 map_rows=false")


def simulated(case, target):
    return (f"--device=sim:0-{SEEDS - 1}", f"--target={target}", *for_tokens(case))


def options_for(case, target):
    options = simulated(case, target)
    return options if case in JOINED or target == "sm_80" else (
        *options, "--disable=join-products,quantize-inputs")


def check(run, runs):
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert SEEDS == 1 or f"equal bits for {SEEDS} seeds" in run.messages
    runs.forget(run)


# field-bug: llama.cpp#25582
@pytest.mark.parametrize(
    ("case", "options"),
    [
        pytest.param(case, options_for(case, target), id=f"{target}-{case.name}")
        for target, case in SIMULATED
    ],
)
def test_simulated(case, options, runs):
    check(runs.get(case, *options), runs)


@pytest.mark.parametrize("tokens", [5, 40])
def test_rows_without_maps(tokens, runs):
    case = next(case for case in JOINED if case.name == "join_gate_40")
    case = replace(case, name=f"rows_without_maps_{tokens}", tokens=tokens)
    assert launched(case, "sm_90a", *for_tokens(case), *UNMAPPED) >= {"experts_hidden_experts_out"}
    check(runs.get(case, *simulated(case, "sm_90a"), *UNMAPPED), runs)


@pytest.mark.pairs
@pytest.mark.parametrize("join", [True, False], ids=["joined", "apart"])
@pytest.mark.parametrize("hard", ["duplicate_ids", "one_expert", None])
@pytest.mark.parametrize(("tokens", "top_k", "block_m"),
                         [(1, 10, "8"), (3, 10, "8"), (3, 10, "8+16"), (4, 8, "16+32")])
def test_few_ids(tokens, top_k, block_m, hard, join, runs):
    """Tables of at most 32 ids, of which one expert may have more than fit a tile."""
    case = next(case for case in JOINED if case.name == "join_ids_5")
    case = replace(case, name=f"few_ids_{tokens}_{top_k}_{block_m}_{hard}_{join}", tokens=tokens,
                   hard=hard, model=case.model | {"top_k": top_k, "num_experts": 16})
    options = (f"--config=experts_hidden:block_m={block_m} block_n=64 stages=4",
               f"--config=experts_out:block_m={block_m} block_n=128 stages=4",
               *(() if join else ("--disable=join-products",)))
    names = launched(case, "sm_90a", *for_tokens(case), *options)
    assert ("experts_hidden_experts_out" in names) == join
    check(runs.get(case, *simulated(case, "sm_90a"), *options), runs)


@pytest.mark.parametrize("case", JOINED, ids=lambda case: case.name)
def test_products_are_joined(case):
    products = [name for name in launched(case, "sm_90a", *for_tokens(case))
                if "experts_" in name]
    assert len(products) == 1 and re.fullmatch(r"experts_hidden\w*_experts_out\w*", products[0])


def test_every_schedule_is_simulated():
    assert never_chosen(count_cases(SIMULATED)) == []
