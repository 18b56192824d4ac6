# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.compile and moec.Layer, on the CPU."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from small_layer import CALLS, SPEC, Case, shared_case

import moec
from moec.reference.files import write_tensors
from moec.reference.numerics import NUMPY_DTYPES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("entry", CALLS)
def test_computes_what_the_reference_does(entry: str) -> None:
    case, layer = shared_case(entry)
    inputs = [info.name for info in layer.tensors if info.role == "input"]
    assert tuple(inputs) == CALLS[entry] and tuple(case.arguments) == CALLS[entry]
    output = layer(**case.arguments)
    assert output.dtype == case.arguments["hidden_states"].dtype
    case.verify(output)
    out = np.full_like(output, np.nan)
    assert layer(**case.arguments, out=out) is out
    np.testing.assert_array_equal(out.view(np.uint16), output.view(np.uint16))
    by_position = (case.arguments.get(name) for name in
                   ("hidden_states", "router_logits", "topk_ids", "topk_weights"))
    np.testing.assert_array_equal(layer(*by_position).view(np.uint16), output.view(np.uint16))


@pytest.mark.parametrize("tokens", [0, 1, 64])
def test_takes_any_number_of_tokens(tokens: int) -> None:
    case, layer = shared_case()
    other = Case(tokens=tokens)
    other.tensors |= case.weights
    output = layer(**other.arguments)
    assert output.shape == (tokens, 64)
    if tokens:
        other.verify(output)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "f32"},
        {"dtype": "f16"},
        {"shared_experts": {"intermediate_size": 32}},
        {"num_valid_tokens": True},
        {"routing": {"select": "hash", "hash_vocab_size": 20}},
        {"quantization": "fp8_block128", "hidden_size": 128, "intermediate_size": 128},
        {"quantization": "mxfp4", "hidden_size": 128, "intermediate_size": 128},
    ],
    ids=lambda changes: "-".join(map(str, changes)),
)
def test_kinds_of_layers(changes: dict) -> None:
    case = Case(**changes)
    layer = case.compile()
    case.verify(layer(**case.arguments))


def test_valid_tokens() -> None:
    case = Case(tokens=6)
    layer = moec.compile(SPEC, device="cpu", num_valid_tokens=True).bind(case.weights)
    whole = layer(**case.arguments)
    case.verify(whole)
    for valid in (2, np.array([2], np.int32), 6, 2):
        output = layer(**case.arguments, num_valid_tokens=valid)
        count = int(np.asarray(valid).item())
        assert not output[count:].astype(np.float32).any()
        np.testing.assert_array_equal(
            output[:count].view(np.uint16), whole[:count].view(np.uint16)
        )


def test_weights_are_kept_alive() -> None:
    class Array(np.ndarray):
        """An array that supports weak references."""

    case = Case()
    layer = case.compile()
    w2 = case.tensors["experts.w2"].copy().view(Array)
    alive = weakref.ref(w2)
    layer.bind(experts_w2=w2)
    del w2
    gc.collect()
    assert alive() is not None
    case.verify(layer(**case.arguments))
    clone = layer.clone()
    layer.close()
    gc.collect()
    assert alive() is not None
    case.verify(clone(**case.arguments))
    clone.close()
    del layer, clone
    gc.collect()
    assert alive() is None


# field-bug: sglang#26032, SkyRL#1680, vllm#40390
def test_a_weight_that_is_bound_anew_counts() -> None:
    case = Case()
    layer = case.compile()
    layer(**case.arguments)
    zeros = np.zeros_like(case.tensors["experts.w2"])
    assert not layer.bind({"experts.w2": zeros})(**case.arguments).astype(np.float32).any()


def test_tells_what_it_is() -> None:
    case, layer = shared_case()
    assert layer.max_tokens == 64 and layer.device == "cpu" and not layer.closed
    assert repr(layer) == "<moec.Layer 'small' on cpu, up to 64 tokens>"
    assert layer.spec["hidden_size"] == 64
    w13 = next(info for info in layer.tensors if info.name == "experts.w13")
    assert (w13.dtype, w13.role, w13.shape) == ("bf16", "weight", (4, 64, 64))
    hidden = layer.tensors[0]
    assert (hidden.name, hidden.shape, hidden.depends_on_tokens) == (
        "hidden_states", (64, 64), True,
    )
    plan = layer.plan
    kernels = {kernel["name"] for kernel in plan["kernels"]}
    assert plan["target"] == "cpu" and plan["max_tokens"] == 64
    assert {step["kernel"] for step in plan["variants"][0]["steps"]} <= kernels
    assert {"name": "output", "role": "output", "dtype": "bf16", "shape": ["tokens", "64"]} in (
        plan["tensors"]
    )
    assert layer.compile_seconds > 0 and not layer.from_cache


def test_ir_and_explanation() -> None:
    case, layer = shared_case()
    assert '"hidden_size": 64' in layer.ir("spec")
    for level, text in (("moe", "moe.layer"), ("plan", "plan.launch"), ("tile", "tile.kernel"),
                        ("llvm", "define ")):
        assert text in layer.ir(level), level
    summary = layer.explain()
    assert summary.startswith("small: bf16, hidden 64, 4 experts, top 2")
    assert len(summary.splitlines()) <= 40 and len(layer.explain(full=True)) > len(summary)
    with pytest.raises(moec.InvalidArgument, match="level: 'asm' found; spec, moe, plan"):
        layer.ir("asm")
    with pytest.raises(moec.InvalidArgument, match="'cpu', which has no PTX"):
        layer.ir("ptx")


def test_benchmark() -> None:
    case, layer = shared_case("ids")
    times = layer.benchmark(8, repeat=5)
    assert len(times.seconds) == 5 and times.best == min(times.seconds) > 0
    assert times.median == sorted(times.seconds)[2]
    with pytest.raises(moec.InvalidArgument, match="65 tokens; 1 to max_tokens = 64"):
        layer.benchmark(65)
    unbound = moec.compile(SPEC, device="cpu")
    with pytest.raises(moec.InvalidArgument, match="'gate.weight' is not bound"):
        unbound.benchmark(1)


def test_workspace() -> None:
    case, layer = shared_case()
    clone = layer.clone()
    size = clone.workspace_bytes(64)
    assert 0 < clone.workspace_bytes(1) <= size
    memory = np.full(size + 256, 255, np.uint8)
    memory = memory[-memory.ctypes.data % 256 :][:size]
    clone.use_workspace(memory)
    case.verify(clone(**case.arguments))
    assert not (memory == 255).all()
    clone.use_workspace(memory[:256])
    with pytest.raises(moec.InvalidArgument, match="the workspace has 256 bytes, 5 tokens need"):
        clone(**case.arguments)
    clone.use_workspace(None)
    case.verify(clone(**case.arguments))
    with pytest.raises(moec.InvalidArgument, match="workspace: .* aligned to 256 bytes"):
        clone.use_workspace(memory[1:])
    with pytest.raises(moec.InvalidType, match="workspace: a tensor of bytes"):
        clone.use_workspace(memory.view(np.int32))


def test_threads_share_a_layer() -> None:
    case, layer = shared_case()
    expected = layer(**case.arguments).view(np.uint16)
    with ThreadPoolExecutor(8) as pool:
        for output in pool.map(lambda _: layer(**case.arguments), range(200)):
            np.testing.assert_array_equal(output.view(np.uint16), expected)


def test_other_threads_run_while_it_compiles() -> None:
    done, count = threading.Event(), 0

    def compile_one() -> None:
        moec.compile(ROOT / "test/models/olmoe-1b-7b.json", device="cpu", num_experts=8)
        done.set()

    thread = threading.Thread(target=compile_one)
    thread.start()
    while not done.is_set():
        time.sleep(0.001)
        count += 1
    thread.join()
    assert count > 20


def test_other_threads_run_while_it_runs() -> None:
    case, layer = shared_case()
    layer(**case.arguments)
    done, count = threading.Event(), 0

    def run() -> None:
        layer.benchmark(64, repeat=2000)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        time.sleep(0.0001)
        count += 1
    thread.join()
    assert count > 20


def test_sources(tmp_path: Path) -> None:
    case, layer = shared_case()
    spec, ir = tmp_path / "spec.json", tmp_path / "layer.mlir"
    spec.write_text(layer.ir("spec"))
    ir.write_text(layer.ir("moe"))
    for source in (spec, str(spec), ir):
        other = moec.compile(source, device="cpu").bind(case.weights)
        case.verify(other(**case.arguments))
    assert other.spec == {}
    small = moec.compile(SPEC, device="cpu", max_tokens=7, num_experts=3)
    assert small.tensors[0].shape == (7, 64) and small.spec["num_experts"] == 3


def make_model(folder: Path) -> tuple[Case, Path]:
    """Makes a model of two layers with experts, in Hugging Face format."""
    config = {
        "model_type": "qwen3_moe", "hidden_size": 64, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "num_hidden_layers": 2, "hidden_act": "silu",
        "norm_topk_prob": True, "torch_dtype": "bfloat16", "mlp_only_layers": [],
        "decoder_sparse_step": 1, "intermediate_size": 128,
    }
    import json

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    saved, case = {}, None
    for layer in range(2):
        case = Case(seed=layer)
        prefix = f"model.layers.{layer}.mlp"
        saved[f"{prefix}.gate.weight"] = case.tensors["gate.weight"]
        for expert in range(4):
            gate, up = np.split(case.tensors["experts.w13"][expert], 2)
            for name, value in (("gate_proj", gate), ("up_proj", up),
                                ("down_proj", case.tensors["experts.w2"][expert])):
                saved[f"{prefix}.experts.{expert}.{name}.weight"] = np.ascontiguousarray(value)
    write_tensors(folder / "model.safetensors", saved)
    return case, folder


def test_from_pretrained(tmp_path: Path) -> None:
    case, folder = make_model(tmp_path / "model")
    told: list[str] = []
    layer = moec.Layer.from_pretrained(
        folder, layer=1, device="cpu", max_tokens=64, progress=told.append
    )
    case.verify(layer(**case.arguments))
    assert any("compiled" in line for line in told) and told[-1] == "weights are loaded"
    clone = layer.clone()
    layer.load(folder, layer=0)
    layer.close()
    case.verify(clone(**case.arguments))
    first = moec.Layer.from_pretrained(folder, device="cpu", max_tokens=64)
    assert (first(**case.arguments) != clone(**case.arguments)).any()
    with pytest.raises(moec.NotFound):
        first.load(folder, layer=7)
    with pytest.raises(moec.InvalidArgument, match="layer"):
        moec.Layer.from_pretrained(folder, layer=7, device="cpu")
    with pytest.raises(moec.Error, match="nowhere"):
        moec.Layer.from_pretrained(tmp_path / "nowhere", device="cpu")


def test_prepared_files_name_their_layer(tmp_path: Path) -> None:
    """One file for a loop over the layers gave each the weights of the first."""
    case, folder = make_model(tmp_path / "model")
    path = tmp_path / "prepared.safetensors"
    load = functools.partial(moec.Layer.from_pretrained, folder, device="cpu", max_tokens=64, prepared=path)
    refused = r"prepared\.safetensors: has the weights of decoder layer {}, but this is layer {}; give each layer a file"
    first = load()
    expected = first(**case.arguments)
    for layer in (None, 0):
        assert (load(layer=layer)(**case.arguments) == expected).all()
    with pytest.raises(moec.InvalidArgument, match=refused.format(0, 1)):
        load(layer=1)
    # The weights count, not the layer that was compiled.
    first.load(folder, layer=1)
    first.save_prepared(path)
    case.verify(load(layer=1)(**case.arguments))
    with pytest.raises(moec.InvalidArgument, match=refused.format(1, 0)):
        load()
    # A caller that compiles one layer for all may load any file, and weights of its own have no layer.
    other = moec.compile(folder, device="cpu", max_tokens=64).load_prepared(path)
    case.verify(other(**case.arguments))
    first.bind(case.weights).save_prepared(path)
    case.verify(load()(**case.arguments))


def test_a_description_has_no_weights(tmp_path: Path) -> None:
    _, folder = make_model(tmp_path / "model")
    with pytest.raises(moec.InvalidArgument, match=r"^weights: .*config\.json has none; give its folder"):
        moec.Layer.from_pretrained(folder / "config.json", device="cpu")


def test_paths_are_utf8(tmp_path: Path) -> None:
    case, folder = make_model(tmp_path / "model")
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.rename(folder, strange)
    with pytest.raises(moec.InvalidArgument, match="^source: is not UTF-8"):
        moec.compile(strange, device="cpu")
    layer = case.compile()
    for use in (layer.load, layer.save_prepared, layer.load_prepared):
        with pytest.raises(moec.InvalidArgument, match="^(weights|path): is not UTF-8"):
            use(strange)


def test_weights_of_more_digits(tmp_path: Path) -> None:
    """A file of f32 beside a configuration in bf16: refused, or rounded if asked."""
    case, folder = make_model(tmp_path / "model")
    file = folder / "model.safetensors"
    with safe_open(str(file), framework="np") as read:
        tensors = {name: read.get_tensor(name).astype(np.float32) for name in read.keys()}
    write_tensors(file, {name: each if "gate.weight" in name else each * np.float32(1 + 2**-12)
                         for name, each in tensors.items()})
    with pytest.raises(moec.InvalidArgument, match="round weights by round_weights=True, or compile the layer in f32"):
        moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64)
    layer = moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64, round_weights=True)
    assert layer.spec["round_weights"]
    case.verify(layer(**case.arguments))


CHECKPOINTS = Path(__file__).resolve().parents[2] / "test/Tools/Inputs/checkpoints"


@pytest.mark.parametrize("name", ["gptq-int4", "gptq-int4-zeros", "awq-int4", "ct-int4", "bnb-nf4-nested", "ct-nvfp4"])
def test_packed_checkpoints_are_read(name: str) -> None:
    """The layer finds names and words of the config.json that it was compiled from."""
    layer = moec.Layer.from_pretrained(CHECKPOINTS / name, device="cpu")
    hidden, *_ = (info for info in layer.tensors if info.name == "hidden_states")
    rows = np.ones((3, hidden.shape[1]), NUMPY_DTYPES[hidden.dtype])
    assert np.isfinite(layer(rows).astype(np.float32)).all()
    assert (layer.clone().load(CHECKPOINTS / name)(rows) == layer(rows)).all()


def test_prepared_weights(tmp_path: Path) -> None:
    case, folder = make_model(tmp_path / "model")
    path = tmp_path / "prepared.safetensors"
    with pytest.raises(moec.InvalidArgument, match="weight 'gate.weight' is not bound"):
        moec.compile(folder, device="cpu", max_tokens=64).save_prepared(path)
    layer = moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64)
    layer.save_prepared(path)
    other = moec.compile(folder, layer=1, device="cpu", max_tokens=64)
    with pytest.raises(moec.NotFound):
        other.load_prepared(tmp_path / "nowhere")
    case.verify(other.load_prepared(path)(**case.arguments))
    case.verify(other.clone()(**case.arguments))
    # No other file is needed.
    (folder / "model.safetensors").unlink()
    third = moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64, prepared=path)
    case.verify(third(**case.arguments))
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)
    with pytest.raises(moec.InvalidArgument, match="differs from the written bytes .*; read the checkpoint"):
        third.load_prepared(path)
    case.verify(third(**case.arguments))
    third.load_prepared(path, verify=False)
    with pytest.raises(moec.InvalidArgument, match="'max_tokens' is 64, and this layer's is 8; read the check"):
        moec.compile(folder, device="cpu", max_tokens=8).load_prepared(path)


# field-bug: odysseus#5596
def test_prepared_weights_that_cannot_be_written(tmp_path: Path) -> None:
    case, folder = make_model(tmp_path / "model")
    path = tmp_path / "nowhere" / "prepared.safetensors"
    with pytest.warns(RuntimeWarning, match=r"prepared: .*cannot be written: No such file") as warned:
        layer = moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64, prepared=path)
    assert len(warned) == 1 and warned[0].filename == __file__
    case.verify(layer(**case.arguments))
    # Leftovers of another process do not interfere.
    path.parent.mkdir()
    (path.parent / f"{path.name}.tmp.{os.getpid()}.0").write_bytes(b"part")
    moec.Layer.from_pretrained(folder, layer=1, device="cpu", max_tokens=64, prepared=path)
    assert path.exists()


def test_prepared_weights_are_those_of_one_description(tmp_path: Path) -> None:
    """A file is refused for a layer with the same names and shapes but another meaning."""
    case, path = Case(), tmp_path / "prepared.safetensors"
    case.compile().save_prepared(path)
    for change, message in (
        ({"gate_up_order": "interleaved"}, "'gate_up_order' is not given, and this layer's is \"interleaved\""),
        ({"gate_up_order": "up_gate"}, "'gate_up_order' is not given, and this layer's is \"up_gate\""),
        ({"activation": {"kind": "gelu"}}, "'activation.kind' is \"silu\", and this layer's is \"gelu\""),
        ({"activation": {"kind": "silu", "limit": 7.0}}, "'activation.limit' is not given, and this layer's is 7"),
        ({"routing": {"score": "sigmoid"}}, "'routing.renormalize' is true, and this layer's is not given|"
                                            "'routing.score' is not given, and this layer's is \"sigmoid\""),
        ({"routing": {"renormalize": True, "scale": 2.5}}, "'routing.scale' is not given, and this layer's is 2.5"),
        ({"top_k": 3}, "'top_k' is 2, and this layer's is 3"),
    ):
        with pytest.raises(moec.InvalidArgument, match=f"was written for a layer whose ({message})"):
            moec.compile(case.source | change, device="cpu").load_prepared(path)
    # A name does not change results, and neither does an explicit default.
    for change in ({"name": "other"}, {"gate_up_order": "gate_up"}):
        case.verify(moec.compile(case.source | change, device="cpu").load_prepared(path)(**case.arguments))


def test_progress_on_the_error_stream(capfd: pytest.CaptureFixture) -> None:
    moec.compile(SPEC, device="cpu", progress=True)
    assert "moec: compiled" in capfd.readouterr().err
    moec.compile(SPEC, device="cpu")
    assert capfd.readouterr().err == ""


def test_devices_by_name() -> None:
    class Printed:
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return self.name

    for device in ("cpu", "cpu:0", Printed("cpu"), Printed("TFRT_CPU_0")):
        assert moec.compile(SPEC, device=device).device == "cpu"
    for device in ("tpu", "cuda:x", "", Printed("npu:0")):
        with pytest.raises(moec.InvalidArgument, match='device: .* "cpu", "cuda:N" and N'):
            moec.compile(SPEC, device=device)
    with pytest.raises(moec.InvalidType, match="bool found"):
        moec.compile(SPEC, device=True)


def test_a_closed_layer() -> None:
    case = Case()
    with case.compile() as layer:
        pass
    assert layer.closed and repr(layer) == "<moec.Layer, closed>"
    layer.close()
    for use in (lambda: layer(**case.arguments), lambda: layer.bind(case.weights),
                lambda: layer.workspace_bytes(1), lambda: layer.max_tokens, layer.clone,
                lambda: layer.benchmark(1), layer.prepare, layer.synchronize):
        with pytest.raises(moec.InvalidArgument, match="the layer is closed"):
            use()


def test_survives_a_fork() -> None:
    case, layer = shared_case()
    child = os.fork()
    if child == 0:
        try:
            case.verify(layer(**case.arguments))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_frameworks_that_write_nothing_get_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """For frameworks with immutable arrays, such as JAX."""
    taken = []

    class Array:
        __module__ = "jaxlib._jax"

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

        def __dlpack__(self, **asked: object) -> object:
            return self.array.__dlpack__()

    numpy = types.ModuleType("jax.numpy")
    numpy.from_dlpack = lambda buffer: taken.append(buffer) or Array(np.from_dlpack(buffer))
    monkeypatch.setitem(sys.modules, "jax.numpy", numpy)
    case = Case(dtype="f32")
    layer = case.compile()
    output = layer(*map(Array, case.arguments.values()))
    assert type(output) is Array and type(taken[0]) is moec._core.Buffer
    case.verify(output.array)
    # The buffer is used only by the array.
    kept = output.array.copy()
    layer(*map(Array, case.arguments.values()))
    assert np.array_equal(output.array, kept) and len(taken) == 2
    with pytest.raises(moec.InvalidArgument, match="out: the tensor is read-only"):
        layer(*map(Array, case.arguments.values()), out=Array(np.zeros_like(kept)))
