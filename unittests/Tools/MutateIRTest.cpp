//===- MutateIRTest.cpp - IR that is nearly right ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Mutator.h"
#include "mlir/Parser/Parser.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Compiler/Registry.h"
#include "moec/Compiler/SourceFile.h"
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
  MutateIR()
      : context(getRegistry()),
        handler(&context, [](auto &) { return mlir::success(); }) {
    context.disableMultithreading();
    context.loadAllAvailableDialects();
  }

  static mlir::DialectRegistry getRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  /// A layer with most parts, at the level of the parameter.
  std::string makeIR() {
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
    mlir::OwningOpRef<mlir::ModuleOp> module = buildLayer(context, spec);
    EXPECT_TRUE(module);
    EXPECT_TRUE(succeeded(lowerToLevel(*module, GetParam(), {})));
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os);
    return text;
  }

  /// Parses and lowers as far as it goes; returns whether it was parsed.
  bool run(llvm::StringRef text) {
    std::string messages;
    llvm::raw_string_ostream os(messages);
    if (failed(checkIRText(llvm::MemoryBufferRef(text, "t.mlir"), os)))
      return false;
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return false;
    if (succeeded(lowerToLevel(*module, Level::Tile, {})))
      (void)translatePlan(*module, "cpu");
    return true;
  }

  mlir::MLIRContext context;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace

TEST_P(MutateIR, IsReadWithoutACrash) {
  std::string text = makeIR();
  ASSERT_TRUE(run(text));
  Mutator mutator(uint64_t(GetParam()) + 10, kWords);
  int numParsed = 0;
  for (int i = 0; i < kNumMutants; ++i)
    numParsed += run(mutator.mutate(text));
  EXPECT_GT(numParsed, kNumMutants / 200);
  EXPECT_LT(numParsed, kNumMutants / 2);
}

INSTANTIATE_TEST_SUITE_P(Levels, MutateIR,
                         ::testing::Values(Level::Moe, Level::Plan,
                                           Level::Tile));
