//===- Bootstrap.h - how ranks find each other ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Who a process is among the ranks that a launcher started, and how the unique
// id that rank 0 makes gets to all others: by a file in a folder that all see,
// or by a socket of rank 0.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_BOOTSTRAP_H
#define MOERT_SRC_COMM_BOOTSTRAP_H

#include "moert/NcclCommunicator.h"

#include <array>
#include <functional>
#include <string>

namespace moert {

/// A rank as its launcher tells it in the environment.
struct RankEnvironment {
  int64_t rank = 0;
  int64_t numRanks = 1;
  /// Among the ranks of this host: the GPU to take.
  int64_t localRank = 0;
  /// What tells one start of the job from another; empty where the launcher
  /// says nothing.
  std::string token;
};

/// From the first of these whose variables are set: torchrun's (RANK,
/// WORLD_SIZE, LOCAL_RANK, TORCHELASTIC_RUN_ID and _RESTART_COUNT), Open MPI's
/// (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, PMIX_NAMESPACE), Slurm's
/// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_JOB_ID and SLURM_STEP_ID).
/// MOERT_JOB_TOKEN comes before the launcher's token.
Result<RankEnvironment> readRankEnvironment();

/// Makes the id, on rank 0.
using MakeUniqueId = std::function<Result<NcclUniqueId>()>;

struct FileExchange {
  /// A folder that all ranks see; it belongs to this user, and nobody else may
  /// use it.
  std::string folder;
  /// The same on all ranks of one start, and another at the next one.
  std::string token;
};

/// Rank 0 writes a file of the folder, whose name comes from the token. All
/// others answer it by a file each, and rank 0 answers each of these with the
/// id. A file of rank 0 that was there before is refused on rank 0, and no
/// other rank takes an id from it: it is of an earlier start. Rank 0 calls
/// removeExchanged() when all ranks are connected.
Result<NcclUniqueId> exchangeByFile(const FileExchange &exchange,
                                    const RankEnvironment &environment,
                                    double limitSeconds,
                                    const MakeUniqueId &makeId);
void removeExchanged(const FileExchange &exchange);

struct SocketExchange {
  /// Where rank 0 listens: a name or an address.
  std::string host = "127.0.0.1";
  int port = 0;
  /// Known to all ranks and nobody else.
  std::array<uint8_t, 32> secret = {};
};

/// Rank 0 listens until all others have come, each of which proves that it
/// knows the secret (HMAC-SHA-256 of numbers that both sides draw; the secret
/// is not sent), and gets the id with such a proof.
Result<NcclUniqueId> exchangeBySocket(const SocketExchange &exchange,
                                      const RankEnvironment &environment,
                                      double limitSeconds,
                                      const MakeUniqueId &makeId);

/// 64 hexadecimal digits.
Result<std::array<uint8_t, 32>> parseSecret(const std::string &text);

/// Where ranks meet, as the environment says it: by a file in
/// MOERT_BOOTSTRAP_FOLDER, else by a socket at MOERT_BOOTSTRAP_ADDRESS
/// ("host:port") or at MASTER_ADDR and MASTER_PORT, with the secret
/// MOERT_BOOTSTRAP_SECRET. Of MASTER_ADDR only addresses of this host's
/// loopback are taken: to listen on a network is asked for by name.
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
