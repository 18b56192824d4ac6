//===- RankTest.cpp - cpu.rank against the interpreter ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"
#include "unittests/Interpreter/TestModule.h"

#include <chrono>
#include <random>

using namespace moec;
using namespace moec::test;
using moec::interpreter::TensorRef;
using moec::interpreter::TestModule;
using moert::DType;

namespace {

struct RankCase {
  int64_t numExperts = 8;
  int64_t topK = 2;
  int64_t tokens = 50;
  int64_t numZeroExperts = 0;
  std::vector<int64_t> local;
  int64_t numValid = -1;
};

struct Kernel {
  explicit Kernel(const RankCase &test)
      : test(test),
        numLocal(test.local.empty() ? test.numExperts
                                    : static_cast<int64_t>(test.local.size())),
        positions(test.tokens * test.topK),
        ids(DType::I32, {test.tokens, test.topK}),
        weights(DType::F32, {test.tokens, test.topK}), valid(DType::I32, {1}),
        offsets(DType::I32, {numLocal + 1}),
        position(DType::I32, {test.tokens, test.topK}),
        source(DType::I32, {positions}), rowWeight(DType::F32, {positions, 1}) {
  }

  std::string text() const {
    std::string types[] = {ids.getType(true),    weights.getType(true),
                           offsets.getType(),    position.getType(true),
                           source.getType(true), rowWeight.getType(true)};
    bool hasValid = test.numValid >= 0;
    std::string local;
    for (int64_t expert : test.local)
      local += (local.empty() ? " " : ", ") + std::to_string(expert);
    return "tile.kernel @rank(%i: " + types[0] + ", %w: " + types[1] +
           (hasValid ? ", %v: memref<1xi32>" : "") + ", %o: " + types[2] +
           ", %p: " + types[3] + ", %s: " + types[4] + ", %r: " + types[5] +
           ", %t: i64) {\n tile.rank tokens(%t) ids(%i, %w : " + types[0] +
           ", " + types[1] + ")" +
           (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
           " outs(%o, %p, %s, %r : " + types[2] + ", " + types[3] + ", " +
           types[4] + ", " + types[5] +
           ") {num_experts = " + std::to_string(test.numExperts) +
           " : i64, num_zero_experts = " + std::to_string(test.numZeroExperts) +
           " : i64" +
           (local.empty() ? "" : ", local_experts = array<i64:" + local + ">") +
           ", config = #tile.config<schedule = \"cpu.rank\">}\n"
           " tile.return\n}\n";
  }

  std::vector<const Array *> arguments() const {
    if (test.numValid >= 0)
      return {&ids, &weights, &valid, &offsets, &position, &source, &rowWeight};
    return {&ids, &weights, &offsets, &position, &source, &rowWeight};
  }

  void run() {
    valid.set(0, test.numValid);
    for (Array *array : {&offsets, &position, &source, &rowWeight})
      array->fill(77);
    CompiledKernels kernels(text());
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors() << text();
    kernels.run("rank", 1, arguments(), test.tokens);
  }

  void interpret() {
    valid.set(0, test.numValid);
    for (Array *array : {&offsets, &position, &source, &rowWeight})
      array->fill(77);
    TestModule module(text());
    ASSERT_TRUE(module.module);
    llvm::SmallVector<TensorRef> tensors;
    for (const Array *array : arguments()) {
      TensorRef &ref = tensors.emplace_back();
      ref.data = array->data();
      ref.dtype = array->getDType();
      ref.shape.assign(array->getShape().begin(), array->getShape().end());
    }
    auto kernel = *module.module->getOps<tile::KernelOp>().begin();
    moert::Status status =
        interpreter::interpretKernel(kernel, tensors, test.tokens);
    ASSERT_TRUE(status.isOk()) << status.message();
  }

  RankCase test;
  int64_t numLocal, positions;
  Array ids, weights, valid, offsets, position, source, rowWeight;
};

void expectEqual(const Array &found, const Array &expected, const char *name) {
  int failures = 0;
  for (int64_t i = 0; i < found.size() && failures < 5; ++i)
    if (found.get(i) != expected.get(i)) {
      ++failures;
      ADD_FAILURE() << name << "[" << i << "] is " << found.get(i)
                    << ", expected " << expected.get(i);
    }
}

/// What the interpreter leaves unwritten stays unwritten in the kernel too, so
/// whole arrays are equal.
void compareWithInterpreter(const RankCase &test, int64_t lowest,
                            int64_t highest) {
  Kernel compiled(test), interpreted(test);
  std::mt19937 engine(3);
  std::uniform_int_distribution<int64_t> id(lowest, highest);
  for (int64_t i = 0; i < compiled.positions; ++i) {
    int64_t chosen = id(engine);
    for (Kernel *kernel : {&compiled, &interpreted}) {
      kernel->ids.set(i, chosen);
      kernel->weights.set(i, 0.5 + i);
    }
  }
  compiled.run();
  interpreted.interpret();
  expectEqual(compiled.offsets, interpreted.offsets, "offsets");
  expectEqual(compiled.position, interpreted.position, "position");
  expectEqual(compiled.source, interpreted.source, "source");
  expectEqual(compiled.rowWeight, interpreted.rowWeight, "row_weight");
}

} // namespace

TEST(CpuRank, SortsStably) {
  RankCase test;
  compareWithInterpreter(test, 0, 7);
  // Empty experts, and all slots to one.
  compareWithInterpreter(test, 2, 3);
  compareWithInterpreter(test, 7, 7);
  test.tokens = 0;
  compareWithInterpreter(test, 0, 7);
  test.tokens = 1;
  test.topK = 1;
  test.numExperts = 1;
  compareWithInterpreter(test, 0, 0);
  test.tokens = 333;
  test.topK = 8;
  test.numExperts = 1024;
  compareWithInterpreter(test, 0, 1023);
}

TEST(CpuRank, LeavesOutWhatIsOutOfRange) {
  RankCase test;
  compareWithInterpreter(test, -2, 9);
  compareWithInterpreter(test, std::numeric_limits<int32_t>::min(),
                         std::numeric_limits<int32_t>::max());
  compareWithInterpreter(test, -1, -1);
}

TEST(CpuRank, ZeroExperts) {
  RankCase test;
  test.numZeroExperts = 3;
  compareWithInterpreter(test, -2, 13);
  compareWithInterpreter(test, 8, 10);
}

TEST(CpuRank, LocalExperts) {
  RankCase test;
  test.local = {5, 2, 7};
  compareWithInterpreter(test, -1, 9);
  test.numZeroExperts = 2;
  compareWithInterpreter(test, -1, 11);
  test.numExperts = 200;
  test.local = {199, 0, 64, 63, 100};
  compareWithInterpreter(test, -1, 203);
}

TEST(CpuRank, PaddingRows) {
  for (int64_t numValid : {0, 1, 20, 50, 90}) {
    RankCase test;
    test.numValid = numValid;
    test.numZeroExperts = 1;
    compareWithInterpreter(test, -1, 9);
  }
}

TEST(CpuRank, ByHand) {
  RankCase test;
  test.numExperts = 3;
  test.tokens = 3;
  test.numZeroExperts = 1;
  Kernel kernel(test);
  double ids[] = {2, 0, 0, 3, -1, 2};
  for (int64_t i = 0; i < 6; ++i) {
    kernel.ids.set(i, ids[i]);
    kernel.weights.set(i, i);
  }
  kernel.run();
  auto check = [](const Array &array, std::vector<double> expected) {
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(array.get(i), expected[i]) << "element " << i;
  };
  check(kernel.offsets, {0, 2, 2, 4});
  check(kernel.position, {2, 0, 1, -2, -1, 3});
  check(kernel.source, {0, 1, 0, 2});
  check(kernel.rowWeight, {1, 2, 0, 5});
}

TEST(CpuRank, TakesMillisecondsForManyTokens) {
  RankCase test;
  test.tokens = 16384;
  test.topK = 8;
  test.numExperts = 128;
  Kernel kernel(test);
  std::mt19937 engine(3);
  for (int64_t i = 0; i < kernel.positions; ++i)
    kernel.ids.set(i, engine() % 128);
  CompiledKernels kernels(kernel.text());
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  double best = 1;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    kernels.run("rank", 1, kernel.arguments(), test.tokens);
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  RecordProperty("microseconds", std::to_string(best * 1e6));
  EXPECT_EQ(kernel.offsets.get(128), 131072);
}
