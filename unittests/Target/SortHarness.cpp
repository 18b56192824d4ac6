//===- SortHarness.cpp - tensors of one sort_by_expert ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SortHarness.h"
#include "../Interpreter/TestModule.h"

#include <random>

using namespace moec;
using namespace moec::test;
using moec::interpreter::TensorRef;
using moec::interpreter::TestModule;
using moert::DType;

RankTensors::RankTensors(const RankCase &test)
    : test(test),
      numLocal(test.local.empty() ? test.numExperts
                                  : static_cast<int64_t>(test.local.size())),
      positions(test.tokens * test.topK),
      ids(DType::I32, {test.tokens, test.topK}),
      weights(DType::F32, {test.tokens, test.topK}), valid(DType::I32, {1}),
      counts(DType::I32, {test.numChunks, numLocal}),
      offsets(DType::I32, {numLocal + 1}),
      position(DType::I32, {test.tokens, test.topK}),
      source(DType::I32, {positions}), rowWeight(DType::F32, {positions, 1}) {
  valid.set(0, test.numValid);
  clear();
}

std::string RankTensors::attributes(const std::string &more,
                                    const std::string &config) const {
  std::string local;
  for (int64_t expert : test.local)
    local += (local.empty() ? " " : ", ") + std::to_string(expert);
  return " {num_experts = " + std::to_string(test.numExperts) + " : i64" +
         more +
         (hasCounts() ? ", chunk_tokens = " + std::to_string(test.chunkTokens) +
                            " : i64"
                      : "") +
         (local.empty() ? "" : ", local_experts = array<i64:" + local + ">") +
         (config.empty() ? "" : ", config = " + config) +
         "}\n tile.return\n}\n";
}

std::string RankTensors::countText(const std::string &config) const {
  bool hasValid = test.numValid >= 0;
  std::string ids = this->ids.getType(true), counts = this->counts.getType();
  return "tile.kernel @count(%i: " + ids +
         (hasValid ? ", %v: memref<1xi32>" : "") + ", %c: " + counts +
         ", %t: i64) {\n tile.count_slots tokens(%t) ids(%i : " + ids + ")" +
         (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
         " outs(%c : " + counts + ")" + attributes("", config);
}

std::string RankTensors::text(const std::string &config) const {
  std::string types[] = {ids.getType(true),    weights.getType(true),
                         offsets.getType(),    position.getType(true),
                         source.getType(true), rowWeight.getType(true)};
  bool hasValid = test.numValid >= 0;
  return "tile.kernel @rank(%i: " + types[0] + ", %w: " + types[1] +
         (hasValid ? ", %v: memref<1xi32>" : "") +
         (hasCounts() ? ", %c: " + counts.getType() : "") +
         ", %o: " + types[2] + ", %p: " + types[3] + ", %s: " + types[4] +
         ", %r: " + types[5] +
         ", %t: i64) {\n tile.sort_by_expert tokens(%t) ids(%i, %w : " +
         types[0] + ", " + types[1] + ")" +
         (hasValid ? " num_valid_tokens(%v : memref<1xi32>)" : "") +
         (hasCounts() ? " counts(%c : " + counts.getType() + ")" : "") +
         " outs(%o, %p, %s, %r : " + types[2] + ", " + types[3] + ", " +
         types[4] + ", " + types[5] + ")" +
         attributes(", num_zero_experts = " +
                        std::to_string(test.numZeroExperts) + " : i64",
                    config);
}

std::vector<const Array *> RankTensors::arguments() const {
  std::vector<const Array *> arrays{&ids, &weights};
  if (test.numValid >= 0)
    arrays.push_back(&valid);
  if (hasCounts())
    arrays.push_back(&counts);
  for (const Array *out : {&offsets, &position, &source, &rowWeight})
    arrays.push_back(out);
  return arrays;
}

std::vector<const Array *> RankTensors::countArguments() const {
  if (test.numValid >= 0)
    return {&ids, &valid, &counts};
  return {&ids, &counts};
}

void RankTensors::clear() {
  for (Array *array : {&counts, &offsets, &position, &source, &rowWeight})
    array->fill(77);
}

static void interpret(const std::string &text,
                      const std::vector<const Array *> &arguments,
                      int64_t tokens) {
  TestModule module(text);
  ASSERT_TRUE(module.module);
  llvm::SmallVector<TensorRef> refs;
  for (const Array *array : arguments) {
    TensorRef &ref = refs.emplace_back();
    ref.data = array->data();
    ref.dtype = array->getDType();
    ref.shape.assign(array->getShape().begin(), array->getShape().end());
  }
  auto kernel = *module.module->getOps<tile::KernelOp>().begin();
  moert::Status status = interpreter::interpretKernel(kernel, refs, tokens);
  ASSERT_TRUE(status.isOk()) << status.message();
}

void RankTensors::count() const {
  interpret(countText(""), countArguments(), test.tokens);
}

static void expectEqual(const Array &found, const Array &expected,
                        const char *name) {
  int failures = 0;
  for (int64_t i = 0; i < found.size() && failures < 5; ++i)
    if (found.get(i) != expected.get(i)) {
      ++failures;
      ADD_FAILURE() << name << "[" << i << "] is " << found.get(i)
                    << ", expected " << expected.get(i);
    }
}

void moec::test::compareWithInterpreter(
    const RankCase &test, int64_t lowest, int64_t highest,
    const std::function<void(const RankTensors &)> &run) {
  RankTensors compiled(test), interpreted(test);
  std::mt19937 engine(3);
  std::uniform_int_distribution<int64_t> id(lowest, highest);
  for (int64_t i = 0; i < compiled.positions; ++i) {
    int64_t chosen = id(engine);
    for (RankTensors *tensors : {&compiled, &interpreted}) {
      tensors->ids.set(i, chosen);
      tensors->weights.set(i, 0.5 + i);
    }
  }
  run(compiled);
  if (interpreted.hasCounts()) {
    interpreted.count();
    expectEqual(compiled.counts, interpreted.counts, "counts");
  }
  interpret(interpreted.text(""), interpreted.arguments(), test.tokens);
  expectEqual(compiled.offsets, interpreted.offsets, "offsets");
  expectEqual(compiled.position, interpreted.position, "position");
  expectEqual(compiled.source, interpreted.source, "source");
  expectEqual(compiled.rowWeight, interpreted.rowWeight, "row_weight");
}
