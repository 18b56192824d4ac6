//===- Summary.cpp - memory and time at a glance ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"
#include "moec/Support/Version.h"
#include "moert/Workspace.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstdlib>

using namespace mlir;
using namespace moec;
using namespace moec::report;
using llvm::formatv;

/// The time of SOURCE_DATE_EPOCH, for pages that are the same each time, or
/// now.
static std::string showDate() {
  long long seconds = 0;
  const char *epoch = std::getenv("SOURCE_DATE_EPOCH");
  std::time_t time = epoch && !StringRef(epoch).getAsInteger(10, seconds)
                         ? std::time_t(seconds)
                         : std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

void moec::report::showOrigin(StringRef command, raw_ostream &os) {
  os << "<p class=\"origin\">moec " << escape(getVersionAndCommit()) << ", "
     << showDate();
  if (!command.empty())
    os << ": <code>" << escape(command) << "</code>";
  os << "</p>\n";
}

/// Bytes of the tensors with a role, apart from those in the memory of others.
static double getBytes(const Layer &layer, moert::TensorRole role) {
  double bytes = 0;
  for (const moert::TensorDecl &tensor : layer.plan.tensors)
    if (tensor.role == role && tensor.inPlaceOf < 0)
      if (moert::Result<int64_t> own =
              moert::tensorBytes(tensor).evaluate(layer.plan.maxTokens))
        bytes += double(*own);
  return bytes;
}

/// One column per layer, and one for all layers of a model.
void moec::report::showSummary(const Layer &layer, raw_ostream &os) {
  int64_t all = layer.numLayers;
  std::string ofAll = formatv("all {0} layers with experts", all);
  Table table({"", "one layer", ofAll}, os);
  auto addRow = [&](const std::string &what, double value, auto show,
                    bool isShared = false) {
    table.addRow({what, show(value),
                  all > 1 && !isShared ? show(double(all) * value) : ""});
  };
  addRow("weights", getBytes(layer, moert::TensorRole::Weight), showBytes);
  if (double bytes = getBytes(layer, moert::TensorRole::Prepared))
    addRow("prepared weights, beside those that kernels read", bytes,
           showBytes);
  int64_t most = layer.plan.maxTokens;
  if (moert::Result<int64_t> bytes = moert::workspaceBytes(layer.plan, most))
    addRow(formatv("workspace for {0} tokens, which layers share", most),
           double(*bytes), showBytes, /*isShared=*/true);
  for (int64_t tokens : {int64_t(1), int64_t(64), int64_t(1024), most}) {
    const TokenRange *range = layer.findRange(tokens);
    if (!range || (tokens == most && most <= 1024))
      continue;
    if (std::optional<double> us = layer.getTotal(*range, tokens).us)
      addRow(formatv("expected time, {0} {1}", tokens,
                     tokens == 1 ? "token" : "tokens"),
             *us, showTime);
  }
}
