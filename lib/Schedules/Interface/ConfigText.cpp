//===- ConfigText.cpp - configs as people write them ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/ConfigText.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace moec;

static llvm::Error makeError(const Twine &message) {
  return llvm::createStringError(message);
}

//===----------------------------------------------------------------------===//
// Configs
//===----------------------------------------------------------------------===//

static llvm::Error parseNumber(StringRef name, StringRef text,
                               int64_t &number) {
  if (!text.getAsInteger(10, number))
    return llvm::Error::success();
  return makeError("'" + name + "' is '" + text + "'; give a number");
}

/// A flag's value is empty, "true" or "false".
static llvm::Error parseValue(StringRef name, StringRef text,
                              tile::ConfigValue &value) {
  if (auto *number = std::get_if<int64_t>(&value))
    return parseNumber(name, text, *number);
  if (auto *flag = std::get_if<bool>(&value)) {
    *flag = text != "false";
    if (text.empty() || text == "true" || text == "false")
      return llvm::Error::success();
    return makeError("'" + name + "' is '" + text + "'; give true or false");
  }
  auto &numbers = std::get<SmallVector<int64_t>>(value);
  numbers.clear();
  for (StringRef part : llvm::split(text, '+'))
    if (llvm::Error error = parseNumber(name, part, numbers.emplace_back()))
      return error;
  return llvm::Error::success();
}

/// Text of a field: "block_n=64", "block_m=16+32", "map_rows".
static std::string printField(const tile::ConfigField &field) {
  std::string text = field.name.str();
  if (const auto *number = std::get_if<int64_t>(&field.value))
    return text + "=" + std::to_string(*number);
  if (const auto *flag = std::get_if<bool>(&field.value))
    return *flag ? text : text + "=false";
  for (auto [i, number] :
       llvm::enumerate(std::get<SmallVector<int64_t>>(field.value)))
    text += (i ? "+" : "=") + std::to_string(number);
  return text;
}

/// Sets a config's fields from `text`.
static llvm::Error setField(StringRef text, StringRef schedule,
                            MutableArrayRef<tile::ConfigField> fields) {
  auto [name, value] = text.split('=');
  for (tile::ConfigField &field : fields)
    if (field.name == name)
      return parseValue(name, value, field.value);
  std::string known;
  for (const tile::ConfigField &field : fields)
    known += (known.empty() ? "" : ", ") + field.name.str();
  return makeError("'" + text + "' is not a field of " + schedule +
                   "; it has " + (known.empty() ? "none" : known) +
                   ", as in block_m=16+32 block_n=64 map_rows");
}

static llvm::Expected<tile::ConfigAttr>
makeConfig(tile::ConfigAttr base, ArrayRef<tile::ConfigField> fields) {
  MLIRContext *context = base.getContext();
  std::string message;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  tile::ConfigAttr config = base.withFields(
      fields, [&] { return emitError(UnknownLoc::get(context)); });
  if (!config)
    return makeError(message);
  return config;
}

static std::string print(tile::ConfigAttr config, bool isWhole) {
  std::string text = config.getSchedule().str();
  for (const tile::ConfigField &field : config.getFields())
    if (isWhole || !field.isDefault())
      text += " " + printField(field);
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
                "experts_hidden@1-64:block_m=16 block_n=64");
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

/// Suffix of the name of a kernel for a range of token counts.
static std::string getRangeSuffix(tile::LoadAttr load) {
  return "_t" + std::to_string(load.getMaxTokens());
}

std::string moec::getExchangeName(plan::CollectiveOp collective) {
  return (plan::stringifyCollectiveKind(collective.getKind()) + "_" +
          plan::stringifyAxis(collective.getAxis()))
      .str();
}

bool ForcedConfig::isFor(tile::KernelOp op) const {
  return isFor(op.getSymName(), op.getLoadAttr());
}

bool ForcedConfig::isFor(StringRef name, tile::LoadAttr load) const {
  if (name != kernel && (!load || name != kernel + getRangeSuffix(load)))
    return false;
  if (!tokens)
    return true;
  // Ranges that begin at zero or one token are equal.
  return load && std::max<int64_t>(load.getMinTokens(), 1) >= tokens->min &&
         load.getMaxTokens() <= tokens->max;
}

StringRef ForcedConfig::getSchedule() const {
  StringRef first = StringRef(text).split(' ').first;
  return first.contains('.') ? first : StringRef();
}

llvm::Expected<tile::ConfigAttr>
ForcedConfig::apply(tile::ConfigAttr base) const {
  SmallVector<tile::ConfigField> fields = base.getFields();
  StringRef rest = StringRef(text).drop_front(getSchedule().size());
  for (StringRef field : llvm::split(rest, ' '))
    if (!field.empty())
      if (llvm::Error error = setField(field, base.getSchedule(), fields))
        return makeError("config '" + str() +
                         "': " + llvm::toString(std::move(error)));
  llvm::Expected<tile::ConfigAttr> config = makeConfig(base, fields);
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

std::string moec::getLargeGroupsName(tile::KernelOp kernel) {
  StringRef name = kernel.getSymName();
  std::string range;
  if (tile::LoadAttr load = kernel.getLoadAttr())
    range = getRangeSuffix(load);
  bool hasRange = name.consume_back(range);
  return (name + "_large_groups").str() + (hasRange ? range : "");
}

std::string moec::getNameInRange(tile::KernelOp kernel, tile::LoadAttr load) {
  StringRef name = kernel.getSymName();
  if (tile::LoadAttr own = kernel.getLoadAttr())
    name.consume_back(getRangeSuffix(own));
  return name.str() + getRangeSuffix(load);
}

bool moec::isForced(tile::KernelOp kernel, ArrayRef<ForcedConfig> forced) {
  return llvm::any_of(
      forced, [&](const ForcedConfig &config) { return config.isFor(kernel); });
}
