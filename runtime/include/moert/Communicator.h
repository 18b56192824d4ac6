//===- Communicator.h - who moves rows between ranks ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_COMMUNICATOR_H
#define MOERT_COMMUNICATOR_H

#include "moert/DType.h"
#include "moert/Device.h"
#include "moert/Mesh.h"
#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// One tensor of a collective. `count` elements are those of one rank: what it
/// sends to an all-gather and an all-reduce, what it gets of a reduce-scatter.
/// With n ranks an all-gather receives, and a reduce-scatter sends, n times as
/// many, in the order of ranks.
struct CollectivePart {
  const void *send = nullptr;
  void *receive = nullptr;
  DType dtype = DType::F32;
  int64_t count = 0;
  /// Of a gather to results, where ranks have copy engines: these are to move
  /// it, on all ranks.
  bool isCopied = false;
  /// Elements of a row, where there is one for each token; else 0.
  int64_t rowElements = 0;
  /// Of a gather, nobody reads a row of it on ranks that are no owners.
  bool isOwned = false;
};

/// The kernels of the package that an all-to-all has beside messages
/// (PackedRows.h), where a row is for its owners alone.
struct PackedKernels {
  Kernel *route = nullptr;
  LaunchDims routeDims = {};
  /// Of a gather tile.pack_rows, of a sum tile.sum_packed_rows.
  Kernel *pack = nullptr;
  LaunchDims packDims = {};
  /// The ids of the rank's own rows and the table of owners, and the most ranks
  /// that a row may go to.
  const void *ids = nullptr;
  const void *owners = nullptr;
  int64_t ownersOfRow = 0;
};

/// What all ranks of an axis do together: parts go in one call.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllGather;
  MeshAxis axis = MeshAxis::Data;
  const CollectivePart *parts = nullptr;
  size_t numParts = 0;
  /// For messages: "variants[0].steps[4]".
  std::string where;
  /// The kernel of the package that does it through the memory of other ranks
  /// (tile.exchange), null where there is none; how it is launched, and the
  /// rows of one rank that it is told.
  Kernel *kernel = nullptr;
  LaunchDims dims = {};
  int64_t rows = 0;
  /// The kernel of a gather writes to where parts are received on other ranks:
  /// all of them in results().
  bool toResults = false;
  /// Of a kernel that moves some columns of each row, the first of them, which
  /// it is told ahead of the rows.
  std::optional<int64_t> firstColumn = {};
  /// Addresses of what the kernel reads beside the parts.
  std::vector<const void *> kernelArgs = {};
  /// Of what goes to owners alone.
  std::optional<PackedKernels> packed = {};
};

/// The room that an all-to-all takes with the most tokens.
struct PackedRoom {
  /// Of one rank, and of a row the bytes of each part and the most owners.
  int64_t rows = 0;
  std::vector<int64_t> rowBytes;
  int64_t ownersOfRow = 0;
};

/// Bytes of device memory for a rank, or from one, which may be the same.
struct Message {
  int64_t rank = 0;
  void *data = nullptr;
  int64_t bytes = 0;
};

/// What a rank sends to and gets of others in one call. Its n-th message to a
/// rank is that one's n-th from it, of as many bytes. What is sent and what is
/// received do not overlap.
struct Transfer {
  std::vector<Message> sends, receives;
  /// For messages: "experts move, step 3 of 8".
  std::string where;
};

/// One rank's connection to all others of a mesh. Calls on one object are made
/// one at a time, and all ranks make the same calls in the same order. No call
/// waits for ever: where a rank does not come within the limit that the
/// communicator was made with, every other rank gets an error, which names it
/// where that is known (NCCL does not tell). After an error the communicator is
/// broken: each later call answers the first error, and a new one has to be
/// made.
class Communicator {
public:
  virtual ~Communicator();

  virtual const Mesh &mesh() const = 0;
  /// 0 .. mesh().numRanks() - 1.
  virtual int64_t rank() const = 0;

  /// Success where all ranks say the same `what`, a short text such as a hash;
  /// else both texts are in the error. Waits for all ranks.
  virtual Status agree(const std::string &subject, const std::string &what) = 0;

  /// Says that collectives over `axis` will be run whose places take up to
  /// `bytes` (PeerHeap::partBytes, of all parts together), with up to
  /// `resultBytes` of results(). Waits for all ranks, which say the same;
  /// nothing where ranks need no memory of each other's.
  virtual Status reserve(MeshAxis axis, int64_t bytes, int64_t resultBytes);

  /// Says that collectives over `axis` will be run that may be all-to-alls,
  /// none of which takes more room; as reserve().
  virtual Status reservePacked(MeshAxis axis,
                               const std::vector<PackedRoom> &rooms);

  /// In place of a number of bytes that a rank sends: no number is enough.
  static constexpr int64_t kNeverCopied = std::numeric_limits<int64_t>::max();
  /// From so many bytes that one rank sends on, copy engines are to move a part
  /// of a gather to results beside other launches: the same on all ranks.
  virtual int64_t leastCopiedBytes() const { return kNeverCopied; }
  /// Memory of this rank's that the others of the axis write to, without
  /// asking: what was received there is used up before a later collective of
  /// the axis begins, on every rank, and ranks receive a part at the same
  /// distance from the beginning. Null where none was reserved.
  virtual void *results(MeshAxis axis);

  /// Whether collectives are run by their kernels, which make what they move
  /// where the plan says so (Step::replacedStep).
  virtual bool runsKernels() const { return false; }

  /// Gives the collective to the stream, behind what it has. On a device whose
  /// streams are asynchronous it returns at once, so that it can be captured,
  /// and what goes wrong later is what check() answers. Sums are of elements of
  /// f32, bf16 or f16; an all-gather takes any type of whole bytes.
  virtual Status run(Stream &stream, const Collective &collective) = 0;

  /// Gives messages to the stream, as run() gives a collective. All ranks call
  /// it, those without messages too.
  virtual Status transfer(Stream &stream, const Transfer &transfer) = 0;

  /// Returns when all work of the stream is done, collectives too, as
  /// Device::synchronize() does, but fails after the limit, or as soon as
  /// another rank is known to have failed.
  virtual Status synchronize(Stream &stream) = 0;

  /// Success as long as nobody is known to have failed. Waits for nothing.
  virtual Status check() = 0;

  /// Breaks the communicator on this rank: what other ranks wait for fails with
  /// `reason`, and what this one has given to streams ends.
  virtual void abort(const std::string &reason) = 0;
};

} // namespace moert

#endif // MOERT_COMMUNICATOR_H
