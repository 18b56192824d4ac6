#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hardware counters of each kernel of some rows of moe-bench, by NVIDIA's ncu: what bounds them.

    benchmarks/counters.py --bin=bin --record=benchmarks/results/moe_bench_h200.json --json=counters.json
    benchmarks/counters.py --bin=bin --record=... --rows=qwen3_30b:1,8 --rows='dsv3*:4096'
    benchmarks/counters.py --bin=bin --record=... --rows=dsv3:1 --router    the kernels that a router adds
    benchmarks/counters.py --record=... --list      rows below their lines; measures nothing
    benchmarks/counters.py --table counters.json    the table of a record

Without --rows: those of the record that are below a line of rows.json. A process of moe-bench per row
runs all its sets once, then the first set once more, whose weights have left the caches by then: that
run is measured, each kernel as often as ncu needs (docs/howto/test-and-measure.md). The record is written after each
row. The exit code is 0 only if every row was measured, 1 if one failed, 2 if time did not suffice.
"""

import argparse
import fnmatch
import json
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import counters_table  # noqa: E402
import ncu  # noqa: E402

ROWS = pathlib.Path(__file__).resolve().parent / "rows.json"
# Fields of a row of moe-bench's record that are kept.
KEPT = ("layer", "tokens", "us", "floor_us", "fraction", "sustained_us", "peer_fraction", "speedup", "clocks")
# Time limit of a process that hangs.
ROW_SECONDS = 60


class RowError(Exception):
    """A row that cannot be measured."""


def fits(rule: dict, row: dict) -> bool:
    facts = {"tokens": row.get("tokens"), "peer_fraction": row.get("peer_fraction"),
             # Bytes of the touched experts.
             "weights": row["cold_bytes"] / row["sets"] if row.get("cold_bytes") and row.get("sets") else None}
    return fnmatch.fnmatchcase(row["row"], rule["rows"]) and all(
        facts[key] is not None and rule[key][0] <= facts[key] <= rule[key][1]
        for key in facts if key in rule)


def find_lines(row: dict, lines: dict) -> dict[str, float]:
    """The targets of a row, as the least value per figure; the first rule that fits counts."""
    found = {}
    for figure, rules in lines.items():
        rule = next((rule for rule in rules if fits(rule, row)), None)
        if rule:
            found[figure] = rule["least"]
    return found


def is_below(row: dict, lines: dict) -> bool:
    return any(row.get(figure) is not None and row[figure] < least
               for figure, least in find_lines(row, lines).items())


def select(record: dict, patterns: list[str], lines: dict) -> list[dict]:
    """Rows of the record, and rows that it does not have if a pattern names them in full."""
    rows = [row for row in record["rows"] if row.get("status") == "measured" and row.get("row")]
    if not patterns:
        return [row for row in rows if is_below(row, lines)]
    chosen = []
    for pattern in patterns:
        name, _, tokens = pattern.partition(":")
        names = [f"{name}:{count}" for count in tokens.split(",")] if tokens else [f"{name}:*"]
        for one in names:
            found = [row for row in rows if fnmatch.fnmatchcase(row["row"], one)]
            if not found and any(letter in one for letter in "*?["):
                raise ncu.NcuError(f"--rows: '{pattern}' names no row of the record")
            chosen += found or [{"row": one}]
    return list({row["row"]: row for row in chosen}.values())


class Counters:
    def __init__(self, program: str, profiler: str, cache_control: str, folder: pathlib.Path, router: bool):
        self.program, self.profiler, self.cache_control, self.folder = program, profiler, cache_control, folder
        self.router = router
        self.metrics = ncu.choose(ncu.query(profiler))
        self.passes = 0
        # The head of moe-bench's record, once it has run.
        self.about: dict = {}

    def moe_bench(self, name: str) -> list[str]:
        (self.folder / "row.json").unlink(missing_ok=True)
        return [self.program, "--profile", "--untimed", "--yardstick=none", f"--rows={name}",
                f"--json={self.folder / 'row.json'}"] + ["--router"] * self.router

    def launches(self, row: dict) -> list[dict]:
        """The measured launches of a run: all, or only those that a router adds."""
        if not self.router:
            return row["launches"]
        others = {launch["kernel"] for launch in row["launches"]}
        return [launch for launch in row.get("router_launches", []) if launch["kernel"] not in others]

    def read_row(self, name: str, text: str) -> dict:
        """Reads the row that moe-bench recorded."""
        try:
            record = json.loads((self.folder / "row.json").read_text())
            row = next(row for row in record["rows"] if row["row"] == name)
        except (OSError, ValueError, KeyError, StopIteration):
            lines = [line for line in text.splitlines() if "error" in line.lower()] or text.splitlines()
            raise RowError("moe-bench has no record of it: " + " ".join(lines[-2:])[:300]) from None
        self.about = {key: record.get(key) for key in ("commit", "device", "driver", "target", "date")}
        if row.get("status") != "measured" or not row.get("launches"):
            reason = row.get("reason", "its record has no launches; is it older than this script?")
            raise RowError("moe-bench: " + " ".join(reason.split())[:300])
        return row

    def describe(self, name: str) -> dict:
        _, text = ncu.output(self.moe_bench(name), ROW_SECONDS)
        return self.read_row(name, text)

    def run(self, name: str, kernels: list[str], sets: int) -> tuple[list[dict], dict, str]:
        """Returns launches with their counters, moe-bench's record of the row, and an error text."""
        log = self.folder / "ncu.csv"
        log.unlink(missing_ok=True)
        _, text = ncu.output(
            ncu.command(self.profiler, self.metrics, kernels, sets * len(kernels), len(kernels), log,
                        self.cache_control, self.moe_bench(name)), ROW_SECONDS, log)
        launches = ncu.parse(text, self.metrics)
        if not launches:
            why = ncu.explain(text)
            if self.drop(text):
                return self.run(name, kernels, sets)
            # Kernels may have been renamed since the record; moe-bench reports the present ones.
            return [], self.read_row(name, f"{text}\nerror: {why}"), why
        self.passes = max(self.passes, ncu.count_passes(text))
        return launches, self.read_row(name, text), ""

    def drop(self, text: str) -> bool:
        """Permanently removes metrics that ncu refuses; returns False if the failure has another cause."""
        names = ncu.refused(text, self.metrics)
        if not names and "metric" in ncu.explain(text).lower():
            names = [key for key in self.metrics if key not in ncu.FEWEST]
        for key in names:
            del self.metrics[key]
        return bool(names) and bool(self.metrics)

    def measure(self, row: dict) -> list[dict]:
        """The kernels of a row in launch order, with their counters and work."""
        name = row["row"]
        kernels, sets = row.get("kernels"), row.get("sets")
        if self.router or not kernels or not sets:
            described = self.describe(name)
            kernels, sets = [launch["kernel"] for launch in self.launches(described)], described["sets"]
            if not kernels:
                raise RowError("moe-bench has no kernels of a router in it")
            row.setdefault("tokens", described.get("tokens"))
            row.setdefault("layer", described.get("layer"))
        for _ in range(2):
            launches, described, why = self.run(name, kernels, sets)
            expected = [launch["kernel"] for launch in self.launches(described)]
            if sorted(expected) == sorted(launch["kernel"] for launch in launches):
                return merge(self.launches(described), launches)
            # The record may be of another build: retry with the kernels of this one.
            if (kernels, sets) == (expected, described["sets"]):
                break
            kernels, sets = expected, described["sets"]
        seen = ", ".join(launch["kernel"] for launch in launches) or why
        raise RowError(f"a run has the kernels {', '.join(expected)}, ncu measured: {seen}")


def merge(described: list[dict], launches: list[dict]) -> list[dict]:
    left = list(launches)
    kernels = []
    for launch in described:
        found = next(one for one in left if one["kernel"] == launch["kernel"])
        left.remove(found)
        kernels.append(launch | found)
    return kernels


def rounded(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def write(record: dict, path: pathlib.Path | None) -> None:
    """Writes a line per row."""
    if not path:
        return
    head = json.dumps({key: value for key, value in record.items() if key != "rows"}, indent=1)
    rows = ",\n".join(json.dumps(rounded(row)) for row in record["rows"])
    path.write_text(f'{head.removesuffix("}").rstrip()},\n "rows": [\n{rows}\n]}}\n')


def measure(options: argparse.Namespace, record: dict, rows: list[dict], lines: dict) -> int:
    begin = time.monotonic()
    program = pathlib.Path(options.bin) / "moe-bench"
    if not program.exists():
        raise ncu.NcuError(f"{program} is not there; --bin says where moe-bench is")
    profiler = ncu.find(options.ncu)
    results = {"benchmark": "counters", "ncu": ncu.version(profiler),
               "record": {key: record.get(key) for key in ("commit", "date", "device")},
               "bandwidth": (record.get("ceilings") or {}).get("bandwidth"), "rows": []}
    failed = left = 0
    with tempfile.TemporaryDirectory() as folder:
        counters = Counters(str(program.resolve()), profiler, options.cache_control, pathlib.Path(folder),
                            options.router)
        print(f"ncu {results['ncu']}, {len(rows)} rows, {len(counters.metrics)} metrics", flush=True)
        for row in rows:
            started = time.monotonic()
            if started - begin > options.seconds:
                left += 1
                results["rows"].append({"row": row["row"], "status": "left", "reason": "no time left"})
                continue
            result = {"row": row["row"] + " with router" * options.router, "status": "measured"}
            try:
                kernels = counters.measure(row)
                kept = ("layer", "tokens") if options.router else KEPT
                result |= {key: row[key] for key in kept if row.get(key) is not None}
                result |= {"lines": {} if options.router else find_lines(row, lines), "kernels": kernels}
                said = ", ".join(f"{kernel['kernel']} {kernel.get('us', 0):.1f} us" for kernel in kernels)
            except RowError as error:
                failed += 1
                result |= {"status": "failed", "reason": str(error)}
                said = f"failed: {error}"
            result["seconds"] = time.monotonic() - started
            results["rows"].append(result)
            results |= counters.about
            results |= {"cache_control": options.cache_control, "metrics": counters.metrics,
                        "missing": [key for key in ncu.METRICS if not any(
                            key in kernel for one in results["rows"] for kernel in one.get("kernels", []))],
                        "passes": counters.passes, "seconds": round(time.monotonic() - begin, 1)}
            write(results, options.json)
            print(f"{result['row']}: {said} ({result['seconds']:.1f} s)", flush=True)
    write(results, options.json)
    print("\n".join(["", *counters_table.table(results)]))
    if results.get("missing"):
        print(f"not measured by this ncu: {', '.join(results['missing'])}")
    print(f"{len(rows) - failed - left} of {len(rows)} rows measured, in {time.monotonic() - begin:.0f} s")
    return 1 if failed else 2 if left else 0


def list_rows(rows: list[dict], lines: dict) -> int:
    for row in rows:
        texts = [f"{figure} {row[figure]:.3f} of {least:g}" for figure, least in find_lines(row, lines).items()
                 if row.get(figure) is not None]
        print(f"{row['row']}: {', '.join(texts)}")
    return 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin", help="where moe-bench is (default: bin)")
    parser.add_argument("--record", type=pathlib.Path, default=ROWS.parent / "results/moe_bench_h200.json",
                        help="of moe-bench: the rows, their clocks and kernels")
    parser.add_argument("--rows", action="append", default=[], metavar="NAME[:TOKENS,...]",
                        help="these rows, as moe-bench takes them; may be given several times")
    parser.add_argument("--router", action="store_true",
                        help="measure the kernels that the layer with its router has and the layer from ids "
                             "has not")
    parser.add_argument("--json", type=pathlib.Path, help="where to record; written after each row")
    parser.add_argument("--ncu", help="Nsight Compute's program (default: that of PATH or of CUDA)")
    parser.add_argument("--cache-control", choices=("all", "none"), default="all",
                        help="for ncu: empty the caches before each run of a kernel (default), or leave what "
                             "its run before left there")
    parser.add_argument("--seconds", type=float, default=150, help="begin no row after so long (default: 150)")
    parser.add_argument("--list", action="store_true", help="print the rows and stop")
    parser.add_argument("--table", type=pathlib.Path, help="print the table of this record and stop")
    return parser.parse_args()


def read(path: pathlib.Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ncu.NcuError(f"{path}: {error}") from None


def main() -> int:
    options = parse_options()
    try:
        if options.table:
            print("\n".join(counters_table.table(read(options.table))))
            return 0
        lines = read(ROWS)["lines"]
        record = read(options.record)
        rows = select(record, options.rows, lines)
        return list_rows(rows, lines) if options.list else measure(options, record, rows, lines)
    except ncu.NcuError as error:
        print(f"counters.py: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
