# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory beyond a layer's own while its weights are read: that of one expert, whatever they come from."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import moec
from moec.reference.files import write_tensors

E, H, I = 64, 512, 256
BLOCK = "model.layers.0.mlp."
CONFIG = {"model_type": "qwen3_moe", "hidden_size": H, "num_experts": E, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
          "moe_intermediate_size": I, "num_hidden_layers": 1}  # fmt: skip
#: Memory of Python and of the allocator does not depend on the layer.
REST = 2 << 20
QUANTIZED = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}


def iterate(form: str) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors of the checkpoint, of which each is made when it is asked for."""
    rng = np.random.default_rng(1)

    def make(*shape: int) -> np.ndarray:
        bits = rng.integers(0x3C00, 0x3D00, shape, np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32) if form == "f32" else bits.view(ml_dtypes.bfloat16)

    yield BLOCK + "gate.weight", make(E, H)
    for e in range(E):
        for name, rows, columns in (("gate", I, H), ("up", I, H), ("down", H, I)):
            module = f"{BLOCK}experts.{e}.{name}_proj."
            if form != "gptq":
                yield module + "weight", make(rows, columns)
                continue
            yield module + "qweight", rng.integers(0, 2**31, (columns // 8, rows), np.int32)
            yield module + "qzeros", np.full((columns // 128, rows // 8), 0x77777777, np.int32)
            yield module + "scales", (rng.random((columns // 128, rows)) / 64).astype(np.float16)
            yield module + "g_idx", np.arange(columns, dtype=np.int32) // 128


def write_gguf(path: Path) -> None:
    """Experts in blocks of q5_1, which the layer does not multiply: it has bf16."""
    def text(word: str) -> bytes:
        return len(word).to_bytes(8, "little") + word.encode()

    keys = {"embedding_length": H, "block_count": 1, "expert_count": E, "expert_used_count": 2}
    head = text("general.architecture") + (8).to_bytes(4, "little") + text("qwen3moe")
    for key, value in keys.items():
        head += text(f"qwen3moe.{key}") + (4).to_bytes(4, "little") + value.to_bytes(4, "little")
    rng, blobs = np.random.default_rng(1), b""
    tensors = {"ffn_gate_inp": (0, (E, H)), "ffn_gate_exps": (7, (E, I, H)), "ffn_up_exps": (7, (E, I, H)),
               "ffn_down_exps": (7, (E, H, I))}  # fmt: skip
    for name, (kind, shape) in tensors.items():
        head += text(f"blk.0.{name}.weight") + len(shape).to_bytes(4, "little")
        head += b"".join(size.to_bytes(8, "little") for size in reversed(shape))
        head += kind.to_bytes(4, "little") + len(blobs).to_bytes(8, "little")
        count = int(np.prod(shape))
        # A block of 32 elements: scale, minimum, 32 high bits, 16 bytes of two codes.
        blocks = rng.integers(0, 256, (count // 32, 24), np.uint8)
        blocks[:, 1] = blocks[:, 3] = 0x20
        blobs += np.zeros(count, np.float32).tobytes() if kind == 0 else blocks.tobytes()
    start = b"GGUF" + (3).to_bytes(4, "little") + len(tensors).to_bytes(8, "little") + (5).to_bytes(8, "little")
    head = start + head
    path.write_bytes(head + bytes(-len(head) % 32) + blobs)


def measure(folder: Path, source: str, form: str) -> None:
    """Loads the weights in this process under a limit of what it may allocate."""
    path = folder / "model.gguf" if source == "gguf" else folder
    layer = moec.compile(path, device="cpu", max_tokens=16)
    tensors: Any = {"mapping": lambda: dict(iterate(form)), "iterable": lambda: iterate(form)}.get(source, lambda: path)()
    own = sum(int(np.prod(info.shape)) * {"f32": 4, "bf16": 2, "f16": 2}.get(info.dtype, 1) // (2 if info.dtype == "i4" else 1)
              for info in layer.tensors if info.role == "weight")  # fmt: skip
    used = int(re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
    # An expert that is converted or dequantized is f32 for a while.
    one = 3 * H * I // 2 if form == "gptq" else 3 * H * I * 4
    limit = used + own + one + REST
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    layer.load(tensors)
    # The limit does limit.
    with pytest.raises(MemoryError):
        bytearray(one + REST + (1 << 20))
    print("loaded", own)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize(("source", "form"), [
    ("folder", "f32"), ("folder", "gptq"), ("mapping", "bf16"), ("iterable", "f32"), ("iterable", "gptq"),
    ("gguf", "q5_1"),
])  # fmt: skip
def test_one_expert_at_a_time(source: str, form: str, tmp_path: Path) -> None:
    config = CONFIG | ({"quantization_config": QUANTIZED} if form == "gptq" else {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    if source == "gguf":
        write_gguf(tmp_path / "model.gguf")
    elif source == "folder":
        write_tensors(tmp_path / "model.safetensors", dict(iterate(form)))
    # Large allocations are mappings of their own, not memory that compiling has left.
    done = subprocess.run([sys.executable, __file__, str(tmp_path), source, form], text=True, capture_output=True,
                          timeout=120, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"})  # fmt: skip
    assert done.returncode == 0 and "loaded" in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    measure(Path(sys.argv[1]), *sys.argv[2:])
