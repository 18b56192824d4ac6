//===- NcclCommunicator.h - ranks that NCCL connects ------------*- C++ -*-===//
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
  /// The GPU of this rank, as createCudaDevice() counts: each rank has its own.
  int ordinal = 0;
  /// How long a rank waits for the others in one call.
  double limitSeconds = 60;
  /// Paths; where they are empty what the environment variables
  /// MOERT_NCCL_LIBRARY and MOERT_CUDA_LIBRARY name, else libnccl.so.2 and
  /// libcuda.so.1.
  std::string ncclLibrary;
  std::string cudaLibrary;
};

/// What ranks find each other by: rank 0 makes it, and all others get the same
/// bytes before create().
using NcclUniqueId = std::array<uint8_t, 128>;

/// `library` is NcclOptions::ncclLibrary.
Result<NcclUniqueId> makeNcclUniqueId(const std::string &library = "");

/// One rank's connection through NCCL, which is opened at run time and is 2.19
/// or later. Streams are those of a device that createCudaDevice() made for the
/// same GPU; calls can be captured, after one that was not, and graphs die
/// before the communicator.
///
/// NCCL is used without blocking, and never for longer than the limit. It does
/// not say which ranks are missing; the error says how many there are to be. A
/// rank that ends while others wait is not told to them: their limit ends it.
///
/// A failure aborts NCCL's communicators of this rank, which ends what they
/// have on streams; the memory of collectives that were given has to live until
/// the destructor has seen that end. Without a failure the destructor waits,
/// within the limit, for the destructors of the other ranks.
class NcclCommunicator : public Communicator {
public:
  /// Connects the ranks: all of them call it, with the same id.
  static Result<std::unique_ptr<NcclCommunicator>>
  create(const NcclOptions &options, const NcclUniqueId &id);

  /// Connects the ranks that a launcher started, as the environment says
  /// (docs/parallel.md has the variables): `rank` and `ordinal` of the options
  /// are taken from there.
  static Result<std::unique_ptr<NcclCommunicator>>
  fromEnvironment(NcclOptions options);

  /// Uses a communicator of the caller's (ncclComm_t) of as many ranks, which
  /// has been made with the same library. All of its ranks call it. It only
  /// serves to make others (ncclCommSplit), is not touched afterwards, and is
  /// not aborted or destroyed. Where it is a blocking one, this call has no
  /// limit.
  static Result<std::unique_ptr<NcclCommunicator>>
  adopt(const NcclOptions &options, void *ncclComm);

  /// Gives an exchange of blocks to the stream, as run() gives a collective:
  /// each rank of the axis sends block i of `send` to the i-th one, and gets
  /// that one's block for it as block i of `receive`. Blocks have `bytes`
  /// bytes, the same on all ranks; the memory does not overlap. `where` is for
  /// messages.
  virtual Status allToAll(Stream &stream, MeshAxis axis, const void *send,
                          void *receive, int64_t bytes,
                          const std::string &where) = 0;

  /// The GPU of this rank, as createCudaDevice() counts.
  virtual int ordinal() const = 0;

  /// For logs: "NCCL 2.28.9 (/usr/lib/libnccl.so.2)".
  virtual const std::string &library() const = 0;
};

} // namespace moert

#endif // MOERT_NCCLCOMMUNICATOR_H
