#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what MOEC_VERIFY costs: blocks of calls of a layer, with every N-th compared and with none, in turns.

    benchmarks/verify_cost.py                          on the first GPU, a layer of the sizes of Qwen3-30B-A3B
    benchmarks/verify_cost.py --device=cpu --seconds=2 --every=100 --tokens=1
    benchmarks/verify_cost.py --quantization=mxfp4

Calls are enqueued one behind the other, and a block is waited for at its end, but not the comparisons, for which
engines do not wait either. A cost is the median over pairs of blocks. Needs the moec package alone."""

import argparse
import array
import statistics
import time

import moec
from moec import _core
from moec.compiler import find_device

SIZES = {"hidden_size": 2048, "num_experts": 128, "top_k": 8, "intermediate_size": 768}
#: DLPack's kind and bits of a type.
TYPES = {"bf16": (4, 16), "i32": (0, 32), "f32": (2, 32)}


def allocate(device: object, shape: tuple[int, ...], dtype: str, data: bytes = b"") -> _core.Buffer:
    buffer = _core.Buffer(device, shape, *TYPES[dtype])
    if data:
        buffer.copy_in(data)
    return buffer


def make_call(layer: moec.Layer, tokens: int, width: int, experts: int, top_k: int):
    """A call whose tokens have different experts, and small hidden states."""
    device = layer.device_object
    hidden = array.array("H", [0x3C00 + 37 * i % 0x200 for i in range(tokens * width)])
    ids = array.array("i", [(7 * token + 13 * slot) % experts for token in range(tokens) for slot in range(top_k)])
    weights = array.array("f", [1 / top_k] * (tokens * top_k))
    given = (allocate(device, (tokens, width), "bf16", hidden.tobytes()), None,
             allocate(device, (tokens, top_k), "i32", ids.tobytes()),
             allocate(device, (tokens, top_k), "f32", weights.tobytes()))
    out = allocate(device, (tokens, width), "bf16")
    # Both layers run on one stream, that of the thread, so that either can wait for it.
    stream = None if layer.device == "cpu" else 2
    return lambda: layer(*given, out=out, stream=stream)


def time_block(call, last, plain: moec.Layer, calls: int) -> float:
    """Seconds of a call. last: a call of the layer without comparisons."""
    begin = time.perf_counter()
    for _ in range(calls - 1):
        call()
    last()
    plain.synchronize()
    return (time.perf_counter() - begin) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a block takes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=lambda text: [int(word) for word in text.split(",")], default=[1, 64, 1024])
    parser.add_argument("--quantization", help="mxfp4, fp8_block128, ...")
    parser.add_argument("--experts", type=int, default=SIZES["num_experts"])
    args = parser.parse_args()
    spec = {"moec_spec": 1, "dtype": "bf16", "entry": "ids", "activation": {"kind": "silu"},
            "max_tokens": max(args.tokens), **SIZES, "num_experts": args.experts}
    if args.quantization:
        spec["quantization"] = args.quantization
    plain = moec.compile(spec, device=args.device).generate_weights(1)
    verified = plain.clone().verify(args.every)
    print(f"{find_device(args.device).name}, {args.quantization or 'bf16'}, every {args.every}th call")
    print("| tokens | calls of a block | us | cost | quartiles |\n|--:|--:|--:|--:|---|")
    for tokens in args.tokens:
        shape = tokens, spec["hidden_size"], spec["num_experts"], spec["top_k"]
        last, call = make_call(plain, *shape), make_call(verified, *shape)
        for warm in (last, call):
            warm()
        calls = max(args.every, round(args.seconds / time_block(last, last, plain, 100)))
        pairs = [[time_block(each, last, plain, calls) for each in (last, call)] for _ in range(args.rounds)]
        costs = [after / before - 1 for before, after in pairs]
        low, _, high = statistics.quantiles(costs, n=4)
        verified.synchronize()
        print(f"| {tokens} | {calls} | {statistics.median(before for before, _ in pairs) * 1e6:.1f} | "
              f"{statistics.median(costs):+.2%} | {low:+.2%} to {high:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
