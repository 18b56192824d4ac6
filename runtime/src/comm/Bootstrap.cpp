//===- Bootstrap.cpp - ranks and rendezvous by environment ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Bootstrap.h"
#include "../support/Check.h"

#include <cerrno>
#include <climits>
#include <cstdlib>

namespace moert {

/// A variable's value; empty if it is not set.
static std::string variable(const std::string &name) {
  const char *value = getenv(name.c_str());
  return value ? value : "";
}

/// A whole decimal number in [`least`, `most`].
static Result<int64_t> parseNumber(const std::string &name,
                                   const std::string &text, int64_t least,
                                   int64_t most) {
  char *end = nullptr;
  errno = 0;
  long long value = strtoll(text.c_str(), &end, 10);
  bool isNumber = !text.empty() && (text[0] == '-' || isdigit(text[0])) &&
                  *end == '\0' && errno == 0;
  if (!isNumber || value < least || value > most)
    return invalidArgument(name + "='" + text + "' is not an integer from " +
                           std::to_string(least) + " to " +
                           std::to_string(most) +
                           "; let the launcher set it, or set it per rank");
  return static_cast<int64_t>(value);
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

namespace {

/// Names of a launcher's variables.
struct Launcher {
  const char *rank;
  const char *numRanks;
  const char *localRank;
  /// The token is both values together; `part` may be null.
  const char *job;
  const char *part;
};

constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID",
     "TORCHELASTIC_RESTART_COUNT"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE", ""},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID",
     "SLURM_STEP_ID"},
};

} // namespace

static Result<RankEnvironment> readLauncher(const Launcher &launcher) {
  std::string numRanksText = variable(launcher.numRanks);
  if (numRanksText.empty())
    return invalidArgument(std::string(launcher.rank) + " is set and " +
                           launcher.numRanks + " is not; set both, or neither");
  RankEnvironment environment;
  Result<int64_t> numRanks =
      parseNumber(launcher.numRanks, numRanksText, 1, INT_MAX);
  if (!numRanks)
    return numRanks.status();
  environment.numRanks = *numRanks;
  Result<int64_t> rank = parseNumber(launcher.rank, variable(launcher.rank), 0,
                                     environment.numRanks - 1);
  if (!rank)
    return rank.status();
  environment.rank = environment.localRank = *rank;
  std::string localRankText = variable(launcher.localRank);
  if (!localRankText.empty()) {
    Result<int64_t> localRank = parseNumber(launcher.localRank, localRankText,
                                            0, environment.numRanks - 1);
    if (!localRank)
      return localRank.status();
    environment.localRank = *localRank;
  }
  environment.token = variable("MOERT_JOB_TOKEN");
  std::string job = variable(launcher.job), part = variable(launcher.part);
  // torchrun sets "none" for a job without an id.
  if (environment.token.empty() && job != "none" && !job.empty())
    environment.token = part.empty() ? job : job + "." + part;
  return environment;
}

Result<RankEnvironment> readRankEnvironment() {
  std::string names;
  for (const Launcher &launcher : kLaunchers) {
    if (!variable(launcher.rank).empty())
      return readLauncher(launcher);
    names += (names.empty() ? "" : ", ") + std::string(launcher.rank);
  }
  return notFound("no launcher's variables are set (" + names +
                  "); start with torchrun, mpirun or srun, or set RANK and "
                  "WORLD_SIZE for each rank");
}

//===----------------------------------------------------------------------===//
// Rendezvous
//===----------------------------------------------------------------------===//

static int digitOf(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  if (digit >= 'a' && digit <= 'f')
    return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F')
    return digit - 'A' + 10;
  return -1;
}

Result<std::array<uint8_t, 32>> parseSecret(const std::string &text) {
  std::array<uint8_t, 32> secret;
  bool isWhole = text.size() == 2 * secret.size();
  for (size_t i = 0; isWhole && i < secret.size(); ++i) {
    int high = digitOf(text[2 * i]), low = digitOf(text[2 * i + 1]);
    isWhole = high >= 0 && low >= 0;
    secret[i] = static_cast<uint8_t>(high * 16 + low);
  }
  // The value is secret: keep it out of messages.
  if (!isWhole)
    return invalidArgument(
        "MOERT_BOOTSTRAP_SECRET is " +
        std::string(text.empty() ? "not set" : "not 64 hexadecimal digits") +
        "; set it to the same value on all ranks, for example from openssl "
        "rand -hex 32");
  return secret;
}

static bool isLoopback(const std::string &host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

static Status readAddress(SocketExchange &socket) {
  std::string address = variable("MOERT_BOOTSTRAP_ADDRESS");
  std::string portName = "MOERT_BOOTSTRAP_ADDRESS", port;
  if (!address.empty()) {
    size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0)
      return invalidArgument(
          "MOERT_BOOTSTRAP_ADDRESS='" + address +
          "' is not host:port; give rank 0's host and a free port on it");
    socket.host = address.substr(0, colon);
    port = address.substr(colon + 1);
  } else {
    socket.host = variable("MASTER_ADDR");
    portName = "MASTER_PORT";
    port = variable(portName);
    if (socket.host.empty() || port.empty())
      return notFound(
          "no meeting point of the ranks is set; set MOERT_BOOTSTRAP_FOLDER to "
          "a private folder that all ranks see, or MOERT_BOOTSTRAP_ADDRESS to "
          "host:port of rank 0 (or MASTER_ADDR and MASTER_PORT, on one host)");
    if (!isLoopback(socket.host))
      return invalidArgument(
          "MASTER_ADDR='" + socket.host +
          "' is not on this host's loopback interface; set "
          "MOERT_BOOTSTRAP_ADDRESS to host:port of rank 0 to listen on a "
          "network, or use MOERT_BOOTSTRAP_FOLDER");
  }
  Result<int64_t> number = parseNumber(portName, port, 1, 65535);
  if (!number)
    return number.status();
  socket.port = static_cast<int>(*number);
  return Status::ok();
}

Result<Rendezvous>
Rendezvous::fromEnvironment(const RankEnvironment &environment) {
  Rendezvous rendezvous;
  rendezvous.file.folder = variable("MOERT_BOOTSTRAP_FOLDER");
  rendezvous.file.token = environment.token;
  rendezvous.usesFile = !rendezvous.file.folder.empty();
  if (rendezvous.usesFile)
    return rendezvous;
  MOERT_CHECK(readAddress(rendezvous.socket));
  Result<std::array<uint8_t, 32>> secret =
      parseSecret(variable("MOERT_BOOTSTRAP_SECRET"));
  if (!secret)
    return secret.status();
  rendezvous.socket.secret = *secret;
  return rendezvous;
}

Result<NcclUniqueId> Rendezvous::exchange(const RankEnvironment &environment,
                                          double limitSeconds,
                                          const MakeUniqueId &makeId) const {
  return usesFile ? exchangeByFile(file, environment, limitSeconds, makeId)
                  : exchangeBySocket(socket, environment, limitSeconds, makeId);
}

} // namespace moert
