//===- PackedCheckpoint.h - small packed checkpoints ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// test/Tools/Inputs/checkpoints has checkpoints packed by the tools that
// publish them (make_checkpoints.py).
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TOOLS_PACKEDCHECKPOINT_H
#define MOEC_UNITTESTS_TOOLS_PACKEDCHECKPOINT_H

#include "TensorTesting.h"
#include "Tools/Run/LoadTensors.h"
#include "moec/Import/Import.h"

namespace moec::testing {

inline constexpr const char *kPackedCheckpoints[] = {
    "awq-int4",        "bnb-nf4",          "bnb-nf4-nested",  "ct-fp8",
    "ct-fp8-block",    "ct-int3-zeros",    "ct-int4",         "ct-int4-zeros",
    "ct-int6",         "ct-int8",          "ct-mxfp4",        "ct-mxfp8",
    "ct-nvfp4",        "ct-w8a8",          "ct-w8a8-zeros",   "gguf-mxfp4",
    "gguf-nvfp4",      "gguf-q4_0",        "gguf-q4_K",       "gguf-q5_K",
    "gguf-q6_K",       "gguf-q8_0",        "gptq-int2-zeros", "gptq-int3",
    "gptq-int3-zeros", "gptq-int7-planes", "gptq-int4",       "gptq-int4-zeros",
    "gptq-int8",       "gptq-int8-zeros",  "modelopt-nvfp4",  "torchao-mxfp4",
    "torchao-mxfp8",   "torchao-nvfp4"};

inline std::string getPackedFolder(const std::string &name) {
  return PACKED_CHECKPOINTS "/" + name;
}

/// GGUF layers are described by a spec, because a file's model metadata is not
/// read.
inline bool isGguf(llvm::StringRef name) { return name.starts_with("gguf-"); }

inline std::string getPackedWeights(const std::string &name) {
  return getPackedFolder(name) +
         (isGguf(name) ? "/model.gguf" : "/model.safetensors");
}

/// Imports the layer, with an object `parallel` if one is given. An invalid
/// layer fails the test, unless the caller asks for `messages`.
inline LayerSpec importPacked(const std::string &name,
                              const std::string &parallel = "",
                              std::string *messages = nullptr) {
  std::string text;
  llvm::raw_string_ostream os(text);
  Diagnostics diags(os);
  SpecOverrides overrides;
  // The model quantizes activations to 4 bits.
  if (name == "modelopt-nvfp4")
    overrides.ignoredFields = {
        "quantization_config.config_groups.group_0.input_activations"};
  if (!parallel.empty())
    overrides.parallel = SourceText("parallel", parallel);
  const char *file = isGguf(name) ? "/spec.json" : "/config.json";
  auto spec = importJsonFile(getPackedFolder(name) + file, overrides, diags);
  EXPECT_TRUE(succeeded(spec) || messages) << text;
  if (messages)
    *messages = text;
  return succeeded(spec) ? *spec : LayerSpec();
}

inline ElementType getElementType(TensorType type) {
  switch (type) {
  case TensorType::F32:
    return ElementType::F32;
  case TensorType::BF16:
    return ElementType::BF16;
  case TensorType::F16:
    return ElementType::F16;
  case TensorType::I32:
    return ElementType::I32;
  case TensorType::I16:
    return ElementType::I16;
  case TensorType::F8E4M3FN:
    return ElementType::F8E4M3;
  case TensorType::F8E5M2:
    return ElementType::F8E5M2;
  case TensorType::F8E8M0FNU:
    return ElementType::F8E8M0;
  case TensorType::I8:
    return ElementType::I8;
  }
  llvm_unreachable("every type is listed");
}

/// The weights of a layer, loaded from a checkpoint.
struct PackedLayer {
  explicit PackedLayer(const LayerSpec &spec) {
    std::vector<TensorShape> shapes;
    for (const TensorInfo &info : getTensorSignature(spec))
      if (info.role == moec::TensorRole::Weight)
        shapes.push_back(
            {info.name, Role::Weight, getElementType(info.type), info.shape});
    tensors = makeTensors(shapes);
  }

  moert::Status load(const LayerSpec &spec, const std::string &path) {
    auto file = moert::Checkpoint::open(path);
    if (!file)
      return file.status();
    return loadTensors(tensors, *file, makeRequest(spec));
  }

  const HostTensor *find(const std::string &name) const {
    for (const HostTensor &tensor : tensors)
      if (tensor.name == name)
        return &tensor;
    return nullptr;
  }

  std::vector<HostTensor> tensors;
};

} // namespace moec::testing

#endif // MOEC_UNITTESTS_TOOLS_PACKEDCHECKPOINT_H
