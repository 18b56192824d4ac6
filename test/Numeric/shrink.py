# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shrinks a failing case while it still fails."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Callable, Iterator

from cases import Case
from random_specs import is_telling, paths

from moec.reference import LayerSpec, SpecError

#: Runs of smaller cases.
_TRIALS = 100
#: Simple values of required fields.
_SIMPLE = {"dtype": ["f32"], "entry": ["ids", "logits"], "kind": ["silu"]}


def _simpler(key, value) -> list:
    if type(value) is int and value > 1:
        return sorted({1, 2, value // 4, value // 2, value - 1} - {0, value})
    if isinstance(value, list) and len(value) > 1:
        return [value[:1], value[: len(value) // 2], value[1:]]
    return [simple for simple in _SIMPLE.get(key, []) if simple != value]


def _smaller_models(model: dict) -> Iterator[dict]:
    for *parents, last in list(paths(model)):
        for value in [None, *_simpler(last, _at(model, parents)[last])]:
            changed = copy.deepcopy(model)
            target = _at(changed, parents)
            if value is None:
                del target[last]
            else:
                target[last] = value
            yield changed


def _at(model: dict, keys):
    for key in keys:
        model = model[key]
    return model


def _smaller(case: Case) -> Iterator[Case]:
    if case.hard is not None:
        yield replace(case, hard=None)
    for tokens in {1, 2, case.tokens // 2, case.tokens - 1}:
        if 0 < tokens < case.tokens:
            yield replace(case, tokens=tokens, model=case.model | {"max_tokens": tokens})
    for model in _smaller_models(case.model):
        yield replace(case, model=model)


def _is_usable(case: Case) -> bool:
    try:
        spec = LayerSpec.from_json(case.model)
    except SpecError:
        return False
    return case.tokens <= spec.max_tokens and is_telling(case)


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A case that `fails` in the same way and from which no field can be removed."""
    trials, name = 0, case.name
    smaller = _smaller(case)
    while trials < _TRIALS:
        trial = next(smaller, None)
        if trial is None:
            break
        if not _is_usable(trial):
            continue
        trials += 1
        if fails(replace(trial, name=f"{name}_{trials}")):
            case = trial
            smaller = _smaller(case)
    return case
