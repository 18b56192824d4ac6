# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code shared by the plugins of all engines (moec.vllm, moec.sglang)."""

from __future__ import annotations

import logging
import os
from typing import Callable

#: The version of each engine that its plugin supports, by package.
ENGINES = {"vllm": "0.33", "sglang": "0.5.23"}


def verify_outside_of_graphs(remedy: str, logger: logging.Logger) -> None:
    """With MOEC_VERIFY, leaves calls out that the engine captures into CUDA graphs, instead of refusing them, and says
    so. Raises InvalidArgument for a wrong value, before a model is loaded.

    remedy: the engine's option that turns graphs off."""
    from . import InvalidArgument

    given = os.environ.get("MOEC_VERIFY", "") or "0"
    if not given.isdecimal():
        raise InvalidArgument(f"MOEC_VERIFY is '{given}'; give a number N, as in 1000, to compare every N-th run")
    if int(given) == 0:
        return
    # Needs PyTorch, which engines have.
    from . import layer_pool

    if layer_pool.verify_in_graphs == "skip":
        return
    layer_pool.verify_in_graphs = "skip"
    logger.warning("moec: MOEC_VERIFY compares no calls in CUDA graphs; start with %s to compare these too", remedy)


def run_plugin(engine: str, variable: str, register: Callable[[], None], logger: logging.Logger) -> None:
    """Entry point of a plugin: calls `register` if the environment variable `variable`, a comma-separated list,
    contains moec. Installing moec alone does not change an engine. A missing engine, or one with another interface,
    causes a warning and stays as it is."""
    named = os.environ.get(variable, "").split(",")
    if "moec" not in (name.strip() for name in named):
        return
    try:
        register()
    except ImportError as error:
        logger.warning("moec: %s keeps its own experts: %s", engine, error)
