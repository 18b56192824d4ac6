#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grouped products of Hopper alone, in tiles of many shapes.

    benchmarks/sm90_tiles.py make FOLDER             compiles the kernels (moe-compile, ptxas)
    benchmarks/sm90_tiles.py run FOLDER --json FILE   times them (a GPU, PyTorch)

A kernel is one tile.gemm with the config of the list below: gate and up with SwiGLU and rows
gathered by index, or down with the router's weight and rows by tensor maps; of bf16, or of e4m3 with
scales of blocks. Tokens choose experts at random; weights are larger than the second-level cache, or
the experts of each launch differ. A time is that of a launch in a CUDA graph of several, which is
replayed for a while (--sustained), since long products run at the clock that the power limit allows.

--cases=shapes has many shapes for a few products; --cases=loads has the products of the layers that
moe-bench has, with what the compiler chooses for so many tokens and a few others.
"""

import argparse
import concurrent.futures
import ctypes
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Layer:
    experts: int
    top_k: int
    hidden: int
    inter: int
    #: Local experts; tokens of others are left out. 0: all experts are local.
    local: int = 0
    element: str = "bf16"

    @property
    def groups(self) -> int:
        return self.local or self.experts

    @property
    def scaled(self) -> bool:
        return self.element != "bf16"


LAYERS = {
    "mixtral": Layer(8, 2, 4096, 14336),
    "qwen3_30b": Layer(128, 8, 2048, 768),
    "qwen3_235b": Layer(128, 8, 4096, 1536),
    "qwen3_next": Layer(512, 10, 2048, 512),
    "llama4": Layer(128, 1, 5120, 8192),
    "dsv3": Layer(256, 8, 7168, 2048, element="f8E4M3FN"),
    "dsv3_ep8": Layer(256, 8, 7168, 2048, local=32, element="f8E4M3FN"),
}

#: The config that the compiler chooses for the number of tokens.
CHOSEN = "chosen"


def prefill(_: int) -> list[str]:
    """Configs "weight rows:BLOCK_M:stages"."""
    wide = [f"256:{n}:{s}" for n, s in ((96, 4), (128, 4), (144, 4), (152, 4), (160, 4), (160, 3),
                                        (176, 3), (192, 3))]
    narrow = [f"128:{n}:{s}" for n, s in ((128, 6), (192, 5), (256, 4))]
    ladders = ["256:32,64,96,128,160:4", "256:48,80,112,128,144,160:4", "256:64,128,192:3",
               "128:64,128,192,256:4"]
    return wide + narrow + ladders


def decode(_: int) -> list[str]:
    return [f"{w}:{n}:{s}" for w, n, s in (
        (64, 16, 16), (64, 16, 12), (64, 16, 8), (64, 16, 4),
        (128, 8, 11), (128, 16, 11), (128, 16, 8), (128, 16, 4),
        (256, 8, 5), (256, 16, 5), (256, 16, 3),
    )]


def wide(tokens: int) -> list[str]:
    """Configs with as many stages as fit."""
    if tokens <= 1024:
        return [CHOSEN, "256:64:max", "256:128:max", "128:64:max"]
    return [CHOSEN, "256:128:max", "256:144:max", "256:152:max", "256:160:max",
            "256:128,144,160:max", "256:128,136,144,152:max"]


def scaled(tokens: int) -> list[str]:
    """Configs for quantized operands; "m" stands for no_swap_ab."""
    if tokens <= 64:
        return [CHOSEN, "64:16:max", "128:16:max", "256:16:max"]
    if tokens <= 1024:
        return [CHOSEN, "128:48:max", "128:64:max", "256:64:max", "m128:64:max", "m256:64:max"]
    no_swap_ab = ["m128:128:max", "m256:128:max", "m128:64,128:max", "m256:64,128:max"]
    if tokens <= 4096:
        return [CHOSEN, *no_swap_ab, "128:136:max", "128:152:max", "256:80:max", "256:112:max"]
    return [CHOSEN, *no_swap_ab, "256:112:max", "256:104:max", "256:88:max", "128:152:max"]


#: Layer, tokens, gemms, configs. The gemms have gathered input rows, rows in order, and rows in order.
ALL, TWO = ("gate_up", "gate_up_mapped", "down"), ("gate_up", "down")
SHAPES = [("mixtral", t, ALL, prefill) for t in (1024, 4096, 16384)]
SHAPES += [("qwen3_30b", t, ALL, decode) for t in (1, 8)] + [("mixtral", 1, ALL, decode)]
SHAPES += [("qwen3_30b", 4096, ALL, prefill)]
LOADS = [(layer, t, TWO, scaled) for layer in ("dsv3", "dsv3_ep8")
         for t in (16384, 4096, 1024, 64, 1)]
LOADS += [(layer, t, TWO, wide)
          for layer in ("qwen3_235b", "qwen3_next", "qwen3_30b", "mixtral", "llama4")
          for t in (16384, 4096, 1024)]
CASES = {"shapes": SHAPES, "loads": LOADS}

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


def sizes(layer: str, product: str) -> tuple[int, int, int]:
    """Returns the number of groups, K, and the number of columns."""
    of = LAYERS[layer]
    return (of.groups, of.hidden, of.inter) if product != "down" else (of.groups, of.inter, of.hidden)


def kernel(layer: str, product: str, attributes: str) -> str:
    groups, depth, columns = sizes(layer, product)
    gated, mapped = product != "down", product != "gate_up"
    element, is_scaled = LAYERS[layer].element, LAYERS[layer].scaled
    rows = f"memref<?x{depth}x{element}>"
    weights = f"memref<{groups}x{columns * (1 + gated)}x{depth}x{element}>"
    scales = (f"memref<?x{depth // 128}xf32>",
              f"memref<{groups}x{columns * (1 + gated) // 128}x{depth // 128}xf32>")
    arguments = f"%a: {scales[0]}, %b: {scales[1]}, " if is_scaled else ""
    operands = f"scales(%a, %b : {scales[0]}, {scales[1]})" if is_scaled else ""
    more = ("%s: memref<?xi32>", "" if mapped else "source(%s : memref<?xi32>)") if gated else (
        "%s: memref<?x1xf32>", "rows(%s : memref<?x1xf32>)")
    layout = ["layout = #moe.weight_layout<order = gate_up>"] if gated else []
    config = [f"config = {attributes}"] if attributes.startswith("#tile.sm90_gemm") else []
    load = "" if config else f" attributes {{load = {attributes}}}"
    return f"""tile.kernel @k(%x: {rows}, %w: {weights}, {arguments}%o: memref<{groups + 1}xi32>,
    {more[0]}, %y: memref<?x{columns}xbf16>, %t: i64){load} {{
  tile.gemm tokens(%t) ins(%x, %w : {rows}, {weights}) {operands}
      offsets(%o : memref<{groups + 1}xi32>) {more[1]} outs(%y : memref<?x{columns}xbf16>) epilogue {{
{SWIGLU if gated else WEIGHTED}
      }} {{{", ".join(config + layout)}}}
  tile.return
}}
"""


def name_of(layer: str, product: str, config: str) -> str:
    return f"{layer}-{product}-{config}".replace(":", "-").replace(",", "_")


class Maker:
    """Compiles kernels into a folder."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.compiler = ROOT / os.environ.get("MOEC_BIN_DIR", "build/bin") / "moe-compile"
        self.ptxas = os.environ.get("MOEC_PTXAS", "/usr/local/cuda/bin/ptxas")

    def compile(self, text: str, level: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.compiler, "-", "--target=sm_90a", f"--emit={level}"], input=text,
                              check=False, text=True, capture_output=True)

    def choose(self, layer: str, product: str, tokens: int) -> str:
        of = LAYERS[layer]
        load = (f"#tile.load<min_tokens = {tokens}, max_tokens = {tokens}, top_k = {of.top_k}, "
                f"experts = {of.experts}>")
        text = self.compile(kernel(layer, product, load), "tile").stdout
        block_m, n = re.search(r"sm90_gemm<block_m = \[([^]]*)\], block_n = (\d+)", text).groups()
        return f"{int(n) * (1 + (product != 'down'))}:{block_m.replace(' ', '')}:max"

    def make(self, layer: str, product: str, config: str) -> dict | None:
        rows, block_m, stages = config.split(":")
        k = 128 // (1 if LAYERS[layer].scaled else 2)
        n = int(rows.lstrip("m")) // (1 + (product != "down"))
        flags = ", map_rows" * (product != "gate_up") + ", no_swap_ab" * rows.startswith("m")
        for count in range(16, 2, -1) if stages == "max" else [int(stages)]:
            text = kernel(layer, product, f"#tile.sm90_gemm<block_m = [{block_m}], block_n = {n}, "
                          f"step = {k}, stages = {count}{flags}>")
            done = self.compile(text, "tile")
            if not done.returncode or "bytes of shared memory" not in done.stderr:
                break
        name = name_of(layer, product, config)
        if done.returncode:
            reason = re.search(r"needs \d+ .*|error: .*", done.stderr)
            print(f"{name}: {reason[0] if reason else done.stderr}")
            return None
        lists = r"argument = (\d+), sizes = \[([^]]*)\], along = \[([^]]*)\], " \
                r"steps = \[([^]]*)\], box = \[([^]]*)\]"
        maps = [[[0 if v.strip() == "?" else int(v) for v in part.split(",")]
                 for part in found] for found in re.findall(lists, done.stdout)]
        shared = int(re.search(r"shared = (\d+)", done.stdout)[1])
        ptx, cubin = self.folder / f"{name}.ptx", self.folder / f"{name}.cubin"
        ptx.write_text(self.compile(text, "ptx").stdout)
        done = subprocess.run([self.ptxas, "-v", "-arch=sm_90a", ptx, "-o", cubin], check=False,
                              text=True, capture_output=True)
        if done.returncode or re.search(r"C75\d\d|[1-9]\d* bytes spill", done.stderr):
            print(f"{name}: {done.stderr}")
        ptx.unlink()
        return None if done.returncode else {"shared": shared, "maps": maps, "stages": count}


def make(folder: pathlib.Path, cases: list, threads: int) -> None:
    """Compiles the kernels; writes kernels.json, with the kernels of each case."""
    folder.mkdir(parents=True, exist_ok=True)
    maker = Maker(folder)
    wanted, kernels = {}, {}
    for layer, tokens, products, configs in cases:
        for product in products:
            found = [maker.choose(layer, product, tokens) if c == CHOSEN else c
                     for c in configs(tokens)]
            for config in found:
                kernels[name_of(layer, product, config)] = (layer, product, config)
            wanted[f"{layer} {product} {tokens}"] = [name_of(layer, product, c)
                                                     for c in dict.fromkeys(found)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        made = dict(zip(kernels, pool.map(lambda of: maker.make(*of), kernels.values())))
    made = {name: of for name, of in made.items() if of}
    (folder / "kernels.json").write_text(json.dumps({"kernels": made, "cases": wanted}))
    print(f"{len(made)} kernels")


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
        kind = {1: 0, 2: 9}[tensor.element_size()]  # bytes, bf16
        _, sizes, along, steps, box = recipe
        size = [s or tensor.shape[0] for s in sizes]
        strides = [tensor.stride(a) * s * tensor.element_size() for a, s in zip(along, steps)]
        rank = len(size)
        raw = ctypes.create_string_buffer(128 + 64)
        start = -ctypes.addressof(raw) % 64
        array = lambda kind, values: (kind * len(values))(*values)  # noqa: E731
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(ctypes.addressof(raw) + start), kind, rank,
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


def routes(torch, of: Layer, tokens: int, seed: int):
    """Returns offsets, the token of each position, and rows per group."""
    generator = torch.Generator("cuda").manual_seed(seed)
    scores = torch.rand(tokens, of.experts, generator=generator, device="cuda")
    ids = scores.topk(of.top_k, dim=1).indices.flatten()
    order = torch.sort(ids, stable=True).indices
    counts = torch.bincount(ids, minlength=of.experts)[:of.groups]
    order = order[:int(counts.sum())]
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return offsets.int(), (order // of.top_k).int(), counts.cpu()


def make_values(torch, shape, element: str):
    if element == "bf16":
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / 50
    # Any bytes except NaN.
    values = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)
    values[(values & 127) == 127] = 0
    return values.view(torch.float8_e4m3fn)


class Products:
    """The tensors of one layer at one number of tokens, and its launches."""

    def __init__(self, torch, layer: str, product: str, tokens: int, weights, weight_scales):
        self.torch, self.product, self.tokens = torch, product, tokens
        self.weights, self.weight_scales = weights, weight_scales
        of = LAYERS[layer]
        _, depth, columns = sizes(layer, product)
        self.depth, self.columns, self.scaled = depth, columns, of.scaled
        self.launches = 16 if tokens <= 64 else 3
        self.routes = [routes(torch, of, tokens, seed) for seed in range(self.launches)]
        rows = max(len(r[1]) for r in self.routes)
        gated = product != "down"
        self.input = make_values(torch, (tokens if product == "gate_up" else max(rows, 1), depth),
                                 of.element)
        if not of.scaled:
            self.input *= 50
        self.input_scales = torch.rand(len(self.input), max(depth // 128, 1), device="cuda") / 448
        self.row_weight = torch.rand(max(rows, 1), 1, device="cuda")
        self.result = torch.empty(max(rows, 1), columns, device="cuda", dtype=torch.bfloat16)
        touched = [int((counts > 0).sum()) for _, _, counts in self.routes]
        mean_rows = sum(len(r[1]) for r in self.routes) / self.launches
        self.flops = 2 * mean_rows * depth * columns * (1 + gated)
        self.bytes = sum(touched) / len(touched) * depth * columns * (1 + gated)
        self.bytes *= weights.element_size()
        self.bytes += self.input.nbytes + self.result.nbytes

    def reference(self, expert: int, begin: int, end: int, tokens):
        torch = self.torch
        gated = self.product != "down"
        at = tokens[begin:end].long() if self.product == "gate_up" else slice(begin, end)
        rows, weights = self.input[at].float(), self.weights[expert].float()
        if self.scaled:
            rows *= self.input_scales[at].repeat_interleave(128, 1)
            weights *= self.weight_scales[expert].repeat_interleave(128, 0).repeat_interleave(128, 1)
        sums = rows @ weights.T
        if not gated:
            return sums * self.row_weight[begin:end]
        gate, up = sums[:, :self.columns], sums[:, self.columns:]
        return torch.nn.functional.silu(gate) * up

    def time(self, driver: Driver, path: pathlib.Path, shared: int, recipes: list,
             sustained: float) -> dict:
        torch = self.torch
        function = driver.function(path, shared)
        maps = [driver.tensor_map((self.input, self.weights)[recipe[0][0]], recipe)
                for recipe in recipes]
        scales = [self.input_scales, self.weight_scales] if self.scaled else []

        def launch(route, stream):
            offsets, tokens, _ = route
            third = self.row_weight if self.product == "down" else tokens
            values = [t.data_ptr() for t in (self.input, self.weights, *scales, offsets, third,
                                             self.result)]
            driver.launch(function, shared, 132, [*values, self.tokens], maps, stream)

        at = max(range(self.launches), key=lambda i: len(self.routes[i][1]))
        offsets, tokens, counts = self.routes[at]
        self.result.fill_(float("nan"))
        launch(self.routes[at], 0)
        torch.cuda.synchronize()
        error = 0.0
        if len(tokens):
            expert = int(counts.argmax())
            begin, end = int(offsets[expert]), int(offsets[expert + 1])
            want = self.reference(expert, begin, min(end, begin + 400), tokens)
            got = self.result[begin:begin + len(want)].float()
            error = float((got - want).norm() / want.norm())
            error = math.inf if bool(self.result[:len(tokens)].isnan().any()) else error
        if not sustained:
            return {"error": round(error, 5)}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for route in self.routes:
                launch(route, torch.cuda.current_stream().cuda_stream)
        graph.replay()
        times = []
        while len(times) < 5 or sum(times) * self.launches < 1e6 * sustained:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / self.launches)
        # Uses the later half, in which clocks have settled.
        late = sorted(times[len(times) // 2:])
        median = late[len(late) // 2]
        return {"us": round(median, 2), "best_us": round(min(times), 2), "error": round(error, 5),
                "tflops": round(self.flops / median / 1e6, 1),
                "tbps": round(self.bytes / median / 1e6, 3)}


def measure(folder: pathlib.Path, only: str, sustained: float, seconds: float) -> dict:
    import torch

    made = json.loads((folder / "kernels.json").read_text())
    driver = Driver()
    rows, weights, end = [], {}, time.monotonic() + seconds
    # Keeps only the weights of one gemm at a time.
    for case, names in sorted(made["cases"].items(), key=lambda c: [*c[0].split()[:2], -int(c[0].split()[2])]):
        layer, product, tokens = case.split()
        tokens = int(tokens)
        names = [n for n in names if n in made["kernels"] and re.search(only, f"{n}@{tokens}")]
        if not names:
            continue
        groups, depth, columns = sizes(layer, product)
        shape = (groups, columns * (1 if product == "down" else 2), depth)
        if shape not in weights:
            weights.clear()
            scales = torch.rand(groups, shape[1] // 128, max(depth // 128, 1), device="cuda") / 448
            weights[shape] = make_values(torch, shape, LAYERS[layer].element), scales
        products = Products(torch, layer, product, tokens, *weights[shape])
        for name in names:
            if time.monotonic() > end:
                print(f"left: {case} {name}")
                continue
            of = made["kernels"][name]
            try:
                found = products.time(driver, folder / f"{name}.cubin", of["shared"], of["maps"],
                                      sustained)
            except RuntimeError as error:
                # After a launch failure nothing runs any more.
                print(f"{case} {name}: {error}")
                return record(torch, rows)
            config = name.split("-", 2)[2].replace("max", str(of["stages"]))
            rows.append({"layer": layer, "product": product, "tokens": tokens,
                         "config": config} | found)
            print(f"{layer:10} {product:14} {tokens:6} {config:34}",
                  *(f"{key} {value:9}" for key, value in found.items()), flush=True)
    return record(torch, rows)


def record(torch, rows: list) -> dict:
    return {"date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name(0),
            "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=("make", "run"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cases", choices=CASES, default="shapes")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of make")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="", help="regular expression on KERNEL@TOKENS")
    parser.add_argument("--sustained", type=float, default=0.12,
                        help="seconds of replays per time; 0 for none, for a profiler")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no more are timed")
    parser.add_argument("--commit", default="", help="recorded with the result")
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder, CASES[options.cases], options.threads)
        return 0
    found = measure(options.folder, options.only, options.sustained, options.seconds)
    result = {"benchmark": "sm90_tiles", "commit": options.commit} | found
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
