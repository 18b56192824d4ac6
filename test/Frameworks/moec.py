# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls moe-compile and moe-run on folders that Transformers saved."""

from __future__ import annotations

import os
import pathlib
import subprocess

import numpy as np
from safetensors.numpy import load_file, save_file

BIN = pathlib.Path(os.environ.get("MOEC_BIN_DIR", "build-release/bin")).resolve()

#: Relative error of an output in f32 against the block's own, and of a row of it.
TOLERANCE, ROW_TOLERANCE = 1e-5, 3e-5


class Refused(Exception):
    """The command ended with an error message of its own."""


def call(tool: str, *arguments: object) -> str:
    """The output of a command."""
    words = [str(BIN / tool), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    assert done.returncode == 1 and "error: " in done.stderr, (words, done)
    raise Refused(done.stderr)


def spec(config: pathlib.Path, layer: int | None = None) -> str:
    """The spec that a config.json is imported to."""
    chosen = [] if layer is None else [f"--layer={layer}"]
    return call("moe-compile", config, "--emit=spec", *chosen)


def run(folder: pathlib.Path, block, work: pathlib.Path) -> dict[str, np.ndarray]:
    """Runs a block's layer from the unchanged model folder."""
    states = work / "call.safetensors"
    outputs = work / "outputs.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in block.inputs.items()}, states)
    call(
        "moe-run", folder, f"--layer={block.layer}", f"--hidden-states={states}",
        f"--tokens={block.output.shape[0]}", f"--outputs={outputs}", *block.options,
    )
    return load_file(outputs)


def error(output: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Relative error over all and the largest of a row."""
    difference = output.astype(np.float64) - expected
    size = np.maximum(np.linalg.norm(expected, axis=1), 1e-30)
    whole = np.linalg.norm(difference) / max(np.linalg.norm(expected), 1e-30)
    return float(whole), float((np.linalg.norm(difference, axis=1) / size).max())


def compare(results: dict[str, np.ndarray], block) -> float:
    """Fails unless output and ids are the block's; returns the relative error."""
    whole, row = error(results["output"], block.output)
    assert whole <= TOLERANCE and row <= ROW_TOLERANCE, f"relative error {whole:.1e}, of a row {row:.1e}"
    if block.ids is not None and "topk_ids" in results:
        # Random logits have no ties; models give their ids in any order.
        ours, theirs = np.sort(results["topk_ids"], axis=1), np.sort(block.ids, axis=1)
        assert (ours == theirs).all(), f"ids differ:\n{ours}\n{theirs}"
    return whole
