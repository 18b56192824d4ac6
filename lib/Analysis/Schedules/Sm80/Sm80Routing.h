//===- Sm80Routing.h - schedules from logits to ranked slots ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows of the table of schedules (moec/Analysis/Schedules.h documents each
// function): sm80.top_k, sm80.count_slots and sm80.rank.

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80ROUTING_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80ROUTING_H

#include "../ScheduleTables.h"
#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Rewrites/FollowPhase.h"
#include "moec/Analysis/Rewrites/SplitRanking.h"
#include "moec/Analysis/Sm80.h"

namespace moec::sm80 {

std::string topKIllegal(mlir::Operation *op, tile::ConfigAttr config,
                        const Target &target);
tile::ConfigAttr chooseTopK(mlir::Operation *op, const Target &target);
moert::Expr topKGrid(mlir::Operation *op, tile::ConfigAttr config,
                     const Target &target);

std::string countSlotsIllegal(mlir::Operation *op, tile::ConfigAttr config,
                              const Target &target);
tile::ConfigAttr chooseCountSlots(mlir::Operation *op, const Target &target);
moert::Expr countSlotsGrid(mlir::Operation *op, tile::ConfigAttr config,
                           const Target &target);
std::optional<JoinedConfigs> countRouted(mlir::Operation *first,
                                         mlir::Operation *second,
                                         tile::LoadAttr load);
std::string whyNotCounted(mlir::Operation *first, mlir::Operation *second,
                          tile::LoadAttr load);

std::string rankIllegal(mlir::Operation *op, tile::ConfigAttr config,
                        const Target &target);
tile::ConfigAttr chooseRank(mlir::Operation *op, const Target &target);
moert::Expr rankGrid(mlir::Operation *op, tile::ConfigAttr config,
                     const Target &target);
std::optional<TokenChunks> rankChunks(tile::RankOp op, tile::ConfigAttr config,
                                      bool isRouted);
std::optional<JoinedConfigs> rankRouted(mlir::Operation *first,
                                        mlir::Operation *second,
                                        tile::LoadAttr load);
std::string whyNotRanked(mlir::Operation *first, mlir::Operation *second,
                         tile::LoadAttr load);

/// `PredictsTime::predict` of sm80.count_slots and sm80.rank.
double predictCountSlots(tile::CountSlotsOp op, int64_t tokens,
                         const DeviceRates &device);
double predictRank(tile::RankOp op, int64_t tokens, const DeviceRates &device);

std::optional<JoinedConfigs> quantizeAhead(mlir::Operation *first,
                                           mlir::Operation *second,
                                           tile::LoadAttr load);
std::string whyNotAhead(mlir::Operation *first, mlir::Operation *second,
                        tile::LoadAttr load);

/// Threads of a CTA of each schedule.
int64_t chunkBlock(mlir::Operation *op, tile::ConfigAttr config);

} // namespace moec::sm80

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80ROUTING_H
