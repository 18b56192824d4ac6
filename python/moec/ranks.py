# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that share a layer (docs/parallel.md).

A layer whose spec has `parallel` is compiled alike on every rank, and each binds its own weights. Before
the first call it gets a communicator:

    layer = moec.compile(spec, device="cuda:0")              # "parallel": {"dp": 2, "experts": "linear"}
    layer.use_communicator(moec.ranks.connect(*layer.mesh))  # under torchrun, mpirun or srun
    output = layer(hidden_states)                            # as many rows on all ranks

Ranks with fewer tokens pad them, and say how many count with num_valid_tokens.

Where the spec has `replicas` too, experts may move while the layer runs. A map has the expert of each physical
one, those of rank 0 first:

    loads = moec.ranks.sum_loads(layer, communicator, own_loads, old)
    new = moec.ranks.balance(loads, len(old), num_ranks=8, max_replicas=4)
    move = moec.ranks.move_experts(layer, communicator, old, new, spare)
    while move.steps:
        move.step()
        output = layer(hidden_states)                        # by the old map
    move.switch()                                            # from the next call on by the new one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._core import Communicator, ExpertMove

__all__ = [
    "Communicator", "ExpertMove", "adopt", "balance", "connect", "from_process_group", "local", "move_experts",
    "replica_tables", "sum_loads",
]

#: Seconds that a rank waits for the others in one call.
LIMIT = 60.0


def connect(dp: int, tp: int = 1, *, limit: float = LIMIT) -> Communicator:
    """Connects the ranks that torchrun, Open MPI or Slurm started, one process per GPU, through NCCL.

    dp: groups of ranks with tokens of their own, with `pcp` in the spec dp * pcp; tp: ranks of a group.
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


def balance(
    loads: Sequence[float], num_physical: int, *, num_ranks: int, num_groups: int = 1, num_nodes: int = 1,
    max_replicas: int = 0,
) -> list[int]:
    """A map for experts with these loads, by the expert-parallel load balancer (EPLB) of DeepSeek.

    num_physical: physical experts, a multiple of num_ranks, one of each expert at least.
    num_groups: groups of neighbouring experts that a token's choice is limited to. Where num_nodes divides it,
        the experts of a group are on one node.
    max_replicas: as many as an expert may have, by the layer's spec; 0 for any number.

    Raises InvalidArgument."""
    return _core.balance_experts(loads, num_physical, num_groups, num_nodes, num_ranks, max_replicas)


def replica_tables(map: Sequence[int], num_experts: int, max_replicas: int) -> tuple[list[list[int]], list[int]]:
    """What a layer takes as `replicas.physical_ids` and `replicas.counts`, by a map; as i32."""
    ids, counts = _core.replica_tables(map, num_experts, max_replicas)
    rows = [ids[first:first + max_replicas] for first in range(0, len(ids), max_replicas)]
    return rows, counts


def sum_loads(layer: Any, communicator: Communicator, own: Sequence[int], map: Sequence[int]) -> list[int]:
    """How often each expert was chosen on all ranks; they all call it, and wait for each other.

    own: the number of slots of each physical expert of this rank, such as the sums of what calls of a layer with
        `record_load` have told: the differences of `expert_offsets`."""
    return _core.sum_loads(layer, communicator, own, map, max(map, default=0) + 1)


def move_experts(
    layer: Any, communicator: Communicator, old: Sequence[int], new: Sequence[int], spare: dict[str, Any]
) -> ExpertMove:
    """Begins to bring experts to where the map `new` has them; `old` is the one that the layer has.

    spare: by name, a tensor that nothing uses in the form of each weight that moves: all of `experts.` but
        input scales, `replicas.physical_ids` and `replicas.counts`. The layer is bound to them at the end, and what
        it was bound to before can serve the next move, of this layer or of another one.

    All ranks call it and then, as often, step() of what it answers, in one order with other calls on the same
    communicator; at the end switch(). A call that raises leaves the layer on the old map, which goes on where
    the communicator is another one than the layer's."""
    return ExpertMove.begin(layer, communicator, old, new, spare)
