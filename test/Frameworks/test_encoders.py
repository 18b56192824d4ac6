# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The encoders of test/Numeric/test_tool_forms.py against the tools: tensors of an encoder mean to its tool what the
encoder says. Tools that are not installed are skipped."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def import_forms():
    """test/Numeric needs the package `moec`; this folder has a module of that name."""
    own, path = sys.modules.pop("moec", None), sys.path
    sys.path = [str(ROOT / "python"), str(ROOT / "test" / "Numeric"), *path]
    try:
        return importlib.import_module("test_tool_forms")
    finally:
        sys.path = path
        for name in [each for each in sys.modules if each == "moec" or each.startswith("moec.")]:
            del sys.modules[name]
        if own:
            sys.modules["moec"] = own


forms = import_forms()

MATRIX = np.random.default_rng(4).standard_normal((64, 128)).astype(np.float32)


def expect_equal(got, meant, tolerance=1e-6):
    assert np.abs(np.asarray(got, np.float64) - meant).max() <= tolerance * np.abs(meant).max()


def tensor(array):
    """ml_dtypes' bf16 as PyTorch's."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_mlx(bits):
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed (pip install mlx[cpu])")
    parts, meant = forms.mlx(bits)(MATRIX)
    stored = [mx.array(parts[name]) for name in (".weight", ".scales", ".biases")]
    got = mx.dequantize(*stored, group_size=32, bits=bits)
    expect_equal(got, meant)
    # And what the tool itself packs has this layout.
    packed, scales, biases = (np.array(each) for each in mx.quantize(mx.array(MATRIX), group_size=32, bits=bits))
    codes = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little").reshape(len(MATRIX), -1, bits)
    codes = (codes << np.arange(bits, dtype=np.uint8)).sum(2)
    expect_equal(mx.dequantize(mx.array(packed), mx.array(scales), mx.array(biases), group_size=32, bits=bits),
                 codes * scales.astype(np.float64).repeat(32, 1) + biases.astype(np.float64).repeat(32, 1))


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_modes_of_mlx(mode):
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed (pip install mlx[cpu])")
    parts, meant = getattr(forms, f"mlx_{mode}")(MATRIX)
    more = {"global_scale": mx.array(parts[".global_scale"][0])} if ".global_scale" in parts else {}
    got = mx.dequantize(mx.array(parts[".weight"]), mx.array(parts[".scales"]), mode=mode, dtype=mx.float32, **more)
    expect_equal(got, meant)


def test_metal():
    metal = pytest.importorskip("transformers.integrations.metal_quantization")
    for bits in (2, 4, 8):
        parts, meant = forms.mlx(bits, biases=".qbiases")(MATRIX)
        words = torch.from_numpy(parts[".weight"].view(np.int32))
        got = metal._affine_dequantize_tensor(words, tensor(parts[".scales"]), tensor(parts[".qbiases"]), 32, bits)
        expect_equal(got, meant)


def test_gemma():
    gemma = pytest.importorskip("transformers.integrations.gemma_quant")
    for bits in (2, 4, 8):
        parts, meant = forms.gemma(bits)(MATRIX)
        module = gemma.QuantizedLinear(128, 64, num_bits=bits)
        module.weight.data, module.weight_scale.data = tensor(parts[".weight"]), tensor(parts[".weight_scale"])
        expect_equal(module._dequantize_weights().detach(), meant)


def test_bitnet():
    bitnet = pytest.importorskip("transformers.integrations.bitnet")
    parts, meant = forms.bitnet(True)(MATRIX)
    codes = bitnet.unpack_weights(tensor(parts[".weight"]), torch.float32)
    expect_equal(codes * float(parts[".weight_scale"][0]), meant)


@pytest.mark.parametrize(("bits", "axis"), [(8, 1), (4, 1), (4, 0), (3, 1), (3, 0), (2, 1), (1, 0)])
def test_hqq(bits, axis):
    quantize = pytest.importorskip("hqq.core.quantize", reason="HQQ is not installed (pip install hqq)")
    parts, meant = forms.hqq(bits, axis)(MATRIX)
    meta = {"nbits": bits, "group_size": 32, "axis": axis, "shape": MATRIX.shape, "view_as_float": False,
            "packing": quantize.Quantizer.bit_to_packing[bits], "compute_dtype": torch.float32,
            "scale": tensor(parts[".scale"]).float(), "zero": tensor(parts[".zero"]).float()}  # fmt: skip
    expect_equal(quantize.Quantizer.dequantize(tensor(parts[".W_q"]), meta), meant)


def test_aqlm():
    utils = pytest.importorskip("aqlm.utils", reason="AQLM is not installed (pip install aqlm)")
    for books, bits, height, width in ((1, 8, 1, 8), (2, 10, 2, 4)):
        parts, meant = forms.aqlm(books, bits, height, width)(MATRIX)
        codes = tensor(parts[".codes"]).to(torch.int64) % 2**bits
        got = utils._dequantize_weight(codes, tensor(parts[".codebooks"]).float(), tensor(parts[".scales"]).float())
        expect_equal(got, meant)


def test_modelopt():
    found = importlib.util.find_spec("modelopt")
    if found is None:
        pytest.skip("ModelOpt is not installed (pip install nvidia-modelopt)")
    # The package imports a GPU's libraries; the function needs none.
    source = pathlib.Path(next(iter(found.submodule_search_locations))) / "torch" / "export" / "quant_utils.py"
    text = source.read_text()
    text = text[text.index("def pack_int4_in_uint8"):]
    names = {"torch": torch, "_validate_int4_block_size": lambda *_: None}
    exec(text[: text.index("\ndef to_quantized_weight")], names)
    parts, meant = forms.modelopt_awq()(MATRIX)
    scales = tensor(parts[".weight_scale"]).float()
    weight = torch.from_numpy(meant) / tensor(parts[".pre_quant_scale"]).double()
    got = names["pack_int4_in_uint8"](weight, scales.double(), 32)
    assert np.array_equal(got.numpy(), parts[".weight"])


@pytest.mark.parametrize("name", ["gemv", "gemv_fast", "marlin"])
def test_autoawq(name):
    """The modules' own packing; AUTOAWQ-SOURCE of make_checkpoints.py is on the path."""
    found = importlib.util.find_spec("awq")
    if found is None:
        pytest.skip("AutoAWQ is not there (its source)")
    path = pathlib.Path(next(iter(found.submodule_search_locations))) / "modules" / "linear" / f"{name}.py"
    text = path.read_text().replace("from awq.utils.module import try_import", "try_import = lambda name: (None, '')")
    names = {"__name__": name}
    exec(compile(text, str(path), "exec"), names)
    module = names[{"gemv": "WQLinear_GEMV", "gemv_fast": "WQLinear_GEMVFast", "marlin": "WQLinear_Marlin"}[name]]
    linear = torch.nn.Linear(128, 64, bias=False)
    if name == "marlin":
        parts, meant = forms.marlin((".qweight", ".scales"))(MATRIX)
        scales, zeros = np.abs(MATRIX.reshape(64, -1, 32)).max(2) / 7.5, None
    else:
        parts, meant = (forms.awq_gemv if name == "gemv" else forms.awq_fast(".qzeros"))(MATRIX)
        _, scales, zeros, meant = forms.zeros_of(MATRIX, 32)
    linear.weight.data = torch.from_numpy(meant).float()
    scales = torch.from_numpy(scales.astype(np.float16))
    zeros = zeros if zeros is None else torch.from_numpy(zeros).float()
    packed = module.from_linear(linear, 4, 32, False, scales, zeros)
    assert np.array_equal(packed.qweight.numpy(), parts[".qweight"])
    assert np.array_equal(packed.scales.numpy(), parts[".scales"])
    if name == "gemv":
        assert np.array_equal(packed.qzeros.numpy(), parts[".qzeros"])
    elif name == "gemv_fast":
        expect_equal(packed.qzeros.numpy(), parts[".qzeros"].astype(np.float64), 1e-3)
