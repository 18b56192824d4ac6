//===- HardWeights.cpp - hard inputs: quantized weights ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rules of python/moec/reference/hard_weights.py.
//
//===----------------------------------------------------------------------===//

#include "HardRules.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace moec;
using namespace moec::gputest;
using moert::Status;

namespace {

/// Generates a tensor's values in memory; null if there is no such tensor.
HostTensor *load(Hard &hard, const std::string &name, Status &status) {
  InputTensor *tensor = hard.inputs.find(name);
  if (!tensor || !status)
    return nullptr;
  if (tensor->random) {
    if (status = tensor->host.allocate(); !status)
      return nullptr;
    tensor->random->write(0, tensor->host.getNumElements(),
                          tensor->host.data());
    tensor->random.reset();
  }
  return &tensor->host;
}

/// A quantized weight in memory, with its scales and other tensors. A failure
/// to allocate is stored in `status`.
class Weight {
public:
  Weight(Hard &hard, llvm::StringRef name, Status &status)
      : quantization(hard.spec.getQuantization(name)->weight),
        isInPairs(getElementBits(quantization.storage) < 8),
        hasHalves(name.ends_with("w13") && hard.spec.isGated() &&
                  hard.spec.gateUpOrder != GateUpOrder::Interleaved),
        elements(load(hard, name.str(), status)),
        scales(load(hard, name.str() + "_scale", status)),
        zeroPoints(load(hard, name.str() + "_zero_point", status)),
        minima(load(hard, name.str() + "_minimum", status)) {}

  const OperandQuantization &getQuantization() const { return quantization; }
  int64_t getNumScales() const { return scales->getNumElements(); }
  int64_t getNumExperts() const {
    return scales->shape.size() == 3 ? scales->shape[0] : 1;
  }

  /// The bits of a scale.
  uint64_t getScale(int64_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, scales->data() + i * getScaleBytes(), getScaleBytes());
    return bits;
  }
  void setScale(int64_t i, uint64_t bits) const {
    std::memcpy(scales->data() + i * getScaleBytes(), &bits, getScaleBytes());
  }
  uint8_t *getZeroPoints() const { return zeroPoints->data(); }

  void scaleBy(int64_t i, double factor) const {
    setElement(*scales, i, getElement(*scales, i) * factor);
  }

  /// Sets elements under chosen scales to zero, and the minima too; zeros of
  /// floats have either sign.
  void clear(llvm::ArrayRef<bool> chosen, Draw &draw) const {
    for (int64_t i = 0; minima && i < getNumScales(); ++i)
      if (chosen[i])
        setElement(*minima, i, 0);
    int64_t rows = elements->shape[elements->shape.size() - 2];
    int64_t columns = elements->shape.back() * (isInPairs ? 2 : 1);
    ScaleGroup group = quantization.getScaleGroup();
    int64_t scaleRows = group.countRows(rows, hasHalves);
    int64_t scaleColumns = group.countColumns(columns);
    int64_t index = 0;
    for (int64_t e = 0; e < getNumExperts(); ++e)
      for (int64_t n = 0; n < rows; ++n) {
        int64_t row = e * scaleRows + group.rowOf(n, rows, hasHalves);
        for (int64_t c = 0; c < columns; ++c, ++index) {
          int64_t scale = row * scaleColumns + group.columnOf(c);
          if (chosen[scale])
            setCode(index, getZero(scale, draw));
        }
      }
  }

  /// Sets the first element of a row of the last expert, and the last one of
  /// the next row, to NaN of e4m3.
  void spoilCodes() const {
    int64_t rows = elements->shape[elements->shape.size() - 2];
    int64_t columns = elements->shape.back();
    int64_t row = (getNumExperts() - 1) * rows + rows / 2;
    setCode(row * columns, 0x7F);
    setCode((row + 2) * columns - 1, 0xFF);
  }

private:
  int64_t getScaleBytes() const { return moert::dtypeBits(scales->dtype) / 8; }

  uint8_t getZero(int64_t scale, Draw &draw) const {
    if (zeroPoints)
      return zeroPoints->data()[scale];
    switch (quantization.storage) {
    case StorageType::Int8:
      return 0;
    case StorageType::Int4:
      return minima ? 0 : 8;
    case StorageType::NF4:
      return 7;
    default:
      return draw.below(2) == 0 ? 0 : isInPairs ? 0x8 : 0x80;
    }
  }

  void setCode(int64_t i, uint8_t code) const {
    if (!isInPairs) {
      elements->data()[i] = code;
      return;
    }
    uint8_t &byte = elements->data()[i / 2];
    byte = i % 2 == 0 ? (byte & 0xF0) | (code & 0xF) : (byte & 0xF) | code << 4;
  }

  const OperandQuantization &quantization;
  bool isInPairs, hasHalves;
  HostTensor *elements, *scales, *zeroPoints, *minima;
};

/// Calls `body` with the name of each weight that is quantized as `holds` asks
/// for, and the weight; `what` describes it in messages. Fails if there is
/// none.
Status
forEachWeight(Hard &hard, const char *what,
              llvm::function_ref<bool(const OperandQuantization &)> holds,
              llvm::function_ref<void(llvm::StringRef, const Weight &)> body) {
  bool hasAny = false;
  Status status;
  for (llvm::StringRef name : hard.spec.getExpertWeights()) {
    const auto &quantization = hard.spec.getQuantization(name);
    if (!quantization || !holds(quantization->weight))
      continue;
    hasAny = true;
    Weight weight(hard, name, status);
    if (!status)
      return status;
    body(name, weight);
  }
  return needs(hasAny, what);
}

Status
forEachWeight(Hard &hard,
              llvm::function_ref<void(llvm::StringRef, const Weight &)> body) {
  return forEachWeight(
      hard, "quantization", [](const OperandQuantization &) { return true; },
      body);
}

/// Bits of the extreme scales of a type: the least, including zeros and
/// subnormal numbers, the largest, and NaN.
struct ScaleEnds {
  ScaleType type;
  std::vector<uint64_t> least, largest;
  uint64_t nan;
};

const ScaleEnds &getScaleEnds(const Weight &weight) {
  static const ScaleEnds ends[] = {
      {ScaleType::E8M0, {0, 1}, {200, 254}, 0xFF},
      {ScaleType::E4M3, {0, 0x80, 0x01, 0x07, 0x08}, {0x7D, 0x7E}, 0x7F},
      {ScaleType::F16, {0, 0x8000, 0x0001, 0x03FF, 0x0400}, {0x7BFF}, 0x7E00},
      {ScaleType::BF16, {0, 0x8000, 0x0080, 0x1000}, {0x7F7F}, 0x7FC0},
      {ScaleType::F32,
       {0, 0x80000000, 0x00800000, 0x10000000},
       {0x7F7FFFFF},
       0x7FC00000},
  };
  ScaleType type = weight.getQuantization().scale;
  return *llvm::find_if(
      ends, [&](const ScaleEnds &entry) { return entry.type == type; });
}

template <typename T>
T drawOne(const std::vector<T> &values, Draw &draw) {
  return values[draw.below(static_cast<int64_t>(values.size()))];
}

} // namespace

Status moec::gputest::ue8m0Scales(Hard &hard) {
  return forEachWeight(
      hard, "scales of f32",
      [](const OperandQuantization &weight) {
        return weight.scale == ScaleType::F32;
      },
      [](llvm::StringRef, const Weight &weight) {
        for (int64_t i = 0; i < weight.getNumScales(); ++i)
          weight.setScale(i, weight.getScale(i) & 0x7F800000);
      });
}

Status moec::gputest::zeroWeights(Hard &hard) {
  return forEachWeight(hard, [&](llvm::StringRef name, const Weight &weight) {
    llvm::SmallVector<bool> chosen(weight.getNumScales());
    for (auto [i, isChosen] : llvm::enumerate(chosen)) {
      int64_t perExpert = weight.getNumScales() / weight.getNumExperts();
      bool isLast =
          static_cast<int64_t>(i) / perExpert + 1 == weight.getNumExperts();
      isChosen = hard.draw.uniform() < 0.3 || (isLast && name == "experts.w13");
    }
    weight.clear(chosen, hard.draw);
  });
}

Status moec::gputest::scaleEnds(Hard &hard) {
  return forEachWeight(hard, [&](llvm::StringRef, const Weight &weight) {
    const ScaleEnds &ends = getScaleEnds(weight);
    llvm::SmallVector<bool> chosen(weight.getNumScales());
    for (int64_t i = 0; i < weight.getNumScales(); ++i) {
      double choice = hard.draw.uniform();
      if (choice < 0.2)
        weight.setScale(i, drawOne(ends.least, hard.draw));
      if (choice > 0.8)
        weight.setScale(i, drawOne(ends.largest, hard.draw));
      chosen[i] = choice > 0.8;
    }
    weight.clear(chosen, hard.draw);
  });
}

Status moec::gputest::zeroScales(Hard &hard) {
  Status status = forEachWeight(
      hard, "scales that can be 0",
      [](const OperandQuantization &weight) {
        return weight.scale != ScaleType::E8M0;
      },
      [&](llvm::StringRef name, const Weight &weight) {
        // The list begins with 0 and -0.
        const std::vector<uint64_t> &least = getScaleEnds(weight).least;
        int64_t perExpert = weight.getNumScales() / weight.getNumExperts();
        for (int64_t i = 0; i < weight.getNumScales(); ++i) {
          bool isLast = i / perExpert + 1 == weight.getNumExperts();
          if (hard.draw.uniform() < 0.2 || (isLast && name == "experts.w13"))
            weight.setScale(i, least[size_t(hard.draw.below(2))]);
        }
      });
  if (!status)
    return status;
  for (llvm::StringRef name : hard.spec.getExpertWeights())
    hard.set((name + "_global_scale").str(), 0, 0);
  return Status::ok();
}

Status moec::gputest::nanScales(Hard &hard) {
  if (Status status = needs(hard.spec.quantization.w2.has_value(),
                            "quantization of experts.w2");
      !status)
    return status;
  return forEachWeight(hard, [&](llvm::StringRef name, const Weight &weight) {
    if (name != "experts.w2")
      return;
    llvm::SmallVector<bool> chosen(weight.getNumScales());
    int64_t perExpert = weight.getNumScales() / weight.getNumExperts();
    int64_t columns = hard.inputs.find("experts.w2_scale")->host.shape.back();
    int64_t row = perExpert / columns / 2;
    int64_t scale = weight.getNumScales() - perExpert + row * columns;
    weight.setScale(scale, getScaleEnds(weight).nan);
    chosen[scale] = true;
    weight.clear(chosen, hard.draw);
  });
}

Status moec::gputest::nanCodes(Hard &hard) {
  const auto &quantization = hard.spec.quantization.w2;
  if (Status status = needs(quantization && quantization->weight.storage ==
                                                StorageType::Fp8E4M3,
                            "quantization of experts.w2 in fp8_e4m3");
      !status)
    return status;
  return forEachWeight(hard, [&](llvm::StringRef name, const Weight &weight) {
    if (name == "experts.w2")
      weight.spoilCodes();
  });
}

Status moec::gputest::leastScales(Hard &hard) {
  // Hidden states compensate in every gemm that reads them.
  bool areE8M0 =
      llvm::all_of(hard.spec.getExpertWeights(), [&](llvm::StringRef name) {
        const auto &quantization = hard.spec.getQuantization(name);
        return !name.ends_with("w13") ||
               (quantization && quantization->weight.scale == ScaleType::E8M0);
      });
  if (Status status = needs(areE8M0 && hard.spec.dtype != DType::F16,
                            "scales of e8m0, and another dtype than f16");
      !status)
    return status;
  uint64_t largest = 0;
  Status status =
      forEachWeight(hard, [&](llvm::StringRef name, const Weight &weight) {
        if (!name.ends_with("w13"))
          return;
        for (int64_t i = 0; i < weight.getNumScales(); ++i) {
          largest = std::max(largest, weight.getScale(i));
          weight.setScale(i, 0);
        }
      });
  const HostTensor *hidden = hard.get("hidden_states");
  // The sum of a group is taken before scaling and must stay below the largest
  // float.
  int power = static_cast<int>(largest) - 2;
  for (int64_t i = 0; i < hidden->getNumElements(); ++i)
    setElement(*hidden, i, std::ldexp(getElement(*hidden, i), power));
  return status;
}

Status moec::gputest::zeroPointEnds(Hard &hard) {
  return forEachWeight(
      hard, "zero points",
      [](const OperandQuantization &weight) { return weight.hasZeroPoint; },
      [&](llvm::StringRef, const Weight &weight) {
        bool isInt4 = weight.getQuantization().storage == StorageType::Int4;
        for (int64_t i = 0; i < weight.getNumScales(); ++i) {
          if (hard.draw.uniform() >= 0.4)
            continue;
          uint8_t point = drawOne<uint8_t>({0, 15, 255}, hard.draw);
          weight.getZeroPoints()[i] = point;
          // int4 values are far from 255, so the scale shrinks to keep the
          // dequantized values in range.
          if (isInt4 && point == 255)
            weight.scaleBy(i, 1.0 / 64);
        }
      });
}
