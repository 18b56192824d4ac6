# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry point of moec.vllm without vLLM. test/Engine tests the rest with the real vLLM."""

from __future__ import annotations

import importlib
import logging
import sys

import fake_modules
import pytest


def test_the_plugin_is_switched_on_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, called = importlib.import_module("moec.vllm"), []
    monkeypatch.setattr(plugin, "register", lambda: called.append(1))
    for value, times in ((None, 0), ("", 0), ("other", 0), ("other, moec", 1)):
        called.clear()
        if value is None:
            monkeypatch.delenv("VLLM_PLUGINS", raising=False)
        else:
            monkeypatch.setenv("VLLM_PLUGINS", value)
        plugin.plugin()
        assert len(called) == times


def test_imports_where_vllm_is_not(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fake_modules.install(monkeypatch, "moec.vllm", {})
    monkeypatch.setitem(sys.modules, "vllm", None)
    plugin = importlib.import_module("moec.vllm")
    with pytest.raises(ImportError, match="moec.vllm needs vLLM 0.33 .* and cannot import it: "):
        plugin.register()
    monkeypatch.setenv("VLLM_PLUGINS", "moec")
    with caplog.at_level(logging.WARNING, "vllm.moec"):
        plugin.plugin()
    assert "vLLM keeps its own experts" in caplog.text
