# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights that are tensors in memory, compared with those of the same checkpoint's files bit for bit."""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from dlpack_maker import Told
from test_act_order import Model, words

import moec
from moec.reference.files import write_tensors

CHECKPOINTS = Path(__file__).resolve().parents[2] / "test/Tools/Inputs/checkpoints"
PACKED = sorted(each.name for each in CHECKPOINTS.glob("*") if (each / "model.safetensors").exists())
FORMS = [*PACKED, "bf16", "fused", "router-f32", "mixed", "always", "narrow", "parts", "act-order", "act-order-shared"]
H, I, E = 96, 32, 4
KINDS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
         "F8_E8M0": ml_dtypes.float8_e8m0fnu, "I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64}


def read(path: Path) -> dict[str, np.ndarray]:
    contents = path.read_bytes()
    begin = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:begin])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(contents[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]],
                            KINDS[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def make_plain(folder: Path, form: str, seed: int = 0) -> None:
    """A model without a quantization, with experts under one of the names that models give them."""
    rng = np.random.default_rng(seed)

    def make(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 8).astype(ml_dtypes.bfloat16)

    folder.mkdir(exist_ok=True)
    block = "model.layers.1.mlp."
    router = rng.standard_normal((E, H), np.float32)
    tensors = {block + "gate.weight": router if form == "router-f32" else router.astype(ml_dtypes.bfloat16),
               "model.layers.1.input_layernorm.weight": make(H), "model.embed_tokens.weight": make(3, H),
               "model.layers.0.mlp.experts.0.gate_proj.weight": make(I, H)}
    if form == "fused":
        tensors |= {block + "experts.gate_up_proj": make(E, 2 * I, H), block + "experts.down_proj": make(E, H, I)}
    elif form == "always":
        # Inkling: experts that every token has, in tensors of their own; one factor of all weights.
        shared = 2
        tensors |= {block + "gate.weight": make(E + shared, H), block + "gate.bias": rng.standard_normal(E, np.float32),
                    block + "gate.global_scale": np.float32([0.75]), block + "experts.w13_weight": make(E, 2 * I, H),
                    block + "experts.w2_weight": make(E, H, I),
                    block + "shared_experts.shared_w13_weight": make(shared, 2 * I, H),
                    block + "shared_experts.shared_w2_weight": make(shared, H, I)}  # fmt: skip
        del tensors["model.layers.0.mlp.experts.0.gate_proj.weight"]
    else:
        for expert in range(E):
            for name, shape in (("gate_proj", (I, H)), ("up_proj", (I, H)), ("down_proj", (H, I))):
                tensors[f"{block}experts.{expert}.{name}.weight"] = make(*shape)
    if form == "narrow":
        # GroveMoE: pairs of experts share a narrow one.
        for pair in range(E // 2):
            for name, shape in (("gate_proj", (8, H)), ("up_proj", (8, H)), ("down_proj", (H, 8))):
                tensors[f"{block}chunk_experts.{pair}.{name}.weight"] = make(*shape)
    if form == "parts":
        # ERNIE 4.5 VL: experts of images behind those of text.
        for expert in range(E, 2 * E):
            for name, shape in (("gate_proj", (I, H)), ("up_proj", (I, H)), ("down_proj", (H, I))):
                tensors[f"{block}experts.{expert}.{name}.weight"] = make(*shape)
        bias = rng.standard_normal((2, E), np.float32)
        tensors |= {block + "gate.weight": make(H, E), block + "gate.weight_1": make(H, E),
                    block + "moe_statics.e_score_correction_bias": bias}  # fmt: skip
        del tensors["model.layers.0.mlp.experts.0.gate_proj.weight"]
    quantization = {}
    if form == "mixed":
        # Expert 2 is not quantized, so that the layer stores all of them dequantized.
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
        quantization = {"quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*mlp.gate$"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}}
        for name in [each for each in tensors if ".experts." in each and not each.startswith(f"{block}experts.2")]:
            rows, columns = tensors.pop(name).shape
            tensors[f"{name}_packed"] = words(rng.integers(0, 16, (rows, columns)))
            tensors[f"{name}_scale"] = make(rows, columns // 32)
            tensors[f"{name}_scale"] = np.abs(tensors[f"{name}_scale"])
            tensors[f"{name}_shape"] = np.int64([rows, columns])
    write_tensors(folder / "model.safetensors", tensors)
    names = {"model_type": "inkling_text", "n_routed_experts": E, "n_shared_experts": 2, "dense_mlp_idx": 1}
    if form == "always":
        (folder / "config.json").write_text(json.dumps({
            **names, "hidden_size": H, "moe_intermediate_size": I, "num_experts_per_tok": 2, "route_scale": 2.0,
            "num_hidden_layers": 2, "hidden_act": "silu", "torch_dtype": "bfloat16"}))
        return
    if form == "parts":
        (folder / "config.json").write_text(json.dumps({
            "model_type": "ernie4_5_moe_vl", "hidden_size": H, "moe_num_experts": [E, E], "moe_k": 2,
            "moe_intermediate_size": [I, I], "moe_num_shared_experts": 0, "num_hidden_layers": 2, "hidden_act": "silu",
            "torch_dtype": "bfloat16"}))
        return
    if form == "narrow":
        quantization = {"model_type": "grove_moe", "parallel_expert_intermediate_size": 8}
    (folder / "config.json").write_text(json.dumps({
        "model_type": "qwen3_moe", "hidden_size": H, "num_experts": E, "num_experts_per_tok": 2,
        "moe_intermediate_size": I, "num_hidden_layers": 2, "hidden_act": "silu", "norm_topk_prob": True,
        "torch_dtype": "bfloat16", "mlp_only_layers": [], "decoder_sparse_step": 1, "intermediate_size": 128,
        **quantization}))


@pytest.fixture(params=FORMS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    form = request.param
    if form in PACKED:
        return CHECKPOINTS / form
    made = tmp_path / "model"
    if form.startswith("act-order"):
        made.mkdir()
        Model("gptq", form.endswith("shared"), made)
    else:
        make_plain(made, form)
    return made


def compile_layer(folder: Path) -> moec.Layer:
    layer = 1 if "model.layers.1" in str(list(read(folder / "model.safetensors"))) else None
    return moec.compile(folder, layer=layer, device="cpu", max_tokens=16, cache=False)


def get_bits(layer: moec.Layer, tmp_path: Path) -> dict[str, tuple[str, bytes]]:
    """The weights that calls read."""
    path = tmp_path / "prepared.safetensors"
    layer.save_prepared(path)
    return {name: (str(tensor.dtype), tensor.tobytes()) for name, tensor in read(path).items()}


def run(layer: moec.Layer) -> np.ndarray:
    hidden = next(info for info in layer.tensors if info.name == "hidden_states")
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}[hidden.dtype]
    rows = np.random.default_rng(1).standard_normal((5, hidden.shape[1]))
    return layer(rows.astype(kind)).copy()


def reuse(tensors: dict[str, np.ndarray], order: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields tensors whose memory is overwritten before the next one comes."""
    for name in order:
        buffer = tensors[name].copy()
        yield name, buffer
        np.atleast_1d(buffer).view(np.uint8)[...] = 0xFF


# parity: L53, L54
def test_any_order_gives_what_files_give(folder: Path, tmp_path: Path) -> None:
    tensors = read(folder / "model.safetensors")
    from_files = compile_layer(folder).load(folder)
    expected = get_bits(from_files, tmp_path)
    assert get_bits(compile_layer(folder).load(tensors), tmp_path) == expected
    names = list(tensors)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        assert get_bits(compile_layer(folder).load(reuse(tensors, names)), tmp_path) == expected
    layer = compile_layer(folder)
    for name in names:
        layer.load({name: tensors[name]}, partial=True)
    assert get_bits(layer, tmp_path) == expected
    assert (run(layer) == run(from_files)).all()


def test_parts_of_a_layer(tmp_path: Path) -> None:
    make_plain(tmp_path / "model", "parts")
    text = moec.Layer.from_pretrained(tmp_path / "model", 1, device="cpu", cache=False)
    images = moec.Layer.from_pretrained(tmp_path / "model", 1, device="cpu", cache=False, part="vision")
    assert (run(text) != run(images)).any()
    with pytest.raises(moec.InvalidArgument, match="have no part 'audio'; there is 'vision'"):
        moec.compile(tmp_path / "model", device="cpu", cache=False, part="audio")


def test_updates_are_in_place(folder: Path, tmp_path: Path) -> None:
    tensors = read(folder / "model.safetensors")
    layer = compile_layer(folder).load(tensors)
    clone = layer.clone()
    before = run(clone)
    changed = dict(tensors)
    # Experts 0 and 1 change places, with all that belongs to them.
    for name in tensors:
        if ".experts.0." in name and name.replace(".experts.0.", ".experts.1.") in tensors:
            other = name.replace(".experts.0.", ".experts.1.")
            changed[name], changed[other] = tensors[other], tensors[name]
    if all((changed[name] is tensors[name]) for name in tensors):
        changed = {name: each[::-1].copy() if each.ndim == 3 else each for name, each in tensors.items()}
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    write_tensors(other / "model.safetensors", changed)
    expected = compile_layer(other).load(other)
    assert (run(expected) != before).any()
    layer.load(changed)
    assert (run(layer) == run(expected)).all() and (run(clone) == run(expected)).all()
    layer.load(iter(tensors.items()))
    assert (run(clone) == before).all()
    some = {name: each for name, each in changed.items() if each is not tensors[name]}
    layer.load(some, partial=True)
    assert (run(clone) == run(expected)).all() and get_bits(layer, tmp_path) == get_bits(expected, tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> tuple[moec.Layer, dict[str, np.ndarray]]:
    make_plain(tmp_path / "model", "bf16")
    return compile_layer(tmp_path / "model"), read(tmp_path / "model/model.safetensors")


NAME = "model.layers.1.mlp.experts.2.up_proj.weight"


def break_shape(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = np.ascontiguousarray(tensors[NAME].T)


def break_dtype(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = tensors[NAME].view(np.int16)


def break_value(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = tensors[NAME].copy()
    tensors[NAME][3, 5] = np.nan


def lose_exactness(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = np.full(tensors[NAME].shape, 0.1, np.float32)


def break_strides(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = np.zeros((2 * I, H), ml_dtypes.bfloat16)[::2]


def break_device(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME] = Told(tensors[NAME].view(np.int16), device=(2, 0))


def lack(tensors: dict[str, np.ndarray]) -> None:
    del tensors[NAME]


def misspell(tensors: dict[str, np.ndarray]) -> None:
    tensors[NAME.replace("up_proj", "upp_proj")] = tensors.pop(NAME)


BROKEN = {
    break_shape: r"up_proj.weight': shape is \[96, 32\], expected \[32, 96\]",
    break_dtype: "up_proj.weight': dtype is i16, expected bf16",
    break_value: "up_proj.weight': has a weight of NaN",
    lose_exactness: "up_proj.weight': is f32 and the layer's 'experts.w13' bf16",
    break_device: "up_proj.weight: a tensor on the CPU expected, one on cuda:0 found",
    break_strides: "up_proj.weight: a contiguous tensor expected",
    lack: "no tensor 'model.layers.1.mlp.experts.2.up_proj.weight' for 'experts.w13'",
    misspell: "up_proj.weight",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.__name__)
@pytest.mark.parametrize("how", ["mapping", "iterable", "partial"])
def test_bad_tensors_leave_the_old_weights(broken, how: str, plain, tmp_path: Path) -> None:
    layer, tensors = plain
    bad = {name: np.negative(each.astype(np.float32)).astype(each.dtype) for name, each in tensors.items()}
    broken(bad)
    with pytest.raises(moec.Error, match=BROKEN[broken]):
        layer.load(bad if how == "mapping" else iter(bad.items()))
    with pytest.raises(moec.InvalidArgument, match="is not bound"):
        run(layer)
    layer.load(tensors)
    before = run(layer)
    if (broken, how) == (lack, "partial"):
        return
    with pytest.raises(moec.Error, match="upp_proj" if (broken, how) == (misspell, "partial") else BROKEN[broken]):
        layer.load(bad if how == "mapping" else iter(bad.items()), partial=how == "partial")
    assert (run(layer) == before).all()


def test_bad_arguments(plain, tmp_path: Path) -> None:
    layer, tensors = plain
    for bad, what in ((3, "a path, a mapping"), ([3], "pairs"), ([("a", 1, 2)], "pairs"), ({3: 4}, "pairs")):
        with pytest.raises(moec.InvalidType, match=what):
            layer.load(bad)
    with pytest.raises(moec.InvalidArgument, match="names, partial: only for tensors in memory"):
        layer.load(tmp_path, partial=True)
    with pytest.raises(moec.InvalidType, match="names: a function or a mapping"):
        layer.load(tensors, names=3)
    with pytest.raises(moec.InvalidArgument, match="field {x}, which 'a{e}' lacks"):
        layer.load(tensors, names={"a{e}": "b{x}"})
    with pytest.raises(moec.NotFound, match="the given tensors: no tensor for 'gate.weight'"):
        layer.load({})
    with pytest.raises(moec.InvalidArgument, match="is given twice"):
        layer.load([*tensors.items(), *tensors.items()])
    with pytest.raises(moec.InvalidType, match="a tensor .* expected, int found"):
        layer.load({NAME: 3}, partial=True)


# parity: L55
def test_own_names(plain, tmp_path: Path) -> None:
    layer, tensors = plain
    expected = run(layer.load(tensors))
    block = "model.layers.1.mlp."

    def rename(name: str) -> str:
        return name.replace(block, "blocks.1.ffn.").replace("experts.", "e").replace(".weight", "")

    own = {rename(name): each for name, each in tensors.items() if name.startswith(block)}
    names = {"blocks.1.ffn.gate": block + "gate.weight"} | {
        f"blocks.1.ffn.e{{e}}.{module}": f"{block}experts.{{e}}.{module}.weight"
        for module in ("gate_proj", "up_proj", "down_proj")}
    fresh = compile_layer(tmp_path / "model")
    assert (run(fresh.load(own, names=names)) == expected).all()
    back = {rename(name): name for name in tensors}
    fresh = compile_layer(tmp_path / "model")
    assert (run(fresh.load(own.items(), names=back.get)) == expected).all()


# parity: L57
def test_names_of_a_model_with_adapters(plain, tmp_path: Path) -> None:
    layer, tensors = plain
    expected = run(layer.load(tensors))
    wrapped = {"base_model.model." + name.replace("_proj.weight", "_proj.base_layer.weight"): each
               for name, each in tensors.items()}
    assert any("experts.1.up_proj.base_layer.weight" in name for name in wrapped)
    fresh = compile_layer(tmp_path / "model")
    assert (run(fresh.load(wrapped)) == expected).all()
    adapter = f"base_model.model.{NAME.replace('weight', 'lora_A.default.weight')}"
    with pytest.raises(moec.Error, match="lora_A.default.weight' is none of this layer's"):
        compile_layer(tmp_path / "model").load(wrapped | {adapter: np.zeros((4, H), np.float32)})


def test_other_forms_update_too(plain, tmp_path: Path) -> None:
    """A trainer has one tensor of all experts where the files have one each."""
    layer, tensors = plain
    run(layer.load(tmp_path / "model"))
    make_plain(tmp_path / "fused", "fused", seed=3)
    fused = read(tmp_path / "fused/model.safetensors")
    layer.load(fused)
    assert (run(layer) == run(compile_layer(tmp_path / "fused").load(fused))).all()
    block = "model.layers.1.mlp.experts."
    layer.load({f"{block}gate_up_proj": fused[f"{block}gate_up_proj"] * 2}, partial=True)
    doubled = fused | {f"{block}gate_up_proj": fused[f"{block}gate_up_proj"] * 2}
    assert (run(layer) == run(compile_layer(tmp_path / "fused").load(doubled))).all()


def test_memory_of_a_stream_is_that_of_one_tensor(plain, tmp_path: Path) -> None:
    """Python's share: no list of the tensors is made."""
    layer, tensors = plain
    size, count = tensors[NAME].nbytes, 0

    def make() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal count
        for name, tensor in tensors.items():
            count += 1
            yield name, tensor.copy()

    layer.load(make())
    fresh = compile_layer(tmp_path / "model")
    tracemalloc.start()
    fresh.load(make())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2 * len(tensors) and peak < 3 * size + 30_000
    assert (run(fresh) == run(layer)).all()
