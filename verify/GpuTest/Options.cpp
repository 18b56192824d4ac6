//===- Options.cpp - options of gpu-test ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

using namespace moec;
using namespace moec::gputest;

static constexpr DeviceOptions::Words kWords = {
    "gpu-test",
    "cuda|cuda:N|host|sim|sim:SEED",
    "Device to test (default: cuda); sim is a simulated GPU",
    "Folder of cases.json and the models' configurations (default: "
    "../share/moec beside the program)",
    "List the cases and stop",
    "File of results, written after each case",
    "Threads of the reference and of the device host (default: all cores)",
    "Start no case after this time; exit 60 s later even if one hangs "
    "(default: none)",
    0};

Options::Options() : DeviceOptions(kWords) {}

bool Options::parse(int argc, char **argv) {
  if (!parseCommandLine(
          argc, argv,
          "gpu-test: check compiled layers on a GPU against its own float64 "
          "reference.\n\n"
          "  gpu-test --json=results.json\n"
          "  gpu-test --filter='models/*' --json=results.json\n"
          "  gpu-test --resume=results.json --json=results.json\n"
          "\nNeeds the driver of the GPU and nothing else. The exit code is 0 "
          "only if every case passed;\n2 if some did not run.\n"))
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
  OutputCheck written;
  if (!canWrite(written, "--json", json))
    return false;
  if (!reference.empty() && (inputs.empty() || outputs.empty()))
    return complain("--reference needs --inputs and --outputs");
  return true;
}
