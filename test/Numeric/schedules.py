# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which schedules the compiler chooses for the kernels of cases on a GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from cases import CASES, Case
from features import DTYPES, cost, cover, features, with_entry
from runs import ALL_CASES, TIMEOUT, binary

from moec.reference import LayerSpec

#: Targets that cases are simulated for.
TARGETS = ("sm_80", "sm_90a")
#: Dtypes of layers that a schedule has no kernels for.
IMPOSSIBLE = {("sm90.gemm", "f32"), ("sm90.prepack", "f32"), ("gpu.lora_tile", "f32")}

#: Schedules that do not occur in these small cases of one rank, or not on each target: test_gather_rows.py,
#: test_lora.py, test_ranks.py and test_all_to_all.py run them.
ELSEWHERE = {"gpu.exchange", "gpu.gather_rows", "gpu.lora_parts", "gpu.lora_update", "gpu.pack_rows", "gpu.place_ids",
             "gpu.route_rows", "gpu.sum_packed_rows"}

#: Cases with the kernels of all ranges of tokens: their tiles occur in no case with only the kernels for its own tokens
#: (checked by test_schedules.py).
WHOLE = {
    "sizes_tails_bf16", "conformance_300_128_256_64_6", "count_ids_many", "join_gate_300",
    "conformance_1_128_128_64_6", "fp8_conformance_1_128_7168_2_1",
    "fp8_conformance_1_1024_7168_2_2", "fp8_conformance_83_512_512_16_6", "fp8_latent",
    "channel_conformance", "strided_bf16", "sizes_2880_40_4_4_bf16",
    "conformance_33_2048_128_8_6", "conformance_1_2048_128_8_2", "fp8_conformance_2048_128_128_8_6",
    "gpt_oss_mxfp4_16_320_2880_8", "gpt_oss_mxfp4_2_2880_320_8", "nvfp4_conformance_64",
}
#: The only cases with some combination of schedule and dtype, on either target.
ALONE = {
    "weight_on_input_f16", "many_tokens_padding", "many_slots_f16",
    "strided_bf16", "strided_f16", "int4_points_scale_ends_f16", "sizes_tails_f16", "int8_tensor_tokens_90",
    "int8_tensor_f32", "strided_odd_f16", "weight_on_input_latent", "latent_norm",
    "norm_of_experts_wide", "norms_odd", "lora_one", "lora_odd", "lora_no_gate",
}


def covering_targets(combined: Callable[[Case], set], also: Collection = ()) -> list[tuple[str, Case]]:
    """Targets and cases that cover each element of `combined` on one of the targets, and each feature on all of them.
    Includes the targets and cases in `also`."""
    elements = {(target, case.name): combined(case) | {(target, feature) for feature in features(case)}
                for target in TARGETS for case in CASES}
    costs = {(target, case.name): cost(case) for target in TARGETS for case in CASES}
    pinned = {("sm_90a", name) for name in WHOLE} | {(target, name) for name in ALONE for target in TARGETS} | {*also}
    kept = pinned.union(cover(elements, costs, set().union(*(elements[key] for key in pinned))))
    return [(target, case) for target in TARGETS for case in CASES if (target, case.name) in kept]


#: Cases that every change simulates, by target: each feature with each entry that a case has it with on one of the
#: targets, each feature on all, each schedule with each dtype, and each tile.
EVERY_CHANGE = covering_targets(with_entry, {("sm_80", "strided_f32")})
SIMULATED = [(target, case) for target in TARGETS for case in CASES] if ALL_CASES else EVERY_CHANGE

#: Cases by target, schedule and dtype of the layer.
Counts = Counter[tuple[str, str, str]]

#: A kernel with the schedule of another target: the error lists the legal ones.
STRANGE = """tile.kernel @strange(%x: memref<?x8xf32>, %p: memref<?x1xi32>, %y: memref<?x8xf32>, %t: i64) {
  tile.gather_reduce tokens(%t) ins(%x, %p : memref<?x8xf32>, memref<?x1xi32>)
    outs(%y : memref<?x8xf32>) {config = #tile.OTHER_gather_reduce}
  tile.return
}"""


def _run(tool: str, *options: str | Path, text: str | None = None) -> subprocess.CompletedProcess:
    command = [str(binary(tool)), *map(str, options)]
    return subprocess.run(command, input=text, text=True, capture_output=True, timeout=TIMEOUT)


def known(target: str) -> list[str]:
    """Every schedule that the compiler has for a target."""
    text = STRANGE.replace("OTHER", "gpu" if target == "cpu" else "cpu")
    done = _run("moe-opt", "-", f"--tile-assign-config=target={target}", text=text)
    return re.search(r"there are (.*)", done.stderr)[1].split(", ")


def for_tokens(case: Case) -> tuple[str, ...]:
    """The option that limits kernels to the case's number of tokens: others would be compiled but not run."""
    return () if case.name in WHOLE else (f"--max-tokens={max(case.tokens, 1)}",)


def chosen(model: Path, target: str, options: tuple[str, ...]) -> set[str]:
    """The schedules of the kernels of a layer."""
    done = _run("moe-compile", model, f"--target={target}", "--emit=tile", *options)
    if done.returncode != 0:
        raise RuntimeError(f"{model}: {done.stderr}")
    return {name.replace("_", ".", 1) for name in re.findall(r"#tile\.((?:cpu|gpu|sm\d+)_\w+)", done.stdout)}


def products(case: Case, *options: str) -> set[tuple[str, str]]:
    """BLOCK_M values and columns of the sm_90a gemms that a case launches for its number of tokens."""
    text, names = _launched(case, "sm_90a", "--disable=join-products", *options)
    kernels = {kernel.split("(")[0]: kernel for kernel in text.split("tile.kernel @")[1:]}
    tile = r"#tile\.sm90_gemm<block_m = \[(.*?)\], block_n = (\d+)"
    found = {pair for name in names for pair in re.findall(tile, kernels[name])}
    return {(block_m, columns) for block_ms, columns in found for block_m in block_ms.split(", ")}


def launched(case: Case, target: str, *options: str) -> set[str]:
    """The kernels that a case with its number of tokens launches."""
    return _launched(case, target, *options)[1]


def _launched(case: Case, target: str, *options: str) -> tuple[str, set[str]]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.json"
        model.write_text(json.dumps(case.model))
        done = _run("moe-compile", model, f"--target={target}", "--emit=tile", *options)
    if done.returncode != 0:
        raise RuntimeError(f"{case.name}: {done.stderr}")
    for part in re.split(r"plan\.variant tokens ", done.stdout)[1:]:
        first, last = re.match(r"(\d+) to (\d+)", part).groups()
        if int(first) <= case.tokens <= int(last):
            return done.stdout, set(re.findall(r"plan\.launch @(\w+)", part))
    raise RuntimeError(f"{case.name}: no kernels for {case.tokens} tokens")


def count_cases(cases: list[tuple[str, Case]]) -> Counts:
    """How many cases, each with its target, have kernels of each schedule; zero where none has."""
    counts = Counter({
        (target, schedule, dtype): 0
        for target in TARGETS for schedule in known(target) for dtype in DTYPES
        if (schedule, dtype) not in IMPOSSIBLE and schedule not in ELSEWHERE
    })
    models: dict[tuple[str, str, tuple[str, ...]], list[Case]] = {}
    for target, case in cases:
        models.setdefault((target, json.dumps(case.model), for_tokens(case)), []).append(case)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = [Path(folder) / f"{index}.json" for index in range(len(models))]
        for path, (_, text, _) in zip(paths, models):
            path.write_text(text)
        found = pool.map(lambda path, key: chosen(path, key[0], key[2]), paths, models)
        for schedules, (target, _, _), of_model in zip(found, models, models.values()):
            dtype = LayerSpec.from_json(of_model[0].model).dtype
            for schedule in schedules:
                counts[target, schedule, dtype] += len(of_model)
    return counts


def never_chosen(counts: Counts) -> list[str]:
    """Schedules and dtypes without a case, with cases to add to ALONE."""
    return [f"{', '.join(key)}: {suggest(*key)}" for key, count in counts.items() if count == 0]


def suggest(target: str, schedule: str, dtype: str) -> str:
    """Says which cases have kernels of a schedule, the first few that are found."""
    cases = [case for case in sorted(CASES, key=cost) if LayerSpec.from_json(case.model).dtype == dtype]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"

        def has(case: Case) -> bool:
            path.write_text(json.dumps(case.model))
            return schedule in chosen(path, target, for_tokens(case))

        names = [case.name for case in islice(filter(has, cases), 3)]
    return f"ALONE lacks {' or '.join(names)}" if names else "no case has it"
