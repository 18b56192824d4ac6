//===- MutateIRTest.cpp - mutated IR ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../fuzz/Readers.h"
#include "Mutator.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Import/BuildLayer.h"

#include "gtest/gtest.h"

using namespace moec;
using namespace moec::testing;

namespace {

constexpr int kNumMutants = 5000;

const llvm::StringRef kWords[] = {"(",
                                  ")",
                                  "<",
                                  ">",
                                  "{",
                                  "}",
                                  "[",
                                  "]",
                                  "->",
                                  "%0",
                                  "@route",
                                  "#plan.expr<\"",
                                  "tokens",
                                  "?x",
                                  "xf32",
                                  "xbf16",
                                  "i32",
                                  "f64",
                                  "index",
                                  "moe.yield",
                                  "tile.yield",
                                  "slot 0",
                                  "rows <\"tokens\">",
                                  "moe.name = \"output\"",
                                  "stream 1",
                                  "loc(\"a\":1:1)"};

class MutateIR : public ::testing::TestWithParam<Level> {
protected:
  /// A layer with most features, at the level of the parameter.
  static std::string makeIR() {
    std::unique_ptr<mlir::MLIRContext> context = makeSilentContext();
    LayerSpec spec;
    spec.hiddenSize = 32;
    spec.numExperts = 8;
    spec.topK = 2;
    spec.intermediateSize = 16;
    spec.routing.score = Score::Sigmoid;
    spec.routing.selectionBias = true;
    spec.routing.numGroups = 4;
    spec.routing.topkGroups = 2;
    spec.expertBias = true;
    spec.sharedExperts = SharedExpertsSpec{16, SharedGate::Sigmoid};
    mlir::OwningOpRef<mlir::ModuleOp> module = buildLayer(*context, spec);
    EXPECT_TRUE(module);
    EXPECT_TRUE(succeeded(lowerToLevel(*module, GetParam(), {})));
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }
};

} // namespace

TEST_P(MutateIR, IsReadWithoutACrash) {
  std::string text = makeIR();
  IRReader reader;
  ASSERT_TRUE(reader.read(text).accepted);
  Mutator mutator(uint64_t(GetParam()) + 10, kWords);
  int numParsed = 0;
  for (int i = 0; i < kNumMutants; ++i) {
    std::string mutant = mutator.mutate(text);
    Reading reading = reader.read(mutant);
    EXPECT_EQ(reading.broken, "") << mutant;
    numParsed += reading.accepted;
  }
  EXPECT_GT(numParsed, kNumMutants / 200);
  EXPECT_LT(numParsed, kNumMutants / 2);
}

INSTANTIATE_TEST_SUITE_P(Levels, MutateIR,
                         ::testing::Values(Level::Moe, Level::Plan,
                                           Level::Tile));
