//===- ScheduleOperands.cpp - operands for a schedule alone -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScheduleOperands.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace moec;

ParseResult tile::parseScheduleOperands(
    OpAsmParser &parser, OptionalOperand &ids, Type &idsType,
    OptionalOperand &signals, Type &signalsType, OptionalOperand &awaits,
    Type &awaitsType, OptionalOperand &tileCounter, Type &tileCounterType,
    OptionalOperand &cleared, Type &clearedType) {
  struct {
    StringRef name;
    OptionalOperand &operand;
    Type &type;
  } known[] = {{"ids", ids, idsType},
               {"signals", signals, signalsType},
               {"awaits", awaits, awaitsType},
               {"tile_counter", tileCounter, tileCounterType},
               {"cleared", cleared, clearedType}};
  return parser.parseCommaSeparatedList([&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    if (parser.parseKeyword(&name))
      return failure();
    for (auto &[field, operand, type] : known) {
      if (field != name)
        continue;
      if (operand)
        return parser.emitError(loc) << "'" << name << "' is given twice";
      return failure(parser.parseEqual() ||
                     parser.parseOperand(operand.emplace()) ||
                     parser.parseColonType(type));
    }
    return parser.emitError(loc) << "'" << name
                                 << "' is not an operand of 'schedule'; there "
                                    "are ids, signals, awaits, tile_counter, "
                                    "cleared";
  });
}

void tile::printScheduleOperands(OpAsmPrinter &printer, Operation *, Value ids,
                                 Type, Value signals, Type, Value awaits, Type,
                                 Value tileCounter, Type, Value cleared, Type) {
  SmallVector<std::pair<StringRef, Value>> operands{
      {"ids", ids},
      {"signals", signals},
      {"awaits", awaits},
      {"tile_counter", tileCounter},
      {"cleared", cleared}};
  llvm::erase_if(operands, [](const auto &entry) { return !entry.second; });
  llvm::interleaveComma(operands, printer, [&](const auto &entry) {
    printer << entry.first << " = " << entry.second << " : "
            << entry.second.getType();
  });
}
