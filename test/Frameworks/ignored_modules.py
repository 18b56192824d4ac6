# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Asks compressed-tensors which modules of a block an `ignore` list names.

    python ignored_modules.py    writes ignored_modules.json

Needs compressed-tensors and PyTorch. The answers are kept in the file, so that machines
without them check the importer (test_ignored_modules.py).
"""

from __future__ import annotations

import json
import pathlib

FILE = pathlib.Path(__file__).parent / "ignored_modules.json"
EXPERTS = 12
ROUTED = ("gate_proj", "up_proj", "down_proj")

#: `ignore` lists that tools and people wrote, and the notation of expressions.
LISTS = [
    [],
    ["lm_head", "re:.*mlp.gate$"],
    # Parents, which llm-compressor writes too.
    ["model.layers.0.mlp.experts"],
    ["model.layers.0.mlp.experts.0"],
    ["model.layers.0.mlp"],
    ["model.layers.0.mlp.shared_expert"],
    # Parts of names.
    ["mlp"],
    ["experts"],
    ["down_proj"],
    ["*.experts.*"],
    ["layers.0.mlp.experts.0.up_proj"],
    # Whole names.
    ["model.layers.0.mlp.experts.7.up_proj"],
    ["model.layers.1.mlp.experts.7.up_proj"],
    [f"model.layers.0.mlp.experts.{e}.down_proj" for e in range(EXPERTS)],
    [f"model.layers.0.mlp.shared_expert.{name}" for name in ROUTED],
    # Classes: the modules' own, its base, their parent's, one of vLLM.
    ["Linear"],
    ["Module"],
    ["Qwen2MoeSparseMoeBlock"],
    ["LinearBase"],
    ["linear"],
    # Expressions, which match from the start of a name to any place in it.
    ["re:.*down_proj"],
    ["re:.*down_proj$"],
    ["re:.*down"],
    ["re:down_proj"],
    ["re:layers.*"],
    ["re:model.layers.0.mlp.experts"],
    ["re:model.*"],
    ["re:^model\\.layers\\.0\\."],
    ["re:.*shared_expert.*"],
    ["re:.*shared_expert\\."],
    ["re:.*mlp\\.shared_expert_gate$"],
    ["re:.*experts\\.[0-9]+\\.down_proj"],
    ["re:.*experts\\.\\d+\\.down_proj"],
    ["re:.*experts\\.[\\d]+\\.(gate|up)_proj"],
    ["re:.*experts\\.[^\\.]+\\.[\\w]*_proj"],
    ["re:.*experts\\.5\\..*"],
    ["re:.*\\.1[01]\\.up_proj"],
    ["re:.*experts\\.(?:0|1|2)\\..*"],
    ["re:.*layers\\.(1|2)\\..*"],
    ["re:.*layers\\.1.*"],
    ["re:.*?experts.*?up_proj"],
    ["re:.*\\w+_proj"],
    ["re:.*mlp.gate"],
    ["re:.*mlp\\.gate.*"],
    ["re:.*self_attn.*", "re:.*embed_tokens", "re:.*norm"],
    ["re:.*(experts|shared_expert)\\..*gate_proj", "re:.*up_proj", "model.layers.0.mlp.experts.3"],
    ["Linear", "re:nothing"],
]


def module_names() -> list[str]:
    """The linear modules of a block that may be quantized."""
    names = [f"experts.{e}.{name}" for e in range(EXPERTS) for name in ROUTED]
    return [f"model.layers.0.mlp.{name}" for name in [*names, *(f"shared_expert.{n}" for n in ROUTED)]]


def ask() -> list[dict]:
    """Each list with the modules that compressed-tensors ignores."""
    import torch
    from compressed_tensors.utils.match import match_named_modules

    class Qwen2MoeSparseMoeBlock(torch.nn.Module):
        pass

    model = torch.nn.Module()
    for name in module_names():
        at = model
        *parents, last = name.split(".")
        for parent in parents:
            if parent not in at._modules:
                at.add_module(parent, Qwen2MoeSparseMoeBlock() if parent == "mlp" else torch.nn.Module())
            at = at._modules[parent]
        at.add_module(last, torch.nn.Linear(1, 1, device="meta"))
    rows = []
    for ignore in LISTS:
        quantized = {name for name, _ in match_named_modules(model, ["Linear"], ignore)}
        rows.append({"ignore": ignore, "left": [n for n in module_names() if n not in quantized]})
    return rows


def main() -> None:
    import compressed_tensors

    lines = ",\n".join(json.dumps(row) for row in ask())
    FILE.write_text(f'{{"compressed_tensors": "{compressed_tensors.__version__}", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
