//===- Check.h - the comparison with the reference --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_CHECK_H
#define MOEC_LIB_TOOLS_RUN_CHECK_H

#include "RunLevel.h"

namespace moec {

/// Runs the float64 reference (`python -m moec.reference check`) as a process
/// of its own, which shares no code with the compiler. It gets the layer's
/// spec, and inputs that are written to a temporary file once. What a model's
/// config.json means is not its business: that is checked against the model's
/// own code (docs/models.md).
class ReferenceCheck {
public:
  ReferenceCheck() = default;
  ~ReferenceCheck();

  /// Finds Python and sees to it that it has the reference, before anything
  /// takes long.
  moert::Status findReference();

  /// Takes the text of the layer's spec.
  moert::Status setSpec(const std::string &spec);

  /// Writes the inputs to a temporary file, by their canonical names; of
  /// several calls the last one's count.
  moert::Status setInputs(llvm::ArrayRef<const HostTensor *> tensors);

  /// The number of the first row among those of all ranks; 0 until then.
  void setFirstToken(int64_t number) { firstToken = number; }

  /// Compares; the reference prints its summary on standard output. False if
  /// the results are wrong or the reference could not run (with a message).
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

/// Writes output and details to a safetensors file, whole or not at all.
moert::Status writeResult(const std::string &path, const RunResult &result);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_CHECK_H
