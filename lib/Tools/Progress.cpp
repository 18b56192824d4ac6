//===- Progress.cpp - says what takes long ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"

#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace moec;

Progress::Progress(std::string tool, std::string what)
    : tool(std::move(tool)), what(std::move(what)), teller([this] { tell(); }) {
}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isDone = true;
  }
  changed.notify_all();
  teller.join();
}

void Progress::tell() {
  using std::chrono::seconds;
  constexpr seconds patience(2), period(10);
  std::unique_lock<std::mutex> lock(mutex);
  auto isOver = [&] { return isDone; };
  for (seconds gone = patience, wait = patience;
       !changed.wait_for(lock, wait, isOver); gone += wait) {
    // One write, so that lines of several threads do not mix.
    llvm::errs() << tool + ": " + what + " ... " +
                        std::to_string(gone.count()) + " s\n";
    wait = period;
  }
}
