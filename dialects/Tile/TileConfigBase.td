//===- TileConfigBase.td - what configs of schedules are -------*- tablegen -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECTS_TILE_TILECONFIGBASE_TD
#define MOEC_DIALECTS_TILE_TILECONFIGBASE_TD

include "TileBase.td"

def Tile_ConfigAttr : AttrInterface<"ConfigAttr"> {
  let cppNamespace = "::moec::tile";
  let description = [{
    The parameters of a schedule for one op: an attribute of that schedule with a value for each field. Passes handle
    configs through this interface; the schedule, its emission and its cost model cast it to their own attribute.

    Numbers are 0 to 2^20; a field documents what 0 means, or 0 is illegal. The dialect checks only this range. The
    schedule checks whether a config suits the op, in `tile-assign-config` and again when it emits code.
  }];
  let methods = [
    InterfaceMethod<"The schedule, as `target.name`: \"sm90.contract\".",
                    "::llvm::StringRef", "getSchedule">,
    InterfaceMethod<"All fields with their values, in the order in which they are printed.",
                    "::llvm::SmallVector<::moec::tile::ConfigField>", "getFields">,
    InterfaceMethod<"The same attribute with these values, which are those of `getFields` but for "
                    "what is changed; null after an error where one is none that the dialect takes.",
                    "::moec::tile::ConfigAttr", "withFields",
                    (ins "::llvm::ArrayRef<::moec::tile::ConfigField>":$fields,
                         "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError)>,
    InterfaceMethod<"Whether CTAs take tiles one after another from a queue.",
                    "bool", "getQueue", (ins), "", "return false;">,
    InterfaceMethod<"The same for tiles from a queue, or in a fixed order; unchanged where a "
                    "schedule knows one order only.",
                    "::moec::tile::ConfigAttr", "withQueue", (ins "bool":$queue), "",
                    "return $_attr;">,
    InterfaceMethod<"Whether rows of the input come by tensor maps.",
                    "bool", "getMapRows", (ins), "", "return false;">,
    InterfaceMethod<"The same for rows that come by tensor maps, or not; unchanged where a "
                    "schedule has no maps of rows.",
                    "::moec::tile::ConfigAttr", "withMapRows", (ins "bool":$map_rows), "",
                    "return $_attr;">,
  ];
}

/// A field of a config: its name, its C++ type as a value and as a parameter.
class Tile_ConfigField<string fieldName, string cppType, string cppParameterType, AttrOrTypeParameter fieldParameter> {
  string name = fieldName;
  string type = cppType;
  string parameterType = cppParameterType;
  AttrOrTypeParameter parameter = fieldParameter;
}
class Tile_Number<string name, string doc>
    : Tile_ConfigField<name, "int64_t", "int64_t", DefaultValuedParameter<"int64_t", "0", doc>>;
class Tile_Numbers<string name, string doc>
    : Tile_ConfigField<name, "::llvm::SmallVector<int64_t>", "::llvm::ArrayRef<int64_t>",
                       OptionalArrayRefParameter<"int64_t", doc>>;
class Tile_Flag<string name, string doc>
    : Tile_ConfigField<name, "bool", "bool", DefaultValuedParameter<"bool", "false", doc>>;

/// The attribute of the schedule `target.phase`.
class Tile_Config<string target, string phase, string className, list<Tile_ConfigField> fields>
    : AttrDef<Tile_Dialect, className, [DeclareAttrInterfaceMethods<Tile_ConfigAttr>]> {
  let mnemonic = target # "_" # phase;
  let parameters = !dag(ins, !foreach(f, fields, f.parameter), !foreach(f, fields, f.name));
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = !not(!empty(fields));

  code baseDeclaration = "  /// The attribute with every field at its default.\n  static " # className #
      "Attr getEmpty(::mlir::MLIRContext *context) { return get(" #
      !interleave(!listconcat(["context"], !foreach(f, fields, f.parameterType # "()")), ", ") # "); }\n";
  let extraClassDeclaration = baseDeclaration;
  let extraClassDefinition = [{
    ::llvm::StringRef $cppClass::getSchedule() const { return "}] # target # "." # phase # [{"; }
    ::llvm::SmallVector<::moec::tile::ConfigField> $cppClass::getFields() const {
      return }] # "{" #
      !interleave(!foreach(f, fields, "{\"" # f.name # "\", " # f.type # "(getImpl()->" # f.name # ")}"),
                  ", ") # "}" # [{;
    }
    ::moec::tile::ConfigAttr $cppClass::withFields(
        ::llvm::ArrayRef<::moec::tile::ConfigField> fields,
        ::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError) const {
      return getChecked(}] #
      !interleave(!listconcat(["emitError", "getContext()"],
                              !foreach(i, !range(!size(fields)),
                                       "std::get<" # fields[i].type # ">(fields[" # i # "].value)")),
                  ", ") # [{);
    }
    ::mlir::Attribute $cppClass::parse(::mlir::AsmParser &parser, ::mlir::Type) {
      return ::moec::tile::parseConfig(parser, getEmpty(parser.getContext()));
    }
    void $cppClass::print(::mlir::AsmPrinter &printer) const {
      ::moec::tile::printConfig(printer, *this);
    }
  }] # !if(!empty(fields), "", [{
    ::llvm::LogicalResult $cppClass::verify(}] #
      !interleave(!listconcat(["::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError"],
                              !foreach(f, fields, f.parameterType # " " # f.name)), ", ") # [{) {
      return ::moec::tile::verifyConfig(emitError, }] # "{" #
      !interleave(!foreach(f, fields, "{\"" # f.name # "\", " # f.type # "(" # f.name # ")}"), ", ") # "}" # [{);
    }
  }]);
}

#endif
