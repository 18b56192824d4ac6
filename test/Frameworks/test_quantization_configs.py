# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every key that Transformers, compressed-tensors, ModelOpt and GPTQModel write today is read, known to be irrelevant,
or refused. scripts/tool-table makes a page of what they write."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
import types
from pathlib import Path

import moec
import pytest

transformers = pytest.importorskip("transformers", reason="Transformers is not installed (pip install transformers)")

MODEL = {
    "model_type": "qwen3_moe", "hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 4,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "hidden_act": "silu", "norm_topk_prob": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def spell(name: str, arguments: dict) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def read(quantization: dict, tmp_path) -> str:
    """Quantization of the experts' gemms, or the message of a refusal."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MODEL | {"quantization_config": quantization}, default=str))
    try:
        return json.dumps(json.loads(moec.spec(path)).get("quantization"))
    except moec.Refused as refused:
        return str(refused)


BLOCKS = {"weight_block_size": (128, 128)}
#: Class, arguments, and expected contents of the spec or the message.
TRANSFORMERS = [
    ("FineGrainedFP8Config", {}, "fp8_block128"),
    ("FineGrainedFP8Config", {"modules_to_not_convert": ["lm_head"], "dequantize": True}, '"block": [128, 128]'),
    ("FineGrainedFP8Config", {"weight_block_size": (64, 64)}, '"block": [64, 64]'),
    ("FineGrainedFP8Config", {"weight_block_size": None, "activation_scheme": "static"}, '"static": true'),
    ("GPTQConfig", {"bits": 4}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 8, "group_size": 32, "sym": False}, '"zero_point": true'),
    ("GPTQConfig", {"bits": 4, "group_size": -1, "desc_act": True}, '"scale": "channel"'),
    ("GPTQConfig", {"bits": 4, "format": "gptq_v2"}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 2}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 3}, '"dtype": "int4"'),
    ("AwqConfig", {}, '"zero_point": true'),
    ("AwqConfig", {"group_size": 32, "modules_to_not_convert": ["gate"]}, '{"group": 32}'),
    *[("AwqConfig", {"version": version}, "null") for version in ("gemv", "gemv_fast", "llm-awq")],
    ("AutoRoundConfig", {}, '"dtype": "int4"'),
    ("AutoRoundConfig", {"bits": 2, "group_size": 32}, '"dtype": "int4"'),
    ("AutoRoundConfig", {"bits": 5}, '"dtype": "int8"'),
    ("AutoRoundConfig", {"bits": 8, "group_size": 32, "sym": False}, '"zero_point": true'),
    ("BitsAndBytesConfig", {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, '"dtype": "nf4"'),
    # The loader dequantizes it.
    ("BitsAndBytesConfig", {"load_in_4bit": True}, "null"),
    ("BitsAndBytesConfig", {"load_in_8bit": True}, '"dtype": "int8"'),
    ("Mxfp4Config", {}, "mxfp4"),
    ("MetalConfig", {}, '"minimum": true'),
    ("MetalConfig", {"bits": 8, "group_size": 32}, '"minimum": true'),
    ("FbgemmFp8Config", {}, '"scale": "channel"'),
    # The loader decodes them.
    ("AqlmConfig", {}, "null"),
    ("BitNetQuantConfig", {}, "null"),
    ("BitNetQuantConfig", {"linear_class": "autobitlinear", "quantization_mode": "offline"}, "null"),
    ("BitNetQuantConfig", {"linear_class": "autobitlinear", "quantization_mode": "online"}, "= \"online\" is not"),
    ("GemmaQuantizationConfig", {}, "null"),
    ("GemmaQuantizationConfig", {"num_bits": 2}, "null"),
    *[("HqqConfig", {"nbits": bits, "axis": axis}, "null") for bits, axis in ((8, 1), (4, 1), (4, 0), (3, 1), (2, 1),
                                                                          (1, 0))],
    # Files have weights that are not quantized.
    *[(name, {}, "null") for name in ("GgufConfig", "NVFP4Config", "QuantoConfig")],
    *[(name, {}, f'quantization "{method}" is not supported; {remedy}') for name, method, remedy in (
        ("EetqConfig", "eetq", "its weights are in the order of a kernel"),
        ("FourOverSixConfig", "fouroversix", "save the model with"),
        ("FPQuantConfig", "fp_quant", "its modules rotate their input"),
        ("HiggsConfig", "higgs", "its weights are rotated"), ("SinqConfig", "sinq", "its modules hold objects"),
        ("SpQRConfig", "spqr", "its weights have sparse outliers"), ("VptqConfig", "vptq", "its codes are vectors"))],
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "expected"), TRANSFORMERS)
def test_transformers(name, arguments, expected, tmp_path, variant):
    own = getattr(importlib.import_module("transformers.utils.quantization_config"), name, None)
    if own is None:
        pytest.skip(f"Transformers {transformers.__version__} has no {name}")
    try:
        config = own(**arguments).to_dict()
    except ImportError as error:
        pytest.skip(str(error))
    variant("Transformers", transformers.__version__, spell(name, arguments), config)
    assert expected in read(config, tmp_path)


#: Presets by the format of their files, and those that are refused.
FORMATS = {
    "pack-quantized": ["W2A16", "W2A8", "W3A16", "W3A4", "W3A8", "W4A16", "W4A16_ASYM", "W4A8", "W4AFP8", "W4A4",
                       "W5A16", "W5A8", "W6A16", "W6A8", "W7A16", "W7A8", "W8A16"],
    "int-quantized": ["W8A8", "INT8"],
    "float-quantized": ["FP8", "FP8_DYNAMIC", "FP8_BLOCK"],
    "nvfp4-pack-quantized": ["NVFP4", "NVFP4A16"],
    "mxfp4-pack-quantized": ["MXFP4", "MXFP4A16", "MXFP4XFP8"],
    "mxfp8-quantized": ["MXFP8", "MXFP8A16"],
}
REFUSED = {"MXFP6A16": "mxfp8-quantized"}


@pytest.mark.parametrize("preset", [name for names in FORMATS.values() for name in names] + list(REFUSED))
def test_compressed_tensors(preset, tmp_path, variant):
    quantization = pytest.importorskip(
        "compressed_tensors.quantization", reason="compressed-tensors is not installed (pip install compressed-tensors)"
    )
    file_format = REFUSED.get(preset) or next(key for key, names in FORMATS.items() if preset in names)
    config = quantization.QuantizationConfig(
        config_groups={preset: ["Linear"]}, ignore=["lm_head"], format=file_format, quantization_status="compressed"
    )
    variant("compressed-tensors", importlib.metadata.version("compressed-tensors"), f"{preset}, {file_format}",
            config.to_dict())
    got = read(config.to_dict(), tmp_path)
    is_refused = "must be" in got or "not supported" in got
    assert is_refused == (preset in REFUSED), got


#: Algorithms that ModelOpt's export writes, and those that are refused.
ALGORITHMS = ["FP8", "NVFP4", "W4A16_NVFP4", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN", "W8A16", "MXFP8",
              "MIXED_PRECISION", "NVFP4_SVD", "NVFP4_AWQ", "W4A8_AWQ", "W4A16_AWQ"]  # fmt: skip


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "W8A8_SQ_PER_CHANNEL", "W4A8_NVFP4_FP8"])
def test_modelopt(algorithm, tmp_path, variant):
    found = importlib.util.find_spec("modelopt")
    if found is None:
        pytest.skip("ModelOpt is not installed (pip install nvidia-modelopt)")
    # The package imports a GPU's libraries, but this module needs none.
    path = Path(next(iter(found.submodule_search_locations))) / "torch" / "export" / "convert_hf_config.py"
    own = importlib.util.spec_from_file_location("convert_hf_config", path)
    module = importlib.util.module_from_spec(own)
    own.loader.exec_module(module)
    details = {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    if algorithm in ("NVFP4", "W4A16_NVFP4"):
        details["group_size"] = 16
    if algorithm == "MIXED_PRECISION":
        details["quantized_layers"] = {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}}
    file = {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": details}
    config = module.convert_hf_quant_config_format(file)
    variant("ModelOpt", importlib.metadata.version("nvidia-modelopt"), algorithm, config)
    got = read(config, tmp_path)
    assert ("quant_algo' must be" in got) != (algorithm in ALGORITHMS), got


GPTQMODEL = {
    "bits": 4, "group_size": 128, "desc_act": False, "lm_head": False, "method": "gptq", "quant_method": "gptq",
    "format": "gptq", "checkpoint_format": "gptq", "pack_dtype": "int32", "sym": True,
    "meta": {"gptaq": None, "mse": 0.0, "act_group_aware": True, "hessian": {"chunk_size": None}},
}  # fmt: skip
AWQ = {key: value for key, value in GPTQMODEL.items() if key != "sym"} | {
    "method": "awq", "quant_method": "awq", "format": "gemm", "checkpoint_format": "gemm", "version": "gemm",
}  # fmt: skip
FP8 = {key: value for key, value in GPTQMODEL.items() if key != "sym"} | {
    "bits": 8, "group_size": -1, "method": "fp8", "quant_method": "fp8", "format": "float8_e4m3fn",
    "checkpoint_format": "float8_e4m3fn", "weight_scale_method": "row", "weight_block_size": None,
    "weight_scale_semantics": "inverse",
}  # fmt: skip


# What to_dict() of GPTQModel 7.7.0 returns. The package builds an extension when it is installed.
@pytest.mark.parametrize(("config", "expected"), [
    (GPTQMODEL, '"dtype": "int4"'),
    (GPTQMODEL | {"bits": 8, "group_size": 32, "sym": False}, '"zero_point": true'),
    (GPTQMODEL | {"desc_act": True}, '"dtype": "int4"'),
    (GPTQMODEL | {"format": "gptq_v2", "checkpoint_format": "gptq_v2"}, '"dtype": "int4"'),
    (GPTQMODEL | {"dynamic": {"-:.*mlp\\.gate\\..*": {}, "+:.*experts.*": {"group_size": 64}}}, '{"group": 64}'),
    (GPTQMODEL | {"activation": {"mode": "w4afp8"}}, '"activation": {"dtype": "fp8_e4m3", "scale": "token"}'),
    (GPTQMODEL | {"activation": {"mode": "w4a_nvfp4", "recipe": "least_squares"}}, '{"weight": {"dtype": "int4"'),
    (GPTQMODEL | {"activation": {"mode": "w4a_nvfp4", "mlp": {"mode": "w4afp8", "layers": [0, 3]}}},
     '"activation": {"dtype": "fp8_e4m3", "scale": "token"}'),
    (GPTQMODEL | {"activation": {"mode": "w4a_nvfp4", "mlp": {"mode": "w4afp8", "layers": [1]}}},
     '{"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "f16"}}'),
    (GPTQMODEL | {"bits": 3}, '"dtype": "int4"'),
    (GPTQMODEL | {"bits": 6}, "= 6 is not supported; 2, 3, 4 or 8 is"),
    (GPTQMODEL | {"bits": 6, "format": "gptq_p", "checkpoint_format": "gptq_p"}, '"dtype": "int8"'),
    (AWQ | {"zero_point": False}, '"zero_point": true'),
    (AWQ | {"zero_point": True}, '"zero_point": true'),
    (AWQ | {"zero_point": False, "dynamic": {"-:.*mlp\\.gate.*": {}}}, '"zero_point": true'),
    (FP8, '"dtype": "fp8_e4m3", "scale": "channel"'),
    (AWQ | {"version": "gemv"}, "is another version than"),
    *[(AWQ | {"format": form, "checkpoint_format": form, "version": form}, "null")
      for form in ("gemv", "gemv_fast", "llm-awq", "marlin")],
    (AWQ | {"format": "bitblas", "version": "bitblas"}, '= "bitblas" is not supported; "gemm" is'),
    (GPTQMODEL | {"method": "qqq", "quant_method": "qqq", "format": "qqq"}, "quantization \"qqq\" is not supported"),
    (GPTQMODEL | {"method": "exl3", "quant_method": "exl3", "bits": 3.0}, "quantization \"exl3\" is not supported"),
])  # fmt: skip
def test_gptqmodel(config, expected, tmp_path):
    assert expected in read(config, tmp_path)


#: Class, arguments, and expected contents of the spec or the message.
GPTQMODEL_CLASSES = [
    ("GPTQConfig", {}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 8, "group_size": 32, "sym": False}, '"zero_point": true'),
    ("GPTQConfig", {"group_size": -1}, '"scale": "channel"'),
    ("GPTQConfig", {"desc_act": True, "act_group_aware": False}, '"dtype": "int4"'),
    ("GPTQConfig", {"format": "gptq_v2"}, '"dtype": "int4"'),
    ("GPTQConfig", {"dynamic": {"-:.*gate\\..*": {}, "+:.*experts.*": {"group_size": 64}}}, '{"group": 64}'),
    ("GPTQConfig", {"activation": "w4afp8"}, '"activation": {"dtype": "fp8_e4m3", "scale": "token"}'),
    ("GPTQConfig", {"activation": "w4a_nvfp4"}, '{"weight": {"dtype": "int4"'),
    *[("GPTQConfig", {key: value}, '"dtype": "int4"') for key, value in (
        ("static_groups", True), ("mse", 2.4), ("lm_head", True), ("true_sequential", False), ("damp_percent", 0.05),
        ("fallback", None), ("meta", {"x": 1}), ("smooth", "mad"), ("mock_quantization", True))],
    ("GPTQConfig", {"bits": 2}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 3}, '"dtype": "int4"'),
    ("GPTQConfig", {"bits": 5}, '"dtype": "int8"'),
    ("GPTQConfig", {"bits": 7, "sym": False}, '"zero_point": true'),
    ("GPTQConfig", {"bits": 3, "format": "gptq_p"}, '"dtype": "int4"'),
    ("GPTQConfig", {"dynamic": {"+:.*experts.*": {"bits": 6}}}, '"dtype": "int8"'),
    ("GPTQConfig", {"format": "marlin"}, "null"),
    ("GPTQConfig", {"pack_dtype": "int16"}, 'must be "int32", not "int16"'),
    ("GPTQConfig", {"rotation": "hadamard"}, '= "hadamard" is not supported'),
    ("AWQConfig", {}, '"zero_point": true'),
    ("AWQConfig", {"dynamic": {"-:.*gate.*": {}}}, '"zero_point": true'),
    ("AWQConfig", {"format": "llm-awq"}, "null"),
    ("RTNConfig", {}, '"dtype": "int4"'),
    ("FP8Config", {}, '"dtype": "fp8_e4m3", "scale": "channel"'),
    ("FP8Config", {"weight_scale_method": "tensor"}, '"scale": "tensor"'),
    ("FP8Config", {"weight_scale_method": "block", "weight_block_size": [128, 128]}, '"block": [128, 128]'),
    ("FP8Config", {"format": "float8_e5m2"}, "null"),
    ("GGUFConfig", {}, "null"),
    ("BitsAndBytesConfig", {}, "is GPTQModel's"),
    *[(name, {}, "is not supported") for name in (
        "QQQConfig", "EXL3Config", "ParoConfig", "VPTQConfig")],
]  # fmt: skip


@pytest.fixture(scope="module")
def gptqmodel():
    """GPTQModel's module of configurations, which needs no GPU. The package itself imports kernels."""
    found = importlib.util.find_spec("gptqmodel")
    if found is None or importlib.util.find_spec("pcre") is None:
        pytest.skip("GPTQModel is not there (its source, and pip install pypcre logbar)")
    root = Path(next(iter(found.submodule_search_locations)))
    for folder in ("", ".quantization", ".utils", ".adapter"):
        package = types.ModuleType("gptqmodel" + folder)
        package.__path__ = [str(root.joinpath(*folder.split(".")[1:]))]
        sys.modules[package.__name__] = package
    return importlib.import_module("gptqmodel.quantization.config")


@pytest.mark.parametrize(("name", "arguments", "expected"), GPTQMODEL_CLASSES)
def test_gptqmodel_itself(name, arguments, expected, gptqmodel, tmp_path, variant):
    config = getattr(gptqmodel, name)(**arguments).to_dict()
    variant("GPTQModel", importlib.import_module("gptqmodel.version").__version__, spell(name, arguments), config)
    assert expected in read(config, tmp_path)
