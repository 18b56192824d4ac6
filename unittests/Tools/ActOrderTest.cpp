//===- ActOrderTest.cpp - tests of act-order --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Packs checkpoints of GPTQ and compressed-tensors with columns in arbitrary
// groups, element by element. Loaded tensors are compared with the packed
// values, and the layer's results with those of plain weights, which have no
// order.
//
//===----------------------------------------------------------------------===//

#include "PackedCheckpoint.h"
#include "moec/Reference/Layer.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cstring>
#include <numeric>
#include <random>

using namespace moec;
using namespace moec::testing;

namespace {

constexpr int64_t kHidden = 64, kWidth = 96, kExperts = 3, kGroup = 32;
/// The shared expert follows the others.
constexpr int64_t kShared = kExperts;
constexpr const char *kModules[] = {"gate_proj", "up_proj", "down_proj"};

/// The integer format of a checkpoint.
struct Form {
  const char *name;
  bool isGptq;
  int64_t bits;
  bool hasZeros;
  /// Zero points are stored minus 1.
  bool isLessOne = false;
};
const Form kOrderedForms[] = {{"gptq", true, 4, false},
                              {"gptq zeros", true, 4, true, true},
                              {"gptq_v2 zeros", true, 8, true},
                              {"compressed-tensors", false, 4, false},
                              {"compressed-tensors zeros", false, 4, true}};

void PrintTo(const Form &form, std::ostream *os) { *os << form.name; }

/// A quantized matrix of `rows` x `columns`.
struct Matrix {
  int64_t rows, columns;
  std::vector<int64_t> rounded, groups, zeros;
  std::vector<float> scales;

  int64_t getNumGroups() const { return columns / kGroup; }
  int64_t code(int64_t row, int64_t column) const {
    return rounded[size_t(row * columns + column)];
  }
  size_t getScale(int64_t row, int64_t group) const {
    return size_t(row * getNumGroups() + group);
  }
  double value(int64_t row, int64_t column) const {
    size_t at = getScale(row, groups[size_t(column)]);
    return double(code(row, column) - zeros[at]) * double(scales[at]);
  }
  /// The columns of the first group, then those of the next.
  std::vector<int64_t> getOrder() const {
    std::vector<int64_t> order;
    for (int64_t group = 0; group < getNumGroups(); ++group)
      for (int64_t column = 0; column < columns; ++column)
        if (groups[size_t(column)] == group)
          order.push_back(column);
    return order;
  }
};

struct FileTensor {
  ElementType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

/// Concatenates the rows of both tensors.
FileTensor joinColumns(const FileTensor &left, const FileTensor &right) {
  FileTensor joined{left.dtype, left.shape, {}};
  joined.shape.back() += right.shape.back();
  for (int64_t row = 0; row < left.shape.front(); ++row)
    for (const FileTensor *part : {&left, &right}) {
      int64_t bytes = int64_t(part->bytes.size()) / part->shape.front();
      const auto *first = part->bytes.data() + row * bytes;
      joined.bytes.insert(joined.bytes.end(), first, first + bytes);
    }
  return joined;
}

constexpr const char *kQwen = R"("model_type": "qwen2_moe",
    "num_experts": 3, "moe_intermediate_size": 96, "norm_topk_prob": true,
    "shared_expert_intermediate_size": 96)";
/// With this model, gate and up of the shared expert may be one module.
constexpr const char *kMiniMax = R"("model_type": "minimax_m3",
    "num_local_experts": 3, "intermediate_size": 96,
    "shared_intermediate_size": 96)";

/// The matrices of a checkpoint that have an order.
struct Ordered {
  bool first = true, second = true;
  bool sharedFirst = first, sharedSecond = second;
};

/// A checkpoint of one layer, and its matrices.
class OrderedModel {
public:
  OrderedModel(const Form &form, const Ordered &ordered = {}) : form(form) {
    router.resize(size_t(kExperts * kHidden));
    sharedGate.resize(size_t(kHidden));
    for (std::vector<float> *values : {&router, &sharedGate})
      for (float &value : *values)
        value = float(draw(65) - 32) / 64;
    add("model.layers.0.mlp.gate.weight", ElementType::F32, {kExperts, kHidden},
        router);
    add("model.layers.0.mlp.shared_expert_gate.weight", ElementType::F32,
        {1, kHidden}, sharedGate);
    for (int64_t expert = 0; expert <= kShared; ++expert) {
      bool isShared = expert == kShared;
      std::vector<int64_t> groups =
          drawGroups(kHidden, isShared ? ordered.sharedFirst : ordered.first);
      for (int module = 0; module < 3; ++module) {
        bool isDown = module == 2;
        matrices.push_back(
            isDown
                ? drawMatrix(kHidden, kWidth,
                             drawGroups(kWidth, isShared ? ordered.sharedSecond
                                                         : ordered.second))
                : drawMatrix(kWidth, kHidden, groups));
        pack(matrices.back(), getName(expert, module));
      }
    }
  }

  static std::string getName(int64_t expert, int module) {
    std::string name = expert == kShared ? "shared_expert"
                                         : "experts." + std::to_string(expert);
    return "model.layers.0.mlp." + name + "." + kModules[module] + ".";
  }
  std::string getGroupsName(int64_t expert, int module) const {
    return getName(expert, module) + (form.isGptq ? "g_idx" : "weight_g_idx");
  }
  const Matrix &get(int64_t expert, int module) const {
    return matrices[size_t(expert * 3 + module)];
  }
  int32_t *getGroups(int64_t expert, int module) {
    return reinterpret_cast<int32_t *>(
        tensors.at(getGroupsName(expert, module)).bytes.data());
  }

  /// Joins GPTQ tensors of the shared expert, as kMiniMax names them.
  void joinShared() {
    std::map<std::string, FileTensor> joined;
    auto rename = [](std::string name, llvm::StringRef from, const char *to) {
      size_t at = name.find(from);
      return at == std::string::npos ? name : name.replace(at, from.size(), to);
    };
    for (const auto &[name, tensor] : tensors) {
      llvm::StringRef own = name;
      if (!own.contains("shared_expert")) {
        std::string to = rename(name, "gate_proj", "w1");
        joined[rename(rename(to, "up_proj", "w3"), "down_proj", "w2")] = tensor;
      } else if (!own.contains("up_proj") && !own.contains("expert_gate")) {
        std::string to = rename(name, "shared_expert", "shared_experts");
        bool isJoined = own.contains("gate_proj") && !own.ends_with("g_idx");
        joined[rename(to, "gate_proj", "gate_up_proj")] =
            isJoined
                ? joinColumns(tensor,
                              tensors.at(rename(name, "gate_proj", "up_proj")))
                : tensor;
      }
    }
    tensors = std::move(joined);
    add("model.layers.0.mlp.e_score_correction_bias", ElementType::F32,
        {kExperts}, std::vector<float>(kExperts));
  }

  LayerSpec import(const std::string &parallel = "",
                   const std::string &model = kQwen) const {
    std::string quantization =
        form.isGptq
            ? R"("quant_method": "gptq", "desc_act": true, "bits": )" +
                  std::to_string(form.bits) + R"(, "group_size": 32, "sym": )" +
                  (form.hasZeros ? "false" : "true") +
                  R"(, "checkpoint_format": ")" +
                  (form.isLessOne || !form.hasZeros ? "gptq" : "gptq_v2") + "\""
            : R"("quant_method": "compressed-tensors",
        "format": "pack-quantized", "config_groups": {"group_0": {
          "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
            "strategy": "group", "group_size": 32, "actorder": "group",
            "symmetric": )" +
                  std::string(form.hasZeros ? "false" : "true") + "}}}";
    std::string messages;
    llvm::raw_string_ostream os(messages);
    Diagnostics diags(os);
    SpecOverrides overrides;
    if (!parallel.empty())
      overrides.parallel = SourceText("parallel", parallel);
    auto spec =
        importJson(SourceText("config.json",
                              R"({"hidden_size": 64, "num_experts_per_tok": 2,
        "torch_dtype": "float32", )" +
                                  model + R"(, "quantization_config": {)" +
                                  quantization + "}}"),
                   overrides, diags);
    EXPECT_TRUE(succeeded(spec)) << messages;
    return succeeded(spec) ? *spec : LayerSpec();
  }

  /// Loads a layer from the checkpoint's file, which exists only during the
  /// call.
  moert::Status load(const LayerRequest &request,
                     std::vector<HostTensor> &into) const {
    std::vector<moert::SafetensorsTensor> entries;
    for (const auto &[name, tensor] : tensors)
      entries.push_back({name, tensor.dtype, tensor.shape, tensor.bytes.data(),
                         tensor.bytes.size()});
    llvm::SmallString<128> path;
    EXPECT_FALSE(
        llvm::sys::fs::createTemporaryFile("moec", "safetensors", path));
    EXPECT_TRUE(moert::writeSafetensors(path.str().str(), entries));
    auto file = moert::Checkpoint::open(path.str().str());
    EXPECT_TRUE(file);
    moert::Status status = loadTensors(into, *file, request);
    (void)llvm::sys::fs::remove(path);
    return status;
  }

  /// The error message after the file's name.
  std::string getMessage(const std::string &parallel = "") const {
    LayerSpec spec = import(parallel);
    PackedLayer layer(spec);
    moert::Status status =
        load(parallel.empty() ? makeRequest(spec) : makeRequest(spec, 0),
             layer.tensors);
    EXPECT_FALSE(status);
    std::string message = status.message();
    size_t at = message.find("tensor '");
    return at == std::string::npos ? message : message.substr(at);
  }

  Form form;
  std::map<std::string, FileTensor> tensors;
  std::vector<float> router, sharedGate;

private:
  int64_t draw(int64_t below) { return int64_t(random() % uint64_t(below)); }

  std::vector<int64_t> drawGroups(int64_t columns, bool isOrdered) {
    std::vector<int64_t> groups(static_cast<size_t>(columns));
    for (size_t i = 0; i < groups.size(); ++i)
      groups[i] = int64_t(i) / kGroup;
    for (size_t i = groups.size() - 1; isOrdered && i > 0; --i)
      std::swap(groups[i], groups[size_t(draw(int64_t(i) + 1))]);
    return groups;
  }

  Matrix drawMatrix(int64_t rows, int64_t columns,
                    std::vector<int64_t> groups) {
    Matrix matrix{rows, columns, {}, std::move(groups), {}, {}};
    int64_t range = int64_t(1) << form.bits;
    for (int64_t i = 0; i < rows * columns; ++i)
      matrix.rounded.push_back(draw(range));
    for (int64_t i = 0; i < rows * matrix.getNumGroups(); ++i) {
      // Values that f16 and bf16 represent too.
      matrix.scales.push_back(float(1 + draw(127)) / 4096);
      matrix.zeros.push_back(form.hasZeros ? 1 + draw(range - 1) : range / 2);
    }
    return matrix;
  }

  template <typename T>
  void add(const std::string &name, ElementType dtype,
           std::vector<int64_t> shape, const std::vector<T> &values) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
    tensors[name] = {
        dtype, std::move(shape), {bytes, bytes + values.size() * sizeof(T)}};
  }

  /// Adds words along the rows or columns of a matrix of N x K, or of its
  /// transpose.
  void addWords(const std::string &name, int64_t rows, int64_t columns,
                bool alongRows, bool isTransposed,
                llvm::function_ref<int64_t(int64_t, int64_t)> get,
                uint32_t less = 0) {
    int64_t count = 32 / form.bits;
    int64_t wordRows = alongRows ? rows / count : rows;
    int64_t wordColumns = alongRows ? columns : columns / count;
    std::vector<uint32_t> words(size_t(wordRows * wordColumns), 0);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        int64_t r = alongRows ? row / count : row;
        int64_t c = alongRows ? column : column / count;
        int64_t place = (alongRows ? row : column) % count;
        words[size_t(isTransposed ? c * wordRows + r : r * wordColumns + c)] |=
            uint32_t(get(row, column)) << (place * form.bits);
      }
    for (uint32_t &word : words)
      word -= less;
    std::vector<int64_t> shape = {wordRows, wordColumns};
    if (isTransposed)
      std::swap(shape[0], shape[1]);
    add(name, ElementType::I32, shape, words);
  }

  void pack(const Matrix &matrix, const std::string &module) {
    int64_t rows = matrix.rows, numGroups = matrix.getNumGroups();
    auto getCode = [&](int64_t row, int64_t column) {
      return matrix.code(row, column);
    };
    auto getZero = [&](int64_t row, int64_t group) {
      return matrix.zeros[matrix.getScale(row, group)];
    };
    std::vector<int32_t> groups(matrix.groups.begin(), matrix.groups.end());
    std::vector<int64_t> shape = {matrix.columns};
    if (!form.isGptq) {
      addWords(module + "weight_packed", rows, matrix.columns, false, false,
               getCode);
      add(module + "weight_scale", ElementType::F32, {rows, numGroups},
          matrix.scales);
      if (form.hasZeros)
        addWords(module + "weight_zero_point", rows, numGroups, true, false,
                 getZero);
      add(module + "weight_shape", ElementType::I64, {2},
          std::vector<int64_t>{rows, matrix.columns});
      add(module + "weight_g_idx", ElementType::I32, shape, groups);
      return;
    }
    addWords(module + "qweight", rows, matrix.columns, false, true, getCode);
    bool isLessOne = form.isLessOne || !form.hasZeros;
    addWords(module + "qzeros", rows, numGroups, true, true, getZero,
             !isLessOne       ? 0
             : form.bits == 4 ? 0x11111111
                              : 0x01010101);
    // Powers of two and few digits: the bits of f16 follow from those of f32.
    std::vector<uint16_t> scales;
    for (int64_t group = 0; group < numGroups; ++group)
      for (int64_t row = 0; row < rows; ++row) {
        uint32_t bits;
        std::memcpy(&bits, &matrix.scales[matrix.getScale(row, group)], 4);
        scales.push_back(
            uint16_t(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3FF)));
      }
    add(module + "scales", ElementType::F16, {numGroups, rows}, scales);
    add(module + "g_idx", ElementType::I32, shape, groups);
  }

  std::mt19937_64 random{7};
  std::vector<Matrix> matrices;
};

/// Unquantized values.
class Numbers : public reference::Source {
public:
  explicit Numbers(std::vector<double> values) : values(std::move(values)) {}
  void read(int64_t first, int64_t count, double *to) const override {
    std::copy_n(values.begin() + first, count, to);
  }

private:
  std::vector<double> values;
};

int64_t readCode(const HostTensor &tensor, int64_t bits, int64_t i) {
  if (bits == 8)
    return tensor.data()[i];
  return tensor.data()[i / 2] >> (i % 2 * 4) & 15;
}

float readScale(const HostTensor &tensor, int64_t i) {
  if (tensor.dtype == ElementType::F32)
    return reinterpret_cast<const float *>(tensor.data())[i];
  double value = 0;
  reference::makeSource(tensor.data(), tensor.dtype)->read(i, 1, &value);
  return float(value);
}

class ActOrder : public ::testing::TestWithParam<Form> {};

} // namespace

TEST_P(ActOrder, ColumnsAreStoredGroupByGroup) {
  OrderedModel model(GetParam());
  LayerSpec spec = model.import();
  ASSERT_TRUE(spec.expertColumns && spec.sharedExperts->columns);
  PackedLayer layer(spec);
  moert::Status status = model.load(makeRequest(spec), layer.tensors);
  ASSERT_TRUE(status) << status.message();
  int64_t bits = model.form.bits;
  for (int64_t expert = 0; expert <= kShared; ++expert)
    for (int module = 0; module < 3; ++module) {
      SCOPED_TRACE(OrderedModel::getName(expert, module));
      const Matrix &matrix = model.get(expert, module);
      std::string experts = expert == kShared ? "shared_experts." : "experts.";
      int64_t place = expert == kShared ? 0 : expert;
      const auto *columns = reinterpret_cast<const int32_t *>(
          layer.find(experts + "w13_columns")->data());
      bool isDown = module == 2;
      std::vector<int64_t> order = matrix.getOrder(),
                           rows = model.get(expert, 2).getOrder();
      if (isDown) {
        rows.resize(size_t(matrix.rows));
        std::iota(rows.begin(), rows.end(), 0);
      } else {
        for (int64_t column = 0; column < kHidden; ++column)
          ASSERT_EQ(columns[place * kHidden + column], order[size_t(column)]);
      }
      std::string name = experts + (isDown ? "w2" : "w13");
      int64_t rowsOfExpert = isDown ? kHidden : 2 * kWidth;
      int64_t first = place * rowsOfExpert + (module == 1 ? kWidth : 0);
      for (int64_t row = 0; row < matrix.rows; ++row) {
        int64_t from = rows[size_t(row)];
        for (int64_t column = 0; column < matrix.columns; ++column)
          ASSERT_EQ(readCode(*layer.find(name), bits,
                             (first + row) * matrix.columns + column),
                    matrix.code(from, order[size_t(column)]))
              << row << ", " << column;
        for (int64_t group = 0; group < matrix.getNumGroups(); ++group) {
          int64_t at = (first + row) * matrix.getNumGroups() + group;
          size_t expected = matrix.getScale(from, group);
          ASSERT_EQ(readScale(*layer.find(name + "_scale"), at),
                    matrix.scales[expected]);
          if (model.form.hasZeros)
            ASSERT_EQ(layer.find(name + "_zero_point")->data()[at],
                      matrix.zeros[expected]);
        }
      }
    }
}

/// The plain weights have each column at the index of its input.
// field-bug: vllm#22017, vllm#25029
TEST_P(ActOrder, GivesWhatPlainWeightsGive) {
  constexpr int64_t tokens = 5;
  for (bool isFirst : {false, true})
    for (bool isSecond : {false, true}) {
      SCOPED_TRACE(isFirst * 2 + isSecond);
      OrderedModel model(GetParam(), {isFirst, isSecond});
      reference::Call call, plain;
      call.spec = plain.spec = model.import();
      plain.spec.quantization = plain.spec.sharedExperts->quantization = {};
      plain.spec.expertColumns = plain.spec.sharedExperts->columns = false;
      call.tokens = plain.tokens = tokens;
      PackedLayer layer(call.spec);
      moert::Status status = model.load(makeRequest(call.spec), layer.tensors);
      ASSERT_TRUE(status) << status.message();
      std::vector<double> hidden, weights[2][2];
      for (int64_t i = 0; i < tokens * kHidden; ++i)
        hidden.push_back(double(i * 37 % 101) / 64 - 0.75);
      for (int64_t expert = 0; expert <= kShared; ++expert)
        for (int module = 0; module < 3; ++module) {
          const Matrix &matrix = model.get(expert, module);
          for (int64_t row = 0; row < matrix.rows; ++row)
            for (int64_t column = 0; column < matrix.columns; ++column)
              weights[expert == kShared][module == 2].push_back(
                  matrix.value(row, column));
        }
      for (const HostTensor &tensor : layer.tensors)
        call.tensors[tensor.name] =
            reference::makeSource(tensor.data(), tensor.dtype);
      auto put = [&](const char *name, const auto &values) {
        plain.tensors[name] = std::make_unique<Numbers>(
            std::vector<double>(values.begin(), values.end()));
      };
      put("gate.weight", model.router);
      put("shared_experts.gate", model.sharedGate);
      put("experts.w13", weights[0][0]);
      put("experts.w2", weights[0][1]);
      put("shared_experts.w13", weights[1][0]);
      put("shared_experts.w2", weights[1][1]);
      std::vector<int64_t> rows(tokens);
      std::iota(rows.begin(), rows.end(), 0);
      reference::Matrix out[2];
      for (auto [one, to] : {std::pair(&call, &out[0]), {&plain, &out[1]}}) {
        one->tensors["hidden_states"] = std::make_unique<Numbers>(hidden);
        *to = evaluate(*one, decide(*one, getLogits(*one)), rows);
      }
      double largest = 0;
      for (int64_t row = 0; row < tokens; ++row)
        for (int64_t i = 0; i < kHidden; ++i) {
          ASSERT_NEAR(out[0].row(row)[i], out[1].row(row)[i],
                      1e-5 * (1 + std::abs(out[1].row(row)[i])))
              << row << ", " << i;
          largest = std::max(largest, std::abs(out[1].row(row)[i]));
        }
      EXPECT_GT(largest, 0.01);
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, ActOrder, ::testing::ValuesIn(kOrderedForms));

TEST(ActOrderTest, ColumnsAscendWhereNoTensorSaysMore) {
  for (bool isAbsent : {false, true}) {
    OrderedModel model(kOrderedForms[0], {false, false});
    for (int64_t expert = 0; isAbsent && expert <= kShared; ++expert)
      for (int module = 0; module < 3; ++module)
        model.tensors.erase(model.getGroupsName(expert, module));
    LayerSpec spec = model.import();
    PackedLayer layer(spec);
    moert::Status status = model.load(makeRequest(spec), layer.tensors);
    ASSERT_TRUE(status) << status.message();
    for (auto [name, count] : {std::pair("experts.w13_columns", kExperts),
                               {"shared_experts.w13_columns", 1}}) {
      const auto *columns =
          reinterpret_cast<const int32_t *>(layer.find(name)->data());
      for (int64_t i = 0; i < count * kHidden; ++i)
        ASSERT_EQ(columns[i], i % kHidden) << name;
    }
  }
}

/// The oracle is copyShard(), as in RankCheckpointTest.cpp.
TEST(ActOrderTest, RanksHaveTheirExperts) {
  for (auto [ordered, parallel] :
       {std::pair(Ordered(), R"({"dp": 3, "experts": "round_robin"})"),
        {Ordered{true, true, true, false},
         R"({"tp": 3, "experts": [[2], [0], [1]]})"},
        {Ordered{true, false}, R"({"tp": 3})"},
        // Ranks have parts of every expert, taken from the whole in order.
        {Ordered(), R"({"tp": 3})"},
        {Ordered(), R"({"tp": 3, "experts": "linear"})"}}) {
    OrderedModel model(kOrderedForms[1], ordered);
    LayerSpec alone = model.import(), spec = model.import(parallel);
    PackedLayer whole(alone);
    ASSERT_TRUE(model.load(makeRequest(alone), whole.tensors));
    for (int64_t rank = 0; rank < 3; ++rank) {
      PackedLayer own(spec);
      moert::Status status = model.load(makeRequest(spec, rank), own.tensors);
      ASSERT_TRUE(status) << status.message();
      for (const TensorShard &shard : shardWeights(spec, rank)) {
        const HostTensor &found = *own.find(shard.local.name);
        std::vector<uint8_t> expected(found.getNumBytes());
        copyShard(shard, whole.find(shard.local.name)->data(), expected.data());
        EXPECT_EQ(std::memcmp(expected.data(), found.data(), expected.size()),
                  0)
            << shard.local.name << " of rank " << rank;
      }
    }
  }
}

TEST(ActOrderTest, WrongOrdersAreNamed) {
  const std::string experts = "tensor 'model.layers.0.mlp.experts.";
  OrderedModel model(kOrderedForms[0]);
  model.getGroups(1, 0)[5] = 2;
  EXPECT_EQ(model.getMessage(),
            experts + "1.gate_proj.g_idx': has column 5 in group 2, and the "
                      "groups are 0 to 1");
  model = OrderedModel(kOrderedForms[3]);
  model.getGroups(2, 2)[0] = -1;
  EXPECT_EQ(model.getMessage(),
            experts + "2.down_proj.weight_g_idx': has column 0 in group -1, "
                      "and the groups are 0 to 2");
  model = OrderedModel(kOrderedForms[0]);
  int32_t *groups = model.getGroups(0, 2);
  *std::find(groups, groups + kWidth, 0) = 1;
  EXPECT_EQ(model.getMessage(),
            experts + "0.down_proj.g_idx': has 31 columns in group 0, "
                      "expected 32 in each");
  model = OrderedModel(kOrderedForms[0]);
  groups = model.getGroups(0, 1);
  std::reverse(groups, groups + kHidden);
  EXPECT_EQ(model.getMessage(),
            experts +
                "0.up_proj.g_idx': has columns in other groups than "
                "'model.layers.0.mlp.experts.0.gate_proj.g_idx'; gate and up "
                "multiply the same input, so both need one column order");
  model = OrderedModel(kOrderedForms[0]);
  model.tensors.erase(model.getGroupsName(1, 1));
  EXPECT_EQ(model.getMessage(),
            experts + "1.gate_proj.g_idx': has columns in another order, but "
                      "gate or up has no such tensor; both multiply the same "
                      "input, so both need one column order");
}

TEST(ActOrderTest, WrongOrdersOfTheSharedExpertAreNamed) {
  const std::string shared = "model.layers.0.mlp.shared_expert.";
  OrderedModel model(kOrderedForms[0]);
  int32_t *groups = model.getGroups(kShared, 1);
  std::reverse(groups, groups + kHidden);
  EXPECT_EQ(model.getMessage(),
            "tensor '" + shared +
                "up_proj.g_idx': has columns in other groups than '" + shared +
                "gate_proj.g_idx'; gate and up multiply the same input, so "
                "both need one column order");
  model = OrderedModel(kOrderedForms[3]);
  model.tensors.erase(model.getGroupsName(kShared, 0));
  EXPECT_EQ(model.getMessage(),
            "tensor '" + shared +
                "up_proj.weight_g_idx': has columns in another order, but gate "
                "or up has no such tensor; both multiply the same input, so "
                "both need one column order");
}

/// Each half is put in the order of the second gemm's columns.
// field-bug: mobius#513
TEST(ActOrderTest, OneModuleMayHaveGateAndUpOfTheSharedExpert) {
  OrderedModel model(kOrderedForms[0]);
  LayerSpec separate = model.import();
  PackedLayer expected(separate);
  ASSERT_TRUE(model.load(makeRequest(separate), expected.tensors));
  model.joinShared();
  LayerSpec spec = model.import("", kMiniMax);
  PackedLayer layer(spec);
  moert::Status status = model.load(makeRequest(spec), layer.tensors);
  ASSERT_TRUE(status) << status.message();
  for (const char *name : {"w13", "w13_scale", "w13_columns", "w2", "w2_scale"})
    for (std::string experts : {"experts.", "shared_experts."}) {
      const HostTensor &found = *layer.find(experts + name);
      ASSERT_EQ(std::memcmp(found.data(), expected.find(found.name)->data(),
                            found.getNumBytes()),
                0)
          << found.name;
    }
}
