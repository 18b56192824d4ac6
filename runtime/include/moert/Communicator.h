//===- Communicator.h - collectives between ranks ---------------*- C++ -*-===//
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

/// One tensor of a collective. `count` is the number of elements of one rank:
/// its input of an all-gather or all-reduce, its output of a reduce-scatter.
/// With n ranks the output of an all-gather and the input of a reduce-scatter
/// have n * count elements, in the order of ranks.
struct CollectivePart {
  const void *send = nullptr;
  void *receive = nullptr;
  DType dtype = DType::F32;
  int64_t count = 0;
  /// All-gather into results(), on ranks with copy engines: move the part by
  /// these. Must be equal on all ranks.
  bool isCopied = false;
  /// Elements of a row if there is one row per token, else 0.
  int64_t rowElements = 0;
  /// All-gather: no rank reads a row unless it is a destination rank of that
  /// row.
  bool isRouted = false;
};

/// Kernels of the package that an all-to-all runs beside its messages
/// (PackedRows.h); a row goes to its destination ranks only.
struct PackedKernels {
  Kernel *route = nullptr;
  LaunchDims routeDims = {};
  /// tile.pack_rows for a gather, tile.sum_packed_rows for a sum.
  Kernel *pack = nullptr;
  LaunchDims packDims = {};
  /// The expert ids of the rank's own rows, the table from ids to destination
  /// ranks, and the maximum number of ranks that a row goes to.
  const void *ids = nullptr;
  const void *destinations = nullptr;
  int64_t destinationsOfRow = 0;
};

/// An operation of all ranks of an axis; all of its parts go in one call.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllGather;
  MeshAxis axis = MeshAxis::Data;
  const CollectivePart *parts = nullptr;
  size_t numParts = 0;
  /// The step in messages: "variants[0].steps[4]".
  std::string where;
  /// The kernel of the package that does the collective through the memory of
  /// other ranks (tile.exchange), or null; its launch dimensions, and its
  /// argument `rows`, the number of rows of one rank.
  Kernel *kernel = nullptr;
  LaunchDims dims = {};
  int64_t rows = 0;
  /// The kernel of a gather writes directly to where other ranks receive the
  /// parts: all of these are in results().
  bool toResults = false;
  /// For a kernel that moves some columns of each row: the first column, passed
  /// ahead of the rows.
  std::optional<int64_t> firstColumn = {};
  /// Addresses of the kernel's inputs beside the parts.
  std::vector<const void *> kernelArgs = {};
  /// For an all-to-all, where rows go to their destination ranks only.
  std::optional<PackedKernels> packed = {};
};

/// The buffer sizes that an all-to-all needs at the maximum token count.
struct PackedSizes {
  /// Rows of one rank; bytes per row of each part; the maximum number of
  /// destination ranks of a row.
  int64_t rows = 0;
  std::vector<int64_t> rowBytes;
  int64_t destinationsOfRow = 0;
};

/// Bytes of device memory to a rank, or from one; the rank may be this one.
struct Message {
  int64_t rank = 0;
  void *data = nullptr;
  int64_t bytes = 0;
};

/// A rank's messages to and from other ranks in one call. The n-th message to a
/// rank matches that rank's n-th message from this one and has the same size.
/// Sends and receives do not overlap in memory.
struct Transfer {
  std::vector<Message> sends, receives;
  /// The transfer in messages: "experts move, step 3 of 8".
  std::string where;
};

/// One rank's connection to all others of a mesh. Calls on one object are made
/// one at a time, and all ranks make the same calls in the same order. No call
/// waits forever: if a rank does not arrive within the communicator's limit,
/// every other rank gets an error, which names the rank if it is known (NCCL
/// does not tell). After an error the communicator is broken: each later call
/// returns the first error, and a new communicator has to be made.
class Communicator {
public:
  virtual ~Communicator();

  virtual const Mesh &mesh() const = 0;
  /// 0 .. mesh().numRanks() - 1.
  virtual int64_t rank() const = 0;

  /// Success if all ranks pass the same `what`, a short text such as a hash;
  /// else the error has both texts. Waits for all ranks.
  virtual Status agree(const std::string &subject, const std::string &what) = 0;

  /// Announces collectives over `axis` that need buffers of up to `bytes` each
  /// (PeerHeap::partBytes, summed over parts) and up to `resultBytes` of
  /// results(). Waits for all ranks, which must pass the same sizes; does
  /// nothing if ranks need no access to each other's memory.
  virtual Status reserve(MeshAxis axis, int64_t bytes, int64_t resultBytes);

  /// Announces all-to-alls over `axis` that need no larger buffers than
  /// `sizes`; otherwise like reserve().
  virtual Status reservePacked(MeshAxis axis,
                               const std::vector<PackedSizes> &sizes);

  /// A threshold in bytes that nothing reaches.
  static constexpr int64_t kNeverCopied = std::numeric_limits<int64_t>::max();
  /// The number of bytes sent by one rank from which on copy engines move a
  /// part of a gather into results(), beside other launches. Must be equal on
  /// all ranks.
  virtual int64_t leastCopiedBytes() const { return kNeverCopied; }
  /// This rank's memory that the other ranks of the axis write to without a
  /// handshake. On every rank the contents must be consumed before the next
  /// collective of the axis begins, and a part has the same offset on all
  /// ranks. Null if none was reserved.
  virtual void *results(MeshAxis axis);

  /// Whether collectives run as kernels of the package, which also compute what
  /// they move if the plan says so (Step::replacedStep).
  virtual bool runsKernels() const { return false; }

  /// Enqueues the collective on the stream. On a device with asynchronous
  /// streams the call returns at once, so that it can be captured, and later
  /// errors are reported by check(). Sums take f32, bf16 or f16; an all-gather
  /// takes any type of whole bytes.
  virtual Status run(Stream &stream, const Collective &collective) = 0;

  /// Enqueues messages on the stream, like run(). All ranks call it, even those
  /// without messages.
  virtual Status transfer(Stream &stream, const Transfer &transfer) = 0;

  /// Waits until all work of the stream is done, including collectives, like
  /// Device::synchronize(); fails after the limit, or as soon as another rank
  /// is known to have failed.
  virtual Status synchronize(Stream &stream) = 0;

  /// Success as long as no rank is known to have failed. Does not wait.
  virtual Status check() = 0;

  /// Breaks the communicator on this rank: other ranks that wait for it fail
  /// with `reason`, and this rank's work on streams ends.
  virtual void abort(const std::string &reason) = 0;
};

} // namespace moert

#endif // MOERT_COMMUNICATOR_H
