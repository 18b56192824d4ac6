# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One case of each family that Transformers has computed and saved (freeze.py)."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

import moec
import numpy as np
import pytest
from safetensors.numpy import load_file

FROZEN = pathlib.Path(__file__).parent / "frozen"


@pytest.mark.parametrize("name", sorted(path.name for path in FROZEN.iterdir()))
def test_frozen(name, tmp_path):
    folder = FROZEN / name
    with np.load(folder / "expected.npz") as expected:
        block = SimpleNamespace(
            layer=int(expected["layer"]),
            inputs=load_file(folder / "call.safetensors"),
            output=expected["output"],
            ids=expected["ids"] if "ids" in expected else None,
            options=[],
        )
    # The folder looks like a model's; the call's tensors are beside the weights.
    model = tmp_path / "model"
    model.mkdir()
    for file in ("config.json", "model.safetensors"):
        (model / file).symlink_to(folder / file)
    moec.compare(moec.run(model, block, tmp_path), block)


def test_there_are_many():
    assert len(list(FROZEN.iterdir())) >= 60
