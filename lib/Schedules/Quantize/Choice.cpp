//===- Choice.cpp - choice of quantize and tensor_scale ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyCost.h"
#include "Schedules/Interface/ScheduleTables.h"
#include "Shape.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Schedules/ProductTypes.h"
#include "moec/Schedules/RowVectors.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using namespace moec::anygpu;

Quantize::Quantize(tile::QuantizeOp op, tile::ConfigAttr config)
    : columns(cast<MemRefType>(op.getInput().getType()).getDimSize(1)),
      lanes(cast<tile::GpuQuantizeAttr>(config).getVectorWidth()),
      ctaElements(cast<tile::GpuQuantizeAttr>(config).getElementsPerCta()),
      size(moe::getScaleGroup(op.getQuant()).columns) {}

namespace {

std::string quantizeIllegal(Operation *op, tile::ConfigAttr config,
                            const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  auto input = cast<MemRefType>(quantize.getInput().getType());
  Quantize shape(quantize, config);
  if (!shape.areRows() && !areSharedByLanes(shape.size))
    return "a scale must cover 32, 64 or 128 adjacent elements, which part of "
           "a warp quantizes, or a whole row";
  if (std::string reason = whyNotLanes(shape.lanes, input); !reason.empty())
    return reason;
  if (shape.areRows()) {
    int64_t atOnce = Quantize::kThreads * shape.lanes;
    return shape.ctaElements == atOnce
               ? std::string()
               : "elements_per_cta = " + number(shape.ctaElements) +
                     " with a scale per row; give the " + number(atOnce) +
                     " elements that the threads process at once";
  }
  int64_t step = shape.getGroupsAtOnce() * shape.size;
  constexpr int64_t maxSteps = 8;
  if (shape.ctaElements > 0 && shape.ctaElements % step == 0 &&
      shape.ctaElements <= maxSteps * step)
    return {};
  return "elements_per_cta = " + number(shape.ctaElements) +
         "; give a multiple of " + number(step) + " up to " +
         number(maxSteps * step);
}

/// Four vectors per thread: as much in flight as memory needs, and few CTAs.
/// With whole rows a thread processes as many in sequence.
tile::ConfigAttr chooseQuantize(Operation *op, const Target &) {
  auto quantize = cast<tile::QuantizeOp>(op);
  constexpr int64_t vectors = 4;
  int64_t lanes =
      getVectorLanes(cast<MemRefType>(quantize.getInput().getType()));
  auto makeConfig = [&](int64_t ctaElements) {
    return tile::GpuQuantizeAttr::get(op->getContext(), ctaElements, lanes);
  };
  Quantize shape(quantize, makeConfig(0));
  if (shape.areRows())
    return makeConfig(Quantize::kThreads * lanes);
  int64_t steps = std::max<int64_t>(vectors / shape.getVectors(), 1);
  return makeConfig(steps * shape.getGroupsAtOnce() * shape.size);
}

/// At most as many CTAs as fit at once: one of several ranks has only few of
/// the possible rows, and CTAs without rows take time too.
moert::Expr quantizeGrid(Operation *op, tile::ConfigAttr config,
                         const Target &target) {
  auto quantize = cast<tile::QuantizeOp>(op);
  Quantize shape(quantize, config);
  int64_t rowsPerToken = quantize.getTopK().value_or(1);
  moert::Expr tokens = moert::Expr::tokens();
  int64_t groups = 1, atOnce = 1;
  if (shape.areHeld()) {
    atOnce = Quantize::kThreads / kWarp;
  } else if (!shape.areRows()) {
    groups = shape.getRowGroups();
    atOnce = shape.getCtaGroups();
  }
  moert::Expr all = tokens * moert::Expr(rowsPerToken * groups);
  if (atOnce > 1)
    all = moert::Expr::ceilDiv(all, atOnce);
  constexpr int64_t perMultiprocessor = 16;
  int64_t most = perMultiprocessor * target.getMultiprocessors();
  return most ? moert::Expr::min(all, most) : all;
}

int64_t quantizeBlock(Operation *, tile::ConfigAttr) {
  return Quantize::kThreads;
}

/// One CTA, because maxima of several would need another reduction.
struct TensorScaleSchedule final : Schedule {
  TensorScaleSchedule() : Schedule("gpu.tensor_scale", "tile.tensor_scale") {}
  static MemRefType getInput(Operation *op) {
    return cast<MemRefType>(cast<tile::TensorScaleOp>(op).getInput().getType());
  }
  std::string whyConfigIllegal(Operation *op, tile::ConfigAttr config,
                               const Target &) const override {
    return whyNotLanes(cast<tile::GpuTensorScaleAttr>(config).getVectorWidth(),
                       getInput(op));
  }
  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::GpuTensorScaleAttr::get(op->getContext(),
                                         getVectorLanes(getInput(op)));
  }
  moert::Expr grid(Operation *, tile::ConfigAttr,
                   const Target &) const override {
    return 1;
  }
  int64_t block(Operation *, tile::ConfigAttr) const override { return 1024; }
};

struct QuantizeSchedule final
    : ScheduleWith<ScheduleOf<quantizeIllegal, chooseQuantize, quantizeGrid,
                              quantizeBlock>,
                   PredictsTime> {
  QuantizeSchedule() : ScheduleWith("gpu.quantize", "tile.quantize") {}
  double predict(Operation *op, tile::LoadAttr load, int64_t tokens,
                 Routing routing, const DeviceRates &device) const override {
    return predictQuantize(cast<tile::QuantizeOp>(op), load, tokens, routing,
                           device);
  }
};

} // namespace

const Schedule &moec::getGpuTensorScaleSchedule() {
  return getOnly<TensorScaleSchedule>();
}
const Schedule &moec::getGpuQuantizeSchedule() {
  return getOnly<QuantizeSchedule>();
}
