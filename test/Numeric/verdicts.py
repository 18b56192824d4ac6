# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The outcome of a random case: whether its kernels are right."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cases import Case
from runs import TIMEOUT, Run, Runs, binary, count_tokens
from safetensors import safe_open

from moec.reference import LayerSpec, generate, signature

TARGETS = ("cpu", "sm_90a", "sm_80")
#: The first GPU, with the best target that it runs.
GPU = "gpu"

#: The compiler's refusals of legal specs: with the field, or the weight and the
#: target, in the message.
REFUSALS = (
    r"'\S*quantization\S*' = \".*\" is described, but not compiled",
    r"of '\S+' cannot be lowered: .* is not supported on target \S+, which supports .*",
    r"of '\S+' cannot be lowered: rows quantized .* are not supported on target \S+, which supports .*",
    r"computes one scale from all rows, .* or remove 'batch_invariant'",
)


@dataclass(frozen=True)
class Verdict:
    """`ok`, `refused`, or what is wrong: `wrong`, `error`, `crash`, `hangs`, `readers`."""

    kind: str
    text: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in ("ok", "refused")

    def is_like(self, other: Verdict) -> bool:
        """Whether the kind is equal, and the message up to numbers."""
        first = [re.search(r"(?<=error: ).*", each.text) for each in (self, other)]
        said = [re.sub(r"\d+|<.*?>", "", match[0]) if match else "" for match in first]
        return self.kind == other.kind and said[0] == said[1]


def compile_model(model: dict, *options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        path.write_text(json.dumps(model))
        command = [str(binary("moe-compile")), str(path), *options]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=TIMEOUT)


def options_for(target: str) -> tuple[str, ...]:
    if target == GPU:
        return ("--device=cuda:0",)
    return () if target == "cpu" else ("--device=sim:0", f"--target={target}")


def _of_failure(returncode: int, messages: str) -> Verdict:
    if returncode != 1:
        return Verdict("crash", f"exits {returncode}\n{messages}")
    is_refusal = any(re.search(refusal, messages) for refusal in REFUSALS)
    return Verdict("refused" if is_refusal else "error", messages)


def _read_bits(path: Path, dtype: str) -> np.ndarray:
    """The rows of an output as integers, with one NaN."""
    with safe_open(str(path), framework="np") as file:
        output = np.ascontiguousarray(file.get_tensor("output"))
    bits = output.view(np.uint32 if dtype == "f32" else np.uint16)
    infinity, size = {"f32": (0x7F800000, 0x7FFFFFFF), "bf16": (0x7F80, 0x7FFF), "f16": (0x7C00, 0x7FFF)}[dtype]
    return np.where((bits & size) > infinity, infinity | 1, bits)


def find_changed(case: Case, target: str, runs: Runs, whole: Run) -> str:
    """Where rows have other bits in a smaller call; empty if nowhere, and for replicas, which a row's place selects."""
    spec = LayerSpec.from_json(case.model)
    if case.tokens < 2 or spec.replicas is not None:
        return ""
    tensors = generate(spec, case.tokens, case.seed, case.hard)
    of_tokens = {tensor.name for tensor in signature.inputs(spec) if tensor.tokens}
    expected = _read_bits(whole.outputs, spec.dtype)
    for first, end in ((case.tokens - 1, case.tokens), (case.tokens // 3, case.tokens - case.tokens // 4)):
        given = {name: each[first:end] if name in of_tokens else each for name, each in tensors.items()}
        if spec.num_valid_tokens:
            given["num_valid_tokens"] = np.clip(tensors["num_valid_tokens"] - first, 0, end - first)
        part = replace(case, name=f"{case.name}_{first}", tokens=end - first)
        run = runs.get(part, *options_for(target), tensors=given)
        if run.returncode != 0:
            return f"rows {first} to {end - 1} alone: exits {run.returncode}\n{run.messages}"
        changed = np.flatnonzero((_read_bits(run.outputs, spec.dtype) != expected[first:end]).any(axis=1))
        runs.forget(run)
        if changed.size:
            return f"row {first + changed[0]} has other bits in a call with rows {first} to {end - 1}"
    return ""


def judge(case: Case, target: str, runs: Runs) -> Verdict:
    """Whether the kernels of a case agree with the reference, or are refused by name. On a GPU one rank has all of it."""
    if target == GPU and "parallel" in case.model:
        model = {name: value for name, value in case.model.items() if name != "parallel"}
        case = replace(case, model=model, tokens=count_tokens(case))
    spec = LayerSpec.from_json(case.model)
    if not all(quantization.supported for quantization in spec.quantizations):
        # The reference has no inputs for it.
        done = compile_model(case.model, f"--target={'sm_90a' if target == GPU else target}", "--emit=tile")
        if done.returncode == 0:
            return Verdict("wrong", "compiled, though the reference has no numbers for it")
        return _of_failure(done.returncode, done.stdout)
    try:
        run = runs.get(case, *options_for(target))
    except subprocess.TimeoutExpired as error:
        return Verdict("hangs", str(error))
    try:
        if run.returncode != 0:
            verdict = _of_failure(run.returncode, run.messages)
        else:
            report = run.check()
            text = "\n".join([report.summary(), *report.failures])
            verdict = Verdict("ok" if report.ok else "wrong", text)
            if report.ok and case.model.get("batch_invariant"):
                changed = find_changed(case, target, runs, run)
                verdict = Verdict("wrong", changed) if changed else verdict
    except AssertionError as error:
        verdict = Verdict("wrong", str(error))
    runs.forget(run)
    return verdict
