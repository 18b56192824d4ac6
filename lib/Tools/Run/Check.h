//===- Check.h - comparison with the reference ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_CHECK_H
#define MOEC_LIB_TOOLS_RUN_CHECK_H

#include "RunLevel.h"

namespace moec {

/// Runs the float64 reference (`python -m moec.reference check`) as a separate
/// process that shares no code with the compiler. It gets the layer's spec, and
/// inputs that are written to a temporary file once. The meaning of a model's
/// config.json is not checked here, but against the model's own code
/// (docs/generated/models.md).
class ReferenceCheck {
public:
  ReferenceCheck() = default;
  ~ReferenceCheck();

  /// Finds Python and checks that it has the reference, before anything takes
  /// long.
  moert::Status findReference();

  moert::Status setSpec(const std::string &spec);

  /// Writes the inputs to a temporary file under their canonical names;
  /// replaces those of an earlier call.
  moert::Status setInputs(llvm::ArrayRef<const HostTensor *> tensors);

  /// Sets the index of the first row among the rows of all ranks; 0 by default.
  void setFirstToken(int64_t number) { firstToken = number; }

  /// Compares; the reference prints its summary on standard output. Returns
  /// false if the results are wrong or the reference could not run (with a
  /// message).
  bool compare(const RunResult &result);

private:
  moert::Result<std::string> makeTemporary(llvm::StringRef stem,
                                           llvm::StringRef suffix);

  std::string python;
  /// Temporary files.
  std::string inputs;
  std::string specFile;
  int64_t firstToken = 0;
};

/// Writes output and details to a safetensors file atomically.
moert::Status writeResult(const std::string &path, const RunResult &result);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_CHECK_H
