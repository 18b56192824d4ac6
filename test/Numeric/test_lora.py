# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters of experts: rows without one, adapters of zeros, and quantized layers on the simulator."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases import BASE, CASES, Case
from runs import TIMEOUT, binary
from safetensors import safe_open
from schedules import for_tokens
from test_ranks import LAYERS, Ranks, spec_of, verify

from moec.reference import LayerSpec, generate, write_tensors

TARGETS = {
    "cpu": ("--target=cpu",),
    "sm_80": ("--target=sm_80", "--device=sim"),
    "sm_90a": ("--target=sm_90a", "--device=sim"),
}
QUANTIZED = [case for case in CASES if case.name in ("lora_fp8", "lora_int4", "lora_mxfp4")]
TOKENS = 13


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", QUANTIZED, ids=lambda case: case.name)
def test_quantized(case, target, runs):
    run = runs.get(case, *TARGETS[target], *for_tokens(case))
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


#: Positions of one row per CTA and of four; rows of an expert and an adapter make more than one tile of 16.
@pytest.mark.parametrize(("dtype", "tokens"), [("bf16", 150), ("bf16", 390), ("f16", 150)])
def test_many_rows(dtype, tokens, runs):
    """Windows with slots of several experts and adapters, and of none."""
    sizes = {"hidden_size": 72, "num_experts": 5, "top_k": 2, "intermediate_size": 40, "dtype": dtype}
    case = Case(f"lora_many_{dtype}_{tokens}", BASE | sizes | {"lora": {"adapters": 2, "rank": 12}}, tokens)
    run = runs.get(case, *TARGETS["sm_80"], *for_tokens(case))
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize(("hidden", "columns"), [(64, 320), (320, 64)])
def test_warps_without_blocks(hidden, columns, always, runs):
    """Widths of whole blocks that are not enough for all warps of a CTA."""
    sizes = {"hidden_size": hidden, "num_experts": 4, "top_k": 1, "intermediate_size": columns, "dtype": "bf16"}
    case = Case(f"lora_blocks_{hidden}_{columns}", BASE | sizes | {"lora": {"adapters": 1, "rank": 8}}, 5)
    options = ("--set=expand-adapters.always",) if always else ()
    run = runs.get(case, *TARGETS["sm_90a"], *for_tokens(case), *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


UPDATES = [case for case in CASES if case.name in ("lora_bf16", "lora_no_gate", "lora_columns", "lora_fp8", "lora_mxfp4")]


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
def test_updates_ahead_of_gemms(case, runs):
    """gpu.lora_update, also for calls so small that the epilogues would take less time."""
    run = runs.get(case, *TARGETS["sm_90a"], *for_tokens(case), "--set=expand-adapters.always")
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


#: Adapters as further k tiles of sm90.gemm.
APPEND = ("--set=append-adapters.always", "--disable=expand-adapters")
SEEDS = ("--target=sm_90a", "--device=sim:1-3")


def appended(name: str, tokens: int, adapters: int, rank: int, **fields) -> Case:
    spec = {"dtype": "bf16", "hidden_size": 136, "num_experts": 5, "top_k": 2, "intermediate_size": 72}
    return Case(f"lora_appended_{name}", BASE | spec | {"lora": {"adapters": adapters, "rank": rank}} | fields, tokens)


#: Each has another number of adapters in a k tile, or of k tiles of an adapter; also tails of columns and of K.
APPENDED = [
    *(case for case in CASES if case.name in ("lora_bf16", "lora_no_gate", "lora_columns")),
    appended("one", 1, adapters=1, rank=8),
    appended("several", 23, adapters=7, rank=16),
    appended("many", 40, adapters=32, rank=8, dtype="f16", gate_up_order="interleaved"),
    appended("wide", 9, adapters=3, rank=64, gate_up_order="up_gate"),
    appended("ids", 12, adapters=5, rank=32, entry="ids", routing={}),
    appended("odd_chunks", 21, adapters=6, rank=24),
    appended("partly_filled", 19, adapters=3, rank=48, activation={"kind": "relu2_no_mul"}),
    appended("last_part", 19, adapters=3, rank=48),
]


@pytest.mark.parametrize("case", APPENDED, ids=lambda case: case.name)
def test_adapters_appended(case, runs):
    run = runs.get(case, *SEEDS, *for_tokens(case), *APPEND)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


#: Rows on M, weights shared by both consumers, tiles of several heights in any order, and 256 weight rows.
TILES = {
    "shared": ("block_m=16 block_n=32 stages=4", "block_m=32 block_n=64 stages=5"),
    "rows_on_m": ("block_m=64 block_n=64 stages=4 no_swap_ab", "block_m=128 block_n=128 stages=4 no_swap_ab"),
    "wide": ("block_m=24 block_n=128 stages=3 dynamic_scheduler", "block_m=96 block_n=256 stages=3 map_rows=false"),
}


def check_configs(case: Case, runs, gemms: tuple[str, str], device: tuple[str, ...]) -> None:
    """Compares a layer whose two gemms have these configs with the reference."""
    configs = [f"--config={kernel}:{config}"
               for kernel, config in zip(("experts_hidden", "experts_out"), gemms, strict=True)]
    run = runs.get(case, *device, *for_tokens(case), *APPEND, *configs)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


@pytest.mark.parametrize("tiles", TILES)
def test_tiles_of_appended_adapters(tiles, runs):
    case = appended(tiles, 150, adapters=5, rank=16, hidden_size=264, intermediate_size=192, entry="ids", routing={})
    check_configs(case, runs, TILES[tiles], SEEDS)


#: Rows by tensor maps and by threads, tiles in a fixed and in any order, with more tiles than CTAs.
AWAITED = {
    "maps": ("block_m=16 block_n=64 stages=4 dynamic_scheduler",
             "block_m=16 block_n=64 stages=4 map_rows dynamic_scheduler"),
    "threads": ("block_m=16 block_n=64 stages=4 dynamic_scheduler",
                "block_m=16 block_n=64 stages=3 map_rows=false dynamic_scheduler"),
    "fixed_order": ("block_m=16 block_n=64 stages=4", "block_m=16 block_n=64 stages=4 map_rows"),
}


@pytest.mark.parametrize("form", AWAITED)
def test_rows_ahead_of_their_adapters(form, runs):
    """The second gemm multiplies its rows while the launch of their adapters runs."""
    # Tiles of tokens without adapters have no k tile of the launch before.
    case = appended(form, 3, adapters=2, rank=16, hidden_size=1032, num_experts=24, top_k=8, entry="ids", routing={})
    check_configs(case, runs, AWAITED[form], ("--target=sm_90a", "--device=sim:1-6"))


def test_no_rows_ahead_of_adapters(runs):
    """The launch of adapters has no CTA that signals."""
    case = appended("no_tokens", 0, adapters=2, rank=16, max_tokens=8, entry="ids", routing={})
    report = runs.get(case, *SEEDS, *APPEND).check()
    assert report.ok, report.failures


#: CTAs with one row for few positions; parts of one and two tiles of rows; rows of an expert that threads look at in
#: one round and in several; more experts and adapters than lanes; one expert for all.
PARTS = {
    "few": ("sm_90a", 40, {}),
    "some": ("sm_80", 90, {}),
    "more": ("sm_90a", 300, {}),
    "many": ("sm_80", 4100, {}),
    "lists": ("sm_90a", 90, {"num_experts": 70, "top_k": 3, "lora": {"adapters": 67, "rank": 8}}),
    "one_expert": ("sm_90a", 900, {"num_experts": 1, "top_k": 1, "lora": {"adapters": 3, "rank": 16}}),
    "one_row": ("sm_90a", 1, {"lora": {"adapters": 1, "rank": 4}}),
}
FORMS = {
    "parts": ("--config=lora_in:gpu.lora_parts warps=3 column_tiles=3",
              "--config=lora_hidden:gpu.lora_parts warps=2 column_tiles=1"),
    "chosen_parts": ("--config=lora_in:gpu.lora_parts warps=8 column_tiles=4",
                     "--config=lora_hidden:gpu.lora_parts warps=8 column_tiles=2"),
    "update": ("--set=expand-adapters.always", "--disable=append-adapters"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_rows(name, form, runs):
    """CTAs take rows of an expert and an adapter wherever they are."""
    target, tokens, fields = PARTS[name]
    sizes = {"hidden_size": 72, "num_experts": 5, "top_k": 2, "intermediate_size": 40, "dtype": "bf16",
             "lora": {"adapters": 2, "rank": 12}}
    case = Case(f"lora_parts_{name}", BASE | sizes | fields, tokens)
    run = runs.get(case, f"--target={target}", "--device=sim:1-2", *for_tokens(case), *FORMS[form])
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


@pytest.mark.parametrize("exchange", ["peer", "default"])
def test_ids_travel_along(exchange, tmp_path):
    """Adapter ids are dispatched with the rows of tokens, also to the ranks of chosen experts alone."""
    options = ("--device=sim:1", "--target=sm_90a", "--max-tokens=8", "--rank-limit=60", f"--exchange={exchange}")
    verify(tmp_path, spec_of(**LAYERS["lora"]), Ranks(4, 1, "linear"), tokens=3, options=options)


def run_layer(folder: Path, model: dict, tensors: dict[str, np.ndarray], options: tuple[str, ...]) -> np.ndarray:
    """The output, as bytes per row."""
    (folder / "model.json").write_text(json.dumps(model))
    write_tensors(folder / "in.safetensors", tensors)
    command = [str(binary("moe-run")), str(folder / "model.json"), f"--tokens={TOKENS}", "--max-tokens=64",
               f"--inputs={folder / 'in.safetensors'}", f"--outputs={folder / 'out.safetensors'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(folder / "out.safetensors"), framework="np") as file:
        return np.ascontiguousarray(file.get_tensor("output")).view(np.uint8).reshape(TOKENS, -1)


#: One of the adapters in a k tile's quarter, two in its halves, and one in two k tiles.
RANKS = [("cpu", 8), ("sm_80", 8), ("sm_90a", 8), ("appended", 8), ("appended", 16), ("appended", 64)]


@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize(("form", "rank"), RANKS)
def test_rows_without_an_adapter(form, rank, number, tmp_path):
    """The bits of rows without an adapter, or with one of zeros, are those of a layer without adapters, even beside
    adapters that are not finite; other rows change."""
    options = (*SEEDS, *APPEND) if form == "appended" else TARGETS[form]
    plain = BASE | {"dtype": "bf16", "entry": "gate"}
    model = plain | {"lora": {"adapters": 3, "rank": rank}}
    tensors = generate(LayerSpec.from_json(model), TOKENS, 1)
    ids = np.array([-1, 0, 1, 2, 3, 2**31 - 1, -(2**31), 1, 1, 0, -2, 1, -1], np.int32)
    tensors["adapter_ids"] = ids
    for name, tensor in tensors.items():
        if name.startswith("lora."):
            tensor[0] = 0
            tensor[2] = number
    without = {name: tensor for name, tensor in tensors.items() if not name.startswith(("lora.", "adapter_ids"))}
    same = (run_layer(tmp_path, model, tensors, options) == run_layer(tmp_path, plain, without, options)).all(axis=1)
    assert same[(ids != 1) & (ids != 2)].all() and not same[(ids == 1) | (ids == 2)].any()


def test_neighbours_of_appended_adapters(tmp_path):
    """The bits of a row do not depend on the adapters of other rows, which move its own one to another part of a k
    tile: also where two consumers share the k tiles. The second matrices take away from half of a k tile what adapter
    4 adds, so that only roundings are left."""
    rank, half = 16, 32
    model = BASE | {"dtype": "bf16", "entry": "gate", "hidden_size": 136, "intermediate_size": 72, "num_experts": 2,
                    "lora": {"adapters": 5, "rank": rank}}
    configs = [f"--config={kernel}:{config}"
               for kernel, config in zip(("experts_hidden", "experts_out"), TILES["shared"], strict=True)]
    tensors = generate(LayerSpec.from_json(model), TOKENS, 1)
    columns = half + 2 * np.arange(rank)
    tensors["lora.down_a"][4] = 0
    tensors["lora.down_a"][4][:, np.arange(rank), columns] = 1
    tensors["experts.w2"][:] = 0
    tensors["experts.w2"][:, :, columns] = -tensors["lora.down_b"][4]
    outputs = []
    # Adapters that come before it: none, one, two, three.
    for before in range(4):
        others = np.arange(TOKENS) // 2 % before if before else np.full(TOKENS, -1)
        tensors["adapter_ids"] = np.where(np.arange(TOKENS) % 2, others, 4).astype(np.int32)
        outputs.append(run_layer(tmp_path, model, tensors, (*SEEDS, *APPEND, *configs))[::2])
    assert outputs[0].any()
    assert all((output == outputs[0]).all() for output in outputs)
