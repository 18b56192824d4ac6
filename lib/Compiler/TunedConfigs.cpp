//===- TunedConfigs.cpp - reads files of tuned configs --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/TunedConfigs.h"

#include "moec/Compiler/SourceFile.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Support/Json.h"

using namespace mlir;
using namespace moec;

namespace {

class TunedConfigReader {
public:
  TunedConfigReader(const SourceText &text, Diagnostics &diagnostics)
      : text(text), diagnostics(diagnostics) {}

  FailureOr<std::vector<std::string>> read(const json::Value &file,
                                           StringRef target);

private:
  FailureOr<std::string> readConfig(const json::Value &entry,
                                    const std::string &path);
  /// The member with that name and kind, or null after an error.
  const json::Value *get(const json::Value &object, StringRef name,
                         json::Value::Kind kind, const std::string &path);
  LogicalResult fail(const json::Value &value, const Twine &message) {
    diagnostics.error(text, value.range, message);
    return failure();
  }

  const SourceText &text;
  Diagnostics &diagnostics;
};

} // namespace

const json::Value *TunedConfigReader::get(const json::Value &object,
                                          StringRef name,
                                          json::Value::Kind kind,
                                          const std::string &path) {
  const json::Member *member = object.find(name);
  const json::Value *value = member ? &member->value : nullptr;
  if (!value)
    (void)fail(object, "'" + path + name.str() + "' is missing; give " +
                           json::describe(kind));
  else if (value->kind != kind)
    (void)fail(*value, "'" + path + name.str() + "' is " +
                           json::describe(value->kind) + "; give " +
                           json::describe(kind));
  return value && value->kind == kind ? value : nullptr;
}

FailureOr<std::string> TunedConfigReader::readConfig(const json::Value &entry,
                                                     const std::string &path) {
  if (!entry.isObject())
    return fail(entry, "'" + path + "' is " + json::describe(entry.kind) +
                           "; give an object with kernel, tokens, config");
  for (const json::Member &member : entry.members)
    if (member.name != "kernel" && member.name != "tokens" &&
        member.name != "config") {
      diagnostics.error(
          text, member.nameRange,
          "'" + path + "." + member.name +
              "' is unknown; accepted are kernel, tokens, config");
      return failure();
    }
  const json::Value *kernel =
      get(entry, "kernel", json::Value::Kind::String, path + ".");
  const json::Value *config =
      get(entry, "config", json::Value::Kind::String, path + ".");
  if (!kernel || !config)
    return failure();
  std::string range;
  if (const json::Member *member = entry.find("tokens")) {
    const json::Value *tokens = &member->value;
    if (tokens->elements.size() != 2 || !tokens->elements[0].getInteger() ||
        !tokens->elements[1].getInteger())
      return fail(
          *tokens,
          "'" + path +
              ".tokens' is not a range; give two integers, as in [1, 64]");
    range = "@" + std::to_string(*tokens->elements[0].getInteger()) + "-" +
            std::to_string(*tokens->elements[1].getInteger());
  }
  std::string option = kernel->text + range + ":" + config->text;
  llvm::Expected<ForcedConfig> forced = ForcedConfig::parse(option);
  if (!forced)
    return fail(entry, "'" + path + "': " + llvm::toString(forced.takeError()));
  return option;
}

FailureOr<std::vector<std::string>>
TunedConfigReader::read(const json::Value &file, StringRef target) {
  if (!file.isObject())
    return fail(file, "the file is " + json::describe(file.kind) +
                          "; give an object with target, configs");
  const json::Value *name = get(file, "target", json::Value::Kind::String, "");
  const json::Value *configs =
      get(file, "configs", json::Value::Kind::Array, "");
  if (!name || !configs)
    return failure();
  if (name->text != target)
    return fail(
        *name, "'target' is '" + name->text +
                   "', but the layer is compiled for '" + target +
                   "'; give a file for this target, or --target=" + name->text);
  std::vector<std::string> options;
  for (auto [i, entry] : llvm::enumerate(configs->elements)) {
    FailureOr<std::string> option =
        readConfig(entry, "configs[" + std::to_string(i) + "]");
    if (failed(option))
      return failure();
    options.push_back(std::move(*option));
  }
  return options;
}

FailureOr<std::vector<std::string>>
moec::readTunedConfigs(const SourceText &text, StringRef target,
                       llvm::raw_ostream &os) {
  Diagnostics diagnostics(os);
  FailureOr<json::Value> file = json::parse(text, diagnostics);
  if (failed(file))
    return failure();
  return TunedConfigReader(text, diagnostics).read(*file, target);
}

FailureOr<std::vector<std::string>>
moec::readTunedConfigs(StringRef path, StringRef target,
                       llvm::raw_ostream &os) {
  Diagnostics diagnostics(os);
  FailureOr<SourceText> text = readTextFile(path, json::kMaxBytes, diagnostics);
  if (failed(text))
    return failure();
  return readTunedConfigs(*text, target, os);
}
