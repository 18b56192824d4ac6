# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One job: a model, who runs its experts, and what is measured."""

from __future__ import annotations

import dataclasses
import re

#: What a job may measure, in the order in which a job measures it.
PARTS = {
    "m": "memory", "c": "outputs", "s": "speed", "p": "GPU kernels", "v": "serving load", "w": "sleep, wake, reload",
    "f": "few tokens of a request", "i": "bits of a request alone and in batches",
}
MODES = ("compile", "no-compile", "piecewise", "eager", "chunked", "speculative", "tp2", "dp2")
#: Modes of several GPUs: the sizes of vLLM's tensor and data parallel groups. Data parallel ranks have whole experts.
RANKS = {"tp2": (2, 1), "dp2": (1, 2)}
FORM = "MODEL:VARIANT:LAYERS:WHAT:SECONDS"
_VARIANT = re.compile(rf"([a-z0-9_]+?)(?:-({'|'.join(MODES)}))?")


@dataclasses.dataclass(frozen=True)
class Job:
    model: str
    #: "moec", "base" (vLLM's own choice) or a name of vLLM's --moe-backend.
    experts: str
    mode: str
    #: 0: all layers of the model.
    layers: int
    parts: str
    seconds: float
    #: Other engines are on the GPU at the same time.
    is_shared: bool = False

    @property
    def ranks(self) -> int:
        """Processes, each with a GPU of its own."""
        tp, dp = RANKS.get(self.mode, (1, 1))
        return tp * dp

    def __str__(self) -> str:
        return f"{self.model}:{self.experts}-{self.mode}:{self.layers or 'all'}"


def parse_job(text: str, models: tuple[str, ...]) -> Job:
    """Raises ValueError, which names the field."""

    def fail(field: str, problem: str) -> ValueError:
        return ValueError(f"job '{text}': {field} {problem}; a job is {FORM}")

    fields = text.split(":")
    if len(fields) != 5:
        raise ValueError(f"job '{text}' has {len(fields)} fields; a job is {FORM}")
    model, variant, layers, parts, seconds = fields
    if model not in models:
        raise fail("MODEL", f"'{model}' is none of {', '.join(models)}")
    found = _VARIANT.fullmatch(variant)
    if not found:
        raise fail("VARIANT", f"'{variant}' is not base, moec or a backend of vLLM's, and one of {', '.join(MODES)}")
    if layers != "all" and not (layers.isdigit() and int(layers)):
        raise fail("LAYERS", f"'{layers}' is neither a number above 0 nor 'all'")
    if not parts or set(parts) - set(PARTS) or len(set(parts)) < len(parts):
        known = ", ".join(f"{letter} ({name})" for letter, name in PARTS.items())
        raise fail("WHAT", f"'{parts}' is not made of {known}, each at most once")
    try:
        limit = float(seconds)
    except ValueError:
        limit = 0
    if not 0 < limit < 1e6:
        raise fail("SECONDS", f"'{seconds}' is not a number above 0")
    ordered = "".join(letter for letter in PARTS if letter in parts)
    return Job(model, found[1], found[2] or "compile", 0 if layers == "all" else int(layers), ordered, limit)


def parse_group(text: str, models: tuple[str, ...]) -> list[Job]:
    """Jobs joined by +. Raises ValueError, which names the job and the field."""
    jobs = [parse_job(each, models) for each in text.split("+")]
    several = next((job for job in jobs if job.ranks > 1), None)
    if several and len(jobs) > 1:
        raise ValueError(f"job '{several}': mode {several.mode} takes {several.ranks} GPUs; give it a group of its own")
    return [dataclasses.replace(job, is_shared=len(jobs) > 1) for job in jobs]
