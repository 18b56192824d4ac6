# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Installs stand-ins for an engine's modules in sys.modules."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch, plugin: str, modules: dict[str, dict[str, Any]]
) -> None:
    """Installs modules, given by name and contents. plugin: moec's package for the engine, which is imported again."""
    for name in [each for each in sys.modules if each == plugin or each.startswith(f"{plugin}.")]:
        monkeypatch.delitem(sys.modules, name)
    for path, names in modules.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name not in sys.modules or not hasattr(sys.modules[name], "is_stand_in"):
                made = types.ModuleType(name)
                made.__path__ = []
                made.is_stand_in = True
                monkeypatch.setitem(sys.modules, name, made)
                if depth > 1:
                    setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], made)
        for key, value in names.items():
            setattr(sys.modules[path], key, value)


def take(*values: Any) -> dict[str, Any]:
    """Returns classes and functions by name."""
    return {each.__name__: each for each in values}
