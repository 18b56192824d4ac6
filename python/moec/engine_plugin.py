# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the plugins of all engines share (moec.vllm, moec.sglang)."""

from __future__ import annotations

import logging
import os
from typing import Callable


def run_plugin(engine: str, variable: str, register: Callable[[], None], logger: logging.Logger) -> None:
    """An entry point: calls `register` where `variable` of the environment names moec, among others apart
    by commas. That moec is installed is no reason to change an engine. An engine that is not there, or of
    another interface, is warned of and left as it is."""
    named = os.environ.get(variable, "").split(",")
    if "moec" not in (name.strip() for name in named):
        return
    try:
        register()
    except ImportError as error:
        logger.warning("moec: %s keeps its own experts: %s", engine, error)
