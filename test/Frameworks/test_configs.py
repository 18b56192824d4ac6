# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configurations with a mistake: no key of any family may be ignored silently.

Each key of a small configuration is removed, renamed, retyped, moved and given another
value. moec refuses by name, or gives the same layer. If it gives the same layer although the key's name is
suspicious, the model's own block must be the same too, which is checked by building it: if its output changes, moec
was silently wrong.
"""

from __future__ import annotations

import copy
import json

import blocks
import moec
import numpy as np
import pytest
import table
import test_blocks


def _mutants(config: dict):
    """(the change, the key, the configuration)"""
    for key, value in config.items():
        if key in ("model_type", "architectures", "transformers_version", "dtype"):
            continue
        removed = {name: other for name, other in config.items() if name != key}
        yield "removed", key, removed
        yield "renamed", key, {**removed, key + "x": value}
        yield "nested", key, {**removed, "inner_config": {key: value}}
        for other in _other_values(value):
            yield f"is {json.dumps(other)}", key, {**config, key: other}


def _other_values(value):
    if isinstance(value, bool):
        return [not value, "x", 3]
    if isinstance(value, int):
        return [value + 1, str(value), -1, 0.5, None]
    if isinstance(value, float):
        return [value * 1.5 + 0.25, "x", None]
    if isinstance(value, str):
        return ["no_such_word", 3, None]
    if isinstance(value, list):
        return [value[:-1], "x", 3]
    return [3]


def _import(config: dict, path) -> str | None:
    """The spec, or None if moec refuses."""
    path.write_text(json.dumps(config))
    try:
        return moec.spec(path)
    except moec.Refused:
        return None


def _make_config(config_class, config: dict):
    return config_class(**{key: value for key, value in config.items()
                           if key not in ("model_type", "architectures", "transformers_version")})


def _run_block(config_class, config: dict, tokens: int) -> blocks.Block | None:
    """Runs the model's own first block; None if Transformers refuses."""
    try:
        return blocks.run_first(blocks.make(_make_config(config_class, config)), tokens)
    except Exception:  # A model's code may raise anything about a configuration.
        return None


def _read_others(block: blocks.Block, expected: blocks.Block) -> bool:
    """Whether the layer begins at router logits, and these are not those of the unchanged model."""
    ours, theirs = (run.inputs.get("router_logits") for run in (block, expected))
    return ours is not None and not (ours.shape == theirs.shape and np.array_equal(ours, theirs))


NAMES = [name for name in test_blocks.CLASSES if name not in ("DbrxConfig",)]


@pytest.mark.parametrize("name", NAMES)
def test_no_key_is_read_past(name, tmp_path):
    config_class = test_blocks.CLASSES[name]
    base = json.loads(table.small(config_class).to_json_string(use_diff=False))
    base["dtype"] = "float32"
    path = tmp_path / "config.json"
    spec = _import(base, path)
    assert spec is not None
    expected = _run_block(config_class, base, 5)
    counts = {"refused": 0, "another layer": 0, "the same": 0, "compared": 0}
    for done, key, config in _mutants(copy.deepcopy(base)):
        imported = _import(config, path)
        if imported is None:
            counts["refused"] += 1
        elif imported != spec:
            counts["another layer"] += 1
        else:
            counts["the same"] += 1
            if not table.is_suspicious(key) or done in ("renamed", "nested"):
                continue
            # The layer is the same, so the model's own code decides.
            block = _run_block(config_class, config, 5)
            if block is None or expected is None:
                continue
            counts["compared"] += 1
            if _read_others(block, expected):
                # A key of a router outside the layer: with the logits of that router moec has to agree.
                built = blocks.build(_make_config(config_class, config), tmp_path / f"model-{counts['compared']}",
                                     max_blocks=1)
                moec.compare(moec.run(built.folder, built.blocks[0], tmp_path), built.blocks[0])
                continue
            output = block.output
            assert output.shape == expected.output.shape and np.allclose(output, expected.output, atol=1e-6), (
                f"'{key}' {done}: moec imports the same layer, and the model's block changes"
            )
    assert counts["refused"] and counts["the same"], counts
