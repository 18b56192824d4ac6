//===- PeerHeaps.h - heaps of a rank's peers --------------------*- C++ -*-===//
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

/// The heaps of all ranks of an axis, as addressed by this rank.
struct PeerHeaps {
  MeshAxis axis = MeshAxis::Data;
  /// Bytes of one of the two receive buffers.
  int64_t bufferBytes = 0;
  int64_t resultBytes = 0;
  /// Ranks of the axis whose kernels run concurrently on this rank's GPU: those
  /// of the same process. Processes that share a GPU are time-sliced.
  int64_t sharers = 1;
  std::unique_ptr<Buffer> own;
  /// Indexed along the axis; null for this rank.
  std::vector<std::unique_ptr<Buffer>> others;

  char *at(size_t index) const {
    return static_cast<char *>(others[index] ? others[index]->data()
                                             : own->data());
  }
  /// The lane of copies to the rank at this distance along the axis. Copies
  /// over the link are in order: each rank sends to the next one first, then to
  /// the one after it, so that a GPU receives from one peer at a time. Ranks of
  /// one GPU use no link.
  size_t laneTo(int64_t distance) const {
    return static_cast<size_t>(sharers > 1 ? distance
                                           : std::min<int64_t>(distance, 1));
  }
  /// Offset of the results in the heap.
  int64_t firstResult() const { return PeerHeap::kBuffers + 2 * bufferBytes; }
  /// Offset of `address` in this rank's heap, or -1 if it is not in the
  /// results.
  int64_t findResult(const void *address) const {
    auto distance =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) -
                             reinterpret_cast<uintptr_t>(own->data()));
    return distance >= firstResult() && distance < firstResult() + resultBytes
               ? distance
               : -1;
  }
  /// Whether the whole range is in this rank's results.
  bool hasResult(const void *address, int64_t bytes) const {
    int64_t distance = findResult(address);
    return distance >= 0 && bytes <= firstResult() + resultBytes - distance;
  }
};

/// Makes the heaps for `axis`, `bufferBytes` and `resultBytes`, on all ranks or
/// on none. On failure no rank frees memory that another has mapped: memory
/// never shared is freed at once, the rest after all ranks are known to have
/// unmapped it; memory that may still be mapped is leaked.
Status makePeerHeaps(const PeerOptions &options, PeerHeaps &heaps);

/// Leaks heaps that are no longer needed, but that other ranks may still write
/// to.
void keepForever(std::vector<PeerHeaps> heaps);

} // namespace moert

#endif // MOERT_COMM_PEER_PEERHEAPS_H
