# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders as Transformers writes them, in bf16 and in many files: every layer, checked."""

from __future__ import annotations

import blocks
import moec
import pytest
import table
import test_blocks
import torch

NAMES = [
    "DeepseekV3Config", "Ernie4_5_MoeConfig", "GptOssConfig", "GraniteMoeConfig", "Llama4TextConfig",
    "MixtralConfig", "NemotronHConfig", "Qwen3MoeConfig",
]


@pytest.mark.parametrize("name", NAMES)
def test_all_layers(name, tmp_path):
    config = table.small(test_blocks.CLASSES[name])
    model = blocks.make(config)
    blocks.randomize(model, 1)
    folder = tmp_path / "model"
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    report = moec.call("moe-run", folder, "--layers=all", "--tokens=5", "--check")
    last = report.splitlines()[-1]
    assert last.endswith(", 0 failed") and not last.startswith("0 "), report
    assert report.count("ok: relative error") == int(last.split()[0]), report
