# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several GPUs of one machine, or ranks that share one: are they right, how fast, and what do they do when one fails?

    python benchmarks/scale_out [--bundle=FOLDER] [--gpus=N] [--only=PART,...] [--exchange=ENGINE,...] [--json=FILE]

Needs the driver, libnccl.so.2 (MOERT_NCCL_LIBRARY, or the wheel nvidia-nccl), Python 3 with NumPy, and a
bundle, of which it is a part (or MOEC_BIN_DIR of a build). Parts:

    correctness   every mesh of all GPUs against the float64 reference, then 10,000 runs in all, whose
                  results have to have the bits of the first with their inputs
    features      the same of what layers over ranks may have beside: parts of tokens, replicas, zero experts, formats,
                  rows that are copied, a combine by columns, processes, experts that move
    drills        a rank is killed, stopped, leaves a call out or has another package
    exchange      dispatch and combine of DeepSeek-V3 rows, beside NCCL with as many bytes, on 2, 4, ... GPUs
    all-to-all    (where --only names it) the same of rows that go to their destination ranks alone by NCCL's messages, as
                  many as there are and in blocks with a capacity, beside all rows to all; of such rows with one expert each, too
    layers        dsv3, qwen3_235b and kimi_k2: together, kernels alone, exchange alone, and one GPU

With one GPU (--gpus=1, or no more are there) ranks share it, each with its streams and its share of the
multiprocessors, and rows go by peer: every mesh of 2 and 4 ranks, features of 2, drills of processes that are
killed or stopped, and the exchange beside copies of the same bytes.

Rows go by NCCL and, but for drills and layers, by kernels of the layer through the memory of other GPUs
(peer), unless --exchange names one. Each part has a limit of time, and one that fails leaves the others.
--device=host tries all but the drills
without a GPU: ranks are threads, sizes tiny. The exit code is 0 where all that was asked for was measured and
is right.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from all_to_all import time_all_to_all  # noqa: E402
from drills import run_drills  # noqa: E402
from features import check_features  # noqa: E402
from machine import Failed, Gpus, Tools, describe_nccl, find_gpus, find_nccl, find_tools  # noqa: E402
from parts import ENGINES, INVARIANT, LAYERS, Part, check_meshes, time_exchange, time_layers  # noqa: E402
from shared import check_shared_meshes, run_shared_drills, time_shared_exchange  # noqa: E402
from tables import print_part  # noqa: E402

#: Seconds of each part; those of DEFAULT together less than 10 minutes.
SECONDS = {"correctness": 120, "features": 150, "drills": 120, "exchange": 50, "all-to-all": 60, "layers": 155}
#: Parts that run unless --only names others.
DEFAULT = tuple(name for name in SECONDS if name != "all-to-all")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scale-out", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", help="a bundle's folder; by default what this file is a part of")
    parser.add_argument("--gpus", type=int, help="how many to use (default: all)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*DEFAULT], metavar="PART,...",
                        help=f"of {', '.join(SECONDS)} (default: all but all-to-all)")
    parser.add_argument("--exchange", type=lambda text: text.split(","), default=list(ENGINES), metavar="ENGINE,...",
                        help=f"of {', '.join(ENGINES)} (default: both)")
    parser.add_argument("--layers", type=lambda text: text.split(","), default=list(LAYERS), metavar="LAYER,...",
                        help=f"whole layers that are timed, of {', '.join(LAYERS)} (default: all), and of these with "
                             f"batch_invariant: {', '.join(INVARIANT)}")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="where to write the record, after each row")
    parser.add_argument("--commit", default="unknown", help="of the bundle, for the record")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.only if name not in SECONDS]:
        parser.error(f"--only: '{unknown[0]}' is none of {', '.join(SECONDS)}")
    if unknown := [name for name in options.exchange if name not in ENGINES]:
        parser.error(f"--exchange: '{unknown[0]}' is none of {', '.join(ENGINES)}")
    if unknown := [name for name in options.layers if name not in LAYERS | INVARIANT]:
        parser.error(f"--layers: '{unknown[0]}' is none of {', '.join(LAYERS | INVARIANT)}")
    if options.gpus is not None and options.gpus < 1:
        parser.error("--gpus: 1 or more expected")
    return options


def counts_up_to(gpus: int) -> list[int]:
    """2, 4, 8, ... and the number itself."""
    counts, count = [], 2
    while count < gpus:
        counts.append(count)
        count *= 2
    return [*counts, gpus]


def run_shared_part(name: str, part: Part, engines: list[str], notes: list[str]) -> Iterator[dict]:
    """For ranks that share the GPU."""
    if name in ("layers", "all-to-all") or (name != "features" and "peer" not in engines):
        notes.append("not run: it needs 2 GPUs")
    elif name == "features":
        if "nccl" in engines:
            notes.append("in place of NCCL, rows go through host memory, without graphs")
        yield from check_features(part, engines)
    else:
        yield from {"correctness": check_shared_meshes, "drills": run_shared_drills,
                    "exchange": time_shared_exchange}[name](part)


def run_part(name: str, tools: Tools, gpus: int, options: argparse.Namespace, notes: list[str]) -> Iterator[dict]:
    until, tiny = time.monotonic() + SECONDS[name], tools.device == "host"
    # Without GPUs ranks copy each other's data.
    engines = ["nccl"] if tiny else options.exchange
    if tools.shares_gpu:
        yield from run_shared_part(name, Part(tools, 2, until, tiny, engine="peer"), engines, notes)
        return
    if name == "all-to-all" and (tiny or "nccl" not in engines):
        notes.append("not run: its messages are NCCL's, between GPUs")
        return
    if name == "drills":
        if tiny:
            notes.append("not run: drills are of GPUs")
            return
        yield from run_drills(tools, gpus, until)
        return
    run = {
        "correctness": lambda part: (row for engine in engines for row in check_meshes(replace(part, engine=engine))),
        "features": lambda part: check_features(part, engines),
        "exchange": lambda part: time_exchange(part, tuple(engines)),
        "all-to-all": time_all_to_all,
        "layers": lambda part: time_layers(replace(part, engine=engines[0]), options.layers),
    }[name]
    # The largest first: with less time the others are omitted.
    counts = [gpus] if name in ("correctness", "features", "all-to-all") else counts_up_to(gpus)[::-1]
    for count in counts:
        yield from run(Part(tools, count, until, tiny))


def find_device(options: argparse.Namespace, record: dict) -> tuple[int, int]:
    """The number of GPUs, and the multiprocessors of one that ranks share; 0 if each has its own."""
    if options.device == "host":
        record.update(device="host", nccl="none: ranks are threads", gpus=options.gpus or 2)
        return record["gpus"], 0
    found: Gpus = find_gpus()
    gpus = min(len(found.names), options.gpus or len(found.names))
    record.update(device=f"{gpus} x {found.names[0]}" if gpus else "none", gpus=gpus)
    if not gpus:
        record["notes"].append(f"no GPU: {found.error or 'the driver counts none'}")
    elif options.gpus and options.gpus > gpus:
        record["notes"].append(f"{options.gpus} GPUs were asked for, {gpus} are there; those are measured")
    if apart := [pair for pair in found.apart if max(pair) < gpus]:
        record["notes"].append("without peer access, so that NCCL goes through host memory: "
                               + ", ".join(f"{a} to {b}" for a, b in apart))
    record["nccl"] = describe_nccl(find_nccl())
    print(f"{record['nccl']} ({find_nccl()})", flush=True)
    return gpus, found.multiprocessors if gpus == 1 else 0


def is_right(part: dict) -> bool:
    return not part["notes"] and bool(part["rows"]) and all(
        row.get("ok", "error" not in row) for row in part["rows"])


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    begin = time.monotonic()
    record = {"benchmark": "scale_out", "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
              "commit": options.commit, "notes": [], "parts": {}}
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="moec-scale-out-"))
    try:
        gpus, shared = find_device(options, record)
        tools = find_tools(options.bundle, scratch, "cuda:0" if shared else options.device, find_nccl())
        tools.multiprocessors = shared
        version = subprocess.run([tools.binaries / "moe-run", "--version"], text=True, capture_output=True, check=True)
        record["moec"] = version.stdout.strip().splitlines()[0]
        for note in (f"{record['device']}, {record['nccl']}, {record['moec']}", *record["notes"], ""):
            print(note, flush=True)
        for name in SECONDS:
            if name not in options.only or not gpus:
                continue
            part = record["parts"][name] = {"notes": [], "rows": [], "seconds": 0.0}
            started = time.monotonic()

            def keep(part=part, started=started) -> None:
                now = time.monotonic()
                part["seconds"], record["seconds"] = round(now - started, 1), round(now - begin, 1)
                if options.json:
                    half = options.json.with_name(options.json.name + ".part")
                    half.write_text(json.dumps(record, indent=1) + "\n")
                    half.replace(options.json)

            try:
                for row in run_part(name, tools, gpus, options, part["notes"]):
                    part["rows"].append(row)
                    keep()
            except Exception as error:  # Whatever the error is, the other parts are measured.
                traceback.print_exc()
                part["notes"].append(f"failed: {error!r}")
            keep()
            print(print_part(name, part), flush=True)
    except Failed as error:
        sys.exit(f"scale-out: error: {error}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    all_right = bool(record["parts"]) and all(is_right(part) for part in record["parts"].values())
    print("all is right" if all_right and not record["notes"] else "NOT all is right or measured: see above")
    return 0 if all_right and not record["notes"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
