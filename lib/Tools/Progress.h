//===- Progress.h - says what takes long ------------------------*- C++ -*-===//
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

/// While it lives, a command does something. If that takes more than two
/// seconds it is told on the error stream, and every ten seconds again, with
/// the part that is done, where that is known, and the seconds that have gone
/// by.
class Progress {
public:
  /// "moe-run: WHAT ..."; e.g. "moe-run", "the layer is compiled".
  Progress(std::string tool, std::string what);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// So much of it is done. From any thread.
  void step(size_t done, size_t all);

private:
  void tell();

  const std::string tool, what;
  std::mutex mutex;
  std::condition_variable changed;
  bool isDone = false;
  std::optional<unsigned> percent;
  /// Where there is no thread nothing is told.
  std::unique_ptr<moert::Thread> teller;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_PROGRESS_H
