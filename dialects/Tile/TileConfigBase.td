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
    InterfaceMethod<"The schedule, as `target.name`: \"gpu.gemv\".",
                    "::llvm::StringRef", "getSchedule">,
    InterfaceMethod<"All fields with their values, in the order of printing.",
                    "::llvm::SmallVector<::moec::tile::ConfigField>", "getFields">,
    InterfaceMethod<"The attribute with these values, in the order of `getFields`; null after an error "
                    "if the dialect does not accept a value.",
                    "::moec::tile::ConfigAttr", "withFields",
                    (ins "::llvm::ArrayRef<::moec::tile::ConfigField>":$fields,
                         "::llvm::function_ref<::mlir::InFlightDiagnostic()>":$emitError)>,
    InterfaceMethod<"Whether the dynamic tile scheduler assigns tiles to CTAs.",
                    "bool", "getDynamicScheduler", (ins), "", "return false;">,
    InterfaceMethod<"The config with or without the dynamic tile scheduler; unchanged if the schedule "
                    "has no such field.",
                    "::moec::tile::ConfigAttr", "withDynamicScheduler", (ins "bool":$dynamic_scheduler), "",
                    "return ::moec::tile::withFlag($_attr, \"dynamic_scheduler\", dynamic_scheduler);">,
    InterfaceMethod<"Whether tensor maps load the input rows.",
                    "bool", "getMapRows", (ins), "", "return false;">,
    InterfaceMethod<"The config with or without tensor maps for input rows; unchanged if the schedule "
                    "has no such field.",
                    "::moec::tile::ConfigAttr", "withMapRows", (ins "bool":$map_rows), "",
                    "return ::moec::tile::withFlag($_attr, \"map_rows\", map_rows);">,
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

// Fields of several folders of schedules.
defvar Tile_VectorWidth = Tile_Number<"vector_width", "elements that a thread loads or stores at once">;
defvar Tile_ColumnsPerCta = Tile_Number<"columns_per_cta", "columns of a row that one CTA computes">;
defvar Tile_Threads = Tile_Number<"threads", "threads of a CTA">;

/// The attribute of the schedule `target.phase`. Each folder of lib/Schedules has those of its schedules in Config.td;
/// syntax, text form, getters and the page in docs/reference follow from the fields.
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
