//===- Bootstrap.h - rendezvous of ranks ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The identity of a process among the ranks that a launcher started, and the
// transport of the unique id from rank 0 to all others: by a file in a shared
// folder, or by a socket of rank 0.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_BOOTSTRAP_H
#define MOERT_SRC_COMM_BOOTSTRAP_H

#include "moert/NcclCommunicator.h"

#include <array>
#include <functional>
#include <string>

namespace moert {

/// A rank as described by its launcher's environment variables.
struct RankEnvironment {
  int64_t rank = 0;
  int64_t numRanks = 1;
  /// Index among the ranks of this host; selects the GPU.
  int64_t localRank = 0;
  /// Distinguishes one start of the job from another; empty if the launcher has
  /// no such variable.
  std::string token;
};

/// Reads the first of these sets of variables that is present: torchrun (RANK,
/// WORLD_SIZE, LOCAL_RANK, TORCHELASTIC_RUN_ID and _RESTART_COUNT), Open MPI
/// (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, PMIX_NAMESPACE), Slurm
/// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_JOB_ID and SLURM_STEP_ID).
/// MOERT_JOB_TOKEN takes precedence over the launcher's token.
Result<RankEnvironment> readRankEnvironment();

/// Makes the id, on rank 0.
using MakeUniqueId = std::function<Result<NcclUniqueId>()>;

struct FileExchange {
  /// A folder that all ranks see, owned by this user and closed to all others.
  std::string folder;
  /// Equal on all ranks of one start, and different for each start.
  std::string token;
};

/// Rank 0 writes a file whose name is derived from the token. Each other rank
/// writes a request file, and rank 0 answers each request with a file that has
/// the id. A file of rank 0 from an earlier start is an error on rank 0, and
/// other ranks take no id from it. Rank 0 calls removeExchanged() after all
/// ranks are connected.
Result<NcclUniqueId> exchangeByFile(const FileExchange &exchange,
                                    const RankEnvironment &environment,
                                    double limitSeconds,
                                    const MakeUniqueId &makeId);
void removeExchanged(const FileExchange &exchange);

struct SocketExchange {
  /// The name or address that rank 0 listens on.
  std::string host = "127.0.0.1";
  int port = 0;
  /// Known to the ranks only.
  std::array<uint8_t, 32> secret = {};
};

/// Rank 0 listens until all other ranks have connected. Each side proves that
/// it knows the secret by HMAC-SHA-256 over nonces of both sides, without
/// sending the secret; the id comes with rank 0's proof.
Result<NcclUniqueId> exchangeBySocket(const SocketExchange &exchange,
                                      const RankEnvironment &environment,
                                      double limitSeconds,
                                      const MakeUniqueId &makeId);

/// 64 hexadecimal digits.
Result<std::array<uint8_t, 32>> parseSecret(const std::string &text);

/// The meeting point of the ranks, from the environment: a file in
/// MOERT_BOOTSTRAP_FOLDER, else a socket at MOERT_BOOTSTRAP_ADDRESS
/// ("host:port") or at MASTER_ADDR and MASTER_PORT, with the secret
/// MOERT_BOOTSTRAP_SECRET. MASTER_ADDR must be a loopback address of this host:
/// listening on a network has to be requested explicitly.
struct Rendezvous {
  FileExchange file;
  SocketExchange socket;
  bool usesFile = false;

  static Result<Rendezvous> fromEnvironment(const RankEnvironment &environment);
  Result<NcclUniqueId> exchange(const RankEnvironment &environment,
                                double limitSeconds,
                                const MakeUniqueId &makeId) const;
};

} // namespace moert

#endif // MOERT_SRC_COMM_BOOTSTRAP_H
