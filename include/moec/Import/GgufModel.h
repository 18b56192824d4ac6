//===- GgufModel.h - a GGUF file as a model's description -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_GGUFMODEL_H
#define MOEC_IMPORT_GGUFMODEL_H

#include "moec/Import/LayerSpec.h"
#include "moec/Support/Diagnostics.h"

#include <functional>
#include <map>

namespace moec {

/// A tensor of a GGUF file.
struct GgufTensor {
  /// The kind of its blocks ("q4_K"); empty for elements.
  std::string block;
  /// The dtype of its elements; none for blocks, and for types that layers do
  /// not have.
  std::optional<DType> dtype;
  /// The K dimension last; in bytes for blocks.
  std::vector<int64_t> shape;
};

/// Metadata and tensors of all files of a GGUF model.
struct GgufModel {
  /// Values as text (moert/Gguf.h).
  std::map<std::string, std::string> metadata;
  std::map<std::string, GgufTensor> tensors;
  /// Whether a dtype has all values of a tensor.
  std::function<bool(llvm::StringRef tensor, DType dtype)> isExact;

  /// The tensor `blk.LAYER.NAME`, or null.
  const GgufTensor *find(int64_t layer, llvm::StringRef name) const;
  /// The layers with tensors of experts, in order.
  std::vector<int64_t> getLayersWithExperts() const;
};

/// Writes the metadata as the config.json of the model's family, whose entry in
/// the table of families then says what they mean. Reports errors at `path`.
llvm::FailureOr<SourceText> writeModelConfig(const GgufModel &model,
                                             llvm::StringRef path,
                                             Diagnostics &diags);

} // namespace moec

#endif // MOEC_IMPORT_GGUFMODEL_H
