# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layers that users of other libraries asked for: benchmarks/asked.json, asked.py and the journal's page."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import asked_table  # noqa: E402

LAYERS = json.loads((BENCHMARKS / "asked.json").read_text())["layers"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("asked") / "record.json"
    done = subprocess.run([sys.executable, BENCHMARKS / "asked.py", "--layers=qwen3_30b_tp8", f"--output={path}"],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def test_thirty_say_where_they_were_asked_for() -> None:
    asked = [layer["asked"]["in"] for layer in LAYERS if "asked" in layer]
    assert len(asked) >= 30 and all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", place) for place in asked)
    assert len({layer["name"] for layer in LAYERS}) == len(LAYERS)


def test_moe_bench_has_every_row() -> None:
    bench = pathlib.Path(os.environ["MOEC_BIN_DIR"]) / "moe-bench"
    done = subprocess.run([bench, "--table=asked.json", "--list"], text=True, capture_output=True, check=True)
    assert {row.split(":")[0] for row in done.stdout.split()} == {layer["name"] for layer in LAYERS}
    done = subprocess.run([bench, "--table=others.json", "--list"], text=True, capture_output=True)
    assert done.returncode == 1 and "others.json" in done.stderr


def test_a_layer_is_examined(record: dict) -> None:
    row, = record["rows"]
    assert row["weight_bytes"] == 128 * 3 * 2048 * 96 * 2
    assert row["processor_seconds"] > 0 and row["package_bytes"] > 1e4
    assert all(time["us"] > time["floor_us"] > 0 for time in row["times"])


def test_the_page_prefers_measured_times(record: dict) -> None:
    record = record | {"commit": "abc"}
    expected = {time["tokens"]: time["us"] for time in record["rows"][0]["times"]}
    page = asked_table.table([record])
    assert "none was measured yet" in page[0]
    assert page[-1].startswith("| 128, 8 | 2048 x 96 | bf16 | Qwen3-30B, over 8 GPUs, [vllm#41360](")
    assert page[-1].endswith(f"| {expected[1024]:.0f} | {expected[4096]:.0f} |")
    measured = {"benchmark": "moe_bench", "device": "a GPU", "date": "2026-12-01T00:00:00Z", "commit": "def",
                "rows": [{"layer": "qwen3_30b_tp8", "tokens": 64, "us": 123.4}, {"layer": "other", "tokens": 1, "us": 1},
                         {"layer": "qwen3_30b_tp8", "tokens": 8}]}
    page = asked_table.table([measured, record])
    assert "bold (a GPU, 2026-12-01, commit def)" in page[0]
    assert f"| {expected[8]:.0f} | **123** |" in page[-1]
    assert asked_table.table([measured])[0].startswith("There is no record")


def test_a_name_that_no_layer_has() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / "asked.py", "--layers=foo"], text=True, capture_output=True)
    assert done.returncode == 2 and "no layer of asked.json has a name like 'foo'" in done.stderr
