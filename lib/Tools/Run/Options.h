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
          "Weights and activations, by the names that --signature lists; of a "
          "model's folder its own weights are the default"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> hiddenStates{
      "hidden-states", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc("What a call brings, apart from the weights: its only "
                     "tensor, or tensors called hidden_states, router_logits, "
                     "topk_ids, topk_weights, input_ids; of several ranks for "
                     "the tokens of all groups (default: generated)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> writePrepared{
      "write-prepared", llvm::cl::value_desc("file"),
      llvm::cl::desc("Write the weights as the kernels read them, to start "
                     "from again with --prepared; of several ranks a file "
                     "each, whose name has {rank} for the number"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> prepared{
      "prepared", llvm::cl::value_desc("file"),
      llvm::cl::desc("Weights that --write-prepared of the same layer has "
                     "written, verified by their digests; those of --inputs or "
                     "generated ones are for --check alone then"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> layers{
      "layers", llvm::cl::value_desc("all"),
      llvm::cl::desc("Of a model: run each decoder layer that has experts, one "
                     "after the other"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> outputs{
      "outputs", llvm::cl::value_desc("file.safetensors"),
      llvm::cl::desc(
          "Where to write the output and, where the layer routes, "
          "topk_ids, topk_weights, expert_offsets and expert_counts"),
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
      llvm::cl::desc(
          "What the layer is meant to compute, for --check and --bisect "
          "of IR"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> repeat{"repeat", llvm::cl::value_desc("R"),
                               llvm::cl::desc("Timed runs after the first one"),
                               llvm::cl::init(0), llvm::cl::cat(category)};
  NumberOption<int64_t> compare{
      "compare", llvm::cl::value_desc("N"),
      llvm::cl::desc("Runs after the first one, each of which has to give the "
                     "same bits as the first with its inputs; with several "
                     "ranks, four inputs take turns"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::list<int64_t> timesAt{
      "times-at", llvm::cl::CommaSeparated, llvm::cl::value_desc("T,..."),
      llvm::cl::desc("Time --repeat runs with each of these numbers of tokens, "
                     "at most --tokens; with several ranks their collectives "
                     "too, kernels without them, and with NCCL what it takes "
                     "to move as many bytes (docs/use/parallel.md)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> trace{
      "trace", llvm::cl::value_desc("file.json"),
      llvm::cl::desc("Run once more, and write when each launch and collective "
                     "was under way, of all ranks and streams, as a trace for "
                     "chrome://tracing or ui.perfetto.dev"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> validTokens{
      "valid-tokens", llvm::cl::value_desc("V"),
      llvm::cl::desc(
          "Let tokens from V on be padding: value of the operand "
          "num_valid_tokens, which a JSON description gets if it has "
          "none"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::list<int64_t> rankTokens{
      "rank-tokens", llvm::cl::CommaSeparated, llvm::cl::value_desc("V,..."),
      llvm::cl::desc(
          "Of a layer with 'parallel': --valid-tokens of each group "
          "of ranks, of which there are dp, or with sp of each rank"),
      llvm::cl::cat(category)};
  NumberOption<int64_t> rankLimit{
      "rank-limit", llvm::cl::value_desc("S"),
      llvm::cl::desc("Seconds that a rank waits for the others in one call "
                     "(default: 60)"),
      llvm::cl::init(60), llvm::cl::cat(category)};
  NumberOption<int64_t> nproc{
      "nproc", llvm::cl::value_desc("N"),
      llvm::cl::desc("Of a layer with 'parallel': run each of its N ranks as a "
                     "process of its own, not as a thread"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> drill{
      "drill", llvm::cl::Hidden, llvm::cl::value_desc("RANK:skip|package"),
      llvm::cl::desc("With --nproc, to see what becomes of the others: let one "
                     "rank leave out one of the runs of --compare, or have "
                     "another package"),
      llvm::cl::cat(category)};
  llvm::cl::opt<Exchange> exchange{
      "exchange", llvm::cl::desc("Who moves rows between ranks"),
      llvm::cl::values(
          clEnumValN(Exchange::Default, "default",
                     "NCCL between GPUs, else ranks copy what others have"),
          clEnumValN(Exchange::Nccl, "nccl", "NCCL (--device=cuda)"),
          clEnumValN(Exchange::Peer, "peer",
                     "kernels of the layer, through the memory of other ranks "
                     "(--device=cuda, cuda:N for ranks that share a GPU, or "
                     "sim)"),
          clEnumValN(Exchange::AllToAll, "all-to-all",
                     "as by default, but rows go to the ranks alone that have "
                     "an expert of theirs (--device=cuda, cuda:N or sim)")),
      llvm::cl::init(Exchange::Default), llvm::cl::cat(category)};
  NumberOption<int64_t> copyRowsFrom{
      "copy-rows-from", llvm::cl::value_desc("BYTES"),
      llvm::cl::desc(
          "With --exchange=peer: let copy engines move gathered rows, not the "
          "kernel, where a rank sends so many bytes of them to each other one "
          "(default: 4194304; 0: never)"),
      llvm::cl::init(moert::kLeastCopiedBytes), llvm::cl::cat(category)};
  NumberOption<int64_t> allToAllFrom{
      "all-to-all-from", llvm::cl::value_desc("TOKENS"),
      llvm::cl::desc("With --exchange=all-to-all: where each rank has so many "
                     "tokens (default: 1)"),
      llvm::cl::init(1), llvm::cl::cat(category)};
  llvm::cl::opt<double> allToAllRoom{
      "all-to-all-room", llvm::cl::value_desc("PART"),
      llvm::cl::desc(
          "With --exchange=all-to-all: which part of its rows a rank has room "
          "for in what it sends to one other, up to 1, so that graphs can have "
          "it (default: 0, as many as there are, which the host waits for; a "
          "graph then sends all rows)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  NumberOption<int64_t> microBatchesFrom{
      "micro-batches-from", llvm::cl::value_desc("TOKENS"),
      llvm::cl::desc(
          "Of a layer with 'parallel': run two halves of a batch, of which one "
          "exchanges rows beside what the other computes, where each rank has "
          "so many tokens (default: 0, never)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> device{
      "device",
      llvm::cl::value_desc("host|cuda|cuda:N|sim|sim:SEED|sim:FIRST-LAST"),
      llvm::cl::desc(
          "What to run on (default: host, cuda for a package). On a GPU "
          "the default of --target is the best that it runs. sim is a "
          "simulated GPU, whose seed drives the schedule; all seeds of a "
          "range have to give the same bits"),
      llvm::cl::init("host"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> graph{
      "graph",
      llvm::cl::desc(
          "On a GPU: let timed runs replay a CUDA graph, whose output "
          "has to be that of the first run"),
      llvm::cl::cat(category)};
  NumberOption<int> threads{
      "threads", llvm::cl::value_desc("N"),
      llvm::cl::desc("Threads that run kernels on the host, or compile those "
                     "of a GPU (default: all cores)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cacheDir{
      "cache-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Where layers that were compiled for a GPU are kept "
                     "(default: $MOEC_CACHE_DIR, else the user's cache)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noCache{
      "no-cache",
      llvm::cl::desc("Compile anew, and keep nothing (as with --dump-dir, "
                     "--print-ir-after-all, --reproducer)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noPtxas{
      "no-ptxas",
      llvm::cl::desc("Let the driver assemble the PTX though there is a ptxas"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> timing{
      "timing",
      llvm::cl::desc("On a GPU: print where the time goes until the kernels "
                     "are ready to be launched"),
      llvm::cl::cat(category)};
  WordOption<ExecutedLevel> level{
      "level", llvm::cl::desc("What to execute"),
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
      llvm::cl::desc(
          "Check every level, from that of the input on, and name the "
          "passes before the first that is wrong"),
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

  /// Whether the options make sense together; prints the reason if not.
  bool makeSense() const;
  /// Whether their output files can be written; prints the reason if not.
  bool canWrite() const;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_OPTIONS_H
