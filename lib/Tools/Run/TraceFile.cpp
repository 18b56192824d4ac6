//===- TraceFile.cpp - timeline of a run as a file --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TraceFile.h"

#include "moec/Compiler/OutputFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <set>

using namespace moec;

std::vector<RankTrace> moec::getTraces(llvm::ArrayRef<RunResult> groups) {
  std::vector<RankTrace> ranks;
  for (const RunResult &group : groups)
    llvm::append_range(ranks, group.traces);
  return ranks;
}

static void nameTrack(llvm::json::OStream &json, llvm::StringRef kind,
                      int64_t rank, int64_t stream, const llvm::Twine &name) {
  json.object([&] {
    json.attribute("name", kind);
    json.attribute("ph", "M");
    json.attribute("pid", rank);
    json.attribute("tid", stream);
    json.attributeObject("args", [&] { json.attribute("name", name.str()); });
  });
}

/// Microseconds, rounded to nanoseconds.
static double toMicroseconds(double seconds) {
  return std::round(seconds * 1e9) / 1e3;
}

static void writeRank(llvm::json::OStream &json, int64_t rank,
                      const RankTrace &steps) {
  nameTrack(json, "process_name", rank, 0, "rank " + llvm::Twine(rank));
  std::set<int64_t> streams;
  for (const moert::TracedStep &step : steps)
    if (streams.insert(step.stream).second)
      nameTrack(json, "thread_name", rank, step.stream,
                "stream " + llvm::Twine(step.stream));
  for (const moert::TracedStep &step : steps)
    json.object([&] {
      json.attribute("name", step.name);
      json.attribute("ph", "X");
      json.attribute("pid", rank);
      json.attribute("tid", step.stream);
      json.attribute("ts", toMicroseconds(step.begin));
      json.attribute("dur", toMicroseconds(step.end - step.begin));
    });
}

mlir::LogicalResult moec::writeTrace(llvm::StringRef path,
                                     llvm::ArrayRef<RankTrace> ranks) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("displayTimeUnit", "ns");
    json.attributeArray("traceEvents", [&] {
      for (auto [rank, steps] : llvm::enumerate(ranks))
        writeRank(json, int64_t(rank), steps);
    });
  });
  os << "\n";
  return writeOutputFile(path, text);
}
