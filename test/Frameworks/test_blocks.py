# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every family of Transformers with experts: its own blocks against moec.

Configuration and weights are imported as the model saved them. moec refuses unsupported features of a family by name;
a wrong result is never allowed.
"""

from __future__ import annotations

import json

import blocks
import moec
import pytest
import table

CLASSES = {
    config_class.__name__: config_class
    for module in table.discover()
    if module not in table.UNCOVERED and module not in table.APART
    for config_class in table.config_classes(module)
}
#: Keys that select the decoder layers with experts: all of these layers are checked.
LAYER_KEYS = {
    "mlp_only_layers", "decoder_sparse_step", "first_k_dense_replace", "num_dense_layers",
    "moe_layer_interval", "expert_layer_period", "interleave_moe_layer_step",
}
CASES = [
    pytest.param(name, changes, id=f"{name}-{_id}")
    for name, config_class in CLASSES.items()
    for _id, changes in [("small", {})]
    + [(",".join(f"{key}={value}" for key, value in change.items()), change)
       for change in table.alterations(config_class)]
]


def test_every_module_is_covered_or_has_a_reason():
    modules = table.discover()
    assert set(table.UNCOVERED) <= set(modules)
    for module in modules:
        assert module in table.UNCOVERED or table.config_classes(module), module


@pytest.mark.parametrize("module", sorted(set(table.UNCOVERED) - {"granite_docling"}))
def test_what_is_not_covered_is_refused(module, tmp_path):
    for config_class in table.config_classes(module):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config_class().to_dict()))
        with pytest.raises(moec.Refused, match="cannot be compiled: "):
            moec.spec(path)


@pytest.mark.parametrize("name, changes", CASES)
def test_block(name, changes, tmp_path, record):
    try:
        if "ffn_config" in CLASSES[name]().to_dict():
            config = table.small_dbrx(CLASSES[name], changes)
        else:
            config = table.small(CLASSES[name], changes)
        many = not changes or LAYER_KEYS & set(changes)
        model = blocks.build(config, tmp_path / "model", max_blocks=4 if many else 1)
    except Exception as error:  # A model's code may raise anything about a configuration.
        if not changes:
            raise
        record(name, changes, "not built")
        pytest.skip(f"Transformers does not build it: {type(error).__name__}: {error}"[:200])
    worst = 0.0
    for block in model.blocks:
        try:
            results = moec.run(model.folder, block, tmp_path)
        except moec.Refused as refusal:
            # A refusal names the key that was changed.
            assert changes and next(iter(changes)) in str(refusal), refusal
            record(name, changes, "refused")
            return
        worst = max(worst, moec.compare(results, block))
    record(name, changes, "agrees", worst)
