//===- Options.cpp - options of moe-bench -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

using namespace moec;
using namespace moec::bench;

static constexpr DeviceOptions::Words kWords = {
    "moe-bench",
    "cuda|cuda:N|sim|sim:SEED",
    "Device to measure (default: cuda); sim is a simulated GPU, without a "
    "clock: rows are only checked",
    "Folder of rows.json, asked.json, peers_h200.json and yardstick.py "
    "(default: "
    "../share/moec beside the program)",
    "List the rows and stop",
    "File of results, written after each row",
    "Threads of the compiler and the reference (default: all cores)",
    "Start no row after this time (default: 600)",
    600};

Options::Options() : DeviceOptions(kWords) {}

bool Options::parse(int argc, char **argv) {
  if (!parseCommandLine(
          argc, argv,
          "moe-bench: measure layers against the limits of the device and "
          "recorded kernels.\n\n"
          "  moe-bench --json=results.json\n"
          "  moe-bench --rows=qwen3_30b:1,8 --rows='dsv3*' --router\n"
          "  moe-bench --rows='*:1,8' --router --beside=join-products.most=8,"
          "join-sums.always,join-routing.always\n"
          "  moe-bench --table=asked.json --json=asked.json\n"
          "  moe-bench --profile --rows=qwen3_30b:1,1024\n"
          "  moe-bench --tune=tuned --rows=qwen3_30b --seconds=120\n"
          "  moe-bench --loads=64 --rows=qwen3_235b:4096 --json=loads.json\n"
          "  moe-bench --fit=h100_sxm.inc --json=times.json\n"
          "  moe-bench --compare old.json new.json --tolerance=3%\n"
          "\nThe exit code is 0 only if every row was measured; 2 if rows are "
          "left, which --resume measures.\n"))
    return false;
  if (threads < 0 || timeLimit <= 0 || rowLimit <= 0 || observations < 1)
    return complain("--threads must not be negative, --time-limit, "
                    "--row-limit and --observations must be positive");
  if (seconds <= 0 || (candidates.getNumOccurrences() && candidates < 1))
    return complain("--seconds and --candidates must be positive");
  if (!tune.empty() && (profile || router))
    return complain("--tune excludes --profile and --router");
  if (!fit.empty() && (profile || router || !tune.empty()))
    return complain("--fit excludes --profile, --router and --tune");
  if (!fit.empty() && llvm::StringRef(device).starts_with("sim"))
    return complain("--fit needs a device with a clock; give --device=cuda");
  if (!beside.empty() && (profile || !tune.empty() || !fit.empty()))
    return complain("--beside excludes --profile, --tune and --fit");
  if (loads.getNumOccurrences() && loads < 1)
    return complain("--loads must be positive");
  if (loads > 0 &&
      (profile || router || !tune.empty() || !fit.empty() || !beside.empty()))
    return complain("--loads excludes --profile, --router, --tune, --fit and "
                    "--beside");
  if (untimed && !profile)
    return complain("--untimed needs --profile");
  if (resume && json.empty())
    return complain("--resume needs --json, the file to continue");
  if (compare ? others.size() != 2 : !others.empty())
    return complain("--compare takes two records, OLD.json and NEW.json; other "
                    "modes take none");
  OutputCheck written;
  for (const std::string &record : others)
    written.addInput(record);
  if (!canWrite(written, "--json", json) || !canWrite(written, "--fit", fit))
    return false;
  return parseTolerance();
}

bool Options::parseTolerance() {
  llvm::StringRef text = toleranceText;
  bool isPercent = text.consume_back("%");
  if (text.getAsDouble(tolerance) || tolerance < 0)
    return complain("--tolerance: '" + toleranceText +
                    "' is neither a fraction nor a percentage, as in 3%");
  if (isPercent)
    tolerance /= 100;
  return true;
}
