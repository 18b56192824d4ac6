//===- Jit.h - from a description to a package, cached ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_JIT_JIT_H
#define MOEC_JIT_JIT_H

#include "moec/Compiler/Compiler.h"
#include "moec/Jit/Cache.h"
#include "moert/Package.h"

#include <map>

namespace moec {

class ParsedLayer;

struct JitOptions {
  /// The target, and what goes with the pass pipelines. Where something of the
  /// pipelines is to be seen (dumps, IR, a reproducer) the cache is not used.
  /// `times` is not used.
  CompileOptions compile;
  /// Without ptxas a package has PTX alone, which the driver assembles.
  bool usePtxas = true;
  bool useCache = true;
  CacheOptions cache;
  /// That compile kernels; 0: one per core that this process may use.
  unsigned threads = 0;
  /// Gets a line of text about what is wrong and no failure; the error stream
  /// if it is empty. May be called from any thread that compiles.
  std::function<void(const std::string &)> warn;
  /// Gets how many parts of a compilation are done, of how many; may be empty.
  /// May be called from any thread that compiles.
  std::function<void(size_t done, size_t all)> step;
};

/// Where the time went, in seconds.
struct JitReport {
  bool fromCache = false;
  /// From the text to IR.
  double parse = 0;
  /// The key, and the search for it.
  double find = 0;
  /// The parts of the compilation, where the layer was compiled.
  CompileTimes compile;
  /// The package: made, verified, stored.
  double store = 0;
  /// All of it, and waiting for another process that compiles the same.
  double total = 0;
};

/// A line of a report: `name   milliseconds ms`, then `more`.
void printStage(llvm::StringRef name, double seconds, llvm::raw_ostream &os,
                llvm::StringRef more = {});

/// A line per stage and kernel.
void printReport(const JitReport &report, llvm::raw_ostream &os);

struct JitLayer {
  moert::Package package;
  /// Where it came from JSON.
  std::optional<LayerSpec> spec;
  JitReport report;
};

/// A layer for the CPU of this process.
struct HostLayer {
  CompiledLayer compiled;
  /// Where it came from JSON.
  std::optional<LayerSpec> spec;
  /// The result of describeLayer().
  std::string description;
  JitReport report;
};

/// Success for the name of a GPU that kernels can be compiled for.
moert::Status checkTarget(const std::string &target);
/// Success for the name of a part that runs code for `target`, and for none.
moert::Status checkPart(const std::string &target, const std::string &part);

/// The compiler as a function. Calls may come from any number of threads.
class Jit {
public:
  explicit Jit(JitOptions options);

  /// Whether the options name a GPU.
  bool hasTarget() const { return options.compile.isGpu(); }

  /// The layer that `text` describes (JSON where its name ends with ".json",
  /// else IR), for a GPU of `architecture` ("sm_90"; empty: the target of the
  /// options itself, which then names a GPU). The target of the options, where
  /// it is "cpu", gives way to the best one that the GPU runs. The message of a
  /// failure has lines and carets.
  moert::Result<JitLayer> compile(const SourceText &text,
                                  const SpecOverrides &overrides = {},
                                  llvm::StringRef architecture = {});
  /// The same for a device at hand. Where the options name no part, configs are
  /// chosen for the one that `choosePart` says.
  moert::Result<JitLayer> compile(const SourceText &text,
                                  const SpecOverrides &overrides,
                                  const moert::Device &device);
  /// The same for the CPU of this process, whatever the target of the options.
  /// Nothing is cached: the kernels are code in memory.
  moert::Result<HostLayer> compileForHost(const SourceText &text,
                                          const SpecOverrides &overrides);

  /// What a layer is compiled with for `device` (null: for the target of the
  /// options): the target, and the part that configs are chosen for.
  moert::Result<CompileOptions>
  chooseOptions(const moert::Device *device) const;

  unsigned numThreads() const { return options.threads; }

private:
  struct Request;

  moert::Result<JitLayer> compileFor(const SourceText &text,
                                     const SpecOverrides &overrides,
                                     llvm::StringRef architecture,
                                     const moert::Device *device);

  std::string getKey(const Request &request, const Source &source,
                     const std::string &assemblerVersion) const;
  moert::Result<std::string> getAssemblerVersion(const Request &request);
  moert::Result<moert::Package> make(const Request &request, ParsedLayer &layer,
                                     JitReport &report);
  moert::Result<moert::Package> findOrMake(const Request &request,
                                           ParsedLayer &layer,
                                           const std::string &assemblerVersion,
                                           JitReport &report);

  moert::Result<CompileOptions>
  chooseOptions(llvm::StringRef architecture,
                const moert::Device *device) const;

  JitOptions options;
  /// Null where nothing is cached.
  std::unique_ptr<Cache> cache;
  /// Says which build of the compiler it is.
  std::string buildId;
  std::mutex mutex;
  /// Per ptxas: what it says of its version.
  std::map<std::string, std::string> assemblerVersions;
};

} // namespace moec

#endif // MOEC_JIT_JIT_H
