//===- Progress.h - progress messages ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_PROGRESS_H
#define MOEC_LIB_TOOLS_PROGRESS_H

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace moert {
class Thread;
} // namespace moert

namespace moec {

/// Reports a long action of a command on the error stream for as long as this
/// object lives: after two seconds, then every ten seconds, with the elapsed
/// time and, if known, the fraction that is done.
class Progress {
public:
  /// The message is "`tool`: `what` ...", e.g. "moe-run: the layer is compiled
  /// ...".
  Progress(std::string tool, std::string what);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Sets the progress. Callable from any thread.
  void step(size_t done, size_t all);

private:
  void tell();

  const std::string tool, what;
  std::mutex mutex;
  std::condition_variable changed;
  bool isDone = false;
  std::optional<unsigned> percent;
  /// Prints the messages; if the thread cannot be started, nothing is printed.
  std::unique_ptr<moert::Thread> teller;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_PROGRESS_H
