//===- Options.h - options of gpu-test --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_OPTIONS_H
#define MOEC_VERIFY_GPUTEST_OPTIONS_H

#include "Tools/OnDevice/DeviceOptions.h"

namespace moec::gputest {

/// A deliberate fault, to verify that the suite detects it.
enum class Plant { None, Output, Canary, Repeat };

struct Options : DeviceOptions {
  Options();

  llvm::cl::list<std::string> filter{
      "filter", llvm::cl::value_desc("glob"),
      llvm::cl::desc("Only cases that match one of these patterns, which may "
                     "contain * and ?"),
      llvm::cl::CommaSeparated, llvm::cl::cat(category)};
  llvm::cl::opt<std::string> shard{
      "shard", llvm::cl::value_desc("i/n"),
      llvm::cl::desc("Only every n-th case, from the i-th on (1/n to n/n)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> resume{
      "resume", llvm::cl::value_desc("file"),
      llvm::cl::desc("Record to continue: cases that passed are kept, cases "
                     "that failed run last"),
      llvm::cl::cat(category)};
  llvm::cl::opt<int> jobs{
      "jobs", llvm::cl::value_desc("N"),
      llvm::cl::desc("Number of cases compiled and compared at once (default: "
                     "half the cores); the device runs one at a time"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<Plant> plant{
      "plant",
      llvm::cl::desc(
          "Plant a fault in every case of a layer, to test the suite"),
      llvm::cl::values(
          clEnumValN(Plant::Output, "output", "one element of the output"),
          clEnumValN(Plant::Canary, "canary", "a byte behind the workspace"),
          clEnumValN(Plant::Repeat, "repeat", "one bit of a repeated run")),
      llvm::cl::init(Plant::None), llvm::cl::cat(category)};

  llvm::cl::opt<std::string> reference{
      "reference", llvm::cl::value_desc("spec.json"),
      llvm::cl::desc("Instead of the suite, evaluate the float64 reference of "
                     "this layer from --inputs to --outputs"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> inputs{
      "inputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("For --reference: file of all inputs and weights"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> outputs{
      "outputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("For --reference: file of output and routing, as f64. For "
                     "--generate: file of the values"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> generate{
      "generate", llvm::cl::value_desc("seed,name,dtype,deviation,first,count"),
      llvm::cl::desc("Instead of the suite, write these elements of a "
                     "generated tensor to --outputs"),
      llvm::cl::CommaSeparated, llvm::cl::cat(category)};

  /// Parses the command line; returns false, with a message, if it makes no
  /// sense.
  bool parse(int argc, char **argv);

  /// The two numbers of --shard.
  int64_t shardIndex = 0, numShards = 1;
};

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_OPTIONS_H
