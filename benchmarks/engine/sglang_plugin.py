# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The benchmark in SGLang's processes: an entry point of "sglang.srt.plugins" that fills weights, and writes down who
runs the experts."""

from __future__ import annotations

import collections
import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from draw import OF_VALUES, choose_deviation, fill, make_generator
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

#: Names the folder of the job: runners.json, and log.txt with moec's lines.
FOLDER = "MOEC_BENCHMARK_FOLDER"
_LOADER = "sglang.srt.model_loader.loader"
#: Bytes of moe_wna16 are pairs of 4-bit integers.
_OF_VALUES = OF_VALUES | {torch.uint8: OF_VALUES[torch.int32]}
#: Not weights.
_LEFT = ("g_idx", "k_scale", "v_scale")


@torch.no_grad()
def fill_model(model: torch.nn.Module, *_: Any, **__: Any) -> None:
    for prefix, layer in model.named_modules():
        tensors = {name: tensor.data for name, tensor in layer.named_parameters(recurse=False)
                   if tensor.numel() and not name.endswith(_LEFT)}
        deviation = choose_deviation(tensors, _OF_VALUES)
        for name, tensor in tensors.items():
            fill(tensor, name, deviation, make_generator(tensor.device, f"{prefix}.{name}", 0))


def count_runners(model: torch.nn.Module) -> dict[str, int]:
    """Layers of experts by the class that runs them."""
    counts: collections.Counter[str] = collections.Counter()
    for layer in model.modules():
        if isinstance(layer, FusedMoE):
            runner = getattr(layer.quant_method, "runner", None)
            counts[type(getattr(runner, "runner_core", None) or layer.quant_method).__name__] += 1
    return dict(counts)


def _write_runners(model: torch.nn.Module, *_: Any, **__: Any) -> None:
    (Path(os.environ[FOLDER]) / "runners.json").write_text(json.dumps(count_runners(model)))


def _write_line(record: logging.LogRecord) -> bool:
    with (Path(os.environ[FOLDER]) / "log.txt").open("a") as file:
        file.write(record.getMessage().replace("\n", " ") + "\n")
    return True


def plugin() -> None:
    logging.getLogger("moec.sglang").addFilter(_write_line)
    HookRegistry.register(f"{_LOADER}.initialize_dummy_weights", fill_model, HookType.REPLACE)
    HookRegistry.register(f"{_LOADER}.DummyModelLoader.load_model", _write_runners, HookType.AFTER)
