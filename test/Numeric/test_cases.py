# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases themselves: well-formed, telling, and complete. Runs no binary."""

import json
from collections import Counter

import jsonschema
import numpy as np
import pytest
from cases import CASES, CPU_CASES
from features import FEATURES, covering, features
from runs import ALL_CASES, ROOT
from schedules import EVERY_CHANGE

from moec.reference import LayerSpec, decide, evaluate, generate

#: A change looks at the cases that it runs on the host or simulates; every night at all.
RUN = {case.name for case in (*covering(CASES + CPU_CASES), *(case for _, case in EVERY_CHANGE))}

SCHEMA = json.loads((ROOT / "docs" / "spec.schema.json").read_text())


def test_names_are_unique():
    names = Counter(case.name for case in CASES + CPU_CASES)
    assert [name for name, count in names.items() if count > 1] == []


def test_models_are_unique():
    seen = Counter(
        json.dumps([case.model, case.tokens, case.seed, case.hard], sort_keys=True)
        for case in CASES + CPU_CASES
    )
    assert [model for model, count in seen.items() if count > 1] == []


def test_every_feature_has_a_case():
    covered = set().union(*(features(case) for case in CASES + CPU_CASES))
    wanted = {(section, name) for section, names in FEATURES.items() for name in names}
    assert sorted(wanted - covered) == []
    assert sorted(covered - wanted) == []


def hides_nan(spec):
    """int8 cannot represent NaN, which becomes 0 with one scale for all rows."""
    activation = spec.quantization.w13 and spec.quantization.w13.activation
    return activation and (activation.dtype, activation.granularity) == ("int8", "tensor")


@pytest.mark.parametrize("case", [case for case in CASES + CPU_CASES if ALL_CASES or case.name in RUN],
                         ids=lambda case: case.name)
def test_case_is_telling(case):
    if "moec_spec" in case.model:
        jsonschema.Draft202012Validator(SCHEMA).validate(case.model)
    spec = LayerSpec.from_json(case.model)
    tensors = generate(spec, case.tokens, case.seed, case.hard)
    decision = decide(spec, tensors)
    out = evaluate(spec, tensors, decision)
    # One row on a near tie would be more than the share that a check allows.
    assert decision.routing is None or not decision.routing.near.any()
    lost = np.isnan(out).all(axis=1)
    assert lost.any() == (case.hard == "nan_hidden" and not hides_nan(spec))
    out = out[~lost]
    assert np.isnan(out).any() == (case.hard in ("nan_scales", "nan_codes"))
    out = np.nan_to_num(out, nan=0.0)
    assert np.isfinite(out).all()
    # A zero output would agree with a kernel that does nothing.
    all_lost = case.tokens == 0 or case.name == "local_experts_none_chosen"
    assert out.any() != all_lost
    assert case.hard == "wide_hidden" or np.abs(out).max(initial=0.0) < 100.0
