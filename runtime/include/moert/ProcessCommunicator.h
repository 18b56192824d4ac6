//===- ProcessCommunicator.h - ranks that are processes ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PROCESSCOMMUNICATOR_H
#define MOERT_PROCESSCOMMUNICATOR_H

#include "moert/Communicator.h"

#include <memory>
#include <vector>

namespace moert {

/// Connected sockets between processes of a host: [r][s] is rank r's end of the
/// connection between ranks r and s, -1 if r == s. The creating process starts
/// the ranks' processes, which inherit the sockets. No files are created.
/// Closed on exec.
class ProcessSockets {
public:
  static Result<ProcessSockets> create(int64_t ranks);
  ProcessSockets(ProcessSockets &&other) = default;
  ProcessSockets &operator=(ProcessSockets &&other) = delete;
  ~ProcessSockets() { closeAll(); }

  /// The sockets of a rank, now the caller's; all others are closed.
  std::vector<int> take(int64_t rank);
  /// The sockets of every rank.
  std::vector<std::vector<int>> takeAll() { return std::move(ends); }
  void closeAll();

private:
  ProcessSockets() = default;

  std::vector<std::vector<int>> ends;
};

struct ProcessOptions {
  Mesh mesh;
  int64_t rank = 0;
  /// A connected stream socket for each other rank, by rank; -1 for this one.
  /// Closed by the communicator, even if creating it fails.
  std::vector<int> sockets;
  /// Time that a rank waits for the others in one call.
  double limitSeconds = 60;
};

/// One rank's connection to other processes of its host, on any device. Data
/// goes through host memory and each call waits for its stream. A reference for
/// tests with the same bits as LocalGroup: all ranks of the mesh meet in every
/// call, whatever its axis. Calls that differ, and a rank that does not arrive
/// within the limit, ends for any reason or stops in the middle, are an error
/// on all other ranks that names the rank.
Result<std::unique_ptr<Communicator>>
createProcessCommunicator(const ProcessOptions &options, Device &device);

} // namespace moert

#endif // MOERT_PROCESSCOMMUNICATOR_H
