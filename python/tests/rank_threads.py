# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small layer for ranks that are threads."""

import threading

MODEL = {
    "moec_spec": 1, "dtype": "f32", "hidden_size": 32, "num_experts": 8, "top_k": 2, "intermediate_size": 24,
    "routing": {"score": "softmax", "renormalize": True}, "activation": {"kind": "silu"}, "max_tokens": 16,
}
RANKS = 2


def on_ranks(work):
    """Runs work on a thread per rank; returns the results or raises."""
    results = [None] * RANKS

    def run(rank):
        try:
            results[rank] = work(rank)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
