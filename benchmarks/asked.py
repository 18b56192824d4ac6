# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What moec makes of the layers of asked.json: time to compile, size, and expected times on an H200.

    python benchmarks/asked.py [--layers=gemma4,lfm2_*] [--output=FILE.json]

Users of other libraries asked for these layers in public, mostly since no tuned config had them. Each is compiled for
sm_90a by a new process without a cache. The machine should do nothing else meanwhile. `moe-bench --table=asked.json`
measures the layers on a GPU; scripts/results-table puts both records into one table."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time

TABLE = pathlib.Path(__file__).with_name("asked.json")
BINARIES = pathlib.Path(os.environ.get("MOEC_BIN_DIR", TABLE.parents[1] / "build-release/bin"))


def run(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True).stdout


def examine(name: str, tokens: list[int], folder: pathlib.Path) -> dict[str, object]:
    spec, package = folder / "layer.json", folder / "layer.moepkg"
    spec.write_text(run(BINARIES / "moe-bench", f"--data={TABLE.parent}", f"--table={TABLE.name}", f"--rows={name}",
                        "--spec"))
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(BINARIES / "moe-compile", spec, "--target=sm_90a", "-o", package)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    counts = ",".join(map(str, tokens))
    expected = json.loads(run(BINARIES / "moe-compile", spec, "--target=sm_90a", "--device-part=h200", "--explain=json",
                              f"--tokens={counts}"))
    return {"layer": name, "compile_seconds": wall,
            "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "package_bytes": package.stat().st_size, "weight_bytes": expected["weight_bytes"],
            "times": [{key: time[key] for key in ("tokens", "us", "floor_us", "workspace_bytes")}
                      for time in expected["times"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="*", help="patterns of names, with commas between them")
    parser.add_argument("--commit", default="", help="recorded with the result")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    table = json.loads(TABLE.read_text())
    patterns = options.layers.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in table["rows"]:
            if any(fnmatch.fnmatch(row["layer"], pattern) for pattern in patterns):
                rows.append(examine(row["layer"], row["tokens"], pathlib.Path(folder)))
                print(f"{row['layer']:24} {rows[-1]['compile_seconds']:6.2f} s "
                      f"{rows[-1]['package_bytes'] / 1e6:6.2f} MB", flush=True)
    if not rows:
        parser.error(f"--layers: no layer of {TABLE.name} has a name like '{options.layers}'")
    if options.output:
        record = {"benchmark": "asked", "commit": options.commit, "date": datetime.date.today().isoformat(),
                  "cores": os.cpu_count(), "target": "sm_90a", "rows": rows}
        options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
