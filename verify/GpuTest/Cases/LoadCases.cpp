//===- LoadCases.cpp - reads cases.json -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Case.h"
#include "moec/Support/ReadBytes.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

static Result<std::string> readFile(const std::string &path) {
  llvm::Expected<std::string> text = readBytes(path, kMaxRecordBytes);
  if (!text)
    return moert::notFound(path + ": " + llvm::toString(text.takeError()) +
                           "; name the folder with cases.json and models with "
                           "--data");
  return std::move(*text);
}

static bool readFields(const llvm::json::Value &entry, LayerCase &result,
                       std::string &model, llvm::json::Path path) {
  llvm::json::ObjectMapper fields(entry, path);
  int64_t seed = static_cast<int64_t>(result.seed);
  if (!fields || !fields.map("name", result.name) ||
      !fields.mapOptional("model", model) ||
      !fields.map("tokens", result.tokens) ||
      !fields.mapOptional("permute_rows", result.kernels.permuteRows) ||
      !fields.mapOptional("configs", result.kernels.configs) ||
      !fields.mapOptional("max_tokens", result.maxTokens) ||
      !fields.mapOptional("seed", seed) ||
      !fields.mapOptional("deviation", result.deviation) ||
      !fields.mapOptional("hard", result.hard) ||
      !fields.mapOptional("share", result.share) ||
      !fields.mapOptional("absolute", result.absolute) ||
      !fields.mapOptional("largest_relative", result.largestRelative) ||
      !fields.mapOptional("rms_relative", result.rmsRelative) ||
      !fields.mapOptional("sums", result.sums) ||
      !fields.mapOptional("pitch", result.pitch) ||
      !fields.mapOptional("repeats", result.repeats) ||
      !fields.mapOptional("isolation", result.isolation) ||
      !fields.mapOptional("permutation", result.permutation) ||
      !fields.mapOptional("timed", result.timed))
    return false;
  result.seed = static_cast<uint64_t>(seed);
  return true;
}

Result<std::vector<LayerCase>>
moec::gputest::loadCases(const std::string &folder, std::string &commit) {
  std::string path = folder + "/cases.json";
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  llvm::Expected<llvm::json::Value> document = llvm::json::parse(*text);
  if (!document)
    return moert::invalidArgument(path + ": " +
                                  llvm::toString(document.takeError()));
  const llvm::json::Object *object = document->getAsObject();
  const llvm::json::Array *entries =
      object ? object->getArray("cases") : nullptr;
  if (!entries)
    return moert::invalidArgument(path + ": has no list 'cases'");
  commit = object->getString("commit").value_or("").str();
  std::vector<LayerCase> cases;
  for (const llvm::json::Value &entry : *entries) {
    LayerCase &result = cases.emplace_back();
    std::string model;
    llvm::json::Path::Root root(
        llvm::formatv("cases[{0}]", cases.size() - 1).str());
    if (!readFields(entry, result, model, root))
      return moert::invalidArgument(path + ": " +
                                    llvm::toString(root.getError()));
    if (!model.empty()) {
      result.origin = folder + "/models/" + model + ".json";
      Result<std::string> description = readFile(result.origin);
      if (!description)
        return description.status();
      result.description = std::move(*description);
      continue;
    }
    const llvm::json::Value *spec = entry.getAsObject()->get("spec");
    if (!spec)
      return moert::invalidArgument(path + ": case '" + result.name +
                                    "' has neither 'spec' nor 'model'");
    result.origin = result.name;
    result.description = llvm::formatv("{0:2}", *spec);
  }
  return cases;
}
