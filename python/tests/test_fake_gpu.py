# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers on an emulated GPU with host memory and kernels that do nothing."""

from __future__ import annotations

import ctypes
import json
import math
import os
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from dlpack_maker import Told, address_of
from small_layer import SPEC

import moec
from moec.reference.files import write_tensors
from moec.reference.generate import generate
from moec.reference.spec import LayerSpec

LIBRARY = Path(os.environ["MOEC_LIBRARY_DIR"]).parent / "unittests" / "libfakecuda.so"
CODES = {"bf16": (4, 16), "f32": (2, 32), "i32": (0, 32), "i8": (0, 8), "u8": (1, 8)}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch):
    """The device and a function that makes tensors in its memory."""
    from moec import _core, compiler

    monkeypatch.setenv("MOERT_CUDA_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(compiler, "_devices", {})
    device = compiler.find_device("cuda")
    assert device is compiler.find_device(0) and device.name == "cuda:0 (Fake GPU)"

    def allocate(shape: tuple[int, ...], dtype: str = "bf16") -> _core.Buffer:
        return _core.Buffer(device, shape, *CODES[dtype])

    return allocate


@pytest.fixture
def layer(gpu, tmp_path: Path) -> moec.Layer:
    package = moec.compile_package(
        SPEC, "sm_80", cache=False, use_ptxas=False, num_valid_tokens=True
    )
    layer = moec.Layer.from_package(package, device="cuda:0")
    return layer.bind(
        {info.name: gpu(info.shape, info.dtype) for info in layer.tensors if info.role == "weight"}
    )


def read_bytes(path: Path) -> dict[str, bytes]:
    """Returns the tensors of a safetensors file."""
    contents = path.read_bytes()
    begin = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:begin])
    header.pop("__metadata__")
    offsets = {name: each["data_offsets"] for name, each in header.items()}
    return {name: contents[begin + first:begin + end] for name, (first, end) in offsets.items()}


def test_weights_go_through_the_device(gpu, layer: moec.Layer, tmp_path: Path) -> None:
    """Weights are copied from a checkpoint to the GPU, one expert at a time, and from there to a file of prepared
    weights."""
    tensors = generate(LayerSpec.from_json(SPEC), 1, 1)
    weights = {name: each for name, each in tensors.items() if "." in name}
    write_tensors(tmp_path / "layer.safetensors", weights)
    layer.load(tmp_path / "layer.safetensors")
    layer.save_prepared(tmp_path / "prepared.safetensors")
    found = read_bytes(tmp_path / "prepared.safetensors")
    assert set(found) == {*weights, "sha256"}
    for name, each in weights.items():
        assert found[name] == each.tobytes()
    other = layer.clone().load_prepared(tmp_path / "prepared.safetensors")
    other.save_prepared(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "prepared.safetensors").read_bytes()


def make_given(gpu) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """A model's tensors of the layer SPEC on the host, and the same on the GPU."""
    block = "model.layers.0.mlp."
    tensors = generate(LayerSpec.from_json(SPEC), 1, 1)
    given = {block + "gate.weight": tensors["gate.weight"]}
    for expert, (both, down) in enumerate(zip(tensors["experts.w13"], tensors["experts.w2"])):
        gate, up = np.split(both, 2)
        for name, tensor in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            given[f"{block}experts.{expert}.{name}.weight"] = np.ascontiguousarray(tensor)
    return given, {name: put(gpu, tensor) for name, tensor in given.items()}


def put(gpu, tensor: np.ndarray) -> object:
    buffer = gpu(tensor.shape, {4: "f32", 2: "bf16"}[tensor.itemsize])
    buffer.copy_in(tensor.tobytes())
    return buffer


def test_weights_on_the_gpu_are_copied_there(gpu, layer: moec.Layer, tmp_path: Path) -> None:
    host, device = make_given(gpu)
    expected = layer.clone().load(host)
    expected.save_prepared(tmp_path / "expected.safetensors")
    mixed = {name: host[name] if "up_proj" in name else tensor for name, tensor in device.items()}
    for given in (device, iter(device.items()), iter(mixed.items()), mixed):
        other = layer.clone().load(given)
        other.save_prepared(tmp_path / "found.safetensors")
        assert read_bytes(tmp_path / "found.safetensors") == read_bytes(tmp_path / "expected.safetensors")
    # An update of one matrix keeps the others, whichever side it comes from.
    name = "model.layers.0.mlp.experts.1.up_proj.weight"
    changed = np.negative(host[name])
    copies = [layer.clone().load(device) for _ in range(2)]
    for copied, given in zip(copies, (changed, put(gpu, changed))):
        copied.load({name: given}, partial=True)
    expected.load(host | {name: changed})
    for copied in (*copies, expected):
        copied.save_prepared(tmp_path / "found.safetensors")
        copied.found = read_bytes(tmp_path / "found.safetensors")
    assert copies[0].found == copies[1].found == expected.found
    assert expected.found != read_bytes(tmp_path / "expected.safetensors")


def test_updates_prepare_again(gpu, prepared: tuple[moec.Layer, dict[str, Counted]]) -> None:
    layer, weights = prepared
    given = {name: np.frombuffer(each.buffer.copy_out(), np.uint8) for name, each in weights.items()}
    shapes = {info.name: info for info in layer.tensors}
    given = {name: each.view(ml_dtypes.bfloat16 if shapes[name].dtype == "bf16" else np.uint8).reshape(shapes[name].shape)
             for name, each in given.items()}
    layer.load(given)
    report, memory = layer.prepare(), [info.name for info in layer.prepared_tensors]
    assert report.bytes > 0 and memory
    # prepare() reports the latest preparation, whose time is another one after each update.
    layer.load(given)
    again = layer.prepare()
    assert again.bytes == report.bytes and again.seconds != report.seconds
    layer.load({"gate.weight": given["gate.weight"]}, partial=True)
    assert layer.prepare().seconds not in (report.seconds, again.seconds)


def test_captures_refuse_weights(gpu, layer: moec.Layer) -> None:
    host, device = make_given(gpu)
    layer.load(device)
    cuda, context, stream, graph = ctypes.CDLL(LIBRARY), *(ctypes.c_void_p() for _ in range(3))
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    layer(gpu((5, 64)), out=gpu((5, 64)), stream=stream.value)
    assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
    for given in (host, device):
        with pytest.raises(moec.InvalidArgument, match="the stream is being captured into a graph; load weights"):
            layer.load(given)
    assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0 and cuda.cuGraphDestroy(graph) == 0
    layer.load(host)
    assert cuda.cuStreamDestroy_v2(stream) == 0 and cuda.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    layer.close()


CHECKPOINTS = Path(__file__).resolve().parents[2] / "test/Tools/Inputs/checkpoints"


@pytest.mark.parametrize("name", ["gptq-int4-zeros", "awq-int4", "bnb-nf4-nested", "ct-int8"])
def test_packages_read_packed_checkpoints(gpu, name: str, tmp_path: Path) -> None:
    """A package does not say how a tool packs its words; the folder that is loaded does."""
    folder = CHECKPOINTS / name
    moec.compile(folder, device="cpu", cache=False).load(folder).save_prepared(tmp_path / "expected.safetensors")
    package = moec.compile_package(folder, "sm_80", cache=False, use_ptxas=False)
    loaded = moec.Layer.from_package(package, device="cuda:0").load(folder)
    loaded.save_prepared(tmp_path / "found.safetensors")
    expected, found = (read_bytes(tmp_path / f"{each}.safetensors") for each in ("expected", "found"))
    weights = [info.name for info in loaded.tensors if info.role == "weight" and info.name in found]
    assert "experts.w13" in weights and all(found[each] == expected[each] for each in weights)


def test_runs(gpu, layer: moec.Layer) -> None:
    hidden, out = gpu((5, 64)), gpu((5, 64))
    assert layer.device == "cuda:0" and layer.plan["target"] == "sm_80"
    assert layer(hidden, out=out) is out
    for stream in (0, None):
        layer(hidden, out=out, stream=stream, num_valid_tokens=3)
    layer(hidden, out=out, num_valid_tokens=gpu((1,), "i32"))
    layer.synchronize()
    report = layer.prepare()
    assert report.seconds >= 0 and report.bytes >= 0
    layer.use_workspace(gpu((layer.workspace_bytes(64),), "u8"))
    layer.clone()(hidden, out=out)
    assert layer.explain().startswith("small: bf16") and ".target sm_90a" in layer.ir("ptx")
    with pytest.raises(moec.InvalidArgument, match="out: is missing, and moec does not know how"):
        layer(hidden)


class Counted:
    """A tensor with a write counter, as in PyTorch."""

    __module__ = "torch"

    def __init__(self, buffer: object) -> None:
        self.buffer, self._version = buffer, 0

    def detach(self) -> Counted:
        return self

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return address_of(self.buffer)

    def untyped_storage(self) -> Counted:
        return self

    def nbytes(self) -> int:
        return 1 << 32

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, max_version: tuple[int, int] | None = None, **_: object) -> object:
        return self.buffer.__dlpack__(max_version=max_version)


@pytest.fixture
def prepared(gpu) -> tuple[moec.Layer, dict[str, Counted]]:
    """A layer that prepares its weights, and the weights."""
    sizes = {"hidden_size": 512, "intermediate_size": 256, "quantization": "mxfp4"}
    package = moec.compile_package(SPEC | sizes, "sm_90a", cache=False, use_ptxas=False)
    layer = moec.Layer.from_package(package, device="cuda:0")
    weights = {info.name: Counted(gpu(info.shape, "u8" if info.dtype.startswith("f8") else info.dtype))
               for info in layer.tensors if info.role == "weight"}
    layer.bind(weights)
    return layer, weights


def test_prepared_weights_in_the_caller_s_memory(gpu, prepared) -> None:
    layer, weights = prepared
    infos = {info.name: info for info in layer.prepared_tensors}
    assert set(infos) == {each["name"] for each in layer.plan["tensors"] if each["role"] == "prepared"}
    assert infos["experts.w2_prepacked"].shape == (SPEC["num_experts"], 512, 128)
    memory = {name: gpu(info.shape, info.dtype) for name, info in infos.items()}
    with pytest.raises(moec.InvalidArgument, match="experts.w2: the layer has no such prepared tensor; it has experts.w"):
        layer.prepare(memory={"experts.w2": memory["experts.w2_prepacked"]})
    own = layer.prepare().bytes
    assert 0 < layer.prepare(memory={"experts.w2_prepacked": memory["experts.w2_prepacked"]}).bytes < own
    assert layer.prepare(memory=memory).bytes == 0
    hidden, out = gpu((5, 512)), gpu((5, 512))
    layer(hidden, out=out)

    unread = {info.name for info in layer.tensors if info.role == "weight" and not info.read_by_calls}
    assert unread == {"experts.w13", "experts.w2", "experts.w13_scale", "experts.w2_scale"}
    words = weakref.ref(weights.pop("experts.w13"))
    assert set(layer.release_weights()) == unread
    assert words() is None
    layer(hidden, out=out)
    layer.clone()(hidden, out=out)
    with pytest.raises(moec.InvalidArgument, match="'experts.w13' was released after its preparation; bind it again"):
        layer.prepare(again=True)
    layer(hidden, out=out)


def test_writes_to_prepared_weights_are_seen(gpu, prepared) -> None:
    layer, weights = prepared
    hidden, out = gpu((5, 512)), gpu((5, 512))
    count_launches = ctypes.CDLL(str(LIBRARY)).fakeCudaNumLaunches

    def launches_of(step) -> int:
        before = count_launches()
        step()
        return count_launches() - before

    def call() -> int:
        """Returns the number of launches of a call, including those that prepare weights."""
        return launches_of(lambda: layer(hidden, out=out))

    with_preparation, without = call(), call()
    assert with_preparation > without > 0
    for name in ("experts.w2", "experts.w13"):
        weights[name]._version += 1
        assert (call(), call()) == (with_preparation, without)
    # The router's weight is not prepared.
    weights["gate.weight"]._version += 1
    assert call() == without
    clone = layer.clone()
    assert launches_of(lambda: clone(hidden, out=out)) == without
    assert launches_of(lambda: layer.prepare(again=True)) == with_preparation - without
    # A tensor without a counter is not checked again.
    del weights["experts.w2"]._version
    layer.bind(weights)
    assert (call(), call()) == (with_preparation, without)


def test_weights_of_calls_alone_change_no_preparation(gpu, prepared) -> None:
    """Such as adapters, which engines make after weights are prepared and released."""
    layer, weights = prepared
    hidden, out = gpu((5, 512)), gpu((5, 512))
    count_launches = ctypes.CDLL(str(LIBRARY)).fakeCudaNumLaunches

    def call() -> int:
        before = count_launches()
        layer(hidden, out=out)
        return count_launches() - before

    (gate,) = (info for info in layer.tensors if info.name == "gate.weight")

    def bind_gate() -> None:
        layer.bind({gate.name: gpu(gate.shape, gate.dtype)})

    with_preparation, without = call(), call()
    bind_gate()
    assert call() == without
    # Nor is a write to a prepared weight lost.
    weights["experts.w2"]._version += 1
    bind_gate()
    assert (call(), call()) == (with_preparation, without)
    layer.release_weights()
    bind_gate()
    assert call() == without
    # The released weights are still missed if one of them is bound alone.
    layer.bind({"experts.w13": weights["experts.w13"]})
    with pytest.raises(moec.InvalidArgument, match="was released after its preparation; bind it again"):
        call()


def test_numbers_of_valid_tokens(gpu, layer: moec.Layer) -> None:
    hidden, out = gpu((5, 64)), gpu((5, 64))
    for count in (3, 0, 5, 2000, 2**31 - 1, 3):
        layer(hidden, out=out, num_valid_tokens=count)


def test_refuses_what_is_elsewhere(gpu, layer: moec.Layer) -> None:
    hidden, out = gpu((5, 64)), gpu((5, 64))
    array = np.zeros((5, 64), np.uint16)
    for tensor, message in (
        (Told(array), "a tensor on cuda:0 expected, one on cpu found; copy it to the device"),
        (Told(array, device=(2, 1)), "one on cuda:1 found"),
        (Told(array, device=(2, 0)), "an address unknown to the driver found"),
    ):
        with pytest.raises(moec.InvalidArgument, match=f"hidden_states: .*{message}"):
            layer(tensor, out=out)
    memory = gpu((6, 64))
    odd = Told(array, device=(2, 0), data=address_of(memory) + 2)
    with pytest.raises(moec.InvalidArgument, match="hidden_states: an address aligned to 16 bytes expected"):
        layer(odd, out=out)
    layer(hidden, out=out)
    with pytest.raises(moec.InvalidArgument, match="out: an address aligned to 16 bytes expected"):
        layer(hidden, out=odd)
    with pytest.raises(moec.InvalidArgument, match="experts.w2: .*one on cpu found"):
        layer.bind(experts_w2=Told(np.zeros((4, 64, 32), np.uint16)))


def test_streams(gpu, layer: moec.Layer) -> None:
    class Stream:
        device_index = 1
        cuda_stream = 0

    hidden, out = gpu((5, 64)), gpu((5, 64))
    with pytest.raises(moec.InvalidArgument, match="stream: one of cuda:0 expected, one of cuda:1"):
        layer(hidden, out=out, stream=Stream())
    Stream.device_index = 0
    layer(hidden, out=out, stream=Stream())
    for stream in ("0", 1.5, True, object()):
        with pytest.raises(moec.InvalidType, match="stream: a stream of a framework, or the address"):
            layer(hidden, out=out, stream=stream)
    with pytest.raises(moec.Error):
        layer(hidden, out=out, stream=2**70)


def test_asks_producers_for_the_stream(gpu, layer: moec.Layer) -> None:
    hidden, out = gpu((5, 64)), gpu((5, 64))

    class Asked:
        def __dlpack_device__(self) -> tuple[int, int]:
            return hidden.__dlpack_device__()

        def __dlpack__(self, **asked: object) -> object:
            self.asked = asked
            return hidden.__dlpack__(max_version=asked["max_version"])

    asked = Asked()
    layer(asked, out=out)
    assert asked.asked == {"stream": 1, "max_version": (1, 3)}


def test_memory_of_the_device(gpu) -> None:
    buffer = gpu((3, 5), "f32")
    data = bytes(range(60))
    buffer.copy_in(data)
    assert buffer.copy_out() == data and buffer.__dlpack_device__() == (2, 0)
    with pytest.raises(moec.InvalidArgument, match="60 expected, 1 found"):
        buffer.copy_in(b"x")
    capsules = [buffer.__dlpack__(), buffer.__dlpack__(max_version=(1, 0))]
    assert all("dltensor" in repr(capsule) for capsule in capsules)
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    with pytest.raises(moec.Error):
        gpu((2**20, 2**20, 2**20))
    assert math.prod((0, 4)) == len(gpu((0, 4), "u8").copy_out())


def test_loads_what_is_compiled_for_it(gpu, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    os.environ["MOEC_CACHE_DIR"] = str(tmp_path)
    try:
        layers = [moec.compile(root / "test/models/olmoe-1b-7b.json", device=0) for _ in range(2)]
    finally:
        del os.environ["MOEC_CACHE_DIR"]
    assert [layer.from_cache for layer in layers] == [False, True]
    assert layers[0].workspace_bytes(8) > 0 and layers[0].compile_seconds > 0


def test_packages(gpu, tmp_path: Path) -> None:
    package = moec.compile_package(SPEC, "sm_100a", cache=False, use_ptxas=False)
    with pytest.raises(moec.Error, match="package: cuda:0 .*sm_100a"):
        moec.Layer.from_package(package, device="cuda:0")
    with pytest.raises(moec.Error, match="package: host"):
        moec.Layer.from_package(package, device="cpu")
    for damaged in (b"", b"x", package[:-1], package + b"x"):
        with pytest.raises(moec.InvalidArgument, match="^package: "):
            moec.Layer.from_package(damaged, device="cuda:0")
    with pytest.raises(moec.NotFound, match="package: cannot be read"):
        moec.Layer.from_package(tmp_path / "none.moepkg", device="cuda:0")
    path = tmp_path / "layer.moepkg"
    path.write_bytes(moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False))
    assert moec.Layer.from_package(path, device="cuda:0").max_tokens == 64
    # The runtime reads the newest version.
    inputs = Path(__file__).parents[2] / "unittests" / "Runtime" / "Inputs"
    fixture = max(inputs.glob("version-*.moepkg"), key=lambda path: int(path.stem.split("-")[1]))
    layer = moec.Layer.from_package(fixture, device="cuda:0")
    with pytest.raises(moec.InvalidArgument, match="no matrix hidden_states among its inputs"):
        layer(gpu((5, 64)))


def test_devices_that_are_not_there(gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(moec.InvalidArgument, match="device: .*0 to 1 exist") as failure:
        moec.compile(SPEC, device="cuda:7")
    assert failure.value.code == "out_of_range"
    from moec import compiler

    monkeypatch.setattr(compiler, "_devices", {})
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/nonexistent")
    with pytest.raises(moec.Unavailable, match="install the NVIDIA driver") as failure:
        moec.compile(SPEC, device="cuda:0")
    assert failure.value.code == "unavailable"
    assert moec.compile(SPEC).device == "cpu"
