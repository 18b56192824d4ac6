# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code shared by the plugins of all engines (moec.vllm, moec.sglang)."""

from __future__ import annotations

import logging
import os
from typing import Callable

#: The version of each engine that its plugin supports, by package.
ENGINES = {"vllm": "0.33", "sglang": "0.5.23"}


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
