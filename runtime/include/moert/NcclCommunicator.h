//===- NcclCommunicator.h - ranks connected by NCCL -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_NCCLCOMMUNICATOR_H
#define MOERT_NCCLCOMMUNICATOR_H

#include "moert/Communicator.h"

#include <array>
#include <memory>
#include <string>

namespace moert {

struct NcclOptions {
  Mesh mesh;
  int64_t rank = 0;
  /// The GPU of this rank, numbered as in createCudaDevice(). Each rank has its
  /// own.
  int ordinal = 0;
  /// Time that a rank waits for the others in one call.
  double limitSeconds = 60;
  /// Paths; if empty, the environment variables MOERT_NCCL_LIBRARY and
  /// MOERT_CUDA_LIBRARY, else libnccl.so.2 and libcuda.so.1.
  std::string ncclLibrary;
  std::string cudaLibrary;
};

/// Identifies a group of ranks to connect: rank 0 makes it, and all other ranks
/// get the same bytes before create().
using NcclUniqueId = std::array<uint8_t, 128>;

/// `library` is NcclOptions::ncclLibrary.
Result<NcclUniqueId> makeNcclUniqueId(const std::string &library = "");

/// One rank's connection through NCCL, which is opened at run time and must be
/// 2.19 or later. Streams are those of a device that createCudaDevice() made
/// for the same GPU. Calls can be captured after a first call that was not;
/// graphs must be destroyed before the communicator.
///
/// NCCL is used in non-blocking mode, and never waited for longer than the
/// limit. NCCL does not say which ranks are missing; the error has the expected
/// number of ranks. Other ranks are not told that a rank has ended: their limit
/// ends the wait.
///
/// A failure aborts this rank's NCCL communicators, which ends their work on
/// streams; the memory of enqueued collectives must live until the destructor
/// has seen that end. Without a failure the destructor waits, within the limit,
/// for the destructors of the other ranks.
class NcclCommunicator : public Communicator {
public:
  /// Connects the ranks: all of them call it with the same id.
  static Result<std::unique_ptr<NcclCommunicator>>
  create(const NcclOptions &options, const NcclUniqueId &id);

  /// Connects the ranks that a launcher started, by variables of the
  /// environment (docs/use/parallel.md), from which `rank` and `ordinal` of the
  /// options are taken.
  static Result<std::unique_ptr<NcclCommunicator>>
  fromEnvironment(NcclOptions options);

  /// Uses the caller's communicator (ncclComm_t) with the same number of ranks,
  /// made with the same library. All of its ranks call this. The communicator
  /// only serves to split off others (ncclCommSplit); afterwards it is not
  /// touched, aborted or destroyed. If it is a blocking one, this call has no
  /// limit.
  static Result<std::unique_ptr<NcclCommunicator>>
  adopt(const NcclOptions &options, void *ncclComm);

  /// Enqueues an exchange of blocks, as run() enqueues a collective: each rank
  /// of the axis sends block i of `send` to rank i, and receives the block from
  /// rank i as block i of `receive`. Blocks have `bytes` bytes on all ranks;
  /// `send` and `receive` do not overlap. `where` is for messages.
  virtual Status allToAll(Stream &stream, MeshAxis axis, const void *send,
                          void *receive, int64_t bytes,
                          const std::string &where) = 0;

  /// The GPU of this rank, numbered as in createCudaDevice().
  virtual int ordinal() const = 0;

  /// For logs: "NCCL 2.28.9 (/usr/lib/libnccl.so.2)".
  virtual const std::string &library() const = 0;
};

} // namespace moert

#endif // MOERT_NCCLCOMMUNICATOR_H
