//===- DeviceOptions.cpp - options of moe-bench and gpu-test ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceOptions.h"
#include "../CommandLine.h"

#include "moec/Support/Targets.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace moec;
namespace cl = llvm::cl;

DeviceOptions::DeviceOptions(const Words &words)
    : device("device", cl::value_desc(words.devices), cl::desc(words.device),
             cl::init("cuda"), cl::cat(category)),
      target("target", cl::value_desc(getGpuTargetChoices()),
             cl::desc(
                 "Target to compile for (default: the best that the GPU runs)"),
             cl::cat(category)),
      data("data", cl::value_desc("folder"), cl::desc(words.data),
           cl::cat(category)),
      json("json", cl::value_desc("file"), cl::desc(words.json),
           cl::cat(category)),
      list("list", cl::desc(words.list), cl::cat(category)),
      timeLimit("time-limit", cl::value_desc("seconds"),
                cl::desc(words.timeLimit), cl::init(words.seconds),
                cl::cat(category)),
      threads("threads", cl::value_desc("N"), cl::desc(words.threads),
              cl::init(0), cl::cat(category)),
      name(words.program) {}

bool DeviceOptions::complain(const llvm::Twine &message) const {
  llvm::errs() << name << ": error: " << message << "\n";
  return false;
}

bool DeviceOptions::parseCommandLine(int argc, char **argv,
                                     llvm::StringRef overview) {
  static int anchor;
  program = llvm::sys::fs::getMainExecutable(argv[0], &anchor);
  cl::HideUnrelatedOptions(category);
  return ::moec::parseCommandLine(argc, argv, name, overview);
}

bool DeviceOptions::canWrite(OutputCheck &check, llvm::StringRef option,
                             const std::string &path) const {
  if (path.empty())
    return true;
  llvm::Error error = check.check(option, path, OutputCheck::Kind::Text);
  return !error || complain(llvm::toString(std::move(error)));
}

std::string DeviceOptions::getDataFolder() const {
  if (!data.empty())
    return data;
  llvm::SmallString<128> path(program);
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, "..", "share", "moec");
  return std::string(path);
}

std::string DeviceOptions::getDataFile(llvm::StringRef file) const {
  llvm::SmallString<128> path(getDataFolder());
  llvm::sys::path::append(path, file);
  return std::string(path);
}
