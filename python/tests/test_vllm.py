# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The entry point of moec.vllm without vLLM. test/Engine tests the rest with the real vLLM."""

from __future__ import annotations

import importlib
import logging
import sys
import types

import fake_modules
import pytest

import moec
from moec.engine_plugin import verify_outside_of_graphs


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


def test_graphs_are_not_verified(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, which says how to have all calls compared; an engine is not stopped by a captured call."""
    pool = types.ModuleType("moec.layer_pool")
    pool.verify_in_graphs = "refuse"
    monkeypatch.setitem(sys.modules, pool.__name__, pool)
    monkeypatch.setattr(moec, "layer_pool", pool, raising=False)
    logger = logging.getLogger("vllm.moec")
    for value, verified in ((None, "refuse"), ("0", "refuse"), ("1000", "skip"), ("1000", "skip")):
        if value is None:
            monkeypatch.delenv("MOEC_VERIFY", raising=False)
        else:
            monkeypatch.setenv("MOEC_VERIFY", value)
        with caplog.at_level(logging.WARNING, logger.name):
            verify_outside_of_graphs("--enforce-eager", logger)
        assert pool.verify_in_graphs == verified
    assert [record.message for record in caplog.records] == [
        "moec: MOEC_VERIFY compares no calls in CUDA graphs; start with --enforce-eager to compare these too"]
    monkeypatch.setenv("MOEC_VERIFY", "always")
    with pytest.raises(moec.InvalidArgument, match="MOEC_VERIFY is 'always'; give a number N"):
        verify_outside_of_graphs("--enforce-eager", logger)
