//===- ConfigText.cpp - configs as people write them ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/ConfigText.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <array>

using namespace mlir;
using namespace moec;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(message);
}

//===----------------------------------------------------------------------===//
// Configs
//===----------------------------------------------------------------------===//

namespace {

/// The fields of a config, to be read and written by name.
struct Fields {
  explicit Fields(tile::ConfigAttr config)
      : schedule(config.getSchedule()),
        numbers({{{"m", config.getM()},
                  {"n", config.getN()},
                  {"k", config.getK()},
                  {"panel", config.getPanel()},
                  {"lanes", config.getLanes()},
                  {"rows", config.getRows()},
                  {"stages", config.getStages()}}}),
        bodies(config.getBodies()), flags({{{"map_rows", config.getMapRows()},
                                            {"rows_on_m", config.getRowsOnM()},
                                            {"queue", config.getQueue()}}}) {}

  llvm::Error set(StringRef field);
  llvm::Expected<tile::ConfigAttr> make(MLIRContext *context) const;

  std::string schedule;
  std::array<std::pair<StringRef, int64_t>, 7> numbers;
  SmallVector<int64_t> bodies;
  std::array<std::pair<StringRef, bool>, 3> flags;
};

} // namespace

static llvm::Error parseNumber(StringRef name, StringRef text,
                               int64_t &number) {
  if (!text.getAsInteger(10, number))
    return llvm::Error::success();
  return makeError("'" + name + "' is '" + text + "'; give a number");
}

llvm::Error Fields::set(StringRef field) {
  auto [name, value] = field.split('=');
  for (auto &[known, flag] : flags)
    if (name == known &&
        (field == known || value == "true" || value == "false")) {
      flag = value != "false";
      return llvm::Error::success();
    }
  if (name == "bodies") {
    bodies.clear();
    for (StringRef body : llvm::split(value, '+'))
      if (llvm::Error error = parseNumber(name, body, bodies.emplace_back()))
        return error;
    return llvm::Error::success();
  }
  for (auto &[known, number] : numbers)
    if (name == known)
      return parseNumber(name, value, number);
  return makeError("'" + field +
                   "' is no field; there are m, n, k, panel, lanes, rows, "
                   "stages (as in n=64), bodies=16+32, map_rows, rows_on_m, "
                   "queue");
}

llvm::Expected<tile::ConfigAttr> Fields::make(MLIRContext *context) const {
  std::string message;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  auto config = tile::ConfigAttr::getChecked(
      [&] { return emitError(UnknownLoc::get(context)); }, context,
      StringRef(schedule), numbers[0].second, numbers[1].second,
      numbers[2].second, numbers[3].second, numbers[4].second,
      numbers[5].second, numbers[6].second, ArrayRef<int64_t>(bodies),
      flags[0].second, flags[1].second, flags[2].second);
  if (!config)
    return makeError(message);
  return config;
}

static std::string print(tile::ConfigAttr config, bool isWhole) {
  Fields fields(config);
  std::string text = fields.schedule;
  for (auto [name, number] : fields.numbers)
    if (number)
      text += (" " + name + "=" + Twine(number)).str();
  for (auto [i, body] : llvm::enumerate(fields.bodies))
    text += (i ? "+" : " bodies=") + std::to_string(body);
  for (auto [name, flag] : fields.flags)
    if (flag || isWhole)
      text += (" " + name + (flag ? "" : "=false")).str();
  return text;
}

std::string moec::printConfig(tile::ConfigAttr config) {
  return print(config, /*isWhole=*/false);
}

std::string moec::printWholeConfig(tile::ConfigAttr config) {
  return print(config, /*isWhole=*/true);
}

//===----------------------------------------------------------------------===//
// Forced configs
//===----------------------------------------------------------------------===//

llvm::Expected<ForcedConfig> ForcedConfig::parse(StringRef entry) {
  auto fail = [&](const Twine &message) {
    return makeError("config '" + entry + "': " + message);
  };
  auto [target, text] = entry.split(':');
  auto [kernel, range] = target.split('@');
  if (kernel.empty() || text.trim().empty())
    return fail("write KERNEL:TEXT or KERNEL@MIN-MAX:TEXT, as in "
                "experts_hidden@1-64:n=64 bodies=16");
  ForcedConfig config;
  config.kernel = kernel.str();
  config.text = text.trim().str();
  if (target.contains('@')) {
    auto [low, high] = range.split('-');
    Tokens tokens;
    if (low.getAsInteger(10, tokens.min) || high.getAsInteger(10, tokens.max) ||
        tokens.min < 0 || tokens.max < std::max<int64_t>(tokens.min, 1))
      return fail("the tokens are '" + range +
                  "'; write two numbers in ascending order, as in 1-64");
    config.tokens = tokens;
  }
  return config;
}

std::string ForcedConfig::str() const {
  std::string entry = kernel;
  if (tokens)
    entry += ("@" + Twine(tokens->min) + "-" + Twine(tokens->max)).str();
  return entry + ":" + text;
}

/// What the name of a kernel for a range of token counts ends with.
static std::string getRangeSuffix(tile::LoadAttr load) {
  return "_t" + std::to_string(load.getMaxTokens());
}

bool ForcedConfig::isFor(tile::KernelOp op) const {
  return isFor(op.getSymName(), op.getLoadAttr());
}

bool ForcedConfig::isFor(StringRef name, tile::LoadAttr load) const {
  if (name != kernel && (!load || name != kernel + getRangeSuffix(load)))
    return false;
  if (!tokens)
    return true;
  // Ranges that begin with no or one token are the same.
  return load && std::max<int64_t>(load.getMinTokens(), 1) >= tokens->min &&
         load.getMaxTokens() <= tokens->max;
}

StringRef ForcedConfig::getSchedule() const {
  StringRef first = StringRef(text).split(' ').first;
  return first.contains('.') ? first : StringRef();
}

llvm::Expected<tile::ConfigAttr>
ForcedConfig::apply(tile::ConfigAttr base) const {
  Fields fields(base);
  StringRef rest = StringRef(text).drop_front(getSchedule().size());
  for (StringRef field : llvm::split(rest, ' '))
    if (!field.empty())
      if (llvm::Error error = fields.set(field))
        return makeError("config '" + str() +
                         "': " + llvm::toString(std::move(error)));
  llvm::Expected<tile::ConfigAttr> config = fields.make(base.getContext());
  if (!config)
    return makeError("config '" + str() +
                     "': " + llvm::toString(config.takeError()));
  return config;
}

llvm::Expected<std::vector<ForcedConfig>>
moec::parseForcedConfigs(ArrayRef<std::string> entries) {
  std::vector<ForcedConfig> configs;
  for (const std::string &entry : entries) {
    llvm::Expected<ForcedConfig> config = ForcedConfig::parse(entry);
    if (!config)
      return config.takeError();
    configs.push_back(std::move(*config));
  }
  return configs;
}

std::string moec::getHeavyName(tile::KernelOp kernel) {
  StringRef name = kernel.getSymName();
  std::string range;
  if (tile::LoadAttr load = kernel.getLoadAttr())
    range = getRangeSuffix(load);
  bool hasRange = name.consume_back(range);
  return (name + "_heavy").str() + (hasRange ? range : "");
}

bool moec::isForced(tile::KernelOp kernel, ArrayRef<ForcedConfig> forced) {
  return llvm::any_of(
      forced, [&](const ForcedConfig &config) { return config.isFor(kernel); });
}
