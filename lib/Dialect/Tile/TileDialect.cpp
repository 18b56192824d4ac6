//===- TileDialect.cpp - registration of the tile dialect -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Tile/Exchange.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec::tile;

#include "dialects/Tile/TileDialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.cpp.inc"

// Both files define a parser and a printer of these names.
#define generatedAttributeParser parseExchangeAttribute
#define generatedAttributePrinter printExchangeAttribute
#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileExchangeAttrs.cpp.inc"
#undef generatedAttributeParser
#undef generatedAttributePrinter

void TileDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileAttrs.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileExchangeAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Tile/TileOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Tile/TileExchangeOps.cpp.inc"
      >();
}

/// Parses the rest of the attribute with this mnemonic; no value if none of
/// `Attrs` has it.
template <typename... Attrs>
static std::optional<Attribute> parseAmong(DialectAsmParser &parser,
                                           StringRef mnemonic, Type type) {
  std::optional<Attribute> parsed;
  ((mnemonic == Attrs::getMnemonic() &&
    (parsed = Attrs::parse(parser, type), true)) ||
   ...);
  return parsed;
}

Attribute TileDialect::parseAttribute(DialectAsmParser &parser,
                                      Type type) const {
  SMLoc loc = parser.getCurrentLocation();
  StringRef mnemonic;
  Attribute attribute;
  OptionalParseResult result =
      generatedAttributeParser(parser, &mnemonic, type, attribute);
  if (result.has_value())
    return attribute;
  // The parser has consumed the mnemonic.
  if (std::optional<Attribute> parsed = parseAmong<
#define GET_ATTRDEF_LIST
#include "dialects/Tile/TileExchangeAttrs.cpp.inc"
          >(parser, mnemonic, type))
    return *parsed;
  (void)parseExchangeAttribute;
  InFlightDiagnostic diagnostic = parser.emitError(loc);
  diagnostic << "'#tile." << mnemonic << "' is no attribute of the dialect";
  if (mnemonic == "config")
    diagnostic << "; each schedule has its own, as in '#tile.sm90_contract<"
                  "tile_rows = [16], tile_columns = 64>' for what "
                  "'schedule = \"sm90.contract\"' was";
  return {};
}

void TileDialect::printAttribute(Attribute attribute,
                                 DialectAsmPrinter &printer) const {
  if (failed(generatedAttributePrinter(attribute, printer)))
    (void)printExchangeAttribute(attribute, printer);
}
