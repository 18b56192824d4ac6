# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fields `quantization` of a spec: the operands of the experts' gemms."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Fields, SpecError

WEIGHT_DTYPES = ("fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "nf4", "int8", "int4")
ACTIVATION_DTYPES = ("fp8_e4m3", "int8", "fp8_e5m2")
SCALE_DTYPES = ("f32", "bf16", "f16", "e8m0", "e4m3")


@dataclass(frozen=True)
class Operand:
    """One operand; a scale covers `rows` x `columns` elements, None meaning all."""

    dtype: str
    #: tensor, channel, token, group or block.
    granularity: str
    rows: int | None = None
    columns: int | None = None
    scale_dtype: str = "f32"
    static: bool = False
    zero_point: bool = False
    global_scale: bool = False
    minimum: bool = False

    @property
    def in_pairs(self) -> bool:
        """Whether a byte holds two elements."""
        return self.dtype in ("fp4_e2m1", "nf4", "int4")


@dataclass(frozen=True)
class Quantization:
    """Quantization of the operands of a gemm."""

    weight: Operand
    activation: Operand | None = None

    @property
    def supported(self) -> bool:
        """Whether the reference implements it."""
        activation = self.activation
        return self.weight.dtype != "fp8_e5m2" and (
            activation is None or activation.dtype in ("fp8_e4m3", "int8")
        )

    @property
    def shares_scale(self) -> bool:
        """Whether all rows of a call share a dynamic activation scale."""
        activation = self.activation
        return (
            activation is not None
            and activation.granularity == "tensor"
            and not activation.static
        )


SHORT_NAMES = {
    "fp8_block128": Quantization(
        Operand("fp8_e4m3", "block", 128, 128), Operand("fp8_e4m3", "group", 1, 128)
    ),
    "mxfp4": Quantization(Operand("fp4_e2m1", "group", 1, 32, "e8m0")),
    "nvfp4": Quantization(
        Operand("fp4_e2m1", "group", 1, 16, "e4m3", global_scale=True)
    ),
    "mxfp8": Quantization(
        Operand("fp8_e4m3", "group", 1, 32, "e8m0"), Operand("fp8_e4m3", "group", 1, 32, "e8m0")
    ),
}

_WEIGHTS = ("tensor", "channel", "group", "block")
_ACTIVATIONS = ("tensor", "token", "group")


@dataclass(frozen=True)
class Products:
    """Quantization of both gemms of experts; None for a gemm that is not quantized."""

    w13: Quantization | None = None
    w2: Quantization | None = None


def parse(outer: Fields, field: str = "quantization") -> Products:
    """Parses a field for both gemms: an object, a short name, or null."""
    if not isinstance(outer.raw(field), dict):
        both = _word(outer, field)
        return Products(both, both)
    fields = outer.object(field)
    both = _operands(fields)
    products = {"w13": both, "w2": both}
    for product in products.keys() & fields.given():
        if isinstance(fields.raw(product), dict):
            own = fields.object(product)
            products[product] = _operands(own)
            own.finish()
        else:
            products[product] = _word(fields, product)
    fields.finish()
    return Products(**products)


def _word(fields: Fields, field: str) -> Quantization | None:
    """Parses a short name; None for null or an absent field."""
    if fields.raw(field) is None:
        return None
    return SHORT_NAMES[fields.choice(field, SHORT_NAMES, required=True)]


def _operands(fields: Fields) -> Quantization:
    weight = fields.raw("weight")
    if not isinstance(weight, dict):
        result = SHORT_NAMES[fields.choice("weight", SHORT_NAMES, required=True)]
        if fields.has("activation"):
            raise SpecError(
                f"field '{fields.name('activation')}': '{weight}' already defines the activations"
            )
        return result
    activation = fields.object("activation")
    return Quantization(
        _operand(fields.object("weight"), _WEIGHTS, False),
        None if activation is None else _operand(activation, _ACTIVATIONS, True),
    )


def _operand(fields: Fields, granularities, is_activation: bool) -> Operand:
    dtypes = ACTIVATION_DTYPES if is_activation else WEIGHT_DTYPES
    dtype = fields.choice("dtype", dtypes, required=True)
    granularity, rows, columns = _scale(fields, granularities)
    static, zero_point, global_scale, minimum = False, False, False, False
    scale_dtype = fields.choice("scale_dtype", SCALE_DTYPES, "f32")
    if is_activation:
        static = fields.boolean("static")
    else:
        zero_point = fields.boolean("zero_point")
        global_scale = fields.boolean("global_scale")
        minimum = fields.boolean("minimum")
    if is_activation and (dtype, granularity) == ("int8", "group"):
        raise SpecError(f"field '{fields.name('scale')}': int8 has 'tensor' and 'token'")
    if is_activation and (scale_dtype, granularity) not in (("f32", granularity), ("e8m0", "group")):
        raise SpecError(
            f"field '{fields.name('scale_dtype')}': activations have 'f32', groups 'e8m0' too"
        )
    if static and granularity != "tensor":
        raise SpecError(f"field '{fields.name('static')}': needs the scale 'tensor'")
    if zero_point and dtype not in ("int8", "int4"):
        raise SpecError(f"field '{fields.name('zero_point')}': {dtype} has none")
    if global_scale and granularity not in ("group", "block"):
        raise SpecError(
            f"field '{fields.name('global_scale')}': needs scales of groups or blocks"
        )
    if minimum and (
        dtype not in ("int8", "int4") or granularity != "group" or zero_point or global_scale
        or scale_dtype not in ("f32", "bf16", "f16")
    ):
        raise SpecError(
            f"field '{fields.name('minimum')}': needs int8 or int4 in groups, scales of f32, bf16 or f16, and "
            "neither 'zero_point' nor 'global_scale'"
        )
    fields.finish()
    return Operand(
        dtype, granularity, rows, columns, scale_dtype, static, zero_point, global_scale, minimum
    )


def _scale(fields: Fields, granularities):
    value = fields.raw("scale")
    words = {"tensor": (None, None), "channel": (1, None), "token": (1, None)}
    if isinstance(value, str) and value in words and value in granularities:
        return (value, *words[value])
    if isinstance(value, dict) and len(value) == 1:
        ((name, sizes),) = value.items()
        if name == "group":
            sizes = [1, sizes]
        if name in granularities and name in ("group", "block"):
            if isinstance(sizes, list) and len(sizes) == 2:
                if all(type(size) is int and 0 < size <= 1 << 20 for size in sizes):
                    return (name, *sizes)
    raise SpecError(
        f"field '{fields.name('scale')}' is {value!r}: expected one of "
        + ", ".join(granularities)
    )
