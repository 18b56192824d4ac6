//===- Yardstick.h - PyTorch in a separate process --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_YARDSTICK_H
#define MOEC_LIB_TOOLS_BENCH_RUN_YARDSTICK_H

#include "../Rows/Rows.h"

#include <memory>

namespace moec::bench {

/// A running benchmarks/yardstick.py: requests and answers are lines of JSON.
/// It uses the device only during a request.
class Yardstick {
public:
  /// Starts the process; a failure names what the script lacks.
  static moert::Result<std::unique_ptr<Yardstick>>
  start(const std::string &python, const std::string &script, int ordinal);
  ~Yardstick();
  Yardstick(const Yardstick &) = delete;
  Yardstick &operator=(const Yardstick &) = delete;

  /// The script's first message, about itself.
  const llvm::json::Object &getGreeting() const { return greeting; }
  moert::Result<llvm::json::Object> ask(llvm::json::Object request);
  /// Sends a request and returns the number `key` of the answer.
  moert::Result<double> askNumber(llvm::json::Object request,
                                  llvm::StringRef key);

private:
  Yardstick(int child, int to, int from) : child(child), to(to), from(from) {}

  moert::Result<llvm::json::Object> readAnswer();

  int child, to, from;
  std::string received;
  llvm::json::Object greeting;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_YARDSTICK_H
