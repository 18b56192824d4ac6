//===- Options.h - options of moe-run ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_OPTIONS_H
#define MOEC_LIB_TOOLS_RUN_OPTIONS_H

#include "../ToolOptions.h"
#include "RunLevel.h"
#include "moec/Package/BuildPackage.h"
#include "moert/PeerCommunicator.h"

namespace moec {

struct MoeRunOptions : ToolOptions {
  MoeRunOptions() : ToolOptions("moe-run") {}

  NumberOption<int64_t> tokens{"tokens", llvm::cl::value_desc("T"),
                               llvm::cl::desc("Number of tokens (default: 1)"),
                               llvm::cl::init(1), llvm::cl::cat(category)};
  NumberOption<uint64_t> seed{
      "seed", llvm::cl::value_desc("S"),
      llvm::cl::desc("Seed of generated weights and activations (default: 0)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> inputs{
      "inputs", llvm::cl::value_desc("file.safetensors|file.gguf|folder"),
      llvm::cl::desc(
          "Weights and activations, by the names that --signature lists "
          "(default: a model folder's own weights, else generated)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> hiddenStates{
      "hidden-states", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("Inputs of a call, without weights: a single tensor, or "
                     "tensors called hidden_states, router_logits, topk_ids, "
                     "topk_weights, input_ids; with several ranks, for the "
                     "tokens of all groups (default: generated)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> writePrepared{
      "write-prepared", llvm::cl::value_desc("file"),
      llvm::cl::desc("Write the prepared weights, to start from them with "
                     "--prepared; with several ranks, one file per rank, whose "
                     "name has {rank} for its number"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> prepared{
      "prepared", llvm::cl::value_desc("file"),
      llvm::cl::desc("Prepared weights that --write-prepared has written for "
                     "the same layer, verified by their digests; only --check "
                     "then reads those of --inputs or generates them"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> layers{
      "layers", llvm::cl::value_desc("all"),
      llvm::cl::desc("Run each decoder layer of the model that has experts, "
                     "one after the other"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> outputs{
      "outputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc(
          "Where to write the output and, if the layer routes, topk_ids, "
          "topk_weights, expert_offsets and expert_counts"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> signature{
      "signature", llvm::cl::desc("List the tensors of the layer and stop"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> check{
      "check",
      llvm::cl::desc("Compare with the float64 reference in python/, in the "
                     "environment that scripts/setup made, or with the python3 "
                     "that MOEC_PYTHON names"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> spec{
      "spec", llvm::cl::value_desc("file.json"),
      llvm::cl::desc("Spec of the layer that an input in IR describes, for "
                     "--check and --bisect"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> repeat{"repeat", llvm::cl::value_desc("R"),
                               llvm::cl::desc("Timed runs after the first one"),
                               llvm::cl::init(0), llvm::cl::cat(category)};
  NumberOption<int64_t> compare{
      "compare", llvm::cl::value_desc("N"),
      llvm::cl::desc("Runs after the first one, which must all give the bits "
                     "of the first run with the same inputs; with several "
                     "ranks, runs alternate between four sets of inputs"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::list<int64_t> timesAt{
      "times-at", llvm::cl::CommaSeparated, llvm::cl::value_desc("T,..."),
      llvm::cl::desc(
          "Time --repeat runs at each of these token counts, up to --tokens; "
          "with several ranks, also time collectives, kernels without "
          "collectives, and NCCL moving as many bytes (docs/use/parallel.md)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> trace{
      "trace", llvm::cl::value_desc("file.json"),
      llvm::cl::desc("Run once more and write the start and end of each launch "
                     "and collective, for all ranks and streams, as a trace "
                     "for chrome://tracing or ui.perfetto.dev"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> validTokens{
      "valid-tokens", llvm::cl::value_desc("V"),
      llvm::cl::desc(
          "Treat tokens from V on as padding: the value of the operand "
          "num_valid_tokens, which is added to a JSON description without it"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::list<int64_t> rankTokens{
      "rank-tokens", llvm::cl::CommaSeparated, llvm::cl::value_desc("V,..."),
      llvm::cl::desc("--valid-tokens for each of the dp groups of ranks, or "
                     "with sp for each rank; needs a layer with 'parallel'"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> rankLimit{
      "rank-limit", llvm::cl::value_desc("S"),
      llvm::cl::desc("Seconds that a rank waits for the others in one call "
                     "(default: 60)"),
      llvm::cl::init(60), llvm::cl::cat(category)};
  NumberOption<int64_t> nproc{
      "nproc", llvm::cl::value_desc("N"),
      llvm::cl::desc("Run each of the layer's N ranks as a process, not as a "
                     "thread; needs a layer with 'parallel'"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> drill{
      "drill", llvm::cl::Hidden, llvm::cl::value_desc("RANK:skip|package"),
      llvm::cl::desc(
          "With --nproc, a fault in one rank, to test the others: skip one of "
          "the runs of --compare, or load another package"),
      llvm::cl::cat(category)};
  llvm::cl::opt<Exchange> exchange{
      "exchange", llvm::cl::desc("How rows move between ranks"),
      llvm::cl::values(
          clEnumValN(Exchange::Default, "default",
                     "NCCL between GPUs, else copies through memory"),
          clEnumValN(Exchange::Nccl, "nccl", "NCCL (--device=cuda)"),
          clEnumValN(
              Exchange::Peer, "peer",
              "kernels of the layer, through peer memory (--device=cuda, "
              "cuda:N for ranks that share a GPU, or sim)"),
          clEnumValN(Exchange::AllToAll, "all-to-all",
                     "as by default, but rows go only to their destination "
                     "ranks (--device=cuda, cuda:N or sim)")),
      llvm::cl::init(Exchange::Default), llvm::cl::cat(category)};
  NumberOption<int64_t> copyRowsFrom{
      "copy-rows-from", llvm::cl::value_desc("BYTES"),
      llvm::cl::desc("With --exchange=peer: gather rows with copy engines, not "
                     "the kernel, from this many bytes on that a rank sends to "
                     "each other rank (default: 4194304; 0: never)"),
      llvm::cl::init(moert::kLeastCopiedBytes), llvm::cl::cat(category)};
  NumberOption<int64_t> allToAllFrom{
      "all-to-all-from", llvm::cl::value_desc("TOKENS"),
      llvm::cl::desc("With --exchange=all-to-all: use it from this many tokens "
                     "per rank on (default: 1)"),
      llvm::cl::init(1), llvm::cl::cat(category)};
  llvm::cl::opt<double> allToAllCapacity{
      "all-to-all-capacity", llvm::cl::value_desc("PART"),
      llvm::cl::desc(
          "With --exchange=all-to-all: capacity of the message to each other "
          "rank, as a fraction (up to 1) of a rank's rows, so that graphs can "
          "capture it (default: 0, exact sizes, for which the host waits; a "
          "graph then sends all rows)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  NumberOption<int64_t> microBatchesFrom{
      "micro-batches-from", llvm::cl::value_desc("TOKENS"),
      llvm::cl::desc(
          "Run a batch as two micro-batches, one of which exchanges rows while "
          "the other computes, from this many tokens per rank on; needs a "
          "layer with 'parallel' (default: 0, never)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> device{
      "device",
      llvm::cl::value_desc("host|cuda|cuda:N|sim|sim:SEED|sim:FIRST-LAST"),
      llvm::cl::desc(
          "Device to run on (default: host; cuda for a package). On a GPU, "
          "--target defaults to the best target that it runs. sim is a "
          "simulated GPU, whose seed determines the order of threads; all "
          "seeds of a range must give the same bits"),
      llvm::cl::init("host"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> graph{
      "graph",
      llvm::cl::desc("On a GPU: replay a CUDA graph for timed runs; its output "
                     "must equal that of the first run"),
      llvm::cl::cat(category)};
  NumberOption<int> threads{
      "threads", llvm::cl::value_desc("N"),
      llvm::cl::desc("Threads that run kernels on the host, or compile kernels "
                     "for a GPU (default: all cores; on the host "
                     "$MOEC_NUM_THREADS or $OMP_NUM_THREADS)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cacheDir{
      "cache-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Cache of layers compiled for a GPU (default: "
                     "$MOEC_CACHE_DIR, else the user's cache)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noCache{
      "no-cache",
      llvm::cl::desc("Neither read nor write the cache (implied by --dump-dir, "
                     "--print-ir-after-all and --reproducer)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noPtxas{
      "no-ptxas",
      llvm::cl::desc("Let the driver assemble the PTX even if ptxas is found"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> timing{
      "timing",
      llvm::cl::desc("On a GPU: print the time of each step until the kernels "
                     "can be launched"),
      llvm::cl::cat(category)};
  WordOption<ExecutedLevel> level{
      "level", llvm::cl::desc("Level of IR to execute"),
      llvm::cl::values(
          clEnumValN(ExecutedLevel::Moe, "moe", "interpret the pipeline ops"),
          clEnumValN(ExecutedLevel::Plan, "plan",
                     "run the plan, interpret its kernels"),
          clEnumValN(ExecutedLevel::Tile, "tile",
                     "run the plan, interpret the tile kernels"),
          clEnumValN(ExecutedLevel::LLVM, "llvm",
                     "run compiled kernels (default)")),
      llvm::cl::init(ExecutedLevel::LLVM), llvm::cl::cat(category)};
  llvm::cl::opt<bool> bisect{
      "bisect",
      llvm::cl::desc("Check every level, from the input's level down, and name "
                     "the passes before the first wrong one"),
      llvm::cl::cat(category)};

  bool isPackage() const { return llvm::StringRef(input).ends_with(".moepkg"); }
  /// The device; by default a GPU for a package, which has no kernels for the
  /// host.
  llvm::StringRef getDevice() const {
    return isPackage() && device.getNumOccurrences() == 0
               ? llvm::StringRef("cuda")
               : llvm::StringRef(device);
  }
  bool runsOnHost() const { return getDevice() == "host"; }
  bool isSimulated() const { return getDevice().starts_with("sim"); }
  /// Whether the layer is compiled for a GPU by the JIT, as programs do.
  bool usesJit() const {
    return !isPackage() && !runsOnHost() && !isSimulated() && !signature &&
           !bisect && level == ExecutedLevel::LLVM;
  }
  bool choosesTarget() const override {
    return target.getNumOccurrences() == 0 && !runsOnHost();
  }
  /// Whether weights are read or generated: for a run, or to check one.
  bool needsWeights() const { return prepared.empty() || check; }
  /// Whether --drill names that failure for the rank.
  bool drills(int64_t rank, llvm::StringRef failure) const {
    return drill == std::to_string(rank) + ":" + failure.str();
  }
  bool hasValidTokens() const { return validTokens.getNumOccurrences() > 0; }

  CompileOptions getCompileOptions(const moert::Device &device) const {
    CompileOptions compile = ToolOptions::getCompileOptions();
    if (target.getNumOccurrences() == 0 && !device.architecture().empty())
      compile.target = chooseTarget(device.architecture());
    if (compile.part.empty())
      compile.part = choosePart(compile.target, device);
    return compile;
  }

  /// The overrides of a JSON description by options.
  SpecOverrides getSpecOverrides() const {
    SpecOverrides overrides = getOverrides();
    if (hasValidTokens() || !rankTokens.empty())
      overrides.numValidTokens = true;
    overrides.toCompile = !signature;
    return overrides;
  }

  /// The file of weights: --inputs, or the folder or GGUF file of the given
  /// model.
  std::string getCheckpoint() const;

  /// Whether the options make sense together; prints the reason if not.
  bool makeSense() const;
  /// Whether their output files can be written; prints the reason if not.
  bool canWrite() const;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_OPTIONS_H
