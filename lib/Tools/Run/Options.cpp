//===- Options.cpp - options of moe-run -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "llvm/Support/FileSystem.h"

using namespace moec;

bool MoeRunOptions::makeSense() const {
  auto isGiven = [](const llvm::cl::Option &option) {
    return option.getNumOccurrences() > 0;
  };
  if (tokens < 0)
    return complain("--tokens must not be negative");
  if (isGiven(layers) && layers != "all")
    return complain(
        "--layers accepts only 'all'; give --layer=N for one layer");
  if (isGiven(layers) && (isGiven(layer) || isGiven(outputs)))
    return complain("--layers=all runs many layers; leave out --layer and "
                    "--outputs");
  if (repeat < 0)
    return complain("--repeat must not be negative");
  if (threads < 0)
    return complain("--threads must not be negative");
  if (hasValidTokens() && (validTokens < 0 || validTokens > tokens))
    return complain("--valid-tokens must lie between 0 and --tokens");
  if (hasValidTokens() && !rankTokens.empty())
    return complain("--rank-tokens gives the valid tokens of each group of "
                    "ranks; leave out --valid-tokens");
  for (int64_t valid : rankTokens)
    if (valid < 0 || valid > tokens)
      return complain("--rank-tokens must lie between 0 and --tokens");
  if (compare < 0)
    return complain("--compare must not be negative");
  for (int64_t count : timesAt)
    if (count < 1 || count > tokens)
      return complain("--times-at must lie between 1 and --tokens");
  if (!timesAt.empty() && repeat < 1)
    return complain("--times-at needs --repeat, the number of timed runs");
  if (!timesAt.empty() && (hasValidTokens() || !rankTokens.empty()))
    return complain("--times-at times runs with valid tokens only; leave out "
                    "--valid-tokens and --rank-tokens");
  if (isGiven(trace) && level == ExecutedLevel::Moe)
    return complain("--trace: level moe has no launches; leave out --level");
  if (isGiven(trace) && (bisect || isGiven(layers)))
    return complain(
        "--trace covers one run of one layer; leave out --bisect and --layers");
  if (isGiven(prepared) && isGiven(writePrepared))
    return complain("--prepared and --write-prepared would copy a file; leave "
                    "out one of them");
  if ((isGiven(prepared) || isGiven(writePrepared)) &&
      (bisect || isGiven(layers) || level != ExecutedLevel::LLVM))
    return complain("--prepared and --write-prepared need the compiled kernels "
                    "of one layer; leave out --level, --bisect and --layers");
  if (microBatchesFrom < 0)
    return complain("--micro-batches-from must not be negative");
  if (!(allToAllCapacity >= 0 && allToAllCapacity <= 1))
    return complain("--all-to-all-capacity must lie between 0 and 1");
  if ((isGiven(allToAllCapacity) || isGiven(allToAllFrom)) &&
      exchange != Exchange::AllToAll)
    return complain("--all-to-all-capacity and --all-to-all-from need "
                    "--exchange=all-to-all");
  if (isGiven(copyRowsFrom) && exchange != Exchange::Peer)
    return complain("--copy-rows-from needs --exchange=peer");
  if (rankLimit <= 0)
    return complain("--rank-limit must be above 0");
  if (isGiven(nproc) && nproc < 2)
    return complain("--nproc is the number of ranks, at least 2; without it "
                    "ranks are threads");
  if (isGiven(drill)) {
    auto [rank, failure] = llvm::StringRef(drill).split(':');
    int64_t number = 0;
    if (rank.getAsInteger(10, number) || number < 0 || number >= nproc ||
        (failure != "skip" && failure != "package"))
      return complain(
          "--drill=" + drill +
          ": give RANK:skip or RANK:package, with a RANK below --nproc");
  }
  if (isGiven(nproc) && (bisect || isGiven(layers) || signature))
    return complain("--nproc runs one layer once; leave out --bisect, --layers "
                    "and --signature");
  if (isGiven(nproc) &&
      (isGiven(dumpDir) || printIRAfterAll || isGiven(reproducer)))
    return complain("--nproc: each process compiles the layer; leave out "
                    "--dump-dir, --print-ir-after-all and --reproducer");
  if (const llvm::cl::Option *given = findCompileOption(); given && isPackage())
    return complain("--" + given->ArgStr +
                    ": a package is compiled already; give the option to "
                    "moe-compile");
  if (getTargets().size() > 1)
    return complain("--target: moe-run takes one target");
  if (target != "cpu" && runsOnHost())
    return complain("--target=" + target + " runs on a GPU; add --device=cuda");
  if (isGiven(target) && target == "cpu" && !runsOnHost())
    return complain("--target=cpu runs on the host; leave out "
                    "--device or give a GPU's target");
  if (graph && runsOnHost())
    return complain("--graph: the host has no graphs; add "
                    "--device=cuda");
  if (timing && runsOnHost())
    return complain("--timing reports on loading to a GPU; add --device=cuda");
  if ((graph || isPackage()) && level != ExecutedLevel::LLVM)
    return complain("--graph and packages run compiled kernels; leave "
                    "out --level");
  if (bisect && isPackage())
    return complain("--bisect needs the levels above the kernels, "
                    "which a package lacks; give the JSON "
                    "description");
  if (bisect && (isGiven(outputs) || isGiven(repeat) || isGiven(level)))
    return complain("--bisect runs every level once to compare it; "
                    "leave out --outputs, --repeat and --level");
  return true;
}

std::string MoeRunOptions::getCheckpoint() const {
  llvm::StringRef model = input;
  bool hasWeights = model.ends_with(".gguf") ||
                    (!isPackage() && llvm::sys::fs::is_directory(model));
  return inputs.empty() && hasWeights ? input : inputs;
}

bool MoeRunOptions::canWrite() const {
  OutputCheck written = makeOutputCheck();
  for (const std::string &file : {inputs.getValue(), hiddenStates.getValue(),
                                  spec.getValue(), prepared.getValue()})
    written.addInput(file);
  return canWriteDumps(written) &&
         (trace.getNumOccurrences() == 0 ||
          accept(written.check("--trace", trace, OutputCheck::Kind::Text))) &&
         (writePrepared.getNumOccurrences() == 0 ||
          accept(written.check("--write-prepared", writePrepared,
                               OutputCheck::Kind::Binary))) &&
         (outputs.getNumOccurrences() == 0 ||
          accept(
              written.check("--outputs", outputs, OutputCheck::Kind::Binary)));
}
