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
/// connection of ranks r and s, -1 where they are the same. Who makes them
/// starts the processes, which inherit them; no file is left by any of it.
/// Closed on exec.
class ProcessSockets {
public:
  static Result<ProcessSockets> create(int64_t ranks);
  ProcessSockets(ProcessSockets &&other) = default;
  ProcessSockets &operator=(ProcessSockets &&other) = delete;
  ~ProcessSockets() { closeAll(); }

  /// Those of a rank, which are the caller's; all others are closed.
  std::vector<int> take(int64_t rank);
  /// Those of every rank.
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
  /// Closed by the communicator, also where there comes none of it.
  std::vector<int> sockets;
  /// How long a rank waits for the others in one call.
  double limitSeconds = 60;
};

/// One rank's connection to those of other processes of its host, on any
/// device: what is sent goes through host memory, and each call waits for its
/// stream. It is an oracle, as LocalGroup, with the same bits: all ranks of the
/// mesh meet in every call, whatever its axis; calls that differ, a rank that
/// does not come within the limit, that ends (however it does) or that stops in
/// the middle are an error on all others that names it.
Result<std::unique_ptr<Communicator>>
createProcessCommunicator(const ProcessOptions &options, Device &device);

} // namespace moert

#endif // MOERT_PROCESSCOMMUNICATOR_H
