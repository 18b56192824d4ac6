//===- Gemv.h - the schedule sm80.gemv --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM80_GEMV_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM80_GEMV_H

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Device.h"

namespace moec::sm80 {

// Functions of the schedule. Preferred for a few columns, such as the gate of a
// shared expert, for which a tile would be almost empty.
inline constexpr llvm::StringLiteral kGemv = "sm80.gemv";
std::string gemvIllegal(mlir::Operation *op, tile::ConfigAttr config,
                        const Target &target);
tile::ConfigAttr chooseGemv(mlir::Operation *op, const Target &target);
moert::Expr gemvGrid(mlir::Operation *op, tile::ConfigAttr config,
                     const Target &target);
int64_t gemvBlock(mlir::Operation *op, tile::ConfigAttr config);
int64_t gemvShared(mlir::Operation *op, tile::ConfigAttr config);
bool isGemvPreferred(mlir::Operation *op);

/// sm80.gemv without a cost model.
struct GemvSchedule : Schedule {
  GemvSchedule() : Schedule(kGemv, "tile.contract") {}
  std::string whyIllegal(mlir::Operation *op, tile::ConfigAttr config,
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
};

/// Candidate configs: none for grouped gemms or with many columns.
std::vector<Candidate> getGemvCandidates(tile::ContractOp op);
/// Predicted time of a gemm with such a config.
Prediction predictGemv(tile::ContractOp op, tile::ConfigAttr config,
                       int64_t tokens, const DeviceRates &device);

} // namespace moec::sm80

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM80_GEMV_H
