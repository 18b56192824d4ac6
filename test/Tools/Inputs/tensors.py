# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes safetensors files that differ from good ones.

  tensors.py list IN
  tensors.py edit IN OUT [drop=NAME] [keep=NAME] [rename=OLD:NEW] [copy=OLD:NEW] [cast=NAME:DTYPE]
                         [scale=NAME:FACTOR] [shape=NAME:2x3] [transpose=NAME] [ids=2x3] [weights=2x3] [cut=BYTES]
  tensors.py header TEXT|@FILE DATA_BYTES OUT
  tensors.py split IN OUT PREFIX GATE UP DOWN [MODULE=MODULE ...]
  tensors.py fuse IN OUT PREFIX [MODULE=MODULE ...]
  tensors.py shard FOLDER COUNT IN ...

split gives each expert its own matrices, PREFIXexperts.0.GATE.weight and so on. fuse keeps all
experts in PREFIXexperts.gate_up_proj and down_proj, transposed, with their biases. Both rename
modules (what stands before the first dot of a name, or all of it). shard deals the weights of its
inputs out to COUNT files of a folder, in turn, with the index that says which is where.
"""

import json
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import deserialize
from safetensors.numpy import save_file

DTYPES = {"bf16": ml_dtypes.bfloat16}
FILE_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "I64": np.int64, "I32": np.int32,
    # Bytes, as published files have them.
    "U8": np.uint8, "I8": np.uint8, "F8_E8M0": np.uint8,
}


def load_file(source):
    """As safetensors.numpy has it, and float8."""
    return {
        name: np.frombuffer(part["data"], FILE_DTYPES[part["dtype"]]).reshape(part["shape"])
        for name, part in deserialize(Path(source).read_bytes())
    }


def list_tensors(source):
    for name, tensor in sorted(load_file(source).items()):
        print(name, tensor.dtype, "x".join(map(str, tensor.shape)))


def sizes(text):
    return [int(length) for length in text.split("x")]


def edit(source, target, *edits):
    tensors = load_file(source)
    size = None
    for text in edits:
        verb, _, what = text.partition("=")
        name, _, value = what.partition(":")
        if verb == "drop":
            del tensors[name]
        elif verb == "keep":
            tensors = {name: tensors[name]}
        elif verb == "scale":
            tensors[name] = tensors[name] * np.asarray(float(value), tensors[name].dtype)
        elif verb == "rename":
            tensors[value] = tensors.pop(name)
        elif verb == "copy":
            tensors[value] = tensors[name]
        elif verb == "cast":
            tensors[name] = tensors[name].astype(DTYPES.get(value, value))
        elif verb == "shape":
            tensors[name] = np.resize(tensors[name], sizes(value))
        elif verb == "transpose":
            tensors[name] = tensors[name].swapaxes(-1, -2).copy()
        elif verb == "ids":
            tensors["topk_ids"] = np.arange(np.prod(sizes(name)), dtype=np.int32)
            tensors["topk_ids"] = tensors["topk_ids"].reshape(sizes(name))
        elif verb == "weights":
            tensors["topk_weights"] = np.full(sizes(name), 0.5, np.float32)
        elif verb == "cut":
            size = int(name)
        else:
            raise SystemExit(f"unknown edit '{text}'")
    save_file(tensors, target)
    if size is not None:
        with open(target, "r+b") as file:
            file.truncate(size)


def header(text, data_bytes, target):
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    length = struct.pack("<Q", len(text))
    Path(target).write_bytes(length + text.encode() + bytes(int(data_bytes)))


def rename(tensors, prefix, modules):
    """Names of the other weights in the checkpoint; inputs keep theirs."""
    modules = dict(text.split("=") for text in modules)
    renamed = {}
    for name, tensor in tensors.items():
        module, dot, rest = name.partition(".")
        full = modules.get(name) or modules.get(module, module) + dot + rest
        renamed[prefix + full if dot else name] = tensor
    return renamed


def first_halves(matrix):
    return np.split(matrix, 2, axis=-2)


def get_suffixes(tensors):
    """Names of a matrix, or of its scales, here and in checkpoints: those of blocks have their own."""
    scales = tensors.get("experts.w13_scale")
    is_block = scales is not None and scales.shape[-1] > 1
    return {"": ".weight", "_scale": ".weight_scale_inv" if is_block else ".weight_scale"}


def split_input_scales(given, prefix, gate, up, down, experts):
    """Half the scale for most experts: the layer's is the largest, which one expert has."""
    for ours, modules in (("w13", (gate, up)), ("w2", (down,))):
        scale = given.pop(f"experts.{ours}_input_scale", None)
        shared = given.pop(f"shared_experts.{ours}_input_scale", None)
        for expert in range(experts) if scale is not None else ():
            for module in modules:
                is_largest = expert == experts - 2
                name = f"{prefix}experts.{expert}.{module}.input_scale"
                given[name] = (scale if is_largest else scale / 2).reshape(())
        for name in ("gate_proj", "up_proj") if ours == "w13" else ("down_proj",):
            if shared is not None:
                given[f"{prefix}shared_experts.{name}.input_scale"] = shared


def split_shared(tensors, suffixes):
    for ours, theirs in suffixes.items():
        if f"shared_experts.w13{ours}" in tensors:
            first, second = first_halves(tensors.pop(f"shared_experts.w13{ours}"))
            tensors[f"shared_experts.gate_proj{theirs}"] = first
            tensors[f"shared_experts.up_proj{theirs}"] = second
            down = tensors.pop(f"shared_experts.w2{ours}")
            tensors[f"shared_experts.down_proj{theirs}"] = down


def split(source, target, prefix, gate, up, down, *modules):
    tensors = load_file(source)
    parts = {}
    suffixes = get_suffixes(tensors)
    given = {name: tensors.pop(name) for name in list(tensors) if name.endswith("_input_scale")}
    split_input_scales(given, prefix, gate, up, down, len(tensors["experts.w13"]))
    for ours, theirs in suffixes.items():
        if f"experts.w13{ours}" not in tensors:
            continue
        w13, w2 = tensors.pop(f"experts.w13{ours}"), tensors.pop(f"experts.w2{ours}")
        for expert in range(len(w13)):
            module = f"{prefix}experts.{expert}."
            first, second = first_halves(w13[expert])
            parts[f"{module}{gate}{theirs}"] = first
            parts[f"{module}{up}{theirs}"] = second
            parts[f"{module}{down}{theirs}"] = w2[expert]
    split_shared(tensors, suffixes)
    tensors = rename(tensors, prefix, modules) | parts | given
    save_file({name: tensor.copy() for name, tensor in tensors.items()}, target)


def fuse(source, target, prefix, *modules):
    tensors = load_file(source)
    parts = {}
    for name, full in (("w13", "gate_up_proj"), ("w2", "down_proj")):
        module = f"{prefix}experts.{full}"
        parts[module] = tensors.pop(f"experts.{name}").swapaxes(-1, -2).copy()
        if f"experts.{name}_bias" in tensors:
            parts[f"{module}_bias"] = tensors.pop(f"experts.{name}_bias")
    split_shared(tensors, get_suffixes(tensors))
    tensors = rename(tensors, prefix, modules) | parts
    save_file({name: tensor.copy() for name, tensor in tensors.items()}, target)


def shard(folder, count, *sources):
    files = [{} for _ in range(int(count))]
    tensors = {name: tensor for source in sources for name, tensor in load_file(source).items()
               if "." in name}
    index = {}
    for i, (name, tensor) in enumerate(sorted(tensors.items())):
        number = i % len(files)
        index[name] = f"model-{number + 1:05}-of-{len(files):05}.safetensors"
        files[number][name] = tensor
    for number, part in enumerate(files):
        save_file(part, Path(folder) / f"model-{number + 1:05}-of-{len(files):05}.safetensors")
    (Path(folder) / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


if __name__ == "__main__":
    commands = {
        "list": list_tensors, "edit": edit, "header": header, "split": split, "fuse": fuse,
        "shard": shard,
    }
    commands[sys.argv[1]](*sys.argv[2:])
