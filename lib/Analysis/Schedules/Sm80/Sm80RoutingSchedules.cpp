//===- Sm80RoutingSchedules.cpp - schedules of routing ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Routing.h"

#include "moec/Analysis/Device.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm80;

namespace {

struct TopKSchedule final
    : ScheduleWith<ScheduleOf<topKIllegal, chooseTopK, topKGrid, chunkBlock>,
                   FollowsPhase> {
  TopKSchedule() : ScheduleWith("sm80.top_k", "tile.top_k") {}
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
  CountSlotsSchedule() : ScheduleWith("sm80.count_slots", "tile.count_slots") {}
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

struct RankSchedule final
    : ScheduleWith<ScheduleOf<rankIllegal, chooseRank, rankGrid, chunkBlock>,
                   ReadsCounts, FollowsPhase, PredictsTime> {
  RankSchedule() : ScheduleWith("sm80.rank", "tile.rank") {}
  std::optional<TokenChunks> chunks(tile::RankOp op, tile::ConfigAttr config,
                                    bool isRouted) const override {
    return rankChunks(op, config, isRouted);
  }
  int64_t getChunkTokens(tile::ConfigAttr config) const override {
    return cast<tile::Sm80RankAttr>(config).getTokensPerCta();
  }
  std::optional<JoinedConfigs> follow(Operation *first, Operation *second,
                                      tile::LoadAttr load) const override {
    return rankRouted(first, second, load);
  }
  std::string whyApart(Operation *first, Operation *second,
                       tile::LoadAttr load) const override {
    return whyNotRanked(first, second, load);
  }
  double predict(Operation *op, tile::LoadAttr, int64_t tokens, Routing,
                 const DeviceRates &device) const override {
    return predictRank(cast<tile::RankOp>(op), tokens, device);
  }
  double getLaunchTime(const DeviceRates &device) const override {
    return device.getRankingLaunchTime();
  }
};

} // namespace

const Schedule &moec::getSm80TopKSchedule() { return getOnly<TopKSchedule>(); }
const Schedule &moec::getSm80CountSlotsSchedule() {
  return getOnly<CountSlotsSchedule>();
}
const Schedule &moec::getSm80RankSchedule() { return getOnly<RankSchedule>(); }
