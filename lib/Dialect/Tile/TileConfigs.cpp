//===- TileConfigs.cpp - configs of schedules -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Tile/Exchange.h"

#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"

#include <type_traits>

using namespace mlir;
using namespace moec;
using namespace moec::tile;

#include "dialects/Tile/TileConfigInterface.cpp.inc"
#include "dialects/Tile/TileEnums.cpp.inc"

bool ConfigField::isDefault() const {
  if (const auto *numbers = std::get_if<SmallVector<int64_t>>(&value))
    return numbers->empty();
  if (const auto *flag = std::get_if<bool>(&value))
    return !*flag;
  return std::get<int64_t>(value) == 0;
}

/// Sets `result` if it is empty and the attribute is a config of the schedule.
template <typename Attr>
static void findConfig(MLIRContext *context, StringRef schedule,
                       ConfigAttr &result) {
  if constexpr (std::is_base_of_v<ConfigAttr::Trait<Attr>, Attr>)
    if (Attr empty = Attr::getEmpty(context); empty.getSchedule() == schedule)
      result = empty;
}

template <typename... Attrs>
static ConfigAttr findAmong(MLIRContext *context, StringRef schedule) {
  ConfigAttr result;
  (findConfig<Attrs>(context, schedule, result), ...);
  return result;
}

ConfigAttr tile::getEmptyConfig(MLIRContext *context, StringRef schedule) {
  return findAmong<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileAttrs.cpp.inc"
      >(context, schedule);
}

ConfigAttr tile::withFlag(ConfigAttr config, StringRef name, bool value) {
  SmallVector<ConfigField> fields = config.getFields();
  for (ConfigField &field : fields)
    if (field.name == name)
      field.value = value;
  return config.withFields(
      fields, [&] { return emitError(UnknownLoc::get(config.getContext())); });
}

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

/// `= 64`, `= [16, 32]`, or nothing for a flag.
static ParseResult parseValue(AsmParser &parser, ConfigValue &value) {
  if (auto *flag = std::get_if<bool>(&value)) {
    *flag = true;
    return success();
  }
  if (parser.parseEqual())
    return failure();
  if (auto *number = std::get_if<int64_t>(&value))
    return parser.parseInteger(*number);
  FailureOr<SmallVector<int64_t>> numbers = parseIntegerList(parser);
  if (failed(numbers))
    return failure();
  value = std::move(*numbers);
  return success();
}

Attribute tile::parseConfig(AsmParser &parser, ConfigAttr empty) {
  SMLoc start = parser.getCurrentLocation();
  SmallVector<ConfigField> fields = empty.getFields();
  llvm::SmallSet<StringRef, 8> seen;
  auto parseField = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    if (parser.parseKeyword(&name))
      return failure();
    auto *field = llvm::find_if(
        fields, [&](const ConfigField &known) { return known.name == name; });
    if (field == fields.end()) {
      InFlightDiagnostic diagnostic = parser.emitError(loc);
      diagnostic << "'" << name << "' is not a field of " << empty.getSchedule()
                 << "; it has ";
      if (fields.empty())
        diagnostic << "none";
      llvm::interleaveComma(fields, diagnostic, [&](const ConfigField &known) {
        diagnostic << known.name;
      });
      return failure();
    }
    if (!seen.insert(name).second)
      return parser.emitError(loc) << "'" << name << "' is given twice";
    return parseValue(parser, field->value);
  };
  if (succeeded(parser.parseOptionalLess()))
    if (parser.parseCommaSeparatedList(parseField) || parser.parseGreater())
      return {};
  return empty.withFields(fields, [&] { return parser.emitError(start); });
}

void tile::printConfig(AsmPrinter &printer, ConfigAttr config) {
  SmallVector<ConfigField> fields = config.getFields();
  llvm::erase_if(fields, [](const ConfigField &f) { return f.isDefault(); });
  if (fields.empty())
    return;
  printer << '<';
  llvm::interleaveComma(fields, printer, [&](const ConfigField &field) {
    printer << field.name;
    if (const auto *number = std::get_if<int64_t>(&field.value))
      printer << " = " << *number;
    if (const auto *numbers = std::get_if<SmallVector<int64_t>>(&field.value)) {
      printer << " = ";
      printIntegerList(printer, *numbers);
    }
  });
  printer << '>';
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

LogicalResult
tile::verifyConfig(llvm::function_ref<InFlightDiagnostic()> emitError,
                   ArrayRef<ConfigField> fields) {
  for (const ConfigField &field : fields) {
    if (const auto *number = std::get_if<int64_t>(&field.value)) {
      if (*number < 0)
        return emitError() << "'" << field.name << "' is " << *number
                           << "; 0 or more is accepted";
      // Products of two numbers and a size of the layer fit in 64 bits.
      constexpr int64_t largest = int64_t(1) << 20;
      if (*number > largest)
        return emitError() << "'" << field.name << "' is " << *number
                           << "; at most " << largest << " is accepted";
    }
    const auto *numbers = std::get_if<SmallVector<int64_t>>(&field.value);
    if (!numbers)
      continue;
    constexpr int64_t highest = 1024;
    for (auto [i, number] : llvm::enumerate(*numbers))
      if (number <= (i ? (*numbers)[i - 1] : 0) || number > highest)
        return emitError() << "'" << field.name << "' has " << number
                           << " at index " << i << "; values from 1 to "
                           << highest << ", ascending, are accepted";
  }
  return success();
}
