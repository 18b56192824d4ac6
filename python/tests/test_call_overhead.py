# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/call_overhead.py on the CPU: it runs and prints the documented rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# field-bug: vllm-xpu-kernels#509
@pytest.mark.parametrize("kernels", ["core", "python"])
def test_measures_every_way_to_call(kernels: str, tmp_path: Path) -> None:
    output = tmp_path / "calls.json"
    subprocess.run(
        [sys.executable, ROOT / "benchmarks/call_overhead.py", "--calls=200", f"--kernels={kernels}",
         f"--output={output}"],
        check=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )
    result = json.loads(output.read_text())
    rows = result["median_us"]
    assert {"c_api", "python", "python_allocates"} <= set(rows)
    assert ("torch_out" in rows) == result["tensors"].startswith("torch")
    assert all(each > 0 for each in rows.values()) and result["calls"] == 200
    assert result["kernels"] in {kernels, "python"}
    assert result["above_c_api_us"]["c_api"] == 0
    assert all(low <= result["above_c_api_us"][name] <= high for name, (low, high) in result["quartiles_us"].items())
    assert (result["empty_like_us"] or 0) > 0 or result["tensors"] == "numpy"
