//===- Readers.h - reads inputs that nobody should trust --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One entry per format. Each takes any bytes, reads them as the commands do,
// and goes on with what is accepted as far as an input alone can lead. The
// fuzzers, the mutation tests and the test of the corpus call them.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_FUZZ_READERS_H
#define MOEC_FUZZ_READERS_H

#include "RuntimeReaders.h"
#include "mlir/IR/MLIRContext.h"

#include <memory>
#include <string>

namespace moec::testing {

/// A context with every dialect of the commands that says nothing.
std::unique_ptr<mlir::MLIRContext> makeSilentContext();

/// Hands out a context, and a new one after some inputs: what MLIR keeps of
/// them would fill the memory.
class ContextPool {
public:
  mlir::MLIRContext &take();

private:
  std::unique_ptr<mlir::MLIRContext> context;
  int numUses = 0;
};

/// A model's config.json or a spec. What is accepted makes a layer, which
/// lowers to level tile, and prints as a spec that is accepted.
class DescriptionReader {
public:
  Reading read(llvm::StringRef text);

private:
  ContextPool contexts;
};

/// IR of any level, lowered to tile for the CPU and for GPUs and made a plan.
class IRReader {
public:
  Reading read(llvm::StringRef text);

private:
  ContextPool contexts;
};

/// A file of measured configs. What is accepted is an option that parses.
Reading readTuned(llvm::StringRef text);

/// A safetensors file. What is accepted lies within the file.
Reading readTensors(llvm::StringRef file);

/// A package. What is accepted packs again.
Reading readPackage(llvm::StringRef file);

/// Makes the digest at the end of a package fit what is before it.
void sealPackage(std::string &file);

} // namespace moec::testing

#endif // MOEC_FUZZ_READERS_H
