# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a call of a layer takes of the host's time, by how it is called.

    python benchmarks/call_overhead.py [--device=cpu] [--entry=ids] [--calls=2000] [--kernels=python]
                                       [--output=FILE.json]

`c_api`: moert_layer_bind() per tensor and moert_layer_run(), in a loop without Python. The others make
the same call from Python: `python` with an output given, `python_allocates` without one; `torch_out` and
`torch` through torch.ops.moec.forward_out and forward; `module` through moec.torch.MoE. The operators have
the kernels of moec._core where PyTorch shows what these need, or, with --kernels=python, those in Python. Tensors are
PyTorch's, where it is installed, else NumPy's. A layer is as small as one can be, so that little but
the call is timed; on the CPU, where a call returns when the layer has run, its kernels count in all
rows alike.

A round has a block of calls of each row, in another order each time, and what a row is above `c_api` is the median over
the rounds of the difference of both within a round: what slows the host for a while slows both. Blocks are loops of
timeit's, whose clock is read once for all calls of a block. `median_us` is of all blocks of a row, `above_c_api_us` the
median of the differences, `quartiles_us` their quartiles, `empty_like_us` what PyTorch takes to allocate a result and to
free it, which is part of `torch` and `python_allocates`. The aims are 3 for `python` and 6 for `torch_out` and `torch`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import random
import statistics
import sys
import timeit
from collections.abc import Callable
from typing import Any

import moec

try:
    import torch
except ImportError:
    torch = None

SPEC = {
    "moec_spec": 1,
    "dtype": "f32",
    "hidden_size": 64,
    "num_experts": 4,
    "top_k": 2,
    "intermediate_size": 64,
    "max_tokens": 16,
    "routing": {"renormalize": True},
    "activation": {"kind": "silu"},
}
#: Calls per block. The host waits for a GPU between blocks, so that its queue never fills.
BLOCK = 50
AIMS = {"python": 3.0, "torch_out": 6.0, "torch": 6.0}


def make_tensors(layer: moec.Layer, tokens: int, device: str) -> dict[str, Any]:
    """Makes a tensor of each name: zeros, except ids, which are 0 and 1."""
    tensors = {}
    for info in layer.tensors:
        shape = (tokens, *info.shape[1:]) if info.depends_on_tokens else info.shape
        kind = {"f32": "float32", "bf16": "bfloat16", "i32": "int32"}[info.dtype]
        if torch:
            tensor = torch.zeros(shape, dtype=getattr(torch, kind), device=device)
        else:
            import numpy

            tensor = numpy.zeros(shape, kind)
        if info.name == "topk_ids":
            tensor[:, 1] = 1
        tensors[info.name] = tensor
    return tensors


def make_rows(layer: moec.Layer, inputs: dict[str, Any], out: Any) -> dict[str, Callable[[], float]]:
    """Returns, per row, a function that times a block and returns microseconds per call."""
    values = {**inputs, "out": out, "layer": layer}
    names = [name if name in inputs else "None" for name in
             ("hidden_states", "router_logits", "topk_ids", "topk_weights")]
    while names[-1] == "None":
        del names[-1]
    given = ", ".join(names)
    calls = {"python": f"layer({given}, out=out)", "python_allocates": f"layer({given})"}
    if torch:
        import moec.torch

        block = moec.torch.MoE(layer)
        values |= {"block": block, "number": block.number, "empty_like": torch.empty_like,
                   "forward": torch.ops.moec.forward.default, "forward_out": torch.ops.moec.forward_out.default}
        operands = ", ".join([names[0], "number", *names[1:]])
        calls |= {"torch_out": f"forward_out(out, {operands})", "torch": f"forward({operands})",
                  "module": f"block({given})", "empty_like": "empty_like(out)"}
    arguments = {**inputs, "out": out}
    rows = {"c_api": lambda: layer.time_calls(BLOCK, (), arguments) / BLOCK / 1e3}
    for name, call in calls.items():
        timer = timeit.Timer(call, globals=values)
        rows[name] = lambda timer=timer: timer.timeit(BLOCK) / BLOCK * 1e6
    return rows


def measure(options: argparse.Namespace) -> dict[str, Any]:
    layer = moec.compile(SPEC, device=options.device, entry=options.entry)
    tensors = make_tensors(layer, options.tokens, options.device)
    roles = {info.name: info.role for info in layer.tensors}
    layer.bind({name: each for name, each in tensors.items() if roles[name] == "weight"})
    inputs = {name: each for name, each in tensors.items() if roles[name] == "input"}
    rows = make_rows(layer, inputs, tensors["output"])
    times: dict[str, list[float]] = {name: [] for name in rows}
    blocks = max(options.calls // BLOCK, 1)
    order, shuffle = list(rows), random.Random(0).shuffle
    for block in range(-2, blocks):
        shuffle(order)
        for name in order:
            taken = rows[name]()
            layer.synchronize()
            if block >= 0:  # the first ones warm up
                times[name].append(taken)
    empty_like = times.pop("empty_like", None)
    medians = {name: statistics.median(each) for name, each in times.items()}
    above = {name: [one - base for one, base in zip(each, times["c_api"])] for name, each in times.items()}
    name = torch.cuda.get_device_name(options.device) if layer.device != "cpu" and torch else None
    return {
        "benchmark": "call_overhead",
        "commit": options.commit,
        "date": datetime.date.today().isoformat(),
        "device": name or options.device,
        "entry": options.entry,
        "tokens": options.tokens,
        "calls": blocks * BLOCK,
        "kernels": "core" if torch and moec.torch._keys_of_core else "python",
        "tensors": f"torch {torch.__version__}" if torch else "numpy",
        "python": platform.python_version(),
        "median_us": medians,
        "above_c_api_us": {name: statistics.median(each) for name, each in above.items()},
        "quartiles_us": {name: [sorted(each)[len(each) * part // 4] for part in (1, 3)]
                         for name, each in above.items()},
        "empty_like_us": statistics.median(empty_like) if empty_like else None,
        "aims_us": AIMS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entry", default="ids", choices=("gate", "logits", "ids"))
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--calls", type=int, default=20000, help="of each row")
    parser.add_argument("--kernels", default="core", choices=("core", "python"),
                        help="what the operators of PyTorch have")
    parser.add_argument("--output", help="where the JSON goes (default: standard output)")
    parser.add_argument("--commit", default="", help="recorded with the result")
    options = parser.parse_args()
    if torch:
        torch.set_grad_enabled(False)
    if options.kernels == "python":
        import moec._core

        # Without the stable C ABI of PyTorch, as in its older releases.
        moec._core.load_torch = lambda *_: False
    result = measure(options)
    text = json.dumps(result, indent=1)
    if options.output:
        with open(options.output, "w") as file:
            file.write(text + "\n")
    else:
        print(text)
    for name, above in result["above_c_api_us"].items():
        print(f"{name:18} {result['median_us'][name]:9.2f} us  {above:+8.2f}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
