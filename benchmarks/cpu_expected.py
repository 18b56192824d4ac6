# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expected times on this CPU against measured ones.

    python benchmarks/cpu_expected.py [--tokens=1,16,256] [--repeat=9] [--output=FILE.json]

The rates of the CPU are measured anew. Each layer runs from ids and weights, with random weights; times are medians in
milliseconds. The last lines are the geometric mean of the ratios of expected to measured times, and the worst one. The
machine must do nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import tempfile

import moec

SPEC = {
    "moec_spec": 1, "entry": "ids", "dtype": "bf16", "hidden_size": 2048, "intermediate_size": 1024, "num_experts": 64,
    "top_k": 8, "activation": {"kind": "silu"}, "max_tokens": 1024,
}
INT8 = {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}}
LAYERS = {
    "bf16": {}, "f32": {"dtype": "f32"}, "int8": {"quantization": INT8},
    "fp8_block128": {"quantization": {"weight": "fp8_block128"}},
}


def measure(name: str, tokens: list[int], repeat: int) -> list[dict[str, object]]:
    spec = SPEC | LAYERS[name]
    expected = moec.expect(spec, gpu="cpu", tokens=tokens)
    layer = moec.compile(spec, device="cpu")
    layer.generate_weights()
    rows = []
    for time in expected.times:
        if time.seconds is None:
            raise SystemExit("no expected times: the rates of this CPU cannot be measured")
        measured = layer.benchmark(time.tokens, repeat=repeat).median
        rows.append({"layer": name, "tokens": time.tokens, "expected_ms": time.seconds * 1e3,
                     "measured_ms": measured * 1e3, "ratio": time.seconds / measured, "bound": time.bound})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,16,256")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOEC_CACHE_DIR"] = folder
        rows = [row for name in options.layers.split(",")
                for row in measure(name, [int(count) for count in options.tokens.split(",")], options.repeat)]
        rates = json.loads((pathlib.Path(folder) / "cpu-rates.json").read_text())
    print("| layer | tokens | expected ms | measured ms | ratio | bound |\n|---|--:|--:|--:|--:|---|")
    for row in rows:
        print(f"| {row['layer']} | {row['tokens']} | {row['expected_ms']:.2f} | {row['measured_ms']:.2f} | "
              f"{row['ratio']:.2f} | {row['bound']} |")
    logs = [math.log(row["ratio"]) for row in rows]
    print(f"\ngeometric mean {math.exp(statistics.mean(logs)):.2f}, worst {math.exp(max(logs, key=abs)):.2f}")
    if options.output:
        record = {"date": datetime.date.today().isoformat(), "rates": rates, "rows": rows}
        options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
