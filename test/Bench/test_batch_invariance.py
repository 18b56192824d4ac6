# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/batch_invariance.py: its layers, and the tables that the journal has from its record."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "benchmarks" / "batch_invariance.py"
RECORD = ROOT / "benchmarks" / "results" / "h200" / "batch_invariance.json"
_SPEC = importlib.util.spec_from_file_location("batch_invariance", PROGRAM)
benchmark = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)


def test_record_has_no_other_rows_with_the_field():
    layers = json.loads(RECORD.read_text())["layers"]
    assert {each["layer"] for each in layers} == set(benchmark.LAYERS)
    for each in layers:
        assert each["with"]["nan"] == 0
        assert not any(each["with"]["other_rows"].values()), each["layer"]


def test_journal_has_the_tables_of_the_record():
    done = subprocess.run([sys.executable, PROGRAM, "--table", RECORD], text=True, capture_output=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    journal = (ROOT / "benchmarks" / "journal" / "batch-invariance.md").read_text()
    assert len(lines) == 2 * (len(benchmark.LAYERS) * 2 + 2)
    assert [line for line in lines if line not in journal] == []


def test_unknown_layer_is_named():
    done = subprocess.run([sys.executable, PROGRAM, "--output=x", "--layers=mixtral"], text=True, capture_output=True)
    assert done.returncode == 2
    assert "--layers: 'mixtral' found; qwen3-30b-a3b," in done.stderr


@pytest.mark.parametrize(("us", "us_invariant", "ratio"), [(10, 11, 1.1), (20, 10, 0.5)])
def test_ratio_is_with_over_without(us, us_invariant, ratio):
    assert benchmark.get_ratio({"us": us, "us_invariant": us_invariant}) == pytest.approx(ratio)
