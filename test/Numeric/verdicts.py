# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The outcome of a random case: whether its kernels are right."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cases import Case
from runs import TIMEOUT, Runs, binary

from moec.reference import LayerSpec

TARGETS = ("cpu", "sm_90a", "sm_80")
#: The first GPU, with the best target that it runs.
GPU = "gpu"

#: The compiler's refusals of legal specs: with the field, or the weight and the
#: target, in the message.
REFUSALS = (
    r"'\S*quantization\S*' = \".*\" is described .* but not compiled",
    r"of '\S+' cannot be lowered: .* is not supported on target \S+, which supports .*",
    r"of '\S+' cannot be lowered: rows quantized .* are not supported on target \S+, which supports .*",
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


def judge(case: Case, target: str, runs: Runs) -> Verdict:
    """Whether the kernels of a case agree with the reference, or are refused by name."""
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
    except AssertionError as error:
        verdict = Verdict("wrong", str(error))
    runs.forget(run)
    return verdict
