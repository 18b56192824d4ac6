//===- Timeline.cpp - launches and workspace of a range ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"
#include "moec/Schedules/Device.h"
#include "moert/Workspace.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;
using llvm::formatv;

namespace {

struct Column {
  const moert::Step *step;
  SmallVector<const LaunchedPhase *> phases;
  Keys keys;
  std::string name;
  /// Microseconds at the most tokens of the range; 0 if no times are known.
  double start = 0, us = 0;
};

class Timeline {
public:
  Timeline(const Layer &layer, const TokenRange &range, raw_ostream &os)
      : layer(layer), range(range), tokens(range.ends.back()), os(os) {
    addColumns();
  }

  void draw() {
    if (layer.device)
      drawTimes();
    drawOrder();
  }

private:
  void addColumns();
  void drawTimes();
  void drawOrder();
  void drawStreams(Drawing &drawing, double y);
  void drawSlots(Drawing &drawing, double y);
  double getX(size_t column) const { return left + double(column) * step; }

  const Layer &layer;
  const TokenRange &range;
  const int64_t tokens;
  raw_ostream &os;
  std::vector<Column> columns;
  double step = 0;
  static constexpr double width = 1180, left = 74, laneHeight = 54,
                          slotHeight = 22;
};

/// A launch begins when its stream and the events that it waits for are ready.
void Timeline::addColumns() {
  const auto *phase = range.phases.begin();
  const auto *figures = range.figures.data();
  std::map<int64_t, double> streams, events;
  for (const moert::Step &step : range.steps->steps) {
    double &time = streams[step.stream];
    if (step.kind == moert::Step::Kind::RecordEvent)
      events[step.event] = time;
    else if (step.kind == moert::Step::Kind::WaitEvent)
      time = std::max(time, events[step.event]);
    if (step.kind != moert::Step::Kind::Launch)
      continue;
    Column column{&step, {}, {}, layer.plan.kernels[size_t(step.kernel)].name};
    column.start = time;
    do {
      column.phases.push_back(phase);
      column.keys.merge(getKeys(*phase));
      if (figures->back().prediction)
        column.us += figures->back().prediction->us;
      ++phase;
      ++figures;
    } while (phase != range.phases.end() && !phase->isFirst);
    time += column.us;
    columns.push_back(std::move(column));
  }
  step = (width - left) / double(std::max<size_t>(columns.size(), 1));
}

void Timeline::drawTimes() {
  double all = 0;
  for (const Column &column : columns)
    all = std::max(all, column.start + column.us);
  if (all <= 0)
    return;
  double scale = (width - left - 4) / all;
  double height = 30.0 * double(layer.plan.numStreams) + 34;
  Drawing drawing(width, height, "launches by time", os);
  for (int64_t stream = 0; stream < layer.plan.numStreams; ++stream)
    drawing.text(0, 20 + 30.0 * double(stream), "axis",
                 formatv("stream {0}", stream).str());
  for (const Column &column : columns) {
    double x = left + column.start * scale;
    double y = 4 + 30.0 * double(column.step->stream);
    double length = std::max(column.us * scale - 1, 1.5);
    drawing.box(x, y, length, 24, getStyle(column.phases.front()->op),
                column.keys,
                formatv("{0}: {1}, from {2} on", column.name,
                        showTime(column.us), showTime(column.start))
                    .str());
    drawing.fittedText(x + 4, y + 16, length - 6, "small",
                       getStage(*column.phases.front()));
  }
  double axis = height - 24;
  drawing.line(left, axis, width - 4, axis, "axisline");
  for (int i = 0; i <= 4; ++i)
    drawing.text(left + (width - left - 4) * i / 4, axis + 16,
                 i == 0   ? "axis"
                 : i == 4 ? "axis end"
                          : "axis middle",
                 showTime(all * i / 4));
}

void Timeline::drawStreams(Drawing &drawing, double y) {
  for (int64_t stream = 0; stream < layer.plan.numStreams; ++stream) {
    double lane = y + laneHeight * double(stream);
    drawing.text(0, lane + 24, "axis", formatv("stream {0}", stream).str());
    drawing.line(left, lane + laneHeight - 4, width, lane + laneHeight - 4,
                 "grid");
  }
  size_t next = 0;
  std::map<int64_t, std::pair<double, double>> events;
  for (const moert::Step &each : range.steps->steps) {
    double lane = y + laneHeight * double(each.stream);
    if (each.kind == moert::Step::Kind::RecordEvent)
      events[each.event] = {getX(next), lane + 24};
    if (each.kind == moert::Step::Kind::WaitEvent) {
      auto [fromX, fromY] = events[each.event];
      double x = getX(next);
      if (fromX >= x)
        drawing.arrow({{x, fromY}, {x, lane + 24}});
      else
        drawing.arrow({{fromX, fromY}, {x, fromY}, {x, lane + 24}});
    }
    if (each.kind != moert::Step::Kind::Launch)
      continue;
    const Column &column = columns[next];
    double x = getX(next++) + 3;
    drawing.box(x, lane, step - 6, laneHeight - 10,
                getStyle(column.phases.front()->op), column.keys,
                column.name +
                    (each.dependent
                         ? ", may begin before the launch ahead of it ends"
                         : ""));
    for (auto [i, phase] : llvm::enumerate(column.phases))
      drawing.fittedText(x + 5, lane + 14 + 13 * double(i), step - 12, "small",
                         getStage(*phase));
    if (layer.device)
      drawing.text(x + 5, lane + 14 + 13 * double(column.phases.size()), "axis",
                   showTime(column.us));
  }
}

void Timeline::drawSlots(Drawing &drawing, double y) {
  struct Life {
    size_t first, last;
  };
  llvm::MapVector<int64_t, Life> lives;
  for (auto [i, column] : llvm::enumerate(columns))
    for (const moert::Argument &argument : column.step->args)
      if (argument.kind == moert::Argument::Kind::Tensor &&
          layer.plan.tensors[size_t(argument.tensor)].slot >= 0) {
        auto [life, isNew] = lives.insert({argument.tensor, {i, i}});
        life->second.last = i;
      }
  for (int64_t slot = 0; slot < layer.plan.numSlots; ++slot)
    drawing.text(0, y + slotHeight * double(slot) + 14, "axis",
                 formatv("slot {0}", slot).str());
  for (auto &[index, life] : lives) {
    const moert::TensorDecl &tensor = layer.plan.tensors[size_t(index)];
    moert::Result<int64_t> bytes = moert::tensorBytes(tensor).evaluate(tokens);
    std::string size = bytes ? showBytes(double(*bytes)) : "too large";
    double x = getX(life.first) + 3, top = y + slotHeight * double(tensor.slot);
    double length = getX(life.last + 1) - 3 - x;
    drawing.box(x, top, length, slotHeight - 4, "slot", {tensor.name},
                tensor.name + " " + showType(tensor) + ", " + size);
    drawing.fittedText(x + 5, top + 13, length - 8, "small",
                       tensor.name + ", " + size);
  }
}

/// Draws launches of equal width, so that all are readable.
void Timeline::drawOrder() {
  os << "<p class=\"caption\">In order, not to scale: launches on their "
        "streams"
     << (layer.plan.numStreams > 1 ? ", arrows for events" : "")
     << ", and the live parts of the workspace, at T=" << tokens << ".</p>\n";
  double streams = laneHeight * double(layer.plan.numStreams);
  Drawing drawing(width, streams + slotHeight * double(layer.plan.numSlots) + 8,
                  "launches and workspace in order", os);
  drawStreams(drawing, 2);
  drawSlots(drawing, streams + 6);
}

} // namespace

void moec::report::drawTimeline(const Layer &layer, const TokenRange &range,
                                raw_ostream &os) {
  if (layer.device)
    os << "<p class=\"caption\">Expected, to scale, at T=" << range.ends.back()
       << "; the overlap of dependent launches is not included.</p>\n";
  Timeline(layer, range, os).draw();
}

void moec::report::showWorkspace(const Layer &layer, raw_ostream &os) {
  SmallVector<StringRef> names{"slot", "shared by"};
  std::vector<std::string> heads;
  SmallVector<int64_t> counts;
  for (const TokenRange &range : layer.ranges)
    counts.push_back(range.ends.back());
  for (int64_t tokens : counts)
    heads.push_back(formatv("T={0}", tokens));
  for (const std::string &head : heads)
    names.push_back(head);
  Table table(names, os);
  for (int64_t slot = 0; slot < layer.plan.numSlots; ++slot) {
    SmallVector<std::string> row{std::to_string(slot), ""};
    Keys keys;
    SmallVector<int64_t> most(counts.size(), 0);
    for (const moert::TensorDecl &tensor : layer.plan.tensors) {
      if (tensor.slot != slot)
        continue;
      row[1] += (row[1].empty() ? "" : ", ") + tensor.name;
      keys.insert(tensor.name);
      moert::Expr size = moert::tensorBytes(tensor);
      for (auto [bytes, tokens] : llvm::zip(most, counts))
        if (moert::Result<int64_t> value = size.evaluate(tokens))
          bytes = std::max(bytes, *value);
    }
    for (int64_t bytes : most)
      row.push_back(showBytes(double(bytes)));
    table.addRow(row, keys);
  }
  SmallVector<std::string> all{"all", "of calls with up to so many tokens"};
  for (int64_t tokens : counts) {
    moert::Result<int64_t> bytes = moert::workspaceBytes(layer.plan, tokens);
    all.push_back(bytes ? showBytes(double(*bytes)) : bytes.status().message());
  }
  table.addRow(all);
}
