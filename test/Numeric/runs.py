# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs moe-run on numeric cases."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cases import Case

from moec.reference import InputError, LayerSpec, Report, TensorFile, check, generate
from moec.reference import signature, write_tensors

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300
#: Whether redundant cases run too, as in the nightly run.
ALL_CASES = bool(os.environ.get("MOEC_ALL_CASES"))
#: Schedules that a simulated GPU takes each case through. At a change only test_simulated.py has two (scripts/simulate).
SEEDS = int(os.environ.get("MOEC_SIM_SEEDS", "4" if ALL_CASES else "1"))


def binary(name: str) -> Path:
    """A tool of the build that is tested."""
    folder = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin"))
    path = folder / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: build it, or set MOEC_BIN_DIR")
    return path


def count_tokens(case: Case) -> int:
    """The tokens of all ranks; those of a case are the tokens of one."""
    parallel = case.model.get("parallel", {})
    ranks = parallel.get("dp", 1) * parallel.get("pcp", 1)
    return case.tokens * ranks * (parallel.get("tp", 1) if parallel.get("sp") else 1)


@dataclass
class Run:
    """A finished process and the files around it."""

    case: Case
    command: list[str]
    returncode: int
    messages: str
    inputs: Path
    outputs: Path
    options: tuple[str, ...] = ()

    def explain(self, text: str) -> str:
        return f"{text}\n{shlex.join(self.command)}\n{self.messages}"

    def check(self) -> Report:
        """The verdict of the reference; a failed process is an error."""
        # The level moe has no buffers, and those of several ranks are not gathered: the output is all they show.
        has_buffers = "--level=moe" not in self.command and "parallel" not in self.case.model
        if self.returncode != 0:
            raise AssertionError(self.explain(f"moe-run exits {self.returncode}"))
        spec = LayerSpec.from_json(self.case.model)
        inputs, outputs = TensorFile(self.inputs), TensorFile(self.outputs)
        tokens = inputs.require(signature.inputs(spec))
        try:
            outputs.require(signature.outputs(spec), tokens, optional=True)
        except InputError as error:
            raise AssertionError(self.explain(str(error))) from None
        if spec.entry != "ids" and has_buffers:
            # Without ids a wrong selection could remain unnoticed.
            missing = {"topk_ids", "topk_weights", "expert_counts"} - set(outputs)
            assert not missing, self.explain(f"no {sorted(missing)} in the outputs")
        spoils_weights = self.case.hard in ("nan_scales", "nan_codes")
        return check(spec, inputs, outputs, weights_are_finite=not spoils_weights)


class Runs:
    """Runs cases in a folder. Their tests run side by side (pytest -n), each process with a folder of its own."""

    def __init__(self, folder: Path):
        self._folder = folder

    def forget(self, run: Run) -> None:
        """Removes the files of a run that went well."""
        shutil.rmtree(run.inputs.parent, ignore_errors=True)

    def get(self, case: Case, *options: str, tensors: dict[str, np.ndarray] | None = None) -> Run:
        """Runs a case, with these tensors if they are given."""
        name = "-".join([case.name, *options]).replace("=", "-")
        # A file system takes names of 255 bytes.
        if len(name) > 200:
            name = f"{name[:160]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        model, inputs, outputs = (
            folder / name for name in ("model.json", "in.safetensors", "out.safetensors")
        )
        model.write_text(json.dumps(case.model))
        spec = LayerSpec.from_json(case.model)
        if tensors is None:
            tensors = generate(spec, count_tokens(case), case.seed, case.hard)
        write_tensors(inputs, tensors)
        command = [
            str(binary("moe-run")),
            str(model),
            f"--inputs={inputs}",
            f"--outputs={outputs}",
            f"--tokens={case.tokens}",
            *options,
            *shlex.split(os.environ.get("MOEC_RUN_OPTIONS", "")),
        ]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT * max(1, SEEDS // 4),
        )
        return Run(case, command, done.returncode, done.stdout, inputs, outputs, options)
