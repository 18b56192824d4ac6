# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What docs/use/engines.md has works as it stands there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec import functions  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/use/engines.md").read_text()


def test_lines_of_the_page() -> None:
    torch.manual_seed(0)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    output, rounded, part = names["output"], names["rounded"], names["part"]
    hidden, w13, w2 = (names[name].double() for name in ("hidden", "w13", "w2"))
    wanted, held = torch.zeros(16, 64).double(), torch.zeros(16, 64).double()
    for token in range(16):
        for weight, expert in zip(names["weights"][token], names["ids"][token]):
            gate, up = (w13[expert] @ hidden[token]).chunk(2)
            row = weight * (w2[expert] @ (torch.nn.functional.silu(gate) * up))
            wanted[token] += row
            held[token] += row * (names["expert_map"][expert] >= 0)
    for found, right, bound in ((output, wanted, 0.02), (part, held, 0.02), (rounded, wanted, 0.1)):
        assert (found - right).norm() < bound * right.norm()


def test_the_table_has_all_functions() -> None:
    section = PAGE[PAGE.index("| function"):PAGE.index("None waits for")]
    listed = set(re.findall(r"`(\w+)`", section))
    made = {name for name in functions.__all__ if name.endswith("_moe_quant_config")}
    assert set(functions.__all__) - {"QuantConfig", "clear"} - made <= listed
    assert made and "`*_moe_quant_config`" in section


@pytest.mark.parametrize("variable, module, group", [
    ("VLLM_PLUGINS", "moec.vllm", "vllm.general_plugins"),
    ("SGLANG_PLUGINS", "moec.sglang", "sglang.srt.plugins"),
])
def test_plugins_are_declared(variable: str, module: str, group: str) -> None:
    assert f"{variable}=moec" in PAGE and f"`{group}`" in PAGE
    declared = (ROOT / "pyproject.toml").read_text()
    assert f'[project.entry-points."{group}"]\nmoec = "{module}:plugin"' in declared
    assert callable(importlib.import_module(module).plugin)
