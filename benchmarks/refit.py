# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What it takes to give all experts of Qwen3-30B-A3B from tensors on the GPU, and to update them as a trainer does.

    pip install torch
    python benchmarks/refit.py [--layers=48] [--repeat=3] [--fused] [--output=FILE.json]

Layers get pseudo-random tensors under the names of the checkpoint, first one by one from an iterator and then all of a
layer in a mapping, as updates. Times are those of the host, with the device idle before and after. Memory beside the
layers' is that of the process (peak of the resident set) and of the GPU (driver), less weights and given tensors. Each
update is checked: a layer's output differs from the one before, and two updates with equal tensors give equal bits.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import moec

HIDDEN, WIDTH, EXPERTS = 2048, 768, 128
CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "hidden_act": "silu", "norm_topk_prob": True,
    "torch_dtype": "bfloat16", "mlp_only_layers": [], "decoder_sparse_step": 1, "intermediate_size": 6144,
}


def make_tensors(layer: int, fused: bool) -> dict[str, torch.Tensor]:
    """The tensors of a layer; their memory is shared by all layers, which copy it."""
    block = f"model.layers.{layer}.mlp."
    if fused:
        return {block + "gate.weight": ROUTER, block + "experts.gate_up_proj": UP, block + "experts.down_proj": DOWN}
    tensors = {block + "gate.weight": ROUTER}
    for expert in range(EXPERTS):
        name = f"{block}experts.{expert}."
        tensors |= {name + "gate_proj.weight": UP[expert, :WIDTH], name + "up_proj.weight": UP[expert, WIDTH:],
                    name + "down_proj.weight": DOWN[expert]}
    return tensors


def time_call(call: Callable[[], object]) -> float:
    """Seconds."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--fused", action="store_true", help="tensors of all experts, as Transformers 5 has them")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    config = Path("refit_config.json")
    config.write_text(json.dumps(CONFIG))
    layers = [moec.compile(config, layer=i, device="cuda", max_tokens=4096) for i in range(options.layers)]
    config.unlink()
    given = [make_tensors(i, options.fused) for i in range(options.layers)]
    rows = torch.randn(64, HIDDEN, device="cuda", dtype=torch.bfloat16)
    weights = sum(layer.weight_bytes for layer in layers)

    free, resident = torch.cuda.mem_get_info()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = time_call(lambda: [layer.load(iter(each.items())) for layer, each in zip(layers, given)])
    extra_gpu = free - torch.cuda.mem_get_info()[0] - weights
    extra_host = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) * 1024
    before = [layer(rows).clone() for layer in layers]

    times = []
    for _ in range(options.repeat):
        for tensor in (UP, DOWN, ROUTER):
            tensor.mul_(-0.5)
        times.append(time_call(lambda: [layer.load(each) for layer, each in zip(layers, given)]))
        outputs = [layer(rows).clone() for layer in layers]
        assert not any(torch.equal(a, b) for a, b in zip(before, outputs)), "an update changed nothing"
        before = outputs
    again = time_call(lambda: [layer.load(each) for layer, each in zip(layers, given)])
    assert all(torch.equal(layer(rows), out) for layer, out in zip(layers, before)), "equal weights, other bits"

    record = {
        "device": torch.cuda.get_device_name(), "layers": options.layers, "fused": options.fused,
        "weight_bytes": weights, "load_seconds": loaded, "update_seconds": [*times, again],
        "extra_host_bytes": extra_host, "extra_gpu_bytes": extra_gpu,
    }
    print(f"{options.layers} layers, {weights / 1e9:.1f} GB: loaded one by one in {loaded:.2f} s, updated in "
          f"{statistics.median(record['update_seconds']):.3f} s; beside them {extra_host / 1e6:.1f} MB on the host, "
          f"{extra_gpu / 1e6:.1f} MB on the GPU")
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n")


torch.manual_seed(0)
UP, DOWN, ROUTER = (
    torch.randn(shape, device="cuda", dtype=torch.bfloat16).div_(32)
    for shape in ((EXPERTS, 2 * WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH), (EXPERTS, HIDDEN))
)
if __name__ == "__main__":
    main()
