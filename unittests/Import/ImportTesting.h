//===- ImportTesting.h - imports from a string ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_IMPORT_IMPORTTESTING_H
#define MOEC_UNITTESTS_IMPORT_IMPORTTESTING_H

#include "moec/Import/Import.h"

#include "gtest/gtest.h"

namespace moec::testing {

/// The result of importing a text as the file `t.json`.
struct Imported {
  llvm::FailureOr<LayerSpec> spec = llvm::failure();
  std::string messages;

  explicit Imported(std::string text, const SpecOverrides &overrides = {}) {
    llvm::raw_string_ostream os(messages);
    Diagnostics diags(os);
    spec = importJson(SourceText("t.json", std::move(text)), overrides, diags);
    EXPECT_EQ(succeeded(spec), diags.getNumErrors() == 0);
  }

  bool ok() const { return succeeded(spec); }
};

/// Imports a valid layer.
inline LayerSpec importOk(std::string text,
                          const SpecOverrides &overrides = {}) {
  Imported imported(std::move(text), overrides);
  EXPECT_TRUE(imported.ok()) << imported.messages;
  return imported.ok() ? *imported.spec : LayerSpec();
}

/// Returns the messages about an invalid layer.
inline std::string importError(std::string text,
                               const SpecOverrides &overrides = {}) {
  Imported imported(std::move(text), overrides);
  EXPECT_FALSE(imported.ok());
  return imported.messages;
}

/// Expands a short name of the spec's `quantization`.
inline QuantizationSpec getQuantization(llvm::StringRef name) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.name == name)
      return entry.meaning;
  ADD_FAILURE() << name.str() << " is no abbreviation";
  return {};
}

/// e4m3 with f32 scales.
inline OperandQuantization makeFp8(Granularity granularity,
                                   bool isStatic = false) {
  OperandQuantization operand;
  operand.granularity = granularity;
  operand.isStatic = isStatic;
  return operand;
}

/// A spec with the required fields, 8 experts, and the additional `fields`.
inline std::string makeSpec(const std::string &fields = "") {
  return R"({"moec_spec": 1, "dtype": "f32", "hidden_size": 64,
"num_experts": 8, "top_k": 2, "intermediate_size": 32)" +
         (fields.empty() ? "" : ",\n" + fields) +
         (fields.find("\"activation\"") == std::string::npos
              ? R"(, "activation": {"kind": "silu"}})"
              : "}");
}

} // namespace moec::testing

#endif // MOEC_UNITTESTS_IMPORT_IMPORTTESTING_H
