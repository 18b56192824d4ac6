//===- Sm80PackedRows.cpp - schedules of an all-to-all ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"

#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"

using namespace mlir;
using namespace moec;
using moert::Expr;

static constexpr int64_t kMaxThreads = 1024;

int64_t moec::getPiecesOfRow(MemRefType rows) {
  return getExchangedPart(plan::CollectiveKind::AllGather, /*ranks=*/1, rows)
      .pieces;
}

/// Reason why a CTA cannot have so many threads; empty if it can.
static std::string checkThreads(StringRef field, int64_t value,
                                int64_t threads) {
  if (threads > 0 && threads <= kMaxThreads && threads % sm80::kWarp == 0)
    return {};
  return (field + " = " + Twine(value) + "; give a CTA whole warps, up to " +
          Twine(kMaxThreads) + " threads")
      .str();
}

namespace {

class RouteRowsSchedule final : public Schedule {
public:
  RouteRowsSchedule() : Schedule("sm80.route_rows", "tile.route_rows") {}

  std::string whyIllegal(Operation *, tile::ConfigAttr config,
                         const Target &) const override {
    int64_t threads = block(nullptr, config);
    return checkThreads("threads", threads, threads);
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::Sm80RouteRowsAttr::get(op->getContext(), kMaxThreads);
  }

  Expr grid(Operation *op, tile::ConfigAttr, const Target &) const override {
    Value counts = cast<tile::RouteRowsOp>(op).getCounts();
    return cast<MemRefType>(counts.getType()).getDimSize(0);
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::Sm80RouteRowsAttr>(config).getThreads();
  }
};

class PackRowsSchedule final : public Schedule {
public:
  PackRowsSchedule() : Schedule("sm80.pack_rows", "tile.pack_rows") {}

  std::string whyIllegal(Operation *, tile::ConfigAttr config,
                         const Target &) const override {
    return checkThreads("warps", getWarps(config), block(nullptr, config));
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t warps = 8;
    return tile::Sm80PackRowsAttr::get(op->getContext(), warps);
  }

  Expr grid(Operation *, tile::ConfigAttr config,
            const Target &) const override {
    return rowBlocks(getWarps(config));
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return getWarps(config) * sm80::kWarp;
  }

private:
  static int64_t getWarps(tile::ConfigAttr config) {
    return cast<tile::Sm80PackRowsAttr>(config).getWarps();
  }
};

class SumPackedRowsSchedule final : public Schedule {
public:
  SumPackedRowsSchedule()
      : Schedule("sm80.sum_packed_rows", "tile.sum_packed_rows") {}

  std::string whyIllegal(Operation *, tile::ConfigAttr config,
                         const Target &) const override {
    int64_t threads = block(nullptr, config);
    return checkThreads("threads", threads, threads);
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    constexpr int64_t threads = 256;
    return tile::Sm80SumPackedRowsAttr::get(op->getContext(), threads);
  }

  Expr grid(Operation *op, tile::ConfigAttr config,
            const Target &) const override {
    Value result = cast<tile::SumPackedRowsOp>(op).getResult();
    return positionBlocks(getPiecesOfRow(cast<MemRefType>(result.getType())),
                          block(op, config));
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return cast<tile::Sm80SumPackedRowsAttr>(config).getThreads();
  }
};

} // namespace

const Schedule &moec::getSm80RouteRowsSchedule() {
  return getOnly<RouteRowsSchedule>();
}
const Schedule &moec::getSm80PackRowsSchedule() {
  return getOnly<PackRowsSchedule>();
}
const Schedule &moec::getSm80SumPackedRowsSchedule() {
  return getOnly<SumPackedRowsSchedule>();
}
