//===- Progress.cpp - progress messages -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"

#include "../../runtime/src/support/Threads.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace moec;

Progress::Progress(std::string tool, std::string what)
    : tool(std::move(tool)), what(std::move(what)),
      teller(std::make_unique<moert::Thread>()) {
  (void)teller->start([this] { tell(); });
}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isDone = true;
  }
  changed.notify_all();
  teller->join();
}

void Progress::step(size_t done, size_t all) {
  std::lock_guard<std::mutex> lock(mutex);
  if (all > 0)
    percent = unsigned(100.0 * double(done) / double(all));
}

void Progress::tell() {
  using std::chrono::seconds;
  constexpr seconds patience(2), period(10);
  std::unique_lock<std::mutex> lock(mutex);
  auto isOver = [&] { return isDone; };
  for (seconds gone = patience, wait = patience;
       !changed.wait_for(lock, wait, isOver); gone += wait) {
    // Writes once, so that lines of several threads do not mix.
    std::string part = percent ? std::to_string(*percent) + " %, " : "";
    llvm::errs() << tool + ": " + what + " ... " + part +
                        std::to_string(gone.count()) + " s\n";
    wait = period;
  }
}
