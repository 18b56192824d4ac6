//===- PeerHeaps.h - memory that ranks write to -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_COMM_PEER_PEERHEAPS_H
#define MOERT_COMM_PEER_PEERHEAPS_H

#include "moert/PeerCommunicator.h"
#include "moert/PeerHeap.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace moert {

/// The heap of each rank of an axis, as this rank reaches it.
struct PeerHeaps {
  MeshAxis axis = MeshAxis::Data;
  /// One of the two places has so many.
  int64_t placeBytes = 0;
  int64_t resultBytes = 0;
  /// Ranks of the axis whose kernels run beside this one's, on its GPU: those
  /// of one process. Those of others have the GPU in turns.
  int64_t sharers = 1;
  std::unique_ptr<Buffer> own;
  /// By the place on the axis; null at this rank's own.
  std::vector<std::unique_ptr<Buffer>> others;

  char *at(size_t place) const {
    return static_cast<char *>(others[place] ? others[place]->data()
                                             : own->data());
  }
  /// The lane of copies to the rank so many places further on. Those over the
  /// link follow each other: ranks send to the next one, then to the one behind
  /// it, so that a GPU gets rows of one other at a time. Ranks of one GPU have
  /// no link.
  size_t laneTo(int64_t distance) const {
    return static_cast<size_t>(sharers > 1 ? distance
                                           : std::min<int64_t>(distance, 1));
  }
  /// From the heap's beginning.
  int64_t firstResult() const { return PeerHeap::kPlaces + 2 * placeBytes; }
  /// From this rank's heap to such an address, or -1 where none of its results
  /// is there.
  int64_t findResult(const void *address) const {
    auto distance =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) -
                             reinterpret_cast<uintptr_t>(own->data()));
    return distance >= firstResult() && distance < firstResult() + resultBytes
               ? distance
               : -1;
  }
  /// Whether so many bytes from there on are all among its results.
  bool hasResult(const void *address, int64_t bytes) const {
    int64_t distance = findResult(address);
    return distance >= 0 && bytes <= firstResult() + resultBytes - distance;
  }
};

/// Makes the heaps of `axis`, `placeBytes` and `resultBytes`: on all ranks or
/// on none. Where it fails no rank frees what another one has mapped: what
/// nobody has seen is freed at once, the rest when all are known to have
/// unmapped it, and what may still be mapped then is kept.
Status makePeerHeaps(const PeerOptions &options, PeerHeaps &heaps);

/// What is of no more use, but may still be written to by other ranks.
void keepForever(std::vector<PeerHeaps> heaps);

} // namespace moert

#endif // MOERT_COMM_PEER_PEERHEAPS_H
