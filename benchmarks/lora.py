#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures what adapters cost: graph replays of a layer with adapters and of the same layer without, in turns.

    benchmarks/lora.py                                 on the first GPU, a layer of the sizes of Qwen3-30B-A3B
    benchmarks/lora.py --quantization=fp8_block128 --adapters=1,4,16 --rank=16 --tokens=1,16,64
    benchmarks/lora.py --expect=h200                   what the cost model expects, without a GPU
    benchmarks/lora.py --device=cpu --experts=8 --adapters=1 --tokens=1 --rounds=2

Each token has an adapter, all of them in turn. "added" is the median over rounds of the difference of two medians;
"goal" is 1.25 times the bytes of the chosen experts' adapters at the board's rate, plus 4 us. Before a layer is timed,
rows of a call are compared with the float64 reference. Needs the moec package alone."""

import argparse
import array
import statistics

import moec
from moec import _core
from moec.compiler import find_device

SIZES = {"hidden_size": 2048, "num_experts": 128, "top_k": 8, "intermediate_size": 768}
#: DLPack's kind and bits of a type.
TYPES = {"bf16": (4, 16), "i32": (0, 32), "f32": (2, 32)}
#: Bytes per second of boards, by a part of their names.
RATES = {"H200": 4.8e12, "H100": 3.35e12, "A100": 2.0e12, "B200": 8.0e12}


def get_bytes(spec: dict, tokens: int) -> float:
    """Expected bytes of the matrices of all pairs of adapter and expert that a call of `tokens` tokens has."""
    experts, top_k = spec["num_experts"], spec["top_k"]
    adapters, rank = spec["lora"]["adapters"], spec["lora"]["rank"]
    pairs = 0.0
    for adapter in range(adapters):
        own = len(range(adapter, tokens, adapters))
        pairs += experts * (1 - (1 - top_k / experts) ** own)
    return pairs * 2 * 3 * rank * (spec["hidden_size"] + spec["intermediate_size"])


def expect(plain: dict, specs: list[dict], gpu: str, tokens: list[int], rate: float) -> None:
    """Prints what the cost model of a GPU expects adapters to add."""
    before = moec.expect(plain, gpu=gpu, tokens=tokens).times
    print("| adapters | tokens | without | with | added | goal |\n|--:|--:|--:|--:|--:|--:|")
    for spec in specs:
        for old, new in zip(before, moec.expect(spec, gpu=gpu, tokens=tokens).times, strict=True):
            goal = 1.25 * get_bytes(spec, old.tokens) / rate * 1e6 + 4
            times = old.seconds * 1e6, new.seconds * 1e6
            print(f"| {spec['lora']['adapters']} | {old.tokens} | {times[0]:.1f} | {times[1]:.1f} | "
                  f"{times[1] - times[0]:+.1f} | {goal:.1f} |")


def check(layer: moec.Layer, spec: dict, tokens: int) -> None:
    """Compares two rows of a call with the reference; raises moec.Error if one is wrong."""
    device, width = layer.device_object, spec["hidden_size"]
    experts, top_k, adapters = spec["num_experts"], spec["top_k"], spec["lora"]["adapters"]

    def allocate(shape: tuple[int, ...], dtype: str, data: array.array) -> _core.Buffer:
        buffer = _core.Buffer(device, shape, *TYPES[dtype])
        buffer.copy_in(data.tobytes())
        return buffer

    hidden = array.array("H", [0x3C00 + 37 * i % 0x200 for i in range(tokens * width)])
    ids = array.array("i", [(7 * token + 13 * slot) % experts for token in range(tokens) for slot in range(top_k)])
    given = (allocate((tokens, width), "bf16", hidden), None, allocate((tokens, top_k), "i32", ids),
             allocate((tokens, top_k), "f32", array.array("f", [1 / top_k] * (tokens * top_k))))
    # From no adapter on.
    own = allocate((tokens,), "i32", array.array("i", [token % (adapters + 1) - 1 for token in range(tokens)]))
    out = _core.Buffer(device, (tokens, width), *TYPES["bf16"])
    verified = layer.clone().verify(1, rows=2)
    verified(*given, adapter_ids=own, out=out, stream=None if layer.device == "cpu" else 2)
    verified.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--adapters", type=numbers, default=[1, 4, 16])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=numbers, default=[1, 8, 64, 256, 1024])
    parser.add_argument("--expect", metavar="GPU", help="print what the cost model expects of this GPU instead")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=64, help="runs of a median")
    parser.add_argument("--quantization", help="mxfp4, fp8_block128, ...")
    parser.add_argument("--experts", type=int, default=SIZES["num_experts"])
    parser.add_argument("--sizes", type=numbers, help="hidden_size,num_experts,top_k,intermediate_size")
    parser.add_argument("--rate", type=float, help="bytes per second of the memory; default: that of the board")
    args = parser.parse_args()
    sizes = SIZES | {"num_experts": args.experts} | dict(zip(SIZES, args.sizes or ()))
    spec = {"moec_spec": 1, "dtype": "bf16", "entry": "ids", "activation": {"kind": "silu"},
            "max_tokens": max(args.tokens), **sizes}
    if args.quantization:
        spec["quantization"] = args.quantization
    name = args.expect.upper() if args.expect else find_device(args.device).name
    rate = args.rate or next((rate for board, rate in RATES.items() if board in name), None)
    if rate is None:
        parser.error(f"the rate of the memory of {name} is not known; give --rate")
    if args.expect:
        loras = [spec | {"lora": {"adapters": adapters, "rank": args.rank}} for adapters in args.adapters]
        return expect(spec, loras, args.expect, args.tokens, rate)
    plain = moec.compile(spec, device=args.device).generate_weights(1)
    print(f"{name}, {args.quantization or 'bf16'}, rank {args.rank}, {rate / 1e12:g} TB/s; microseconds")
    print("| adapters | tokens | without | with | added | quartiles | bytes | goal |\n|--:|--:|--:|--:|--:|---|--:|--:|")
    for adapters in args.adapters:
        own = spec | {"lora": {"adapters": adapters, "rank": args.rank}}
        layer = moec.compile(own, device=args.device).generate_weights(1)
        for tokens in args.tokens:
            check(layer, own, tokens)
            pairs = [[each.benchmark(tokens, repeat=args.repeat).median * 1e6 for each in (plain, layer)]
                     for _ in range(args.rounds)]
            added = [after - before for before, after in pairs]
            low, _, high = statistics.quantiles(added, n=4)
            size = get_bytes(own, tokens)
            print(f"| {adapters} | {tokens} | {statistics.median(before for before, _ in pairs):.1f} | "
                  f"{statistics.median(after for _, after in pairs):.1f} | {statistics.median(added):+.1f} | "
                  f"{low:+.1f} to {high:+.1f} | {size / 1e6:.1f} MB | {1.25 * size / rate * 1e6 + 4:.1f} |", flush=True)
        del layer


if __name__ == "__main__":
    main()
