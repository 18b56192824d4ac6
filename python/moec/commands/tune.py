# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec tune: other configs of a layer's gemms, measured on the GPU at hand by moe-bench --tune."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from ..compiler import Source, find_device, print_spec
from ..report import check_output
from .fit import parse_tokens
from .model import get_experts

#: Token counts by default.
TOKENS = (1, 16, 64, 256, 1024, 4096)
#: The formats of moe-bench's rows by the quantization of a spec; None: weights in the layer's dtype.
_FORMATS = {None: "bf16", "fp8_block128": "fp8_block128", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "mxfp8": "mxfp8"}
_SHAPE = ("num_experts", "top_k", "hidden_size", "intermediate_size")


def _find_bench() -> str:
    """moe-bench of the bundle or of a source tree, or of the PATH."""
    folders = [os.environ.get("MOEC_BIN_DIR", ""), os.fspath(pathlib.Path(__file__).resolve().parents[3] / "bin")]
    for folder in filter(None, folders):
        found = shutil.which("moe-bench", path=folder)
        if found:
            return found
    found = shutil.which("moe-bench")
    if found is None:
        raise _core.NotFound(
            "moe-bench, which measures configs, is in the bundle and not in the wheel; put it on the PATH, or name its "
            "folder in the environment variable MOEC_BIN_DIR"
        )
    return found


def _copy_data(bench: str, folder: pathlib.Path) -> None:
    """Copies moe-bench's data, which lies beside its folder."""
    source = pathlib.Path(bench).resolve().parents[1] / "share" / "moec"
    try:
        folder.mkdir()
        for name in ("peers_h200.json", "yardstick.py"):
            shutil.copy(source / name, folder)
    except FileNotFoundError as error:
        raise _core.NotFound(f"{bench} lacks its data: {error}; install the whole bundle") from None


def make_row(spec: Mapping[str, Any], tokens: Sequence[int]) -> dict[str, Any]:
    """Returns moe-bench's rows.json for the routed experts of a layer. Raises InvalidArgument for a layer that its rows
    cannot describe."""
    quantization = spec.get("quantization", {})
    weight = quantization.get("weight")
    others = sorted(set(get_experts(spec)) & {"expert_bias", "latent", "parallel", "replicas", "placement"})
    name = weight if isinstance(weight, (str, type(None))) else "of its own"
    if name not in _FORMATS or set(quantization) - {"weight"} or spec["dtype"] != "bf16":
        raise _core.InvalidArgument(
            f"LAYER: weights of format {name!r} and dtype {spec['dtype']!r} have no row in moe-bench; tuned are bf16 "
            f"layers with plain weights, {', '.join(filter(None, _FORMATS))}"
        )
    layer = {
        "name": "layer", **{field: spec[field] for field in _SHAPE}, "dtype": _FORMATS[name],
        "routing": {"score": "softmax", "renormalize": True},
    }
    if others:
        print(f"moec tune: measured without {', '.join(others)}, which moe-bench's rows lack", file=sys.stderr)
    return {"layers": [layer], "rows": [{"layer": "layer", "tokens": list(tokens)}], "lines": {}}


def tune(
    source: Source, output: str | os.PathLike[str], *, layer: int | None = None, tokens: Sequence[int] = TOKENS,
    seconds: int = 60,
) -> pathlib.Path | None:
    """Measures other configs of the gemms of a layer on the first GPU, each checked against a reference, and writes
    those that are at least 0.5 % faster to a file, for moe-compile --tuned.

    output: the file (.json) to write.
    tokens: token counts that are measured.
    seconds: about how long to measure.

    Returns the file; None if no config was faster, and so none is written. Raises Unavailable without a GPU, NotFound
    without moe-bench, which only the bundle has."""
    try:
        find_device(0)
    except _core.Unavailable as error:
        reason = str(error).partition(";")[0]
        raise _core.Unavailable(f"tuning measures configs on a GPU, and none is at hand ({reason})") from None
    bench = _find_bench()
    target = pathlib.Path(output)
    check_output("output", target)
    row = make_row(print_spec(source, layer=layer), tokens)
    with tempfile.TemporaryDirectory(prefix="moec-tune-") as folder:
        data = pathlib.Path(folder) / "data"
        _copy_data(bench, data)
        (data / "rows.json").write_text(json.dumps(row))
        tuned = pathlib.Path(folder) / "tuned"
        done = subprocess.run(
            [bench, f"--data={data}", f"--tune={tuned}", f"--seconds={seconds}"], stdout=sys.stderr
        )
        if done.returncode:
            raise _core.Error(f"{bench} ended with status {done.returncode}; its messages are on the error stream")
        found = tuned / "layer.json"
        if not found.is_file() or not json.loads(found.read_text())["configs"]:
            return None
        shutil.move(found, target)
        return target


def _run(options: argparse.Namespace) -> int:
    if options.seconds < 1:
        raise _core.InvalidArgument(f"--seconds: {options.seconds} found; 1 or more is accepted")
    written = tune(
        options.layer_source, options.output, layer=options.layer, tokens=options.tokens, seconds=options.seconds
    )
    if written is None:
        print("The chosen configs are the fastest of those that were measured; no file is written.")
    else:
        print(f"{written}: use it by moe-compile --tuned={written}")
    return 0


def add_parser(commands: Any) -> None:
    """Adds `moec tune` to the commands."""
    parser = commands.add_parser(
        "tune", help="measure other configs of a layer's gemms on the GPU at hand",
        description="Measures other configs of a layer's gemms on the first GPU, and writes the faster ones to a file "
                    "for moe-compile --tuned. The bundle's moe-bench measures.",
    )
    parser.add_argument("layer_source", metavar="LAYER", help="a model's folder, config.json or GGUF file, a spec, or a "
                                                               'model in the cache of the Hugging Face hub ("org/name")')
    parser.add_argument("-o", "--output", default="tuned.json", metavar="FILE", help="default: tuned.json")
    parser.add_argument("--layer", type=int, metavar="N", help="decoder layer of a model (default: the first with experts)")
    parser.add_argument(
        "--tokens", type=parse_tokens, default=TOKENS, metavar="T,...",
        help="token counts that are measured (default: 1,16,64,256,1024,4096)",
    )
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="about how long to measure (default: 60)")
    parser.set_defaults(run=_run)
