//===- Schedules.cpp - schedules of routing ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Choice.h"

#include "moec/Schedules/Device.h"

using namespace mlir;
using namespace moec;
using namespace moec::anygpu;

namespace {

struct TopKSchedule final
    : ScheduleWith<ScheduleOf<topKIllegal, chooseTopK, topKGrid, chunkBlock>,
                   FollowsPhase> {
  TopKSchedule() : ScheduleWith("gpu.top_k", "tile.top_k") {}
  std::optional<JoinedConfigs> follow(Operation *first, Operation *second,
                                      tile::LoadAttr load) const override {
    return quantizeAhead(first, second, load);
  }
  std::string whyApart(Operation *first, Operation *second,
                       tile::LoadAttr load) const override {
    return whyNotAhead(first, second, load);
  }
  bool isIndependent() const override { return true; }
};

struct CountSlotsSchedule final
    : ScheduleWith<ScheduleOf<countSlotsIllegal, chooseCountSlots,
                              countSlotsGrid, chunkBlock>,
                   FollowsPhase, PredictsTime> {
  CountSlotsSchedule() : ScheduleWith("gpu.count_slots", "tile.count_slots") {}
  std::optional<JoinedConfigs> follow(Operation *first, Operation *second,
                                      tile::LoadAttr load) const override {
    return countRouted(first, second, load);
  }
  std::string whyApart(Operation *first, Operation *second,
                       tile::LoadAttr load) const override {
    return whyNotCounted(first, second, load);
  }
  double predict(Operation *op, tile::LoadAttr, int64_t tokens, Routing,
                 const DeviceRates &device) const override {
    return predictCountSlots(cast<tile::CountSlotsOp>(op), tokens, device);
  }
  double getLaunchTime(const DeviceRates &device) const override {
    return device.getRankingLaunchTime();
  }
};

struct SortSchedule final
    : ScheduleWith<ScheduleOf<sortIllegal, chooseSort, sortGrid, chunkBlock>,
                   ReadsCounts, FollowsPhase, SortsInEachCta, PredictsTime> {
  SortSchedule() : ScheduleWith("gpu.sort_by_expert", "tile.sort_by_expert") {}
  std::optional<TokenChunks> chunks(tile::SortByExpertOp op,
                                    tile::ConfigAttr config,
                                    bool isRouted) const override {
    return getSortChunks(op, config, isRouted);
  }
  int64_t getChunkTokens(tile::ConfigAttr config) const override {
    return cast<tile::GpuSortByExpertAttr>(config).getTokensPerCta();
  }
  std::optional<JoinedConfigs> follow(Operation *first, Operation *second,
                                      tile::LoadAttr load) const override {
    return sortRouted(first, second, load);
  }
  std::string whyApart(Operation *first, Operation *second,
                       tile::LoadAttr load) const override {
    return whyNotSorted(first, second, load);
  }
  std::optional<Configs> sortInEachCta(tile::TopKOp routing,
                                       tile::SortByExpertOp sort,
                                       int64_t tokens,
                                       int64_t threads) const override {
    return anygpu::sortInEachCta(routing, sort, tokens, threads);
  }
  double predict(Operation *op, tile::LoadAttr, int64_t tokens, Routing,
                 const DeviceRates &device) const override {
    return predictSort(cast<tile::SortByExpertOp>(op), tokens, device);
  }
  double getLaunchTime(const DeviceRates &device) const override {
    return device.getRankingLaunchTime();
  }
};

} // namespace

const Schedule &moec::getGpuTopKSchedule() { return getOnly<TopKSchedule>(); }
const Schedule &moec::getGpuCountSlotsSchedule() {
  return getOnly<CountSlotsSchedule>();
}
const Schedule &moec::getGpuSortByExpertSchedule() {
  return getOnly<SortSchedule>();
}
