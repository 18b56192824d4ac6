//===- Jit.h - compiles descriptions, with a cache --------------*- C++ -*-===//
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
  /// Target and pass options. Options that print or write intermediate results
  /// (dumps, IR, a reproducer) disable the cache. `times` is ignored.
  CompileOptions compile;
  /// If false, packages contain only PTX, which the driver assembles.
  bool usePtxas = true;
  bool useCache = true;
  CacheOptions cache;
  /// Threads that compile kernels; 0: one per core that this process may use.
  unsigned threads = 0;
  /// Called with a line of text for a problem that is not an error; if empty,
  /// it is printed on the error stream. May be called from any compiling
  /// thread.
  std::function<void(const std::string &)> warn;
  /// Called with the number of finished and of all steps of a compilation; may
  /// be empty. May be called from any compiling thread.
  std::function<void(size_t done, size_t all)> step;
};

/// Times of the stages, in seconds.
struct JitReport {
  bool fromCache = false;
  /// Parsing of the text to IR.
  double parse = 0;
  /// Computing the key and looking it up.
  double find = 0;
  /// Stages of the compilation, unless the layer came from the cache.
  CompileTimes compile;
  /// Building, verifying and storing the package.
  double store = 0;
  /// Everything, including the wait for another process that compiles the same
  /// layer.
  double total = 0;
};

/// Prints a line of a report: `name   milliseconds ms`, then `more`.
void printStage(llvm::StringRef name, double seconds, llvm::raw_ostream &os,
                llvm::StringRef more = {});

/// Prints one line per stage and kernel.
void printReport(const JitReport &report, llvm::raw_ostream &os);

struct JitLayer {
  moert::Package package;
  /// Set if the layer came from JSON.
  std::optional<LayerSpec> spec;
  JitReport report;
};

/// A layer compiled for the CPU of this process.
struct HostLayer {
  CompiledLayer compiled;
  /// Set if the layer came from JSON.
  std::optional<LayerSpec> spec;
  /// Result of describeLayer().
  std::string description;
  JitReport report;
};

/// Success if `target` is a GPU that kernels can be compiled for.
moert::Status checkTarget(const std::string &target);
/// Success if `part` is empty or names a part that runs code for `target`.
moert::Status checkPart(const std::string &target, const std::string &part);

/// The compiler as a function. Thread-safe.
class Jit {
public:
  explicit Jit(JitOptions options);

  /// Compiles the layer that `text` describes (JSON if its name ends with
  /// ".json", else IR) for a GPU of `architecture` ("sm_90"; empty: for the
  /// target of the options, which must be a GPU). If the target of the options
  /// is "cpu", the best target that the GPU runs replaces it. Failure messages
  /// contain source lines and carets.
  moert::Result<JitLayer> compile(const SourceText &text,
                                  const SpecOverrides &overrides = {},
                                  llvm::StringRef architecture = {});
  /// Compiles for a present device. If the options name no part, configs are
  /// chosen for the part that `choosePart` returns.
  moert::Result<JitLayer> compile(const SourceText &text,
                                  const SpecOverrides &overrides,
                                  const moert::Device &device);
  /// Compiles for the CPU of this process and ignores the target of the
  /// options. The result is code in memory and is not cached.
  moert::Result<HostLayer> compileForHost(const SourceText &text,
                                          const SpecOverrides &overrides);

  /// The options that a compilation for `device` would use (null: for the
  /// target of the options): its target, and the part for which configs are
  /// chosen.
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
  /// Null if the cache is not used.
  std::unique_ptr<Cache> cache;
  /// Identifies the compiler build.
  std::string buildId;
  std::mutex mutex;
  /// Version text of each ptxas, by path.
  std::map<std::string, std::string> assemblerVersions;
};

} // namespace moec

#endif // MOEC_JIT_JIT_H
