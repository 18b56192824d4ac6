//===- PackedCheckpointTest.cpp - tests of packed formats -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle is the tools that publish such checkpoints:
// test/Tools/Inputs/checkpoints has their packed tensors and the values that
// they dequantize to (make_checkpoints.py). The layer's tensors are dequantized
// here as docs/use/layers.md says, and compared with these values.
//
//===----------------------------------------------------------------------===//

#include "PackedCheckpoint.h"
#include "Tools/Run/ConvertElements.h"
#include "Tools/Run/UnpackElements.h"
#include "moec/Dialect/Moe/CodeBook.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cmath>
#include <cstring>

using namespace moec;
using namespace moec::testing;

namespace {

double decodeE4M3(uint8_t bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  double size = exponent ? std::ldexp(8 + mantissa, exponent - 10)
                         : std::ldexp(mantissa, -9);
  return bits & 0x80 ? -size : size;
}

double read(const HostTensor &tensor, int64_t i) {
  const uint8_t *byte = tensor.data() + i;
  switch (tensor.dtype) {
  case ElementType::F8E4M3:
    return decodeE4M3(*byte);
  case ElementType::F8E8M0:
    return std::ldexp(1.0, *byte - 127);
  default:
    float value = 0;
    size_t size = size_t(moert::dtypeBits(tensor.dtype)) / 8;
    EXPECT_TRUE(convertElement(tensor.data() + size_t(i) * size, tensor.dtype,
                               reinterpret_cast<uint8_t *>(&value),
                               ElementType::F32));
    return value;
  }
}

/// q of the table of elements in docs/use/layers.md, minus the zero point.
double readElement(const HostTensor &tensor, StorageType storage, int64_t i,
                   std::optional<int64_t> zero, bool hasMinimum) {
  uint8_t byte = tensor.data()[getElementBits(storage) < 8 ? i / 2 : i];
  int code = i % 2 ? byte >> 4 : byte & 15;
  constexpr double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  switch (storage) {
  case StorageType::NF4:
    return moe::kNF4[size_t(code)];
  case StorageType::Fp4E2M1:
    return code & 8 ? -sizes[code & 7] : sizes[code];
  case StorageType::Int4:
    return double(code - zero.value_or(hasMinimum ? 0 : 8));
  case StorageType::Int8:
    return zero ? double(byte - *zero) : double(int8_t(byte));
  default:
    return decodeE4M3(byte);
  }
}

/// Element (row, column) of an expert's matrix.
double dequantize(const PackedLayer &layer, const LayerSpec &spec,
                  const std::string &name, int64_t expert, int64_t row,
                  int64_t column) {
  const OperandQuantization &weight =
      (name == "experts.w2" ? spec.quantization.w2 : spec.quantization.w13)
          ->weight;
  const HostTensor &elements = *layer.find(name);
  const HostTensor &scales = *layer.find(name + "_scale");
  int64_t rows = elements.shape[1];
  int64_t columns = elements.shape[2] * 8 / getElementBits(weight.storage);
  // Gate rows and up rows have blocks, scales and global scales of their own.
  int64_t half = name == "experts.w13" ? rows / 2 : rows;
  int64_t blockRows = weight.blockRows;
  if (weight.granularity == Granularity::Tensor)
    blockRows = half;
  else if (weight.granularity == Granularity::Channel)
    blockRows = 1;
  int64_t blocksOfHalf = (half + blockRows - 1) / blockRows;
  int64_t scaleRow = row / half * blocksOfHalf + row % half / blockRows;
  int64_t scaleColumn =
      weight.blockColumns ? column / weight.blockColumns : int64_t(0);
  int64_t at =
      (expert * scales.shape[1] + scaleRow) * scales.shape[2] + scaleColumn;
  double scale = read(scales, at);
  if (const HostTensor *global = layer.find(name + "_global_scale"))
    scale *= read(*global, expert * global->shape[1] + row / half);
  std::optional<int64_t> zero;
  if (const HostTensor *zeros = layer.find(name + "_zero_point"))
    zero = zeros->data()[at];
  double minimum = 0;
  if (const HostTensor *minima = layer.find(name + "_minimum"))
    minimum = read(*minima, at);
  return readElement(elements, weight.storage,
                     (expert * rows + row) * columns + column, zero,
                     weight.hasMinimum) *
             scale -
         minimum;
}

class PackedCheckpoint : public ::testing::TestWithParam<const char *> {};

} // namespace

TEST_P(PackedCheckpoint, IsWhatItsToolSays) {
  LayerSpec spec = importPacked(GetParam());
  ASSERT_TRUE(spec.quantization);
  PackedLayer layer(spec);
  moert::Status status = layer.load(spec, getPackedWeights(GetParam()));
  ASSERT_TRUE(status) << status.message();
  auto file = moert::Checkpoint::open(getPackedFolder(GetParam()) +
                                      "/expected.safetensors");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->tensors().size(), 3U);
  for (const auto &entry : file->tensors()) {
    SCOPED_TRACE(entry.first);
    auto expected = file->find(entry.first);
    ASSERT_TRUE(expected);
    // Example: experts.1.up_proj
    llvm::SmallVector<llvm::StringRef> parts;
    llvm::StringRef(entry.first).split(parts, '.');
    int64_t expert = 0;
    ASSERT_FALSE(parts[1].getAsInteger(10, expert));
    bool isDown = parts[2] == "down_proj";
    int64_t rows = (*expected)->shape[0], columns = (*expected)->shape[1];
    int64_t firstRow = parts[2] == "up_proj" ? rows : 0;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        float wanted = 0;
        ASSERT_TRUE(convertElement(
            (*expected)->data + (row * columns + column) * 2, ElementType::F16,
            reinterpret_cast<uint8_t *>(&wanted), ElementType::F32));
        double found =
            dequantize(layer, spec, isDown ? "experts.w2" : "experts.w13",
                       expert, firstRow + row, column);
        // Some tools multiply in bf16.
        ASSERT_NEAR(found, wanted, std::abs(wanted) / 128)
            << row << ", " << column;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, PackedCheckpoint,
                         ::testing::ValuesIn(kPackedCheckpoints));

// A tensor's name in the expected ones: layer, module and ggml's type.
TEST(PackedCheckpointBlocks, AreDequantized) {
  std::string folder = getPackedFolder("gguf-decoded");
  auto file = moert::Checkpoint::open(folder + "/expected.safetensors");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->tensors().size(), 30U);
  for (const auto &entry : file->tensors()) {
    SCOPED_TRACE(entry.first);
    auto [layer, rest] = llvm::StringRef(entry.first).split('.');
    LayerSpec spec = importPacked("gguf-decoded");
    int64_t index = 0;
    ASSERT_FALSE(layer.getAsInteger(10, index));
    spec.layerIndex = index;
    PackedLayer loaded(spec);
    moert::Status status = loaded.load(spec, folder + "/model.gguf");
    ASSERT_TRUE(status) << status.message();
    auto expected = file->find(entry.first);
    ASSERT_TRUE(expected);
    bool isDown = rest.starts_with("down");
    const HostTensor &weight =
        *loaded.find(isDown ? "experts.w2" : "experts.w13");
    int64_t columns = weight.shape[2], rows = weight.shape[1];
    int64_t row = rest.starts_with("up") ? rows / 2 : 0;
    const uint8_t *found =
        weight.data() +
        ((weight.shape[0] - 1) * rows + row) * columns * int64_t(sizeof(float));
    // Zeros may differ in sign.
    for (size_t at = 0; at < (*expected)->bytes; at += sizeof(float)) {
      float value = 0, wanted = 0;
      std::memcpy(&value, found + at, sizeof(float));
      std::memcpy(&wanted, (*expected)->data + at, sizeof(float));
      ASSERT_EQ(value, wanted) << at / sizeof(float);
    }
  }
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

TEST(UnpackElements, LastWordsArePadded) {
  // 3 rows of 12 elements of 4 bits, in every second row from row 1 on.
  ElementPacking packing;
  packing.wordBits = 32;
  packing.elementBits = packing.layerBits = 4;
  auto element = [](int64_t row, int64_t column) {
    return uint32_t(5 * row + column + 1) % 16;
  };
  for (bool alongRows : {false, true})
    for (bool transposed : {false, true}) {
      packing.alongRows = alongRows;
      std::vector<int64_t> shape = getPackedShape(packing, transposed, 3, 12);
      std::vector<int64_t> expected =
          alongRows ? std::vector<int64_t>{1, 12} : std::vector<int64_t>{3, 2};
      if (transposed)
        std::swap(expected[0], expected[1]);
      EXPECT_EQ(shape, expected);
      // All other bits are ones.
      std::vector<uint32_t> words(size_t(shape[0] * shape[1]), ~uint32_t(0));
      for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 12; ++column) {
          int64_t r = alongRows ? row / 8 : row;
          int64_t c = alongRows ? column : column / 8;
          int64_t place = alongRows ? row % 8 : column % 8;
          uint32_t &word =
              words[size_t(transposed ? c * shape[1] + r : r * shape[1] + c)];
          word &= ~(uint32_t(15) << (4 * place));
          word |= element(row, column) << (4 * place);
        }
      std::vector<uint8_t> matrix(6 * 6, 0xEE);
      unpackElements(packing, transposed,
                     reinterpret_cast<const uint8_t *>(words.data()), {3, 6},
                     {matrix.data(), 6, 1, 2, 3});
      for (int64_t row = 0; row < 6; ++row)
        for (int64_t byte = 0; byte < 6; ++byte) {
          uint32_t wanted = 0xEE;
          if (row % 2)
            wanted = element(row / 2, 2 * byte) | element(row / 2, 2 * byte + 1)
                                                      << 4;
          EXPECT_EQ(matrix[size_t(row * 6 + byte)], wanted)
              << row << ", " << byte << (alongRows ? " along rows" : "")
              << (transposed ? " transposed" : "");
        }
    }
}

/// Every power of two is a value of f32, and NaN stays NaN.
TEST(ConvertElements, PowersOfTwoBecomeFloats) {
  ASSERT_TRUE(canConvert(ElementType::F8E8M0, ElementType::F32));
  for (int code = 0; code < 256; ++code) {
    auto byte = uint8_t(code);
    float value = 0;
    ASSERT_TRUE(convertElement(&byte, ElementType::F8E8M0,
                               reinterpret_cast<uint8_t *>(&value),
                               ElementType::F32));
    if (code == 255)
      EXPECT_TRUE(std::isnan(value));
    else
      EXPECT_EQ(value, std::ldexp(1.0F, code - 127)) << code;
  }
}

//===----------------------------------------------------------------------===//
// Errors name the tensor
//===----------------------------------------------------------------------===//

namespace {

/// The message about a checkpoint in which one tensor is changed; empty if
/// there is no error. `change` gets the entry and its bytes.
using Change = std::function<void(moert::SafetensorsTensor &,
                                  std::vector<uint8_t> &bytes)>;
std::string loadChanged(const std::string &name, const std::string &tensor,
                        const Change &change) {
  LayerSpec spec = importPacked(name);
  auto file =
      moert::Checkpoint::open(getPackedFolder(name) + "/model.safetensors");
  EXPECT_TRUE(file);
  std::vector<moert::SafetensorsTensor> tensors;
  std::vector<uint8_t> bytes;
  bool isFound = false;
  for (const auto &entry : file->tensors()) {
    const moert::SafetensorsEntry &from = **file->find(entry.first);
    tensors.push_back(
        {from.name, from.dtype, from.shape, from.data, from.bytes});
    if (!llvm::StringRef(from.name).ends_with(tensor))
      continue;
    EXPECT_FALSE(isFound);
    isFound = true;
    bytes.assign(from.data, from.data + from.bytes);
    change(tensors.back(), bytes);
    tensors.back().data = bytes.data();
    tensors.back().bytes = bytes.size();
  }
  EXPECT_TRUE(isFound) << tensor;
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("moec", "safetensors", path));
  moert::Status status = moert::writeSafetensors(path.str().str(), tensors);
  EXPECT_TRUE(status) << status.message();
  status = PackedLayer(spec).load(spec, path.str().str());
  (void)llvm::sys::fs::remove(path);
  std::string message = status.message();
  if (size_t at = message.find("tensor '"); at != std::string::npos)
    message = message.substr(at);
  llvm::StringRef shown = message;
  std::string prefix = "model.layers.0.mlp.experts.";
  if (size_t at = shown.find(prefix); at != llvm::StringRef::npos)
    message.erase(at, prefix.size());
  return message;
}

/// Overwrites an element by a value.
template <typename T>
Change put(size_t element, T value) {
  return [=](moert::SafetensorsTensor &, std::vector<uint8_t> &bytes) {
    std::memcpy(bytes.data() + element * sizeof(T), &value, sizeof(T));
  };
}

} // namespace

// field-bug: Model-Optimizer#1633
TEST(PackedCheckpointError, ScalesAreFiniteAndNotBelowZero) {
  const std::string name = "1.up_proj.weight_scale";
  EXPECT_EQ(loadChanged("ct-int4", name, put<uint16_t>(3, 0x7FC0)),
            "tensor '1.up_proj.weight_scale': has a scale of NaN (element 3); "
            "scales are finite and not below 0");
  EXPECT_EQ(loadChanged("ct-int4", name, put<uint16_t>(1, 0xBF80)),
            "tensor '1.up_proj.weight_scale': has a scale of -1 (element 1); "
            "scales are finite and not below 0");
  EXPECT_EQ(loadChanged("ct-nvfp4", name, put<uint8_t>(7, 0x7F)),
            "tensor '1.up_proj.weight_scale': has a scale of NaN (element 7); "
            "scales are finite and not below 0");
  EXPECT_EQ(loadChanged("ct-mxfp4", name, put<uint8_t>(5, 0xFF)),
            "tensor '1.up_proj.weight_scale': has a scale of NaN (element 5); "
            "scales are finite and not below 0");
  EXPECT_EQ(
      loadChanged("gptq-int4", "0.down_proj.scales", put<uint16_t>(2, 0x7C00)),
      "tensor '0.down_proj.scales': has a scale of +Inf (element 2); "
      "scales are finite and not below 0");
  // Divisors must be positive.
  EXPECT_EQ(loadChanged("ct-nvfp4", "0.gate_proj.weight_global_scale",
                        put<float>(0, 0)),
            "tensor '0.gate_proj.weight_global_scale': has a scale of 0 "
            "(element 0); scales are finite and above 0");
  EXPECT_EQ(loadChanged("ct-w8a8-zeros", "1.down_proj.input_scale",
                        put<float>(0, -2)),
            "tensor '1.down_proj.input_scale': has a scale of -2 (element 0); "
            "scales are finite and above 0");
}

// A block of weights that are all smaller than the least scale, and an expert
// that was never trained.
// field-bug: Model-Optimizer#2276
TEST(PackedCheckpointError, ScalesMayBeZero) {
  for (const char *form :
       {"ct-int4", "ct-fp8", "ct-fp8-block", "ct-nvfp4", "ct-int8", "ct-w8a8"})
    for (uint8_t sign : {0, 0x80})
      EXPECT_EQ(loadChanged(form, "1.up_proj.weight_scale",
                            [&](moert::SafetensorsTensor &,
                                std::vector<uint8_t> &bytes) {
                              std::fill(bytes.begin(), bytes.end(), 0);
                              bytes.back() = sign;
                            }),
                "")
          << form;
  EXPECT_EQ(loadChanged("modelopt-nvfp4", "1.up_proj.weight_scale_2",
                        put<float>(0, 0)),
            "");
  for (const char *form : {"gptq-int4", "awq-int4"})
    EXPECT_EQ(loadChanged(form, "0.down_proj.scales", put<uint16_t>(2, 0)), "")
        << form;
}

// field-bug: vllm#38148
TEST(PackedCheckpointError, WeightsAreFinite) {
  const std::string name = "1.up_proj.weight";
  for (uint8_t code : {0x7F, 0xFF})
    EXPECT_EQ(loadChanged("ct-fp8", name, put<uint8_t>(9, code)),
              "tensor '1.up_proj.weight': has a weight of NaN (element 9); "
              "weights are finite");
  EXPECT_EQ(loadChanged("ct-fp8", name, put<uint8_t>(9, 0x7E)), "");
}

TEST(PackedCheckpointError, GroupsAreOfNeighbours) {
  const std::string name = "1.gate_proj.g_idx";
  EXPECT_EQ(loadChanged("gptq-int4", name, put<int32_t>(33, 2)),
            "tensor '1.gate_proj.g_idx': has column 33 in group 2, and the "
            "groups are 0 to 1");
  EXPECT_EQ(loadChanged("gptq-int4", name, put<int32_t>(0, -1)),
            "tensor '1.gate_proj.g_idx': has column 0 in group -1, and the "
            "groups are 0 to 1");
  EXPECT_EQ(loadChanged("gptq-int4", name, put<int32_t>(33, 0)),
            "tensor '1.gate_proj.g_idx': has 33 columns in group 0, expected "
            "32 in each");
  EXPECT_EQ(
      loadChanged("gptq-int4", name,
                  [](auto &, auto &bytes) {
                    std::swap_ranges(bytes.begin(), bytes.begin() + 4,
                                     bytes.end() - 4);
                  }),
      "tensor '1.gate_proj.g_idx': has column 0 in group 1, expected 0: groups "
      "are of 32 adjacent columns; another column order (act-order) needs "
      "desc_act, or actorder \"group\", in the configuration");
  EXPECT_EQ(loadChanged("gptq-int8", name, put<int32_t>(5, 1)),
            "tensor '1.gate_proj.g_idx': has column 5 in group 1, and the "
            "groups are 0 to 0");
  EXPECT_EQ(loadChanged("gptq-int4", name,
                        [](auto &entry, auto &bytes) {
                          entry.shape = {63};
                          bytes.resize(63 * 4);
                        }),
            "tensor '1.gate_proj.g_idx': is i32 of shape [63], expected 64 "
            "integers, the group of each column");
}

// field-bug: ms-swift#6925
TEST(PackedCheckpointError, ZeroPointsAreTheMiddleWhereThereAreNone) {
  EXPECT_EQ(loadChanged("gptq-int4", "1.up_proj.qzeros",
                        put<uint32_t>(4, 0x77777677)),
            "tensor '1.up_proj.qzeros': has the zero point 7 (row 2, group 1), "
            "expected 8 everywhere; set \"sym\" to false in the configuration");
}

TEST(PackedCheckpointError, ShapesAreThoseOfThePacking) {
  auto reshape = [](std::vector<int64_t> shape) {
    return [=](moert::SafetensorsTensor &entry, std::vector<uint8_t> &bytes) {
      entry.shape = shape;
      int64_t count = 1;
      for (int64_t size : shape)
        count *= size;
      bytes.resize(size_t(count * moert::dtypeBits(entry.dtype) / 8));
    };
  };
  struct Case {
    const char *folder, *tensor;
    std::vector<int64_t> shape;
    const char *message;
  } cases[] = {
      {"ct-int4", "0.gate_proj.weight_packed", {32, 16}, "[32, 8]"},
      {"ct-int4", "0.gate_proj.weight_scale", {32, 1}, "[32, 2]"},
      {"ct-int4-zeros", "0.gate_proj.weight_zero_point", {32, 2}, "[4, 2]"},
      {"ct-nvfp4", "0.gate_proj.weight_packed", {32, 64}, "[32, 32]"},
      {"gptq-int4", "0.gate_proj.qweight", {32, 8}, "[8, 32]"},
      {"gptq-int4-zeros", "0.gate_proj.qzeros", {4, 2}, "[2, 4]"},
      {"gptq-int8", "0.gate_proj.scales", {2, 32}, "[1, 32]"},
      {"awq-int4", "0.gate_proj.qweight", {8, 32}, "[64, 4]"},
      {"awq-int4", "0.gate_proj.qzeros", {4, 2}, "[2, 4]"},
  };
  for (const Case &bad : cases)
    EXPECT_EQ(loadChanged(bad.folder, bad.tensor, reshape(bad.shape)),
              "tensor '" + std::string(bad.tensor) + "': shape is [" +
                  std::to_string(bad.shape[0]) + ", " +
                  std::to_string(bad.shape[1]) + "], expected " + bad.message);
  EXPECT_EQ(
      loadChanged("ct-int4", "0.down_proj.weight_shape", put<int64_t>(1, 64)),
      "tensor '0.down_proj.weight_shape': is [64, 64], expected "
      "[64, 32]");
}

TEST(PackedCheckpointError, WhatBitsAndBytesSays) {
  const std::string module = "1.up_proj.weight";
  auto state = [&](const std::string &text) {
    return loadChanged("bnb-nf4", module + ".quant_state.bitsandbytes__nf4",
                       [&](auto &entry, auto &bytes) {
                         bytes.assign(text.begin(), text.end());
                         entry.shape = {int64_t(bytes.size())};
                       });
  };
  std::string name = "tensor '" + module + ".quant_state.bitsandbytes__nf4': ";
  EXPECT_EQ(state("nf4"), name + "is not a JSON object, the form in which "
                                 "bitsandbytes describes a matrix");
  EXPECT_EQ(state(R"({"quant_type": "fp4", "blocksize": 64})"),
            name + "has \"fp4\" as \"quant_type\", expected \"nf4\"");
  EXPECT_EQ(state(R"({"quant_type": "nf4", "blocksize": 128})"),
            name + "has 128 as \"blocksize\", expected 64");
  EXPECT_EQ(state(R"({"quant_type": "nf4", "blocksize": 64,
                      "shape": [64, 32]})"),
            name + "has [64,32] as \"shape\", expected [64, 64]");
  EXPECT_EQ(loadChanged("bnb-nf4", module + ".quant_map", put<float>(3, -0.5F)),
            "tensor '" + module +
                ".quant_map': has -0.500000 for index 3, expected -0.394917, "
                "the value of nf4");
  EXPECT_EQ(
      loadChanged("bnb-nf4", module + ".absmax", put<uint32_t>(1, 0xFFC00000)),
      "tensor '" + module +
          ".absmax': has a scale of NaN (element 1); scales are finite");
  EXPECT_EQ(loadChanged("bnb-nf4-nested", module + ".nested_absmax",
                        [](auto &entry, auto &bytes) {
                          entry.shape = {3};
                          bytes.resize(12);
                        }),
            "tensor '" + module +
                ".nested_absmax': has 3 factors, expected 2 of 320 scales in "
                "blocks of 256");
  EXPECT_EQ(loadChanged("bnb-nf4-nested", module + ".nested_quant_map",
                        [](auto &entry, auto &bytes) {
                          entry.shape = {255};
                          bytes.resize(255 * 4);
                        }),
            "tensor '" + module +
                ".nested_quant_map': has 255 entries, expected 256");
}

TEST(PackedCheckpointError, BlocksAreThoseOfTheSpec) {
  // Equal names, but another block format.
  LayerSpec spec = importPacked("gguf-q8_0");
  moert::Status status =
      PackedLayer(spec).load(spec, getPackedWeights("gguf-q4_0"));
  ASSERT_FALSE(status);
  EXPECT_TRUE(
      llvm::StringRef(status.message())
          .ends_with("tensor 'blk.1.ffn_gate_exps.weight': is of q4_0, "
                     "expected q8_0, as the layer's quantization requires"))
      << status.message();
  // No block of ggml has groups of this size.
  spec.quantization.w2->weight.blockColumns = 16;
  status = PackedLayer(spec).load(spec, getPackedWeights("gguf-q8_0"));
  ASSERT_FALSE(status);
  EXPECT_NE(status.message().find("no tensor for 'experts.w2'"),
            std::string::npos)
      << status.message();
}

// field-bug: GPTQModel#2271, vllm#8329, AutoGPTQ#555
TEST(PackedCheckpointError, NamesWhatIsMissingOrTooMuch) {
  auto rename = [](const char *name) {
    return [=](moert::SafetensorsTensor &entry, std::vector<uint8_t> &) {
      entry.name = std::string("model.layers.0.mlp.experts.") + name;
    };
  };
  EXPECT_EQ(
      loadChanged("ct-int4-zeros", "1.up_proj.weight_zero_point",
                  rename("1.up_proj.other")),
      "tensor '1.up_proj.weight_zero_point' for 'experts.w13_zero_point' (the "
      "description's quantization: int4 by group of 32, scales bf16, zero "
      "points, by 'quantization_config' (\"Linear\")); the file has "
      "'model.layers.0.mlp.experts.1.up_proj.other', "
      "which the layer does not take");
  EXPECT_EQ(loadChanged("awq-int4", "1.up_proj.qzeros", rename("1.up_proj.q")),
            "tensor '1.up_proj.qzeros' for 'experts.w13_zero_point' (the "
            "description's quantization: int4 by group of 32, scales f16, zero "
            "points, by 'quantization_config'); the file has "
            "'model.layers.0.mlp.experts.1.up_proj.q', "
            "which the layer does not take");
  // weight_shape may be missing; a symmetric weight has no zero points.
  EXPECT_EQ(loadChanged("ct-int4", "1.up_proj.weight_shape",
                        rename("1.up_proj.weight_zero_point")),
            "tensor '1.up_proj.weight_zero_point' is none of this layer's; "
            "correct its name or the layer's description, or leave it out "
            "(--signature lists the layer's)");
}
