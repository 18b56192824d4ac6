#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grouped products of Hopper alone, in tiles of many shapes.

    benchmarks/sm90_tiles.py make FOLDER             compiles the kernels (moe-compile, ptxas)
    benchmarks/sm90_tiles.py run FOLDER --json FILE   times them (a GPU, PyTorch)

A kernel is one tile.contract with the config of the list below: gate and up with SwiGLU and rows
gathered by index, or down with the router's weight and rows by tensor maps. Tokens choose experts
at random; weights are larger than the second-level cache, or the experts of each launch differ. A
time is that of a launch in a CUDA graph of several, which is replayed for an eighth of a second, since
long products run at the clock that the power limit allows.
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

SUSTAINED_US = 1.2e5
#: Experts, k, hidden and intermediate size.
LAYERS = {"mixtral": (8, 2, 4096, 14336), "qwen3_30b": (128, 8, 2048, 768)}


def prefill() -> list[str]:
    """Weight rows, bodies, stages."""
    wide = [f"256:{n}:{s}" for n, s in ((96, 4), (128, 4), (144, 4), (152, 4), (160, 4), (160, 3),
                                        (176, 3), (192, 3))]
    narrow = [f"128:{n}:{s}" for n, s in ((128, 6), (192, 5), (256, 4))]
    ladders = ["256:32,64,96,128,160:4", "256:48,80,112,128,144,160:4", "256:64,128,192:3",
               "128:64,128,192,256:4"]
    return wide + narrow + ladders


def decode() -> list[str]:
    return [f"{w}:{n}:{s}" for w, n, s in (
        (64, 16, 16), (64, 16, 12), (64, 16, 8), (64, 16, 4),
        (128, 8, 11), (128, 16, 11), (128, 16, 8), (128, 16, 4),
        (256, 8, 5), (256, 16, 5), (256, 16, 3),
    )]


#: Layer, tokens, configs.
CASES = [("mixtral", t, prefill) for t in (1024, 4096, 16384)]
CASES += [("qwen3_30b", t, decode) for t in (1, 8)] + [("mixtral", 1, decode)]
CASES += [("qwen3_30b", 4096, prefill)]

SWIGLU = """      ^bb0(%g: f32, %u: f32):
        %one = arith.constant 1.0 : f32
        %a = arith.negf %g : f32
        %b = math.exp %a : f32
        %c = arith.addf %b, %one : f32
        %d = arith.divf %g, %c : f32
        %e = arith.mulf %d, %u : f32
        tile.yield %e : f32"""
WEIGHTED = """      ^bb0(%g: f32, %u: f32):
        %e = arith.mulf %g, %u : f32
        tile.yield %e : f32"""


#: Rows gathered, in order, in order.
PRODUCTS = ("gate_up", "gate_up_mapped", "down")


def sizes(layer: str, product: str) -> tuple[int, int, int]:
    """Experts, depth, columns."""
    experts, _, hidden, inter = LAYERS[layer]
    return (experts, hidden, inter) if product != "down" else (experts, inter, hidden)


def kernel(layer: str, product: str, config: str) -> str:
    rows, bodies, stages = config.split(":")
    experts, depth, columns = sizes(layer, product)
    gated, mapped = product != "down", product != "gate_up"
    weights = f"memref<{experts}x{columns * (2 if gated else 1)}x{depth}xbf16>"
    config = (f'config = #tile.config<schedule = "sm90.contract", n = {int(rows) // (1 + gated)}, '
              f"k = 64, stages = {stages}, bodies = [{bodies}]{', map_rows = true' if mapped else ''}>")
    more = ("%s: memref<?xi32>", "" if mapped else "source(%s : memref<?xi32>)") if gated else (
        "%s: memref<?x1xf32>", "rows(%s : memref<?x1xf32>)")
    layout = ", layout = #moe.weight_layout<order = gate_up>" if gated else ""
    return f"""tile.kernel @k(%x: memref<?x{depth}xbf16>, %w: {weights}, %o: memref<{experts + 1}xi32>,
    {more[0]}, %y: memref<?x{columns}xbf16>, %t: i64) {{
  tile.contract tokens(%t) ins(%x, %w : memref<?x{depth}xbf16>, {weights})
      offsets(%o : memref<{experts + 1}xi32>) {more[1]} outs(%y : memref<?x{columns}xbf16>) epilogue {{
{SWIGLU if gated else WEIGHTED}
      }} {{{config}{layout}}}
  tile.return
}}
"""


def make(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    compiler = ROOT / os.environ.get("MOEC_BIN_DIR", "build/bin") / "moe-compile"
    ptxas = os.environ.get("MOEC_PTXAS", "/usr/local/cuda/bin/ptxas")
    kernels = {}
    for layer, _, configs in CASES:
        for config in configs():
            for product in PRODUCTS:
                name = f"{layer}-{product}-{config}".replace(":", "-").replace(",", "_")
                if name in kernels:
                    continue
                source = folder / f"{name}.mlir"
                source.write_text(kernel(layer, product, config))
                run = lambda *c: subprocess.run(c, check=False, text=True, capture_output=True)  # noqa: E731
                done = run(compiler, source, "--target=sm_90a", "--emit=tile")
                if done.returncode:
                    reason = re.search(r"needs \d+ bytes.*|error: .*", done.stderr)
                    print(f"{name}: {reason[0] if reason else done.stderr}")
                    continue
                head = done.stdout
                ptx = run(compiler, source, "--target=sm_90a", "--emit=ptx").stdout
                (folder / f"{name}.ptx").write_text(ptx)
                done = run(ptxas, "-v", "-arch=sm_90a", folder / f"{name}.ptx", "-o",
                           folder / f"{name}.cubin")
                if done.returncode or re.search(r"C75\d\d|[1-9]\d* bytes spill", done.stderr):
                    print(f"{name}: {done.stderr}")
                lists = r"argument = (\d+), sizes = \[([^]]*)\], along = \[([^]]*)\], " \
                        r"steps = \[([^]]*)\], box = \[([^]]*)\]"
                maps = [[[0 if v.strip() == "?" else int(v) for v in part.split(",")]
                         for part in found] for found in re.findall(lists, head)]
                kernels[name] = {"shared": int(re.search(r"shared = (\d+)", head)[1]), "maps": maps}
                for other in (source, folder / f"{name}.ptx"):
                    other.unlink()
    (folder / "kernels.json").write_text(json.dumps(kernels))
    print(f"{len(kernels)} kernels")


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *args) -> None:
        code = getattr(self.cuda, name)(*args)
        if code:
            raise RuntimeError(f"{name}: error {code}")

    def function(self, path: pathlib.Path, shared: int):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), path.read_bytes())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        self.call("cuFuncSetAttribute", function, 8, shared)
        return function

    def tensor_map(self, tensor, recipe):
        _, sizes, along, steps, box = recipe
        size = [s or tensor.shape[0] for s in sizes]
        strides = [tensor.stride(a) * s * tensor.element_size() for a, s in zip(along, steps)]
        rank = len(size)
        raw = ctypes.create_string_buffer(128 + 64)
        start = -ctypes.addressof(raw) % 64
        array = lambda kind, values: (kind * len(values))(*values)  # noqa: E731
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(ctypes.addressof(raw) + start), 9, rank,
                  ctypes.c_void_p(tensor.data_ptr()), array(ctypes.c_uint64, size[::-1]),
                  array(ctypes.c_uint64, strides[:-1][::-1]), array(ctypes.c_uint32, box[::-1]),
                  array(ctypes.c_uint32, [1] * rank), 0, 3, 2, 0)
        return raw, start

    def launch(self, function, shared: int, grid: int, values: list, maps: list, stream: int):
        kept = [ctypes.c_uint64(v) for v in values]
        pointers = [ctypes.addressof(v) for v in kept]
        pointers += [ctypes.addressof(raw) + start for raw, start in maps]
        self.call("cuLaunchKernel", function, grid, 1, 1, 384, 1, 1, shared,
                  ctypes.c_void_p(stream), (ctypes.c_void_p * len(pointers))(*pointers), None)


def routes(torch, experts: int, top_k: int, tokens: int, seed: int):
    """Offsets, and the token of each position."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(tokens, experts, generator=generator)
    ids = scores.topk(top_k, dim=1).indices.flatten()
    order = torch.sort(ids, stable=True).indices
    counts = torch.bincount(ids, minlength=experts)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return offsets.int().cuda(), (order // top_k).int().cuda(), counts


class Products:
    """The tensors of one layer and number of tokens, and its launches."""

    def __init__(self, torch, layer: str, product: str, tokens: int, weights):
        self.torch, self.product, self.tokens = torch, product, tokens
        experts, top_k, _, _ = LAYERS[layer]
        _, depth, columns = sizes(layer, product)
        self.depth, self.columns, self.weights = depth, columns, weights
        self.launches = 16 if tokens <= 64 else 3
        rows = tokens * top_k
        self.routes = [routes(torch, experts, top_k, tokens, seed)
                       for seed in range(self.launches)]
        gated = product != "down"
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        self.input = make(tokens if product == "gate_up" else rows, depth)
        self.row_weight = torch.rand(rows, 1, device="cuda")
        self.result = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        touched = [int((counts > 0).sum()) for _, _, counts in self.routes]
        self.flops = 2 * rows * depth * columns * (1 + gated)
        self.bytes = sum(touched) / len(touched) * depth * columns * (1 + gated) * 2
        self.bytes += (self.input.numel() + self.result.numel()) * 2

    def reference(self, expert: int, begin: int, end: int, tokens):
        torch = self.torch
        gated = self.product != "down"
        rows = self.input[begin:end]
        if self.product == "gate_up":
            rows = self.input[tokens[begin:end].long()]
        sums = rows.float() @ self.weights[expert].float().T
        if not gated:
            return sums * self.row_weight[begin:end]
        gate, up = sums[:, :self.columns], sums[:, self.columns:]
        return torch.nn.functional.silu(gate) * up

    def time(self, driver: Driver, path: pathlib.Path, shared: int, recipes: list,
             once: bool) -> dict:
        torch = self.torch
        function = driver.function(path, shared)
        maps = [driver.tensor_map((self.input, self.weights)[recipe[0][0]], recipe)
                for recipe in recipes]

        def launch(route, stream):
            offsets, tokens, _ = route
            third = self.row_weight if self.product == "down" else tokens
            values = [t.data_ptr() for t in (self.input, self.weights, offsets, third, self.result)]
            driver.launch(function, shared, 132, [*values, self.tokens], maps, stream)

        self.result.fill_(float("nan"))
        launch(self.routes[0], 0)
        torch.cuda.synchronize()
        offsets, tokens, counts = self.routes[0]
        expert = int(counts.argmax())
        begin, end = int(offsets[expert]), int(offsets[expert + 1])
        want = self.reference(expert, begin, min(end, begin + 400), tokens)
        got = self.result[begin:begin + len(want)].float()
        error = float((got - want).norm() / want.norm())
        error = math.inf if bool(self.result.isnan().any()) else error
        if once:
            return {"error": round(error, 5)}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for route in self.routes:
                launch(route, torch.cuda.current_stream().cuda_stream)
        graph.replay()
        times = []
        while len(times) < 5 or sum(times) * self.launches < SUSTAINED_US:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / self.launches)
        times.sort()
        best, median = times[0], times[len(times) // 2]
        return {"us": round(median, 2), "best_us": round(best, 2), "error": round(error, 5),
                "tflops": round(self.flops / median / 1e6, 1),
                "tbps": round(self.bytes / median / 1e6, 3)}


def measure(folder: pathlib.Path, only: str, once: bool) -> dict:
    import torch

    kernels = json.loads((folder / "kernels.json").read_text())
    driver = Driver()
    rows, weights = [], {}
    for layer, tokens, configs in CASES:
        for product in PRODUCTS:
            experts, depth, columns = sizes(layer, product)
            shape = (experts, columns * (1 if product == "down" else 2), depth)
            if shape not in weights:
                weights.clear()
                weights[shape] = torch.randn(shape, device="cuda", dtype=torch.bfloat16) / 50
            products = Products(torch, layer, product, tokens, weights[shape])
            names = [n for n in kernels if n.startswith(f"{layer}-{product}-")
                     and re.search(only, f"{n}@{tokens}")]
            allowed = {c.replace(":", "-").replace(",", "_") for c in configs()}
            for name in names:
                config = name.split("-", 2)[2]
                if config.split("+")[0] not in allowed:
                    continue
                found = products.time(driver, folder / f"{name}.cubin", kernels[name]["shared"],
                                      kernels[name]["maps"], once)
                rows.append({"layer": layer, "product": product, "tokens": tokens,
                             "config": config} | found)
                print(f"{layer:10} {product:14} {tokens:6} {config:28}",
                      *(f"{key} {value:9}" for key, value in found.items()), flush=True)
    return {"date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name(),
            "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=("make", "run"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression on KERNEL@TOKENS")
    parser.add_argument("--once", action="store_true", help="no times: for a profiler")
    parser.add_argument("--commit", default="", help="recorded with the result")
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder)
        return 0
    result = {"benchmark": "sm90_tiles", "commit": options.commit} | measure(options.folder, options.only, options.once)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
