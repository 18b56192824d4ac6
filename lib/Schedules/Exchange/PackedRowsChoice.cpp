//===- PackedRowsChoice.cpp - schedules of an all-to-all --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"

#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;
using moert::Expr;

static constexpr int64_t kMaxThreads = 1024;

int64_t moec::getRowChunks(MemRefType rows) {
  return getExchangedPart(plan::CollectiveKind::AllGather, /*ranks=*/1, rows)
      .chunks;
}

/// Reason why a CTA cannot have so many threads; empty if it can.
static std::string checkThreads(StringRef field, int64_t value,
                                int64_t threads) {
  if (threads > 0 && threads <= kMaxThreads && threads % kWarp == 0)
    return {};
  return (field + " = " + Twine(value) + "; give a CTA whole warps, up to " +
          Twine(kMaxThreads) + " threads")
      .str();
}

namespace {

class RouteRowsSchedule final : public Schedule {
public:
  RouteRowsSchedule() : Schedule("gpu.route_rows", "tile.route_rows") {}

  std::string whyConfigIllegal(Operation *, tile::ConfigAttr config,
                               const Target &) const override {
    int64_t threads = block(nullptr, config);
    return checkThreads("threads", threads, threads);
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::GpuRouteRowsAttr::get(op->getContext(), kMaxThreads);
  }

  Expr grid(Operation *op, tile::ConfigAttr, const Target &) const override {
    Value counts = cast<tile::RouteRowsOp>(op).getCounts();
    return cast<MemRefType>(counts.getType()).getDimSize(0);
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::GpuRouteRowsAttr>(config).getThreads();
  }
};

class PackRowsSchedule final : public Schedule {
public:
  PackRowsSchedule() : Schedule("gpu.pack_rows", "tile.pack_rows") {}

  std::string whyConfigIllegal(Operation *, tile::ConfigAttr config,
                               const Target &) const override {
    return checkThreads("warps", getWarps(config), block(nullptr, config));
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t warps = 8;
    return tile::GpuPackRowsAttr::get(op->getContext(), warps);
  }

  Expr grid(Operation *, tile::ConfigAttr config,
            const Target &) const override {
    return rowBlocks(getWarps(config));
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return getWarps(config) * kWarp;
  }

private:
  static int64_t getWarps(tile::ConfigAttr config) {
    return cast<tile::GpuPackRowsAttr>(config).getWarps();
  }
};

class SumPackedRowsSchedule final : public Schedule {
public:
  SumPackedRowsSchedule()
      : Schedule("gpu.sum_packed_rows", "tile.sum_packed_rows") {}

  std::string whyConfigIllegal(Operation *, tile::ConfigAttr config,
                               const Target &) const override {
    int64_t threads = block(nullptr, config);
    return checkThreads("threads", threads, threads);
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t threads = 256;
    return tile::GpuSumPackedRowsAttr::get(op->getContext(), threads);
  }

  Expr grid(Operation *op, tile::ConfigAttr config,
            const Target &) const override {
    Value result = cast<tile::SumPackedRowsOp>(op).getResult();
    return positionBlocks(getRowChunks(cast<MemRefType>(result.getType())),
                          block(op, config));
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::GpuSumPackedRowsAttr>(config).getThreads();
  }
};

} // namespace

const Schedule &moec::getGpuRouteRowsSchedule() {
  return getOnly<RouteRowsSchedule>();
}
const Schedule &moec::getGpuPackRowsSchedule() {
  return getOnly<PackRowsSchedule>();
}
const Schedule &moec::getGpuSumPackedRowsSchedule() {
  return getOnly<SumPackedRowsSchedule>();
}
