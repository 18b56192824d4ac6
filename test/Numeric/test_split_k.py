# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemms whose k tiles are split among the CTAs of a cluster, on the simulator."""

from __future__ import annotations

import json
import subprocess

import pytest
from cases import Case
from runs import SEEDS, binary
from test_prepacked import INT4_E4M3, INT4_64, NVFP4, POINTS_64, by_row

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 328, "num_experts": 6,
    "top_k": 2, "intermediate_size": 200, "routing": {}, "activation": {"kind": "silu"}, "expert_bias": True,
}
FP8 = {"hidden_size": 656, "intermediate_size": 384, "quantization": {"weight": "fp8_block128"}}
ROWS_8 = {"hidden_size": 656, "intermediate_size": 272}
E4M3 = by_row({"dtype": "fp8_e4m3", "scale": "channel"})
INT8 = {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}}
PACKED = {"hidden_size": 320, "intermediate_size": 192}
SHARED = {"shared_experts": {"intermediate_size": 136, "gate": "sigmoid"}}
#: The first gemm has 6 k tiles in all but prepacked weights, whose 5 packed tiles make 5 or 1.
LOW, TWO = "block_m=16 block_n=32 stages=3", "block_m=8+24 block_n=128 stages=3"
PACK, PACK_TWO = "block_m=8 block_n=64 block_k=64 stages=3", "block_m=16+32 block_n=128 block_k=64 stages=3"
#: Fields that differ, tokens, the CTAs of a cluster and the config of either gemm, more options.
LAYERS = {
    "ids": ({}, 5, (2, LOW), (4, TWO)),
    "offsets": ({}, 5, (4, LOW), (2, TWO), "--disable=count-ids"),
    # Several tiles per cluster, of which 16 run at once.
    "many": ({"hidden_size": 1032}, 40, (8, LOW), (4, "block_m=16+32 block_n=64 stages=4")),
    "nothing": ({}, 0, (2, LOW), (2, TWO)),
    "copied_rows": ({}, 9, (2, TWO.replace("128", "64")), (2, f"{TWO} map_rows=false")),
    "f16_dense": ({"dtype": "f16"} | SHARED, 21, (2, LOW), (2, TWO),
                  f"--config=shared_hidden:sm90.gemm {LOW} block_k=64 split_k=4",
                  f"--config=shared_out:sm90.gemm {TWO} block_k=64 split_k=2"),
    "block_fp8": (FP8, 5, (4, LOW), (2, TWO)),
    "block_fp8_many": (FP8 | {"hidden_size": 1168}, 40, (8, LOW), (2, "block_m=16+32 block_n=256 stages=3")),
    "rows_fp8": (ROWS_8 | E4M3, 7, (4, LOW), (2, TWO), "--disable=quantize-inputs"),
    "long_fp8": (E4M3 | {"hidden_size": 2320, "intermediate_size": 272, "num_experts": 2}, 3, (8, LOW),
                 (2, f"sm90.gemm {TWO} block_k=128"), "--disable=quantize-inputs"),
    "int8": (ROWS_8 | {"quantization": INT8}, 7, (4, LOW), (2, TWO), "--disable=quantize-inputs"),
    "mxfp4": (PACKED | {"quantization": {"weight": "mxfp4"}}, 7, (4, PACK), (2, PACK_TWO)),
    "mxfp4_f16": (PACKED | {"dtype": "f16", "quantization": {"weight": "mxfp4"}}, 7, (2, PACK_TWO.replace("128", "96")),
                  (2, PACK_TWO.replace("128", "192"))),
    "mxfp4_deep": ({"hidden_size": 640, "intermediate_size": 192, "quantization": {"weight": "mxfp4"}}, 40,
                   (2, PACK.replace("64 stages", "320 stages")), (2, PACK_TWO)),
    "nvfp4": (PACKED | {"quantization": {"weight": NVFP4}}, 7, (2, PACK), (2, PACK_TWO)),
    "int4": (PACKED | {"quantization": {"weight": INT4_64}}, 7, (4, PACK), (2, PACK_TWO)),
    "int4_points": (PACKED | {"quantization": {"weight": POINTS_64}}, 7, (2, PACK_TWO.replace("128", "64")),
                    (2, PACK_TWO)),
    "int4_e4m3": (PACKED | INT4_E4M3, 7, (4, PACK), (2, PACK_TWO), "--disable=quantize-inputs"),
    "int4_64_e4m3": (PACKED | by_row(INT4_64), 7, (4, PACK), (2, PACK_TWO), "--disable=quantize-inputs"),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer, runs):
    fields, tokens, first, second, *options = LAYERS[layer]
    case = Case(f"split_k_{layer}", SPEC | fields, tokens)
    configs = [f"--config={kernel}:{config} dynamic_scheduler=false split_k={ctas}"
               for kernel, (ctas, config) in (("experts_hidden", first), ("experts_out", second))]
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", "--disable=join-products",
                   f"--max-tokens={max(tokens, 1)}", *configs, *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))


@pytest.mark.parametrize("weight", ["fp8_block128", "mxfp4"])
def test_few_wide_rows(weight, runs, tmp_path):
    """The compiler splits K where few CTAs would have tiles; with block fp8 the results are quantized too."""
    fields = {"hidden_size": 4096, "num_experts": 16, "top_k": 4, "intermediate_size": 128,
              "quantization": {"weight": weight}}
    (tmp_path / "model.json").write_text(json.dumps(SPEC | fields))
    command = [str(binary("moe-compile")), str(tmp_path / "model.json"), "--target=sm_90a", "--emit=tile"]
    tile = subprocess.run([*command, "--max-tokens=2"], capture_output=True, text=True, check=True).stdout
    assert "split_k = " in tile
    assert ("result_quant" in tile) == (weight == "fp8_block128")
    invariant = subprocess.run([*command, "--batch-invariant"], capture_output=True, text=True, check=True).stdout
    assert "split_k = " not in invariant
    run = runs.get(Case(f"split_k_chosen_{weight}", SPEC | fields, 2), f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a",
                   "--max-tokens=2")
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
