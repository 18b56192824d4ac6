//===- Choice.h - schedules from logits to ranked slots ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows of the table of schedules (moec/Schedules/Schedules.h documents each
// function): gpu.top_k, gpu.count_slots and gpu.sort_by_expert.

#ifndef MOEC_LIB_SCHEDULES_ROUTING_CHOICE_H
#define MOEC_LIB_SCHEDULES_ROUTING_CHOICE_H

#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Rewrites/FollowPhase.h"
#include "moec/Schedules/Rewrites/JoinRouting.h"
#include "moec/Schedules/Rewrites/SplitSort.h"

namespace moec::anygpu {

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

std::string sortIllegal(mlir::Operation *op, tile::ConfigAttr config,
                        const Target &target);
tile::ConfigAttr chooseSort(mlir::Operation *op, const Target &target);
moert::Expr sortGrid(mlir::Operation *op, tile::ConfigAttr config,
                     const Target &target);
std::optional<TokenChunks>
getSortChunks(tile::SortByExpertOp op, tile::ConfigAttr config, bool isRouted);
std::optional<JoinedConfigs> sortRouted(mlir::Operation *first,
                                        mlir::Operation *second,
                                        tile::LoadAttr load);
std::string whyNotSorted(mlir::Operation *first, mlir::Operation *second,
                         tile::LoadAttr load);

std::optional<SortsInEachCta::Configs> sortInEachCta(tile::TopKOp routing,
                                                     tile::SortByExpertOp sort,
                                                     int64_t tokens,
                                                     int64_t threads);

/// `PredictsTime::predict` of gpu.count_slots and gpu.sort_by_expert.
double predictCountSlots(tile::CountSlotsOp op, int64_t tokens,
                         const DeviceRates &device);
double predictSort(tile::SortByExpertOp op, int64_t tokens,
                   const DeviceRates &device);

std::optional<JoinedConfigs> quantizeAhead(mlir::Operation *first,
                                           mlir::Operation *second,
                                           tile::LoadAttr load);
std::string whyNotAhead(mlir::Operation *first, mlir::Operation *second,
                        tile::LoadAttr load);

/// Threads of a CTA of each schedule.
int64_t chunkBlock(mlir::Operation *op, tile::ConfigAttr config);

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_ROUTING_CHOICE_H
