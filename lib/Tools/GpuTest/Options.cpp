//===- Options.cpp - options of gpu-test ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "moec/Compiler/OutputFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace moec;
using namespace moec::gputest;

bool Options::complain(const llvm::Twine &message) const {
  llvm::errs() << "gpu-test: error: " << message << "\n";
  return false;
}

bool Options::parse(int argc, char **argv) {
  static int anchor;
  program = llvm::sys::fs::getMainExecutable(argv[0], &anchor);
  llvm::cl::HideUnrelatedOptions(category);
  if (!llvm::cl::ParseCommandLineOptions(
          argc, argv,
          "gpu-test: check compiled layers on a GPU, against a float64 "
          "reference of its own.\n\n"
          "  gpu-test --json=results.json\n"
          "  gpu-test --filter='models/*' --json=results.json\n"
          "  gpu-test --resume=results.json --json=results.json\n"
          "\nNeeds the driver of the GPU and nothing else. The exit code is 0 "
          "only if every case passed;\n2 if some did not run.\n",
          &llvm::errs()))
    return false;
  llvm::StringRef text = shard;
  if (!text.empty()) {
    auto [index, count] = text.split('/');
    if (index.getAsInteger(10, shardIndex) ||
        count.getAsInteger(10, numShards) || shardIndex < 1 ||
        shardIndex > numShards)
      return complain("--shard: '" + text + "' is not i/n with 1 <= i <= n");
    --shardIndex;
  }
  if (jobs < 0 || threads < 0 || timeLimit < 0)
    return complain("--jobs, --threads and --time-limit must not be negative");
  // Hours of a GPU are too dear to end at a file that cannot be written.
  if (!json.empty())
    if (llvm::Error error =
            OutputCheck().check("--json", json, OutputCheck::Kind::Text))
      return complain(llvm::toString(std::move(error)));
  if (!reference.empty() && (inputs.empty() || outputs.empty()))
    return complain("--reference needs --inputs and --outputs");
  return true;
}

std::string Options::getDataFolder() const {
  if (!data.empty())
    return data;
  llvm::SmallString<128> path(program);
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, "..", "share", "moec");
  return std::string(path);
}
