//===- Products.cpp - the products of sm100.gemm ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop of the Blackwell gemm; one thread issues all mmas. The scales of a k
// tile are first copied to columns of tensor memory that belong to the stage.
// Copies of scales are ordered before later mmas, but not after earlier ones
// (PTX ISA, "Pipelined tcgen05 instructions"); those have completed when the
// stage is filled again.

#include "Kernel.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::GemmShape;

/// The instruction descriptor for `rows` input rows, in multiples of 16.
static I32 getInstruction(Sm100Gemm &gemm, I32 rows) {
  constexpr int64_t unit = Shape::kRowUnit;
  constexpr int64_t perUnit = unit / sm100::kInstructionRowUnit
                              << sm100::kInstructionRowBit;
  uint32_t type = gemm.shape.areBytes ? 0 : sm100::kInstructionE2M1;
  return divideUp(rows, unit) * perUnit + (sm100::kInstruction | type);
}

/// The mmas of a k tile. `isLater`: the accumulators have sums of k tiles
/// before.
static void multiplyStage(Sm100Gemm &gemm, I32 instruction, I32 set, I32 stage,
                          Flag isLater) {
  TensorEmitter &emitter = gemm.emitter;
  const Shape &shape = gemm.shape;
  int64_t blocks = shape.getBlocks();
  for (int64_t block = 0; block <= blocks; ++block) {
    I32 to = gemm.scalesOf(stage, block);
    emitter.copyScales(to, emitter.describe(gemm.scaleAddress(stage, block),
                                            sm100::kScaleDescriptor));
  }
  Value buffer = gemm.pipeline.stageAddress(stage);
  for (int64_t i = 0; i < Shape::kStepProducts; ++i) {
    auto describe = [&](int64_t offset) {
      return emitter.describe(buffer, sm100::kMatrixDescriptor,
                              offset + i * Shape::kProductBytes);
    };
    I32 own = instruction | int32_t(sm100::getScaleIds(uint32_t(i)));
    for (int64_t block = 0; block < blocks; ++block) {
      I32 sums = gemm.sumsOf(set, block);
      I64 weights = describe(block * shape.getBlockBytes());
      I64 rows = describe(shape.getWeightBytes());
      emitter.multiplyScaled(
          sums, weights, rows, own, i ? emitter.flag(true) : isLater,
          gemm.scalesOf(stage, block), gemm.scalesOf(stage, blocks));
    }
  }
}

void moec::emitSm100Products(Sm100Gemm &gemm) {
  TensorEmitter &emitter = gemm.emitter;
  const Shape &shape = gemm.shape;
  const Pipeline &pipeline = gemm.pipeline;
  const Pipeline &accumulators = gemm.accumulators;
  gemm.forTiles(std::tuple(pipeline.first(), accumulators.first()),
                [&](Sm100Gemm::Tile tile, auto states) {
                  auto [first, set] = states;
                  accumulators.empty(set.stage).wait(set.before());
                  emitter.fenceTensorAfter();
                  I32 instruction = getInstruction(gemm, tile.rows);
                  PipelineState end = emitter.loop(
                      emitter.i32(0), emitter.i32(shape.getSteps()), 1, first,
                      [&, set = set](I32 step, PipelineState at) {
                        pipeline.waitUntilFull(at);
                        emitter.fenceTensorAfter();
                        multiplyStage(gemm, instruction, set.stage, at.stage,
                                      step != 0);
                        emitter.arriveWhenDone(pipeline.empty(at.stage));
                        return pipeline.next(at);
                      });
                  emitter.arriveWhenDone(accumulators.full(set.stage));
                  return std::tuple(end, accumulators.next(set));
                });
}
