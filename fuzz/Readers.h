//===- Readers.h - readers of untrusted input -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One reader per format for untrusted input. Each takes any bytes, reads them
// as the commands do, and processes accepted input as far as it can without
// other inputs. The fuzzers, the mutation tests and the corpus test call them.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_FUZZ_READERS_H
#define MOEC_FUZZ_READERS_H

#include "RuntimeReaders.h"
#include "mlir/IR/MLIRContext.h"

#include <memory>
#include <string>

namespace moec::testing {

/// A context with every dialect of the commands, which prints no diagnostics.
std::unique_ptr<mlir::MLIRContext> makeSilentContext();

/// Provides a context, renewed after some inputs because MLIR keeps data of
/// each of them in memory.
class ContextPool {
public:
  mlir::MLIRContext &take();

private:
  std::unique_ptr<mlir::MLIRContext> context;
  int numUses = 0;
};

/// Reads a model's config.json or a spec. Accepted input makes a layer that
/// lowers to level tile, and prints as an accepted spec.
class DescriptionReader {
public:
  Reading read(llvm::StringRef text);

private:
  ContextPool contexts;
};

/// Reads IR of any level, lowers it to tile for the CPU and for GPUs, and makes
/// a plan.
class IRReader {
public:
  Reading read(llvm::StringRef text);

private:
  ContextPool contexts;
};

/// Reads a file of measured configs. Accepted text is an option that parses.
Reading readTuned(llvm::StringRef text);

/// Reads a safetensors file. Accepted tensors lie within the file.
Reading readTensors(llvm::StringRef file);

/// Reads a package. An accepted package packs again.
Reading readPackage(llvm::StringRef file);

/// Recomputes the digest at the end of a package.
void sealPackage(std::string &file);

} // namespace moec::testing

#endif // MOEC_FUZZ_READERS_H
