# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keeps one small case of each family, so that machines without PyTorch check the importer.

    python freeze.py          writes frozen/: config.json, tensors, a call and the block's output
    python freeze.py --check  fails if a family has no case
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

import blocks
import numpy as np
import table
import test_blocks
from safetensors.numpy import save_file

FROZEN = pathlib.Path(__file__).parent / "frozen"
TOKENS = 5

#: Sizes that keep a case at some tens of kilobytes.
TINY = {
    "hidden_size": 16, "intermediate_size": 8, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_k": 2,
    "num_experts_per_token": 2, "moe_topk": 2, "top_k_experts": 2, "zero_expert_num": 2,
    "expert_ffn_hidden_size": 8, "shared_intermediate_size": 8, "share_expert_dim": 8,
    "moe_shared_expert_intermediate_size": 8, "shared_experts_intermediate_size": 8, "moe_hidden_size": 8,
}


def freeze(name: str, config_class: type) -> None:
    known = config_class().to_dict()
    tiny = {key: value for key, value in TINY.items() if key in known}
    tiny |= {key: value for key, value in table.EXTRA.get(name, {}).items() if key in TINY}
    # Sizes that a class requires stay those of the small configuration.
    for changes in (tiny, {}):
        with tempfile.TemporaryDirectory() as folder:
            try:
                if "ffn_config" in known:
                    config = table.small_dbrx(config_class, {})
                else:
                    config = table.small(config_class, changes)
                model = blocks.build(config, pathlib.Path(folder) / "model", TOKENS, max_blocks=1)
            except Exception:  # A model's code may raise anything about a configuration.
                continue
            _write(config.model_type, model)
            return
    raise AssertionError(name)


def _write(model_type: str, model: blocks.Model) -> None:
    block = model.blocks[0]
    folder = FROZEN / model_type
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(blocks.read_config(model.folder)) + "\n")
    tensors = {
        name: value for name, value in blocks.read_tensors(model.folder, block.layer).items()
        if "attn" not in name and "attention" not in name and ("norm" not in name or "expert_norm" in name)
    }
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", {"layer": str(block.layer)})
    save_file({name: np.ascontiguousarray(value) for name, value in block.inputs.items()},
              folder / "call.safetensors")
    expected = {"output": block.output, "layer": np.int64(block.layer)}
    if block.ids is not None:
        expected["ids"] = block.ids.astype(np.int64)
    np.savez(folder / "expected.npz", **expected)


def main() -> int:
    types = {cls.model_type for cls in test_blocks.CLASSES.values()}
    if "--check" in sys.argv[1:]:
        missing = sorted(name for name in types if not (FROZEN / name / "expected.npz").exists())
        print("no frozen case: " + ", ".join(missing) if missing else f"{len(types)} frozen cases")
        return bool(missing)
    for name, config_class in test_blocks.CLASSES.items():
        freeze(name, config_class)
    return 0


if __name__ == "__main__":
    sys.exit(main())
