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

Progress::Progress(std::string what)
    : what(std::move(what)), teller([this] { tell(); }) {}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isDone = true;
  }
  changed.notify_all();
  teller.join();
}

void Progress::tell() {
  constexpr std::chrono::seconds patience(2);
  std::unique_lock<std::mutex> lock(mutex);
  if (!changed.wait_for(lock, patience, [&] { return isDone; }))
    llvm::errs() << "moe-run: " + what + " ...\n";
}
