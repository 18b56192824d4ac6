# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Import of tensors: old and new DLPack capsules, and NumPy arrays that DLPack cannot describe."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from dlpack_maker import Told
from small_layer import Case, shared_case

import moec


@pytest.fixture
def hidden() -> np.ndarray:
    return shared_case()[0].arguments["hidden_states"]


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_are_given_back(hidden: np.ndarray, versioned: bool) -> None:
    case, layer = shared_case()
    told, out = Told(hidden, versioned=versioned), Told(np.zeros_like(hidden), versioned=versioned)
    assert layer(told, out=out) is out
    case.verify(out.array)
    assert (told.taken, told.freed, out.taken, out.freed) == (1, 1, 1, 1)
    if versioned:
        assert told.asked == {"max_version": (1, 3)}
    with pytest.raises(moec.InvalidArgument, match="out: is missing, and moec does not know how"):
        layer(told)
    assert told.taken == told.freed == 2


def test_capsules_of_weights_are_kept() -> None:
    case = Case()
    layer = case.compile()
    first, second = (Told(case.tensors["gate.weight"]) for _ in range(2))
    layer.bind(gate_weight=first)
    assert (first.taken, first.freed) == (1, 0)
    layer.bind(gate_weight=second)
    assert (first.freed, second.freed) == (1, 0)
    case.verify(layer(**case.arguments))
    layer.close()
    assert second.freed == 1


def test_strides_that_are_absent_or_of_no_use(hidden: np.ndarray) -> None:
    case, layer = shared_case()
    expected = layer(hidden).view(np.uint16)
    for strides in (None, [64, 1]):
        out = np.empty_like(hidden)
        layer(Told(hidden, strides=strides), out=out)
        np.testing.assert_array_equal(out.view(np.uint16), expected)
    one = layer(Told(hidden[:1], strides=[7, 1]), out=np.empty_like(hidden[:1]))
    np.testing.assert_array_equal(one.view(np.uint16), expected[:1])


def test_the_offset_counts(hidden: np.ndarray) -> None:
    case, layer = shared_case()
    out = np.empty_like(hidden[2:])
    layer(Told(hidden, shape=(3, 64), offset=2 * 64 * 2), out=out)
    np.testing.assert_array_equal(out.view(np.uint16), layer(hidden)[2:].view(np.uint16))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"device": (2, 0)}, ValueError, "a tensor on cpu expected, one on cuda:0 found"),
        ({"device": (8, 3)}, ValueError, "one on device 3 of type 8 found"),
        ({"dtype": (2, 16, 1)}, TypeError, "dtype bf16 expected, f16 found; convert the tensor"),
        ({"dtype": (4, 16, 4)}, TypeError, "type code 4 of 16 bits and 4 lanes"),
        ({"dtype": (5, 64, 1)}, TypeError, "type code 5 of 64 bits"),
        ({"shape": (5, 32)}, ValueError, r"shape \[tokens, 64\] expected, \[5, 32\] found"),
        ({"shape": (5, -64)}, ValueError, r"shape \[5, -64\] has a negative size"),
        ({"shape": (5, 8, 8)}, ValueError, r"rank 2 expected, shape \[5, 8, 8\] found"),
        ({"rank": 0}, ValueError, "rank 2 expected, shape"),
        ({"rank": -1}, ValueError, "rank -1 found; 0 to 8 are accepted"),
        ({"rank": 9}, ValueError, "rank 9 found"),
        ({"strides": (1, 64)}, ValueError, r"strides \[64, 1\] \(contiguous\) expected"),
        ({"strides": (-64, 1)}, ValueError, r"make the tensor contiguous"),
        ({"data": 0}, ValueError, "the data pointer is null"),
        ({"offset": 1}, ValueError, "an address aligned to 2 bytes expected"),
        ({"major": 2}, ValueError, "DLPack of version 2 found, but only 1 is supported"),
        ({"name": b"used_dltensor"}, TypeError, "does not return an unused DLPack capsule"),
    ],
)
def test_what_is_told_is_checked(
    hidden: np.ndarray, fields: dict, error: type, message: str
) -> None:
    _, layer = shared_case()
    told = Told(hidden, **fields)
    with pytest.raises(error, match=message) as failure:
        layer(told, out=np.empty_like(hidden))
    assert str(failure.value).startswith("hidden_states: ")
    assert isinstance(failure.value, moec.Error) and failure.value.code == "invalid_argument"
    assert told.freed == (0 if "name" in fields else told.taken)


def test_outputs_may_be_written_to(hidden: np.ndarray) -> None:
    _, layer = shared_case()
    for out in (Told(hidden.copy(), flags=1), np.broadcast_to(np.zeros_like(hidden), hidden.shape)):
        with pytest.raises(moec.InvalidArgument, match="out: the tensor is read-only"):
            layer(hidden, out=out)
    frozen = hidden.copy()
    frozen.flags.writeable = False
    layer(frozen)


def test_dtypes_of_numpy() -> None:
    _, layer = shared_case()
    for dtype, name in ((np.float32, "f32"), (np.int64, "i64"), (np.bool_, "bool"),
                        (ml_dtypes.float8_e4m3fn, "f8e4m3"), (ml_dtypes.float8_e5m2, "f8e5m2"),
                        (ml_dtypes.float8_e8m0fnu, "f8e8m0")):
        with pytest.raises(moec.InvalidType, match=f"dtype bf16 expected, {name} found"):
            layer(np.ones((5, 64), dtype))
    for dtype in (np.complex64, ml_dtypes.int4, "datetime64[s]", object, "U3"):
        with pytest.raises(moec.Error, match="^hidden_states: "):
            layer(np.zeros((5, 64), dtype))


def test_bytes_stand_for_float8() -> None:
    case = Case(quantization="fp8_block128", hidden_size=128, intermediate_size=128)
    layer = case.compile()
    layer.bind(experts_w13=case.tensors["experts.w13"].view(np.uint8))
    case.verify(layer(**case.arguments))
    with pytest.raises(moec.InvalidType, match="experts.w13: dtype f8e4m3 expected, i8 found"):
        layer.bind(experts_w13=case.tensors["experts.w13"].view(np.int8))
    packed = Case(quantization="mxfp4", hidden_size=128, intermediate_size=128)
    with pytest.raises(moec.InvalidType, match="view it as int8 if these are packed bytes"):
        packed.compile().bind(experts_w13=packed.tensors["experts.w13"].view(np.uint8))


def test_producers_that_fail(hidden: np.ndarray) -> None:
    _, layer = shared_case()

    class Failing:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: object) -> object:
            raise RuntimeError("no tensor today")

    with pytest.raises(moec.InvalidArgument, match="cannot be read: no tensor today") as failure:
        layer(Failing())
    assert isinstance(failure.value.__cause__, RuntimeError)

    class Interrupted(Failing):
        def __dlpack__(self, **_: object) -> object:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layer(Interrupted())

    class Other(Failing):
        def __dlpack__(self, **_: object) -> object:
            return hidden

    with pytest.raises(moec.InvalidType, match="does not return an unused DLPack capsule"):
        layer(Other())


def test_garbage_in_place_of_the_exchange_functions(hidden: np.ndarray) -> None:
    case, layer = shared_case()
    for garbage in (None, 7, object()):
        kind = type("Strange", (Told,), {"__dlpack_c_exchange_api__": garbage})
        out = np.empty_like(hidden)
        layer(kind(hidden), out=out)
        case.verify(out)


def test_a_producer_that_calls_the_layer(hidden: np.ndarray) -> None:
    case, layer = shared_case()

    class Nested(Told):
        def __dlpack__(self, **asked: object) -> object:
            case.verify(layer(hidden))
            return super().__dlpack__(**asked)

    out = np.empty_like(hidden)
    layer(Nested(hidden), out=out)
    case.verify(out)
