//===- Options.h - options of gpu-test --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_GPUTEST_OPTIONS_H
#define MOEC_LIB_TOOLS_GPUTEST_OPTIONS_H

#include "../ToolOptions.h"

namespace moec::gputest {

/// A wrong result on purpose, to see that the suite finds it.
enum class Plant { None, Output, Canary, Repeat };

struct Options : private ForeignOptionsRemoved {
  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> device{
      "device", llvm::cl::value_desc("cuda|cuda:N|host|sim|sim:SEED"),
      llvm::cl::desc("What to test (default: cuda); sim is a simulated GPU"),
      llvm::cl::init("cuda"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> target{
      "target", llvm::cl::value_desc("sm_80|sm_90a"),
      llvm::cl::desc("What to compile for (default: the best that the GPU "
                     "runs)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> data{
      "data", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Where cases.json and the models' configurations are "
                     "(default: ../share/moec beside the program)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> list{"list", llvm::cl::desc("List the cases and stop"),
                           llvm::cl::cat(category)};
  llvm::cl::list<std::string> filter{
      "filter", llvm::cl::value_desc("glob"),
      llvm::cl::desc("Only cases that match one of these; * and ? as usual"),
      llvm::cl::CommaSeparated, llvm::cl::cat(category)};
  llvm::cl::opt<std::string> shard{
      "shard", llvm::cl::value_desc("i/n"),
      llvm::cl::desc("Only every n-th case, from the i-th on (1/n to n/n)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> json{
      "json", llvm::cl::value_desc("file"),
      llvm::cl::desc("Where to record results; kept up to date"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> resume{
      "resume", llvm::cl::value_desc("file"),
      llvm::cl::desc("A record: cases that passed there are kept as they are, "
                     "those that failed run last"),
      llvm::cl::cat(category)};
  llvm::cl::opt<double> timeLimit{
      "time-limit", llvm::cl::value_desc("seconds"),
      llvm::cl::desc("Start no case after so long; end 60 s later even if one "
                     "hangs (default: none)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<int> jobs{
      "jobs", llvm::cl::value_desc("N"),
      llvm::cl::desc("Cases that are compiled and compared at a time (default: "
                     "half the cores); the device has one at a time"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<int> threads{
      "threads", llvm::cl::value_desc("N"),
      llvm::cl::desc("Threads of the reference and of device host (default: "
                     "all cores)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<Plant> plant{
      "plant",
      llvm::cl::desc("Make every case of a layer fail, to test the suite"),
      llvm::cl::values(
          clEnumValN(Plant::Output, "output", "one element of the output"),
          clEnumValN(Plant::Canary, "canary", "a byte behind the workspace"),
          clEnumValN(Plant::Repeat, "repeat", "one bit of a repeated run")),
      llvm::cl::init(Plant::None), llvm::cl::cat(category)};

  llvm::cl::opt<std::string> reference{
      "reference", llvm::cl::value_desc("spec.json"),
      llvm::cl::desc("Run no suite: evaluate the float64 reference of this "
                     "layer from --inputs to --outputs"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> inputs{
      "inputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("For --reference: every input and weight"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> outputs{
      "outputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("For --reference: output and routing, as f64. For "
                     "--generate: the values"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> generate{
      "generate", llvm::cl::value_desc("seed,name,dtype,deviation,first,count"),
      llvm::cl::desc("Run no suite: write these elements of a generated tensor "
                     "to --outputs"),
      llvm::cl::CommaSeparated, llvm::cl::cat(category)};

  /// Parses the command line; false, with a message, if it makes no sense.
  bool parse(int argc, char **argv);
  /// Prints an error; false, for the caller to return.
  bool complain(const llvm::Twine &message) const;
  /// The folder of cases and models.
  std::string getDataFolder() const;

  /// Of --shard.
  int64_t shardIndex = 0, numShards = 1;

private:
  std::string program;
};

} // namespace moec::gputest

#endif // MOEC_LIB_TOOLS_GPUTEST_OPTIONS_H
