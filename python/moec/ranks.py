# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that share a layer (docs/parallel.md).

A layer whose spec has `parallel` is compiled alike on every rank, and each binds its own weights. Before
the first call it gets a communicator:

    layer = moec.compile(spec, device="cuda:0")              # "parallel": {"dp": 2, "experts": "linear"}
    layer.use_communicator(moec.ranks.connect(*layer.mesh))  # under torchrun, mpirun or srun
    output = layer(hidden_states)                            # as many rows on all ranks

Ranks with fewer tokens pad them, and say how many count with num_valid_tokens.
"""

from __future__ import annotations

from typing import Any

from ._core import Communicator

__all__ = ["Communicator", "adopt", "connect", "from_process_group", "local"]

#: Seconds that a rank waits for the others in one call.
LIMIT = 60.0


def connect(dp: int, tp: int = 1, *, limit: float = LIMIT) -> Communicator:
    """Connects the ranks that torchrun, Open MPI or Slurm started, one process per GPU, through NCCL.

    Raises InvalidArgument where the environment does not say enough, with the variable, Unavailable where
    there is no libnccl.so.2 or a rank did not come within `limit` seconds."""
    return Communicator.from_environment(dp, tp, limit)


def adopt(comm: int, dp: int, tp: int, *, rank: int, device: int, limit: float = LIMIT) -> Communicator:
    """The same by an ncclComm_t of the caller's, as an address, with all dp * tp ranks.

    It has been made with the libnccl.so.2 that the process has loaded; `device` is this rank's GPU. It only
    serves to make another one, and stays the caller's. All ranks call this."""
    return Communicator.adopt_nccl(dp, tp, limit, rank, device, comm)


def from_process_group(
    group: Any = None, *, dp: int | None = None, tp: int = 1, limit: float = LIMIT
) -> Communicator:
    """The same by a process group of torch.distributed with the backend NCCL, by default the whole world.

    dp: by default the ranks of the group / tp. Raises InvalidArgument where the group has other ranks or
    another backend."""
    import torch
    import torch.distributed

    from ._core import InvalidArgument

    group = torch.distributed.group.WORLD if group is None else group
    size, rank = group.size(), group.rank()
    dp = size // tp if dp is None else dp
    if dp * tp != size:
        raise InvalidArgument(f"group: {size} ranks found, dp * tp = {dp * tp} expected")
    device = torch.cuda.current_device()
    try:
        backend = group._get_backend(torch.device("cuda", device))
        comm = backend._comm_ptr()
    except (RuntimeError, AttributeError) as error:
        raise InvalidArgument(f"group: one of the backend NCCL expected ({error})") from error
    if comm == 0:
        raise InvalidArgument("group: it has no communicator yet; run a collective of its own first, or give "
                              "init_process_group() its device_id")
    return adopt(comm, dp, tp, rank=rank, device=device, limit=limit)


def local(dp: int, tp: int = 1, *, device: Any = "cpu", limit: float = LIMIT) -> list[Communicator]:
    """A communicator for each of dp * tp ranks that are threads of this process on one device, for tests:
    rows go through host memory. A thread that waits for the others lets them run."""
    from .compiler import find_device

    return Communicator.local(dp, tp, limit, find_device(device))
