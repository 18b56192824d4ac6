# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec info: what a report of a fault needs to say about the machine."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from ..engine_plugin import ENGINES
from . import cache, get_library

#: Instructions that kernels for the CPU may use, as Linux names them.
_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
_PACKAGES = ("torch", "transformers", "numpy", "jax")


def _describe_version() -> str:
    from .. import _core

    return _core.version


def _describe_library() -> str:
    path = get_library()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"{path} (SHA-256 {digest}...)"


def _describe_cpu() -> str:
    text = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.M)
    known = set(flags[1].split()) if flags else set()
    own = " ".join(name for name in _INSTRUCTIONS if name in known)
    cores = len(os.sched_getaffinity(0))
    return f"{model[1] if model else platform.machine()}, {cores} of {os.cpu_count()} cores, {own or 'no AVX2'}"


def _describe_rates() -> str:
    rates = cache.read_rates()
    if rates is None:
        return "not measured yet; moec fit MODEL --gpu=cpu measures them"
    best = [f"{label} {max(rates[name] for name in names) / 1e12:.2f} T/s" for label, names in (
        ("f32", ("fma",)), ("bf16", ("bf16_pairs", "bf16_tiles")), ("int8", ("int8_quads", "int8_tiles")),
    ) if max(rates[name] for name in names) > 0]
    return f"{rates['reads'][-1][1] / 1e9:.1f} GB/s, {', '.join(best)} ({rates['cpu']})"


def _describe_driver() -> str:
    try:
        text = pathlib.Path("/proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return "no NVIDIA driver is loaded (/proc/driver/nvidia/version is missing)"
    version = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return version[1] if version else text.splitlines()[0]


def _describe_gpus() -> list[str]:
    from .. import _core
    from ..compiler import find_device

    gpus: list[str] = []
    while True:
        try:
            gpus.append(find_device(len(gpus)).name)
        except _core.Error as error:
            return gpus or [f"none: {error}"]


def _describe_ptxas() -> str:
    """The rule is that of findPtxas() (lib/Target/NVPTX/Assemble.cpp)."""
    path = os.environ.get("MOEC_PTXAS") or shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if not path:
        return "none: the driver assembles PTX"
    try:
        done = subprocess.run([path, "--version"], text=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} does not run: {error}"
    version = re.search(r"\bV(\d[\d.]*)", done.stdout)
    return f"{version[1] if version else 'of unknown version'} ({path})"


def _describe_nccl() -> str:
    name = os.environ.get("MOERT_NCCL_LIBRARY") or "libnccl.so.2"
    try:
        number = ctypes.c_int()
        if ctypes.CDLL(name).ncclGetVersion(ctypes.byref(number)):
            return f"{name} does not say its version"
    except (OSError, AttributeError) as error:
        return f"none: {error}"
    major, rest = divmod(number.value, 10000)
    return f"{major}.{rest // 100}.{rest % 100} ({name})"


def _find_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_engine(package: str, supported: str) -> str:
    version = _find_version(package)
    if version is None:
        return "not installed"
    if version.split("+")[0].startswith(supported):
        return f"{version}, which the plugin supports"
    return f"{version}; the plugin supports {supported}, and leaves others as they are"


def _describe_cache() -> str:
    entries = cache.list_entries()
    return f"{cache.find_folder() or 'no home folder'}, {len(entries)} layers, " \
           f"{sum(entry.bytes for entry in entries) / 2**20:.1f} MiB"


def _try(describe: Callable[[], Any]) -> Any:
    """A report is complete even if one line of it cannot be had."""
    try:
        return describe()
    except Exception as error:  # noqa: BLE001
        return f"unknown: {type(error).__name__}: {error}"


def collect() -> dict[str, Any]:
    """Returns the lines of the report by their names; a line is a text or a list of texts."""
    report: dict[str, Any] = {
        "moec": _try(_describe_version),
        "library": _try(_describe_library),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.platform()}, glibc {platform.libc_ver()[1] or 'unknown'}",
        "CPU": _try(_describe_cpu),
        "CPU's rates": _try(_describe_rates),
        "driver": _try(_describe_driver),
        "GPUs": _try(_describe_gpus),
        "ptxas": _try(_describe_ptxas),
        "NCCL": _try(_describe_nccl),
        "cache": _try(_describe_cache),
    }
    for package, supported in ENGINES.items():
        report[package] = _describe_engine(package, supported)
    report |= {package: _find_version(package) or "not installed" for package in _PACKAGES}
    report["variables"] = [
        f"{name}={value}" for name, value in sorted(os.environ.items())
        if name.startswith(("MOEC_", "MOERT_", "CUDA_VISIBLE", "NCCL_")) or name.endswith("_PLUGINS")
    ] or ["none"]
    return report


def _run(options: argparse.Namespace) -> int:
    report = collect()
    if options.json:
        print(json.dumps(report, indent=2))
        return 0
    width = max(map(len, report)) + 2
    for name, value in report.items():
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines):
            print(f"{name if number == 0 else '':{width}}{line}")
    return 0


def add_parser(commands: Any) -> None:
    """Adds `moec info` to the commands."""
    parser = commands.add_parser(
        "info", help="versions, CPU, GPUs, driver, ptxas, NCCL, cache and engines, to paste in a report",
        description="Prints what a report of a fault needs: versions, CPU, GPUs, driver, ptxas, NCCL, the cache, "
                    "engines and the variables that moec reads. Nothing is sent anywhere.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)
