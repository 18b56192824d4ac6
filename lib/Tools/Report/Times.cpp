//===- Times.cpp - times of a layer by token count --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"

#include "../Host/HostRates.h"
#include "moec/Schedules/Device.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;
using llvm::formatv;

static void showMeasured(const Layer &layer, raw_ostream &os) {
  os << "<h3>measured</h3><p>" << escape(layer.measured.device)
     << "; kernels by themselves, the layer as a whole</p>\n";
  Table table({"tokens", "what", "expected", "measured", "measured / expected"},
              os);
  auto addRow = [&](int64_t tokens, const std::string &what,
                    std::optional<double> expected, double us,
                    const Keys &keys) {
    table.addRow({std::to_string(tokens), what,
                  expected ? showTime(*expected) : "no model", showTime(us),
                  expected ? formatv("{0:f2}", us / *expected).str() : ""},
                 keys);
  };
  for (const MeasuredRow &row : layer.measured.rows) {
    const TokenRange *range = layer.findRange(row.tokens);
    if (row.us)
      addRow(row.tokens, "layer",
             range ? layer.getTotal(*range, row.tokens).us : std::nullopt,
             *row.us, {});
    if (!range)
      continue;
    for (const LaunchedPhase &first : range->phases) {
      tile::KernelOp kernel = first.kernel;
      auto found = row.kernels.find(kernel.getSymName().str());
      if (!first.isFirst || found == row.kernels.end())
        continue;
      std::optional<double> expected;
      for (const LaunchedPhase &phase : range->phases)
        if (phase.launch == first.launch)
          if (auto prediction = layer.getFigures(phase, row.tokens).prediction)
            expected = expected.value_or(0) + prediction->us;
      addRow(row.tokens, found->first, expected, found->second,
             {"@" + found->first});
    }
  }
}

void moec::report::showTimes(const Layer &layer, raw_ostream &os) {
  if (layer.device)
    os << "<p>Expected on " << escape(layer.device->describe())
       << ", launches in sequence, experts equally likely. The floor is the "
          "time that the least bytes or operations take at the device's "
          "rates.</p>\n";
  else
    os << "<p>Least work, no expected times: "
       << escape(whyNoRates(layer.target)) << ".</p>\n";
  {
    Table table({"range", "launches", "tokens", "expected", "of the floor",
                 "bound by", "operations", "touched"},
                os);
    for (const TokenRange &range : layer.ranges) {
      auto launches = llvm::count_if(range.phases,
                                     [](auto &phase) { return phase.isFirst; });
      for (int64_t tokens : range.ends) {
        ExpectedRun total = layer.getTotal(range, tokens);
        bool isFirst = tokens == range.ends.front();
        table.addRow(
            {isFirst ? showRange(range.steps->minTokens, range.steps->maxTokens)
                     : "",
             isFirst ? std::to_string(launches) : "", std::to_string(tokens),
             total.us ? showTime(*total.us) : "",
             total.us ? formatv("{0:f0} %", total.getFloorPercent()).str() : "",
             total.bound.str(), showOperations(total.work.operations),
             showBytes(total.work.bytes)});
      }
    }
  }
  if (!layer.measured.rows.empty())
    showMeasured(layer, os);
}
