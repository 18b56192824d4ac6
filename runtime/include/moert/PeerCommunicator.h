//===- PeerCommunicator.h - collectives by peer memory ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PEERCOMMUNICATOR_H
#define MOERT_PEERCOMMUNICATOR_H

#include "moert/NcclCommunicator.h"
#include "moert/PeerDevice.h"

#include <memory>

namespace moert {

/// Default threshold in bytes. With 7 MB, copies beside a shared expert make a
/// layer 2 % faster, though the gather alone takes 7 us longer, which is more
/// than half of the link's time for 4 MB (docs/use/parallel.md).
inline constexpr int64_t kLeastCopiedBytes = int64_t(4) << 20;

struct PeerOptions {
  /// A communicator that already connects the ranks. Used to exchange memory
  /// handles and for agree(), not for collectives of a layer.
  std::shared_ptr<Communicator> base;
  /// This rank's device and its peer interface. A device of the caller's must
  /// outlive the communicator.
  std::shared_ptr<Device> device;
  std::shared_ptr<PeerDevice> peer;
  /// Time that a kernel waits for another rank.
  double limitSeconds = 60;
  /// From this number of bytes that a rank sends to each other rank on, rows
  /// are copied by the device's copy engines; with Communicator::kNeverCopied
  /// by kernels only. Must be equal on all ranks.
  int64_t leastCopiedBytes = kLeastCopiedBytes;
};

/// Additional operations of a rank that can write to other ranks' memory.
class PeerCommunicator : public Communicator {
public:
  /// Enqueues copies by the device's copy engines, to measure the time of
  /// moving bytes alone: `bytes` at `send` + i * `pitch` go to the heap of the
  /// i-th rank of the axis, including this one. The copies go to the receive
  /// buffers of exchanges, alternating between the two with each call, and are
  /// never read: no exchange of the axis may be under way on any rank. `bytes`,
  /// summed over all ranks, must fit in what was reserved.
  virtual Status copyBlocks(Stream &stream, MeshAxis axis, const void *send,
                            int64_t pitch, int64_t bytes) = 0;
};

/// One rank's connection to others of its host whose memory it can write.
/// Collectives are kernels of the package (tile.exchange) that use a heap per
/// rank and axis (PeerHeap.h), made by reserve(), which fails on all ranks with
/// the same error if a rank cannot access another's memory. Parts that a gather
/// receives in results() are copied there by the devices of the sending ranks.
/// Calls can be captured. Calls of one axis must run one after the other, in
/// the same order on all ranks: a caller that uses several streams must order
/// these.
///
/// If a rank does not arrive, the kernels of all others end within the limit;
/// synchronize() and check() name it. After that, and if ranks are destroyed
/// without having ended together, heaps stay allocated, since other ranks may
/// still write to them.
Result<std::unique_ptr<PeerCommunicator>>
createPeerCommunicator(const PeerOptions &options);

/// Chooses by the environment variable MOERT_EXCHANGE what moves the rows of
/// ranks connected by NCCL. "nccl", or unset: `made` itself. "peer": a peer
/// communicator with `made` as its base and MOERT_COPY_ROWS_FROM as
/// PeerOptions::leastCopiedBytes. "all-to-all": an all-to-all (AllToAll.h) with
/// MOERT_ALL_TO_ALL_FROM as AllToAllOptions::leastRows and
/// MOERT_ALL_TO_ALL_CAPACITY as AllToAllOptions::capacity.
Result<std::unique_ptr<Communicator>>
chooseExchange(std::unique_ptr<NcclCommunicator> made,
               const NcclOptions &options);

} // namespace moert

#endif // MOERT_PEERCOMMUNICATOR_H
