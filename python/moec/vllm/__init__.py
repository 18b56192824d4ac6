# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec as experts of vLLM (docs/use/engines.md).

    VLLM_PLUGINS=moec vllm serve MODEL

vLLM calls plugin() in each of its processes, through the entry point group "vllm.general_plugins". Layers that moec
does not support keep the kernel that vLLM chose, and the log says why."""

from __future__ import annotations

from ..engine_plugin import run_plugin, verify_outside_of_graphs
from .report import logger

__all__ = ["plugin", "register"]


def register() -> None:
    """Registers moec in vLLM for 16-bit and quantized weights (docs/use/engines.md), for layers created later. Further
    calls do nothing.

    Raises ImportError if vLLM is missing or has another interface."""
    try:
        from . import methods
    except ImportError as error:
        raise ImportError(
            f"moec.vllm needs vLLM 0.33 (pip install vllm==0.33.0), and cannot import it: {error}"
        ) from error
    verify_outside_of_graphs("--enforce-eager", logger)
    methods.register()


def plugin() -> None:
    """Entry point: calls register() if VLLM_PLUGINS names moec."""
    run_plugin("vLLM", "VLLM_PLUGINS", register, logger)
