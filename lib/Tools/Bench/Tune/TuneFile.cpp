//===- TuneFile.cpp - files of tuned configs --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tune.h"

#include "../TryStatus.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Compiler/TunedConfigs.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

std::vector<ForcedConfig>
moec::bench::getRanges(const std::map<int64_t, TunedRow> &rows,
                       int64_t maxTokens) {
  std::vector<ForcedConfig> configs;
  int64_t first = 1;
  for (auto it = rows.begin(); it != rows.end(); ++it) {
    int64_t last = maxTokens;
    if (auto next = std::next(it); next != rows.end()) {
      // The greatest power of two up to the geometric mean of both rows.
      last = it->first;
      for (int64_t power = 1; power * power <= it->first * next->first;
           power *= 2)
        if (power >= it->first && power < next->first)
          last = power;
    }
    if (it->second.isBetter())
      for (const auto &[kernel, text] : it->second.configs)
        configs.push_back({kernel, ForcedConfig::Tokens{first, last}, text});
    first = last + 1;
  }
  return configs;
}

void moec::bench::writeTunedRow(const TunedRow &row,
                                llvm::json::Object &result) {
  llvm::json::Array configs;
  for (const auto &[kernel, text] : row.configs)
    configs.push_back(llvm::json::Object{{"kernel", kernel}, {"config", text}});
  result[kTunedField] = row.chosenSeconds * 1e6;
  result["tune_found_us"] = row.foundSeconds * 1e6;
  result["tune_measured"] = row.numMeasured;
  result["tune_failed"] = row.numFailed;
  result["tune_configs"] = std::move(configs);
}

TunedRow moec::bench::readTunedRow(const llvm::json::Object &result) {
  auto getSeconds = [&](llvm::StringRef key) {
    return result.getNumber(key).value_or(0) * 1e-6;
  };
  TunedRow row;
  row.chosenSeconds = getSeconds(kTunedField);
  row.foundSeconds = getSeconds("tune_found_us");
  row.numMeasured = result.getInteger("tune_measured").value_or(0);
  row.numFailed = result.getInteger("tune_failed").value_or(0);
  if (const llvm::json::Array *configs = result.getArray("tune_configs"))
    for (const llvm::json::Value &value : *configs)
      if (const llvm::json::Object *config = value.getAsObject())
        row.configs.emplace_back(config->getString("kernel").value_or(""),
                                 config->getString("config").value_or(""));
  return row;
}

std::string moec::bench::getTuningFile(const std::string &folder,
                                       const std::string &layer) {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, layer + ".json");
  return std::string(path);
}

Status moec::bench::writeTuning(const std::string &folder,
                                const std::string &layer,
                                const std::string &target,
                                const std::vector<ForcedConfig> &configs) {
  llvm::json::Array entries;
  for (const ForcedConfig &config : configs)
    entries.push_back(llvm::json::Object{
        {"kernel", config.kernel},
        {"tokens", llvm::json::Array{config.tokens->min, config.tokens->max}},
        {"config", config.text}});
  std::string text = llvm::formatv(
      "{0:2}\n", llvm::json::Value(llvm::json::Object{
                     {"target", target}, {"configs", std::move(entries)}}));
  std::error_code error = llvm::sys::fs::create_directories(folder);
  if (error || failed(writeOutputFile(getTuningFile(folder, layer), text)))
    return moert::unavailable("--tune: '" + folder + "' cannot be written");
  return Status::ok();
}

Result<std::map<std::string, std::vector<std::string>>>
moec::bench::readTuning(const std::string &folder, const Table &table,
                        const std::string &target) {
  std::map<std::string, std::vector<std::string>> tuned;
  for (const BenchLayer &layer : table.layers) {
    std::string path = getTuningFile(folder, layer.name);
    if (!llvm::sys::fs::exists(path))
      continue;
    std::string messages;
    llvm::raw_string_ostream os(messages);
    llvm::FailureOr<std::vector<std::string>> configs =
        readTunedConfigs(path, target, os);
    if (failed(configs))
      return moert::invalidArgument("--tuned: " + messages);
    tuned[layer.name] = std::move(*configs);
  }
  if (tuned.empty())
    return moert::notFound("--tuned: '" + folder +
                           "' has no file for a layer of the table");
  return tuned;
}
