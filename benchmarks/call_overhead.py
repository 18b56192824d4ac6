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
rows alike. Blocks of calls alternate between the rows. Medians, in microseconds, and what each is above
`c_api`; the aims are 3 for `python` and 6 for `torch_out`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
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
#: Calls in a row. A GPU is waited for between blocks, so that its queue never fills.
BLOCK = 50
AIMS = {"python": 3.0, "torch_out": 6.0}


def make_tensors(layer: moec.Layer, tokens: int, device: str) -> dict[str, Any]:
    """One of each name, zeros but for ids, which are 0 and 1."""
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


def time_each(call: Callable[[], Any], count: int) -> list[int]:
    clock, times = time.perf_counter_ns, []
    for _ in range(count):
        begin = clock()
        call()
        times.append(clock() - begin)
    return times


def make_rows(layer: moec.Layer, inputs: dict[str, Any], out: Any) -> dict[str, Callable]:
    """Per row: what times so many calls."""
    names = ("hidden_states", "router_logits", "topk_ids", "topk_weights")
    arguments = [inputs.get(name) for name in names]
    rows = {
        "c_api": lambda count: layer.time_calls(count, (), {**inputs, "out": out}),
        "python": lambda count: time_each(lambda: layer(*arguments, out=out), count),
        "python_allocates": lambda count: time_each(lambda: layer(*arguments), count),
    }
    if torch:
        import moec.torch

        block = moec.torch.MoE(layer)
        forward, forward_out = torch.ops.moec.forward.default, torch.ops.moec.forward_out.default
        number = block.number
        rows["torch_out"] = lambda count: time_each(
            lambda: forward_out(out, *arguments, None, None, number), count
        )
        rows["torch"] = lambda count: time_each(
            lambda: forward(*arguments, None, None, number), count
        )
        rows["module"] = lambda count: time_each(lambda: block(*arguments), count)
    return rows


def measure(options: argparse.Namespace) -> dict[str, Any]:
    layer = moec.compile(SPEC, device=options.device, entry=options.entry)
    tensors = make_tensors(layer, options.tokens, options.device)
    roles = {info.name: info.role for info in layer.tensors}
    layer.bind({name: each for name, each in tensors.items() if roles[name] == "weight"})
    inputs = {name: each for name, each in tensors.items() if roles[name] == "input"}
    rows = make_rows(layer, inputs, tensors["output"])
    times: dict[str, list[int]] = {name: [] for name in rows}
    blocks = max(options.calls // BLOCK, 1)
    for block in range(-1, blocks):
        for name, row in rows.items():
            taken = row(BLOCK)
            layer.synchronize()
            if block >= 0:  # the first one warms up
                times[name] += taken
    medians = {name: statistics.median(each) / 1e3 for name, each in times.items()}
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
        "above_c_api_us": {name: each - medians["c_api"] for name, each in medians.items()},
        "aims_us": AIMS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entry", default="ids", choices=("gate", "logits", "ids"))
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--kernels", default="core", choices=("core", "python"),
                        help="what the operators of PyTorch have")
    parser.add_argument("--output", help="where the JSON goes (default: standard output)")
    parser.add_argument("--commit", default="", help="recorded with the result")
    options = parser.parse_args()
    if torch:
        torch.set_grad_enabled(False)
    if options.kernels == "python":
        import moec._core

        # As in a release of PyTorch without its stable C ABI.
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
