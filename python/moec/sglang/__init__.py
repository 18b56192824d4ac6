# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec as the runner of SGLang's experts (docs/use/engines.md).

    SGLANG_PLUGINS=moec python -m sglang.launch_server --model-path MODEL --moe-runner-backend triton

SGLang calls plugin() in each of its processes, through the entry point group "sglang.srt.plugins". Layers that moec
does not support run in SGLang's own kernel, and the log says why."""

from __future__ import annotations

import logging

from ..engine_plugin import run_plugin, verify_outside_of_graphs

__all__ = ["plugin", "register"]

_logger = logging.getLogger("moec.sglang")


def register() -> None:
    """Replaces SGLang's Triton runner by moec for layers created later. Further calls do nothing.

    Raises ImportError if SGLang is missing or has another interface."""
    try:
        from . import runner
    except ImportError as error:
        raise ImportError(
            "moec.sglang needs SGLang 0.5.23, with register_moe_runner_core; install it, as with "
            f"pip install sglang==0.5.23 ({error})"
        ) from error
    verify_outside_of_graphs("--disable-cuda-graph", _logger)
    runner.register()


def plugin() -> None:
    """Entry point: calls register() if SGLANG_PLUGINS names moec."""
    run_plugin("SGLang", "SGLANG_PLUGINS", register, _logger)
