# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each activation compared with hand-computed values and the scalar form."""

import math

import numpy as np
import pytest
import scalar_layer

from moec.reference.activations import PARAMETERS, Activation, apply, sigmoid
from moec.reference.activations import split_gate_up

GATES = [-30.0, -7.5, -2.0, -0.5, 0.0, 0.3, 1.0, 2.0, 6.9, 7.1, 40.0]
UPS = [3.0, -9.0, 0.5, 8.0, -1.0, 2.0, -1.0, 0.25, 7.2, -7.2, 30.0]


def defaults(kind, **given):
    return Activation(kind, **{**PARAMETERS[kind], **given})


def value(kind, g, u=1.0, **given):
    return float(apply(defaults(kind, **given), np.array([g]), np.array([u]))[0])


# Values computed independently, to the digits shown.
BY_HAND = [
    ("silu", 1.0, 2.0, {}, 2 * 0.7310585786),
    ("silu", 3.0, 5.0, {"limit": 2.0}, 2 * 0.8807970780 * 2),
    ("silu", -3.0, -5.0, {"limit": 2.0}, -3 * 0.0474258732 * -2),
    ("gelu", 1.0, 3.0, {}, 3 * 0.8413447461),
    ("gelu", -2.0, 1.0, {}, -2 * 0.0227501319),
    ("gelu", 1.0, 3.0, {"beta": 1.0}, 4 * 0.8413447461),
    ("gelu_tanh", 1.0, 2.0, {}, 2 * 0.8411919906),
    ("relu", 3.0, -2.0, {}, -6.0),
    ("relu", -3.0, 2.0, {}, 0.0),
    ("relu2", 3.0, -2.0, {}, -18.0),
    ("relu2", -3.0, 2.0, {}, 0.0),
    ("swigluoai", 1.0, 2.0, {}, 3 * 0.8457957659),
    ("swigluoai", 9.0, -20.0, {}, -6 * 7 * 0.9999933097),
    ("swigluoai", 0.5, 3.0, {"alpha": 0.0, "limit": 1.0}, 2 * 0.25),
    ("swigluoai_uninterleave", 1.0, 2.0, {}, 2 * 0.7310585786),
    ("swigluoai_uninterleave", 1.0, 2.0, {"alpha": 1.702, "beta": 1.0, "limit": 7.0},
     3 * 0.8457957659),
    ("swigluoai_uninterleave", 4.0, -9.0, {"limit": 2.0}, 2 * 0.8807970780 * -2),
    ("swiglustep", 20.0, 9.0, {}, 49.0),
    ("swiglustep", 1.0, -9.0, {}, 0.7310585786 * -7),
    ("swiglustep", 1.0, 9.0, {"limit": 0.5}, 0.25),
    ("situ", 4.0, 25.0, {}, 4 * 0.7615941560 * 0.9820137900 * 25 * 0.7615941560),
    ("situ", 1.0, 100.0, {"beta": 1.0, "linear_beta": 0.0}, 76.15941560 * 0.7310585786),
    ("silu_no_mul", 1.0, 9.0, {}, 0.7310585786),
    ("gelu_no_mul", 1.0, 9.0, {}, 0.8413447461),
    ("gelu_tanh_no_mul", 1.0, 9.0, {}, 0.8411919906),
    ("relu_no_mul", 3.0, 9.0, {}, 3.0),
    ("relu2_no_mul", 3.0, 9.0, {}, 9.0),
]


@pytest.mark.parametrize("kind,g,u,given,expected", BY_HAND)
def test_by_hand(kind, g, u, given, expected):
    assert value(kind, g, u, **given) == pytest.approx(expected, rel=1e-8)


def test_every_kind_is_tested_by_hand():
    assert {row[0] for row in BY_HAND} == set(PARAMETERS)


@pytest.mark.parametrize("kind", PARAMETERS)
def test_against_scalar(kind):
    got = apply(defaults(kind), np.array(GATES), np.array(UPS))
    given = {k: v for k, v in PARAMETERS[kind].items() if v is not None}
    spec = {"activation": {"kind": kind, **given}}
    want = [scalar_layer.activate(spec, g, u) for g, u in zip(GATES, UPS)]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", PARAMETERS)
def test_nan_goes_through(kind):
    assert math.isnan(value(kind, math.nan, 1.0))
    if defaults(kind).gated:
        assert math.isnan(value(kind, 1.0, math.nan))


def test_clamps_pass_nan():
    for kind in ("silu", "swigluoai_uninterleave"):
        assert math.isnan(value(kind, 1.0, math.nan, limit=2.0))
        assert math.isnan(value(kind, math.nan, 1.0, limit=2.0))


def test_sigmoid_at_the_ends():
    got = sigmoid(np.array([-1e4, -math.inf, 1e4, math.inf, 0.0]))
    assert got.tolist() == [0.0, 0.0, 1.0, 1.0, 0.5]


def test_orders_of_gate_and_up():
    x = np.arange(6.0)[None, :]
    for order, gate, up in [
        ("gate_up", [0, 1, 2], [3, 4, 5]),
        ("up_gate", [3, 4, 5], [0, 1, 2]),
        ("interleaved", [0, 2, 4], [1, 3, 5]),
    ]:
        g, u = split_gate_up(x, order, True)
        assert g[0].tolist() == gate and u[0].tolist() == up
    g, u = split_gate_up(x, "gate_up", False)
    assert g is x and u is None
