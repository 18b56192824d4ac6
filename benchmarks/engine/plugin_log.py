# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the plugin says in vLLM's log."""

from __future__ import annotations

import logging
import re


class PluginLog(logging.Filter):
    """Records the lines and passes them on. A filter, since vLLM removes handlers from its loggers while the engine
    is created."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logger = logging.getLogger("vllm.moec")
        logger.setLevel(logging.INFO)
        logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        self.lines.append(record.getMessage())
        return True

    def count_layers(self) -> int:
        """Layers whose experts moec runs."""
        found = (re.match(r"moec runs the experts of (\d+) layers", line) for line in self.lines)
        return sum(int(each[1]) for each in found if each)
