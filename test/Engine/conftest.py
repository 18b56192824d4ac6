# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The real vLLM on a machine without a GPU: its extensions load beside a driver of no device (libcuda.c), its platform
says that it has an H100, and its model configuration, its methods and its loader run as they are. Experts run in moec
on the CPU."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest

os.environ |= {
    "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_DEEP_GEMM": "0", "VLLM_PLUGINS": "moec", "HF_HUB_OFFLINE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
}


def load_driver() -> None:
    """Must be loaded before all libraries that link to it; the loader finds it by its soname."""
    source = Path(__file__).with_name("libcuda.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library], check=True
        )
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


load_driver()

import torch  # noqa: E402
import vllm.platforms  # noqa: E402
from vllm.platforms.cuda import CudaPlatformBase  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402


class Hopper(CudaPlatformBase):
    """Replaces the properties of an H100 that vLLM queries before it runs anything."""

    capability = DeviceCapability(9, 0)

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        return cls.capability

    @classmethod
    def has_device_capability(cls, capability: Any, device_id: int = 0) -> bool:
        wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
        return tuple(cls.capability) >= tuple(wanted)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "NVIDIA H100 80GB HBM3"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 80 << 30

    @classmethod
    def device_count(cls) -> int:
        return 1

    @classmethod
    def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
        return True

    @classmethod
    def log_warnings(cls) -> None:
        pass


vllm.platforms._current_platform = Hopper()

from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed import init_distributed_environment, initialize_model_parallel  # noqa: E402
from vllm.distributed import get_tp_group  # noqa: E402
from vllm.plugins import load_general_plugins  # noqa: E402
from vllm.v1.worker.workspace import init_workspace_manager  # noqa: E402

import moec.vllm  # noqa: E402


def round_to_fp8(output: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, group_shape: Any = None) -> None:
    output.copy_((input.float() / scale).clamp(-448, 448).to(output.dtype))


#: GPU-only functions that vLLM's processing of weights calls.
_kernels = torch.library.Library("_C", "IMPL", "CPU")
_kernels.impl("static_scaled_fp8_quant", round_to_fp8)


@pytest.fixture(scope="session", autouse=True)
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmConfig]:
    """Initializes the process as vLLM does for a worker: plugins, then configuration and groups of ranks."""
    load_general_plugins()
    moec.vllm.register()
    config = VllmConfig()
    rendezvous = tmp_path_factory.mktemp("ranks") / "file"
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{rendezvous}", 0, "gloo")
        initialize_model_parallel(1, 1)
        # vLLM's loader moves some weights to the group's device.
        get_tp_group().device = torch.device("cpu")
        init_workspace_manager(torch.device("cpu"))
        torch.set_default_dtype(torch.bfloat16)
        yield config
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    """vLLM's log. Once an engine has configured them, its loggers do not propagate to the root logger."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.INFO, "vllm"):
        yield caplog
