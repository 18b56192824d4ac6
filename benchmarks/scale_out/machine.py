# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine: its GPUs, its NCCL, the programs of a bundle or of a build folder."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

#: NVLink multicast stays off; ranks are told apart by their own messages, not by NCCL's.
ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
#: For ranks that share a GPU. Each stream has its own queue, since work behind a kernel that waits for another rank
#: would wait too. Kernels are loaded ahead, since the driver may wait for all running kernels before it loads one.
SHARED_ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}


class Failed(Exception):
    """A step failed; the text has the reason."""


@dataclass
class Gpus:
    names: list[str] = field(default_factory=list)
    #: Pairs of GPUs that cannot read each other's memory.
    apart: list[tuple[int, int]] = field(default_factory=list)
    #: Properties of the first GPU.
    multiprocessors: int = 0
    #: The reason why there are no GPUs.
    error: str = ""


def find_gpus() -> Gpus:
    """The driver's answer, from a separate process, so that this one holds no GPU."""
    script = "import json, machine; print(json.dumps(machine.ask_driver()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=pathlib.Path(__file__).parent, text=True,
                          capture_output=True, timeout=60)
    if done.returncode != 0:
        return Gpus(error=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer")
    import json

    answer = json.loads(done.stdout)
    return Gpus(answer["names"], [tuple(pair) for pair in answer["apart"]], answer["multiprocessors"],
                answer["error"])


def ask_driver() -> dict:
    try:
        cuda = ctypes.CDLL(os.environ.get("MOERT_CUDA_LIBRARY", "libcuda.so.1"))
    except OSError as error:
        return {"names": [], "apart": [], "multiprocessors": 0, "error": str(error)}
    count = ctypes.c_int()
    if code := cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return {"names": [], "apart": [], "multiprocessors": 0, "error": f"the driver answers error {code}"}
    names, apart, multiprocessors = [], [], ctypes.c_int()
    # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    cuda.cuDeviceGetAttribute(ctypes.byref(multiprocessors), 16, 0)
    for gpu in range(count.value):
        name = ctypes.create_string_buffer(128)
        cuda.cuDeviceGetName(name, 128, gpu)
        names.append(name.value.decode())
        for other in range(count.value):
            access = ctypes.c_int()
            if other != gpu and (cuda.cuDeviceCanAccessPeer(ctypes.byref(access), gpu, other) or not access.value):
                apart.append((gpu, other))
    return {"names": names, "apart": apart, "multiprocessors": multiprocessors.value, "error": ""}


def find_nccl() -> str:
    """The library of MOERT_NCCL_LIBRARY, else of the wheel nvidia-nccl that Python has, else the loader's."""
    if named := os.environ.get("MOERT_NCCL_LIBRARY"):
        return named
    for folder in sys.path:
        found = pathlib.Path(folder or ".") / "nvidia/nccl/lib/libnccl.so.2"
        if found.is_file():
            return str(found.resolve())
    return "libnccl.so.2"


def describe_nccl(path: str) -> str:
    """Its version, or the reason why it cannot be opened."""
    script = ("import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); "
              "print(v.value)")
    done = subprocess.run([sys.executable, "-c", script, path], text=True, capture_output=True, timeout=60)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    number = int(done.stdout)
    return f"NCCL {number // 10000}.{number // 100 % 100}.{number % 100}"


@dataclass
class Tools:
    """The programs, and how they are run."""

    #: A bundle, or the root of the repository beside a build folder.
    root: pathlib.Path
    binaries: pathlib.Path
    libraries: pathlib.Path
    #: For compiled packages, specs and files of ranks; removed at the end.
    scratch: pathlib.Path
    device: str
    nccl: str
    #: Multiprocessors of the GPU that ranks share; 0 if each has its own.
    multiprocessors: int = 0

    @property
    def shares_gpu(self) -> bool:
        return self.multiprocessors > 0

    def environment(self) -> dict[str, str]:
        return {**os.environ, **ENVIRONMENT, **(SHARED_ENVIRONMENT if self.shares_gpu else {}),
                "MOERT_NCCL_LIBRARY": self.nccl, "MOEC_PYTHON": sys.executable,
                "MOEC_CACHE_DIR": str(self.scratch / "cache"), "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": str(self.root / "python"), "MOEC_LIBRARY_DIR": str(self.libraries)}

    @staticmethod
    def rank_environment(rank: int, ranks: int, token: str, folder: pathlib.Path) -> dict[str, str]:
        """Environment of each rank's process, as a launcher sets it; ranks find each other in the folder."""
        return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MOERT_JOB_TOKEN": token,
                "MOERT_BOOTSTRAP_FOLDER": str(folder)}

    def moe_run(self, *arguments: str, until: float) -> str:
        """Returns the output. Raises Failed with the last lines, or if the part's time is over."""
        seconds = until - time.monotonic()
        if seconds <= 0:
            raise Failed("not begun: the part's time is over")
        process = subprocess.Popen([str(self.binaries / "moe-run"), *arguments], env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise Failed(f"not done after {seconds:.0f} s, and killed: {last_lines(output)}") from None
        if process.returncode != 0:
            raise Failed(last_lines(output) or f"exit code {process.returncode}")
        return output


def last_lines(output: str, count: int = 4) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("moe-run: ")
             or "error" in line]
    return " | ".join(lines[-count:])


def find_tools(bundle: str | None, scratch: pathlib.Path, device: str, nccl: str) -> Tools:
    """Programs of the given bundle, else of the build that MOEC_BIN_DIR names, else of the bundle that contains this
    file."""
    root = pathlib.Path(bundle).resolve() if bundle else pathlib.Path(__file__).resolve().parents[2]
    build = None if bundle else os.environ.get("MOEC_BIN_DIR")
    binaries = pathlib.Path(build) if build else root / "bin"
    if not (binaries / "moe-run").is_file():
        raise Failed(f"no moe-run in {binaries}; name an unpacked bundle with --bundle (docs/use/c-api.md)")
    return Tools(root, binaries, binaries.parent / "lib", scratch, device, nccl)
