//===- Choice.h - the schedule gpu.gemv -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_GEMV_CHOICE_H
#define MOEC_LIB_SCHEDULES_GEMV_CHOICE_H

#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/Rewrites/JoinRouting.h"
#include "moec/Schedules/SumOrder.h"

namespace moec::anygpu {

// Functions of the schedule. Preferred for a few columns, such as the gate of a
// shared expert, for which a tile would be almost empty.
inline constexpr llvm::StringLiteral kGemv = "gpu.gemv";
std::string gemvIllegal(mlir::Operation *op, tile::ConfigAttr config,
                        const Target &target);
tile::ConfigAttr chooseGemv(mlir::Operation *op, const Target &target);
moert::Expr gemvGrid(mlir::Operation *op, tile::ConfigAttr config,
                     const Target &target);
int64_t gemvBlock(mlir::Operation *op, tile::ConfigAttr config);
int64_t gemvShared(mlir::Operation *op, tile::ConfigAttr config);
bool isGemvPreferred(mlir::Operation *op);
tile::SumOrderAttr getGemvOrder(tile::GemmOp op, tile::ConfigAttr config);

/// gpu.gemv without a cost model.
struct GemvSchedule : ScheduleWith<Schedule, OrdersSums, ClearsCounters> {
  GemvSchedule() : ScheduleWith(kGemv, "tile.gemm") {}
  std::string whyConfigIllegal(mlir::Operation *op, tile::ConfigAttr config,
                               const Target &target) const override {
    return gemvIllegal(op, config, target);
  }
  tile::ConfigAttr choose(mlir::Operation *op,
                          const Target &target) const override {
    return chooseGemv(op, target);
  }
  moert::Expr grid(mlir::Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return gemvGrid(op, config, target);
  }
  int64_t block(mlir::Operation *op, tile::ConfigAttr config) const override {
    return gemvBlock(op, config);
  }
  int64_t shared(mlir::Operation *op, tile::ConfigAttr config) const override {
    return gemvShared(op, config);
  }
  bool isPreferred(mlir::Operation *op) const override {
    return isGemvPreferred(op);
  }
  tile::SumOrderAttr getSumOrder(tile::GemmOp op,
                                 tile::ConfigAttr config) const override {
    return getGemvOrder(op, config);
  }
};

/// Candidate configs: none for grouped gemms or with many columns.
std::vector<Candidate> getGemvCandidates(tile::GemmOp op);
/// Predicted time of a gemm with such a config.
Prediction predictGemv(tile::GemmOp op, tile::ConfigAttr config, int64_t tokens,
                       const DeviceRates &device);

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_GEMV_CHOICE_H
