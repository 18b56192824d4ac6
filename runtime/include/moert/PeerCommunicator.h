//===- PeerCommunicator.h - ranks that write to each other ------*- C++ -*-===//
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

/// 7 MB, copied beside a shared expert, make a layer 2 % faster though the
/// gather by itself takes 7 us more (docs/parallel.md): more than half of what
/// the link takes for 4 MB.
inline constexpr int64_t kLeastCopiedBytes = int64_t(4) << 20;

struct PeerOptions {
  /// Connects the ranks already: what they tell each other about their memory,
  /// and agree(), goes through it. Not used for collectives of a layer.
  std::shared_ptr<Communicator> base;
  /// This rank's device, and what is needed of it beside; the device may be the
  /// caller's, who lets it outlive the communicator.
  std::shared_ptr<Device> device;
  std::shared_ptr<PeerDevice> peer;
  /// How long a kernel waits for another rank.
  double limitSeconds = 60;
  /// From so many bytes that a rank sends to each other one on, rows are copied
  /// by the device's copy engines; Communicator::kNeverCopied: by kernels
  /// alone. The same on all ranks.
  int64_t leastCopiedBytes = kLeastCopiedBytes;
};

/// What a rank that writes to others' memory can do beside collectives.
class PeerCommunicator : public Communicator {
public:
  /// Gives copies to the stream, for whoever wants to know what moving bytes
  /// takes by itself: `bytes` at `send` + i * `pitch` to the heap of the i-th
  /// rank of the axis, this rank's own too, by the device's copy engines. They
  /// lie where an exchange puts what is taken from there, the next call's in
  /// the other of both places, and nobody takes them: no exchange of the axis
  /// is under way on any rank. All ranks' `bytes` fit in what was reserved.
  virtual Status copyBlocks(Stream &stream, MeshAxis axis, const void *send,
                            int64_t pitch, int64_t bytes) = 0;
};

/// One rank's connection to others of its host whose memory it can write:
/// collectives are kernels of the package (tile.exchange), through a heap per
/// rank and axis (PeerHeap.h), which reserve() makes; it fails, on all ranks
/// with the same error, where one cannot reach another's memory. What a gather
/// receives in results() is copied there by the devices of those who send it.
/// Calls can be captured. Those of one axis are to run one behind the other, in
/// the same order on all ranks: who gives them different streams orders these.
///
/// A rank that does not come ends the kernels of all others within the limit;
/// synchronize() and check() name it. After that, and where ranks are destroyed
/// without having ended together, heaps stay allocated, since others may still
/// write to them.
Result<std::unique_ptr<PeerCommunicator>>
createPeerCommunicator(const PeerOptions &options);

/// Whom the environment variable MOERT_EXCHANGE lets move the rows of ranks
/// that NCCL has connected: `made` itself for "nccl", and where it is not set;
/// for "peer" a communicator as above with `made` as its base, and with the
/// bytes of MOERT_COPY_ROWS_FROM for PeerOptions::leastCopiedBytes; for
/// "all-to-all" one that sends rows to their owners alone (AllToAll.h), with
/// MOERT_ALL_TO_ALL_FROM for AllToAllOptions::leastRows and
/// MOERT_ALL_TO_ALL_ROOM for AllToAllOptions::room.
Result<std::unique_ptr<Communicator>>
chooseExchange(std::unique_ptr<NcclCommunicator> made,
               const NcclOptions &options);

} // namespace moert

#endif // MOERT_PEERCOMMUNICATOR_H
