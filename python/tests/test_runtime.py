# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime through its C API, on an emulated GPU whose memory is the host's."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

from moec.runtime import LAYER_STREAM, Memory, MoertError, Runtime, _DLTensor

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin")).parent
FIXTURE = ROOT / "unittests" / "Runtime" / "Inputs" / "version-6.moepkg"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", str(BUILD / "unittests" / "libfakecuda.so"))
    return Runtime(BUILD / "lib" / "libmoert.so.1")


def test_runs_a_package(runtime: Runtime) -> None:
    package = runtime.from_memory(FIXTURE.read_bytes())
    assert package.spec == '{"hidden_size": 4}'
    with runtime.cuda(0) as device:
        assert device.name == "cuda:0 (Fake GPU)"
        with device.load(package) as layer:
            package.close()
            assert layer.max_tokens == 100
            names = [(t.name, t.dtype, t.role, t.shape) for t in layer.tensors]
            assert names == [
                ("x", "f32", "input", (100, 4)),
                ("scale", "f32", "weight", (4,)),
                ("offset", "i32", "input", (1,)),
                ("y", "f32", "output", (100, 4)),
            ]
            for name, dtype, _, shape in names:
                memory = Memory(device.allocate(4 * int(np.prod(shape))), dtype, shape)
                layer.bind(name, memory)
            report = layer.prepare_weights()
            assert (report.bytes, report.in_place_bytes) == (16, 0) and report.seconds > 0
            assert not any(tensor.strided for tensor in layer.tensors)
            workspace = device.allocate(layer.workspace_bytes(20))
            layer.run(20, 0, workspace, layer.workspace_bytes(20))
            layer.run(20, LAYER_STREAM)
            layer.synchronize()
            with device.workspace(layer.workspace_bytes(20)) as shared:
                layer.use_workspace(shared, 1)
                layer.run(20)
                layer.synchronize()
                with pytest.raises(MoertError, match="slot 2; 0 and 1 are accepted"):
                    layer.use_workspace(shared, 2)
                layer.use_workspace(None)
            with layer.clone() as clone:
                with pytest.raises(MoertError, match="input 'x' is not bound"):
                    clone.run(1)
            device.release(workspace)
        data = bytes(range(100))
        address = device.allocate(len(data))
        device.copy_in(address, data)
        assert device.copy_out(address, len(data)) == data


def test_dlpack_says_what_a_tensor_is(runtime: Runtime) -> None:
    array = np.arange(24, dtype=np.float32).reshape(6, 4)[1:]
    memory = Memory.of(array)
    assert memory.address == array.ctypes.data
    assert (memory.dtype, list(memory.shape)) == ("f32", [5, 4])
    assert Memory.of(array.astype(np.int64)).dtype == "i64"
    assert Memory.of(array.astype(np.float16).T).strides == [1, 4]
    rows = np.zeros((6, 132), np.float32)[:, :4]
    assert (Memory.of(rows).strides, list(Memory.of(rows).shape)) == ([132, 1], [6, 4])
    with pytest.raises(TypeError, match="type code 5"):
        Memory.of(array.astype(np.complex64))
    with runtime.cuda(0) as device, runtime.open(FIXTURE) as package:
        with device.load(package) as layer:
            with pytest.raises(MoertError, match="copy the tensor to the device"):
                layer.bind("x", array)
            with pytest.raises(MoertError, match=r"contiguous\) expected, \[132, 1\] found"):
                layer.bind("x", rows)
            with pytest.raises(MoertError, match="dtype f32 expected, i64 found"):
                layer.bind("x", array.astype(np.int64))


def test_dlpack_knows_float8() -> None:
    class Float8:
        """Bytes that say what PyTorch says of a float8 tensor."""

        bytes = np.arange(12, dtype=np.uint8).reshape(3, 4)

        def __dlpack__(self):
            capsule = self.bytes.__dlpack__()
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
            tensor.code = self.code
            return capsule

    for code, name in ((10, "f8e4m3"), (12, "f8e5m2"), (14, "f8e8m0")):
        tensor = Float8()
        tensor.code = code
        memory = Memory.of(tensor)
        assert (memory.dtype, list(memory.shape)) == (name, [3, 4])
        assert memory.address == Float8.bytes.ctypes.data
    tensor.code = 8
    with pytest.raises(TypeError, match="type code 8"):
        Memory.of(tensor)


def test_failures_are_exceptions(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(MoertError, match="cannot be opened: No such file") as failure:
        runtime.open(tmp_path / "none.moepkg")
    assert failure.value.code == "not_found"
    with pytest.raises(MoertError, match="0 to 1 are there") as failure:
        runtime.cuda(7)
    assert failure.value.code == "out_of_range"
    with pytest.raises(MoertError, match="no package"):
        runtime.from_memory(b"")
    os.environ["MOERT_CUDA_LIBRARY"] = "/nonexistent"
    with pytest.raises(MoertError, match="install the NVIDIA driver") as failure:
        runtime.cuda(0)
    assert failure.value.code == "unavailable"
