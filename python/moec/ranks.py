# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that share a layer (docs/use/parallel.md).

A layer whose spec has `parallel` is compiled identically on every rank, and each rank binds its own weights. Before the
first call it gets a communicator:

    layer = moec.compile(spec, device="cuda:0")              # "parallel": {"dp": 2, "experts": "linear"}
    layer.use_communicator(moec.ranks.connect(*layer.mesh))  # under torchrun, mpirun or srun
    output = layer(hidden_states)                            # as many rows on all ranks

Ranks with fewer tokens pad them and pass the number of valid ones as num_valid_tokens.

If the spec also has `replicas`, experts can move while the layer runs. A map lists the expert of each physical one,
starting with those of rank 0:

    loads = moec.ranks.sum_loads(layer, communicator, own_loads, old)
    new = moec.ranks.balance(loads, len(old), num_ranks=8, max_replicas=4)
    move = moec.ranks.move_experts(layer, communicator, old, new, spare)
    while move.steps:
        move.step()
        output = layer(hidden_states)                        # by the old map
    move.switch()                                            # from the next call on by the new one"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._core import Communicator, ExpertMove

__all__ = [
    "Communicator", "ExpertMove", "adopt", "balance", "connect", "from_process_group", "local", "move_experts",
    "replica_tables", "sum_loads",
]

#: Timeout in seconds of a rank's wait for the others, per call.
LIMIT = 60.0


def connect(dp: int, tp: int = 1, *, limit: float = LIMIT) -> Communicator:
    """Connects the ranks started by torchrun, Open MPI or Slurm, one process per GPU, through NCCL.

    dp: number of groups of ranks with their own tokens; with `pcp` in the spec, dp * pcp.
    tp: ranks per group.
    limit: timeout in seconds.

    Raises InvalidArgument, with the variable, if the environment is incomplete; Unavailable if there is no
    libnccl.so.2, or if a rank did not connect within `limit` seconds."""
    return Communicator.from_environment(dp, tp, limit)


def adopt(comm: int, dp: int, tp: int, *, rank: int, device: int, limit: float = LIMIT) -> Communicator:
    """Connects ranks through an existing ncclComm_t, given by its address, of all dp * tp ranks. All ranks must call
    this.

    The ncclComm_t must have been made with the libnccl.so.2 that the process has loaded; `device` is this rank's GPU.
    It is only used to create another communicator and stays the caller's."""
    return Communicator.adopt_nccl(dp, tp, limit, rank, device, comm)


def from_process_group(
    group: Any = None, *, dp: int | None = None, tp: int = 1, limit: float = LIMIT
) -> Communicator:
    """Connects ranks through a torch.distributed process group with backend NCCL, by default the whole world.

    dp: default: the number of ranks in the group / tp.

    Raises InvalidArgument if the group has another number of ranks or another backend."""
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
        raise InvalidArgument("group: it has no communicator yet; run a collective on it first, or give "
                              "init_process_group() its device_id")
    return adopt(comm, dp, tp, rank=rank, device=device, limit=limit)


def local(dp: int, tp: int = 1, *, device: Any = "cpu", limit: float = LIMIT) -> list[Communicator]:
    """Returns communicators for dp * tp ranks that are threads of this process on one device, for tests. Rows are
    copied through host memory. A waiting thread releases the GIL."""
    from .compiler import find_device

    return Communicator.local(dp, tp, limit, find_device(device))


def balance(
    loads: Sequence[float], num_physical: int, *, num_ranks: int, num_groups: int = 1, num_nodes: int = 1,
    max_replicas: int = 0,
) -> list[int]:
    """Returns a map for experts with these loads, computed by the expert-parallel load balancer (EPLB) of DeepSeek.

    num_physical: number of physical experts, a multiple of num_ranks; at least one per expert.
    num_groups: groups of neighbouring experts that a token's selection is limited to. If num_nodes divides it, the
        experts of a group stay on one node.
    max_replicas: largest number of replicas of an expert, by the layer's spec; 0 for no limit.

    Raises InvalidArgument."""
    return _core.balance_experts(loads, num_physical, num_groups, num_nodes, num_ranks, max_replicas)


def replica_tables(map: Sequence[int], num_experts: int, max_replicas: int) -> tuple[list[list[int]], list[int]]:
    """Returns `replicas.physical_ids` and `replicas.counts` of a layer for a map, as i32 values."""
    ids, counts = _core.replica_tables(map, num_experts, max_replicas)
    rows = [ids[first:first + max_replicas] for first in range(0, len(ids), max_replicas)]
    return rows, counts


def sum_loads(layer: Any, communicator: Communicator, own: Sequence[int], map: Sequence[int]) -> list[int]:
    """Returns how often each expert was chosen on all ranks. All ranks must call it; it synchronizes them.

    own: number of slots of each physical expert of this rank, e.g. summed over calls of a layer with `record_load`: the
        differences of `expert_offsets`."""
    return _core.sum_loads(layer, communicator, own, map, max(map, default=0) + 1)


def move_experts(
    layer: Any, communicator: Communicator, old: Sequence[int], new: Sequence[int], spare: dict[str, Any]
) -> ExpertMove:
    """Starts to move experts from the layer's map `old` to the map `new`.

    spare: by name, an unused tensor in the form of each weight that moves: all of `experts.` except input scales,
        `replicas.physical_ids` and `replicas.counts`. The layer is bound to them at the end; the tensors that it was
        bound to before can be the spare ones of the next move, of this layer or another.

    All ranks call this, then step() of the result equally often, in the same order relative to other calls on the same
    communicator, and finally switch(). If a call raises, the layer keeps the old map; it can continue if this
    communicator is not the layer's."""
    return ExpertMove.begin(layer, communicator, old, new, spare)
