# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of a record of counters.py: the share of the GPU's resources that each kernel uses, and its
bound."""

# Below this time in microseconds a kernel consists of launch, first loads and last stores.
FIXED_US = 10
# Shares from which on a resource counts as a bound: for memory a share of the record's read bandwidth, for
# others a share of the chip's peaks, which are never fully reached.
BOUNDS = {"tensor cores": 0.75, "memory": 0.80, "cache": 0.75, "shared memory": 0.80, "issue slots": 0.75}
# Active multiprocessors, as a mean over the kernel's time; below this share the tail is a bound.
TAIL_ACTIVE = 0.85
# The power limit is a bound if the sustained run has a lower clock and more watts than these.
POWER_MHZ, POWER_WATTS = 1600, 650
# The power limit slows all kernels; it is reported for those with at least this share of the run.
POWER_SHARE = 0.1


def percent(kernel: dict, *keys: str) -> float | None:
    values = [kernel[key] / 100 for key in keys if kernel.get(key) is not None]
    return max(values, default=None)


def moved(kernel: dict) -> float | None:
    """Bytes read from and written to memory."""
    if kernel.get("dram_read") is None or kernel.get("dram_write") is None:
        return None
    return kernel["dram_read"] + kernel["dram_write"]


def per_second(count: float | None, kernel: dict) -> float | None:
    return count / (kernel["us"] * 1e-6) if count is not None and kernel.get("us") else None


def active(kernel: dict) -> float | None:
    if kernel.get("active_cycles") is None or not kernel.get("cycles"):
        return None
    return kernel["active_cycles"] / kernel["cycles"]


def shares(kernel: dict, bandwidth: float | None) -> dict[str, float]:
    """The used share of each resource; resources that were not measured are absent."""
    rate = per_second(moved(kernel), kernel)
    memory = rate / bandwidth if rate is not None and bandwidth else percent(kernel, "dram")
    found = {"tensor cores": percent(kernel, "tensor"), "memory": memory,
             "cache": percent(kernel, "l2", "to_sm_share"),
             "shared memory": percent(kernel, "shared"), "issue slots": percent(kernel, "issue")}
    return {name: share for name, share in found.items() if share is not None}


def bounds(kernel: dict, row: dict, bandwidth: float | None) -> str:
    """Names the bounds, from the counters only."""
    if kernel.get("us") is None:
        return ""
    if kernel["us"] < FIXED_US:
        return "fixed costs"
    found = shares(kernel, bandwidth)
    words = sorted((name for name in found if found[name] >= BOUNDS[name]), key=lambda name: -found[name])
    if (share := active(kernel)) is not None and share < TAIL_ACTIVE:
        words.append("tail")
    clocks = row.get("clocks") or {}
    if (clocks.get("sm_mhz", POWER_MHZ) < POWER_MHZ and clocks.get("watts", 0) > POWER_WATTS
            and run_share(kernel, row) >= POWER_SHARE):
        words.append("power")
    if words or not found:
        return ", ".join(words)
    most = max(found, key=lambda name: found[name])
    return f"none of these (most: {most}, {found[most]:.2f})"


def run_share(kernel: dict, row: dict) -> float:
    total = sum(each.get("us") or 0 for each in row["kernels"])
    return (kernel.get("us") or 0) / total if total else 0


def mover_share(kernel: dict, bandwidth: float | None) -> float | None:
    """For a kernel without multiplications: the time of its least bytes at full bandwidth over its time."""
    if kernel.get("operations") != 0 or not bandwidth:
        return None
    rate = per_second(kernel.get("bytes"), kernel)
    return None if rate is None else rate / bandwidth


def cell(value: float | None, form: str = ".2f", scale: float = 1) -> str:
    return "" if value is None else format(value * scale, form)


def kernel_line(kernel: dict, row: dict, bandwidth: float | None) -> str:
    found = shares(kernel, bandwidth)
    cells = [
        kernel["kernel"], cell(kernel.get("us"), ".1f"), f"{run_share(kernel, row):.2f}",
        cell(found.get("tensor cores")), cell(found.get("memory")), cell(moved(kernel), ".1f", 1e-6),
        cell(found.get("cache")), cell(per_second(kernel.get("to_sm"), kernel), ".1f", 1e-12),
        cell(found.get("shared memory")), cell(found.get("issue slots")), cell(active(kernel)),
        cell(kernel.get("mhz"), ".0f"), cell(mover_share(kernel, bandwidth)), bounds(kernel, row, bandwidth)]
    return " | ".join(cells)


def row_cells(row: dict) -> str:
    lines = row.get("lines") or {}
    texts = []
    for key, unit in (("fraction", ""), ("speedup", "x")):
        if row.get(key) is not None and key in lines:
            texts.append(f"{row[key]:.3f}{unit} ({lines[key]:g}{unit})")
    clocks = row.get("clocks") or {}
    sustained = ", ".join(f"{clocks[key]:.0f} {unit}" for key, unit in (("sm_mhz", "MHz"), ("watts", "W"))
                          if clocks.get(key) is not None)
    return f"{row['row']} | {', '.join(texts)} | {sustained}"


def table(record: dict) -> list[str]:
    bandwidth = record.get("bandwidth")
    of = record.get("record") or {}
    lines = [
        f"{record.get('device')} (driver {record.get('driver')}, {str(record.get('date'))[:10]}, commit "
        f"{record.get('commit')}; `benchmarks/counters.py`, ncu {record.get('ncu')}): one run of each row, "
        "kernel by kernel, caches empty before each. Fractions, speedups (in brackets their lines), clock and "
        f"watts are those of the record of moe-bench (commit {of.get('commit')}). Shares: tensor cores, cache "
        "(the second level, or the way from there), shared memory and issue slots of their peaks, memory and "
        f"`moves` of {cell(bandwidth, '.2f', 1e-12)} TB/s: memory by the bytes that were counted, `moves` by "
        "those that a kernel without products has to read and write. SMs: multiprocessors at work, on average.",
        "",
        "| row | of floor, speedup | sustained | kernel | us | of run | tensor | memory | MB | cache | to SMs TB/s | "
        "shared | issue | SMs | MHz | moves | what bounds |",
        "|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in record["rows"]:
        if row.get("status") != "measured":
            continue
        head = row_cells(row)
        for kernel in row["kernels"]:
            lines.append(f"| {head} | {kernel_line(kernel, row, bandwidth)} |")
            head = " | | "
    left = [row["row"] for row in record["rows"] if row.get("status") != "measured"]
    if left:
        lines += ["", f"Not measured: {', '.join(left)}."]
    return lines
