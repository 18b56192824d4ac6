# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs NVIDIA's ncu (Nsight Compute) for counters.py: lists its metrics, profiles, and parses its output."""

import csv
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess

# Folders of NVIDIA's packages.
FOLDERS = ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/nsight-compute*")

# By our name: the kind of number, and the metrics that provide it, the best first. Names differ between
# versions. The list is short and uses few units of the chip, so that each kernel is replayed only a few
# times.
METRICS = {
    "us": ("us", ["gpu__time_duration.sum", "gpu__time_active.sum"]),
    # Cycles of the pipe: instruction counts of wgmma say little, because an instruction takes as many cycles
    # as it is wide.
    "tensor": ("percent", ["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                           "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_active",
                           "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
                           "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"]),
    "dram_read": ("bytes", ["dram__bytes_read.sum"]),
    "dram_write": ("bytes", ["dram__bytes_write.sum"]),
    "dram": ("percent", ["dram__throughput.avg.pct_of_peak_sustained_elapsed",
                         "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]),
    "l2": ("percent", ["lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
                       "lts__throughput.avg.pct_of_peak_sustained_elapsed"]),
    "to_sm": ("bytes", ["l1tex__m_xbar2l1tex_read_bytes.sum"]),
    "to_sm_share": ("percent", ["l1tex__m_xbar2l1tex_read_bytes.sum.pct_of_peak_sustained_elapsed",
                                "l1tex__m_xbar2l1tex_read_sectors.sum.pct_of_peak_sustained_elapsed"]),
    "shared": ("percent", ["l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed",
                           "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"]),
    "issue": ("percent", ["sm__inst_issued.avg.pct_of_peak_sustained_active",
                          "smsp__issue_active.avg.pct_of_peak_sustained_active"]),
    "mhz": ("mhz", ["sm__cycles_elapsed.avg.per_second", "gpc__cycles_elapsed.avg.per_second"]),
    "active_cycles": ("cycles", ["sm__cycles_active.avg"]),
    "cycles": ("cycles", ["sm__cycles_elapsed.max", "gpc__cycles_elapsed.max"]),
}
# The metrics to fall back to if ncu refuses others without naming them.
FEWEST = ("us", "dram_read", "dram_write")

# Factors to microseconds, bytes, percent, MHz, cycles; "" is the unit of --print-units=base.
UNITS = {
    "us": {"": 1e-3, "ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3,
           "s": 1e6, "second": 1e6},
    "bytes": {"": 1, "byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12},
    "percent": {"": 1, "%": 1},
    "mhz": {"": 1e-6, "hz": 1e-6, "khz": 1e-3, "mhz": 1, "ghz": 1e3, "cycle/second": 1e-6,
            "cycle/s": 1e-6, "cycle/usecond": 1, "cycle/us": 1, "cycle/nsecond": 1e3,
            "cycle/ns": 1e3},
    "cycles": {"": 1, "cycle": 1, "kcycle": 1e3, "mcycle": 1e6},
}


class NcuError(Exception):
    """Raised if ncu cannot measure at all."""


def find(given: str | None) -> str:
    if given:
        if path := shutil.which(given):
            return path
        raise NcuError(f"there is no '{given}'")
    if path := shutil.which("ncu"):
        return path
    found = [str(path) for pattern in FOLDERS for path in pathlib.Path("/").glob(f"{pattern[1:]}/ncu")
             if os.access(path, os.X_OK)]
    if not found:
        raise NcuError("there is no ncu, neither in PATH nor in " + ", ".join(FOLDERS)
                       + "; it is part of NVIDIA's package nsight-compute; --ncu says where it is")
    # The newest version, by its folder's name.
    return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path)])


def output(command: list[str], seconds: float, path: pathlib.Path | None = None) -> tuple[int, str]:
    """Runs a command; returns the exit code and the output (-1 and the reason if it was ended). Its children
    are ended with it."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 errors="replace", env=environment, start_new_session=True)
    except OSError as error:
        return -1, f"{command[0]}: {error.strerror}"
    try:
        text = child.communicate(timeout=seconds)[0]
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        text = child.communicate()[0] + f"\n==ERROR== ended after {seconds:.0f} s"
        code = -1
    if path and path.exists():
        text += "\n" + path.read_text(errors="replace")
    return code, text


def version(ncu: str) -> str:
    match = re.search(r"Version (\S+)", output([ncu, "--version"], 60)[1])
    return match.group(1) if match else "unknown"


def query(ncu: str) -> set[str]:
    """The metrics that ncu knows, without the suffix after the point; empty if it lists none."""
    for chip in (["--chips", "gh100"], []):
        text = output([ncu, "--query-metrics", *chip], 60)[1]
        names = set(re.findall(r"^\s*([a-z0-9]+__\w+)", text, re.MULTILINE))
        if len(names) > 50:
            return names
    return set()


def choose(known: set[str]) -> dict[str, str]:
    """Chooses a metric for each of our names: the first that ncu lists, else the first, which it may know
    even if it does not list it."""
    return {key: next((name for name in names if name.split(".")[0] in known), names[0])
            for key, (_, names) in METRICS.items()}


def command(ncu: str, metrics: dict[str, str], kernels: list[str], skip: int, count: int,
            log: pathlib.Path, cache_control: str, program: list[str]) -> list[str]:
    names = "|".join(re.escape(name) for name in dict.fromkeys(kernels))
    return [ncu, "--target-processes", "application-only", "--clock-control", "none",
            "--cache-control", cache_control, "--csv", "--page", "raw", "--print-units", "base",
            "--metrics", ",".join(dict.fromkeys(metrics.values())), "--kernel-name", f"regex:^({names})$",
            "--launch-skip", str(skip), "--launch-count", str(count), "--log-file", str(log), *program]


def number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        # "n/a": the metric does not exist in this version or on this chip.
        return None
    return value if math.isfinite(value) else None


def convert(key: str, text: str, unit: str) -> float | None:
    value = number(text)
    scale = UNITS[METRICS[key][0]].get(unit.strip().lower())
    return None if value is None or scale is None else value * scale


def parse(text: str, metrics: dict[str, str]) -> list[dict]:
    """Parses the output of --csv: per launch, in order, its kernel and the values of our metrics. Reads both
    forms: --page=raw with a column per metric and a line of units, and a line per metric."""
    launches: dict[str, dict] = {}
    columns: list[str] = []
    units: dict[str, str] = {}
    for cells in csv.reader(line for line in text.splitlines() if line.lstrip().startswith('"')):
        if cells and cells[0] == "ID":
            columns, units = cells, {}
            continue
        if not columns or len(cells) < 2:
            continue
        row = dict(zip(columns, cells))
        if not row["ID"].strip():
            units = row
            continue
        if not row.get("Kernel Name"):
            continue
        # Each process counts its launches from zero.
        launch = launches.setdefault(f"{row.get('Process ID')} {row['ID']}",
                                     {"kernel": row["Kernel Name"].split("(")[0].strip()})
        for key, name in metrics.items():
            if name in row:
                value = convert(key, row[name], units.get(name, ""))
            elif row.get("Metric Name") == name:
                value = convert(key, row.get("Metric Value", ""), row.get("Metric Unit", ""))
            else:
                continue
            if value is not None:
                launch[key] = value
    return list(launches.values())


def count_passes(text: str) -> int:
    """The most passes of any kernel."""
    return max(map(int, re.findall(r"(\d+) pass(?:es)?\b", text)), default=0)


def explain(text: str) -> str:
    """Summarizes the errors in ncu's output."""
    if "ERR_NVGPUCTRPERM" in text:
        raise NcuError("the driver lets only root read counters (ERR_NVGPUCTRPERM): run as root, or "
                       "load the driver with NVreg_RestrictProfilingToAdminUsers=0")
    lines = re.findall(r"^==(?:ERROR|WARNING)== (.*)", text, re.MULTILINE)
    return "; ".join(dict.fromkeys(line.strip() for line in lines))[:300] or "ncu measured no kernel"


def refused(text: str, metrics: dict[str, str]) -> list[str]:
    """The names of our metrics that an error mentions."""
    errors = "\n".join(line for line in text.splitlines() if "metric" in line.lower()
                       and re.search(r"==ERROR==|==WARNING==|not |fail|invalid|unknown", line, re.IGNORECASE)
                       and not line.lstrip().startswith('"'))
    return [key for key, name in metrics.items()
            if re.search(rf"(?<!\w){re.escape(name)}(?![\w.])|(?<!\w){re.escape(name.split('.')[0])}(?![\w.])",
                         errors)]
