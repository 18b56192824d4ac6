//===- CheckParts.cpp - checks a checkpoint's tensors -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckParts.h"

#include "ConvertElements.h"
#include "NestedScales.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/ErrorHandling.h"

#include <cstring>

using namespace moec;
using moert::SafetensorsEntry;

std::string moec::printShape(llvm::ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (auto [i, size] : llvm::enumerate(shape))
    text += (i ? ", " : "") + std::to_string(size);
  return text + "]";
}

bool moec::isSameShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  auto squeeze = [](llvm::ArrayRef<int64_t> shape) {
    llvm::SmallVector<int64_t> sizes;
    llvm::copy_if(shape, std::back_inserter(sizes),
                  [](int64_t size) { return size != 1; });
    return sizes;
  };
  return squeeze(a) == squeeze(b);
}

/// The bits of the largest finite number. For non-negative numbers the order of
/// bits is the order of values.
static uint32_t getBitsOfLargest(moert::DType dtype) {
  switch (dtype) {
  case moert::DType::F32:
    return 0x7F7FFFFF;
  case moert::DType::BF16:
    return 0x7F7F;
  case moert::DType::F16:
    return 0x7BFF;
  case moert::DType::F8E4M3:
    return 0x7E;
  case moert::DType::F8E8M0:
    return 0xFE;
  default:
    return ~uint32_t(0);
  }
}

static const char *describeSign(ScaleSign sign) {
  switch (sign) {
  case ScaleSign::Any:
    return "";
  case ScaleSign::NotNegative:
    return " and not below 0";
  case ScaleSign::Positive:
    return " and above 0";
  }
  llvm_unreachable("every sign is listed");
}

std::string moec::checkScales(const SafetensorsEntry &entry, moert::DType dtype,
                              ScaleSign sign, int64_t first) {
  uint32_t largest = getBitsOfLargest(dtype);
  size_t size = size_t(moert::dtypeBits(dtype)) / 8;
  // E8M0 holds powers of two: it has no sign and no 0.
  bool isPower = dtype == moert::DType::F8E8M0;
  uint32_t signBit = isPower ? 0 : uint32_t(1) << (8 * size - 1);
  for (size_t i = 0; i < entry.bytes / size; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, entry.data + i * size, size);
    uint32_t magnitude = bits & ~signBit;
    bool isZero = magnitude == 0 && !isPower;
    bool isNegative = (bits & signBit) != 0 && !isZero;
    if (magnitude > largest || (isNegative && sign != ScaleSign::Any) ||
        (isZero && sign == ScaleSign::Positive))
      return "has a scale of " + showElement(entry.data + i * size, dtype) +
             " (element " + std::to_string(first + int64_t(i)) +
             "); scales are finite" + describeSign(sign);
  }
  return "";
}

/// Reads the elements of an integer tensor; nothing if it is not of integers,
/// or has not `count` elements.
static std::optional<std::vector<int64_t>>
readIntegers(const SafetensorsEntry &entry, int64_t count) {
  if ((entry.dtype != moert::DType::I32 && entry.dtype != moert::DType::I64) ||
      !isSameShape(entry.shape, {count}))
    return std::nullopt;
  size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
  std::vector<int64_t> values;
  values.reserve(size_t(count));
  for (size_t i = 0; i < size_t(count); ++i) {
    int64_t value = 0;
    if (!convertElement(entry.data + i * size, entry.dtype,
                        reinterpret_cast<uint8_t *>(&value), moert::DType::I64))
      return std::nullopt;
    values.push_back(value);
  }
  return values;
}

static std::string describe(const SafetensorsEntry &entry) {
  return std::string(moert::dtypeName(entry.dtype)) + " of shape " +
         printShape(entry.shape);
}

static std::string checkShape(const SafetensorsEntry &entry, int64_t rows,
                              int64_t columns) {
  auto values = readIntegers(entry, /*count=*/2);
  if (!values)
    return "is " + describe(entry) + ", expected two integers";
  if (*values != std::vector<int64_t>{rows, columns})
    return "is " + printShape(*values) + ", expected " +
           printShape({rows, columns});
  return "";
}

std::string moec::readGroups(const SafetensorsEntry &entry, int64_t columns,
                             int64_t groupColumns,
                             std::vector<int64_t> &groups) {
  auto values = readIntegers(entry, columns);
  if (!values)
    return "is " + ::describe(entry) + ", expected " + std::to_string(columns) +
           " integers, the group of each column";
  int64_t size = groupColumns ? groupColumns : columns;
  std::vector<int64_t> counts(size_t(columns / size));
  for (auto [column, group] : llvm::enumerate(*values)) {
    if (group < 0 || group >= columns / size)
      return "has column " + std::to_string(column) + " in group " +
             std::to_string(group) + ", and the groups are 0 to " +
             std::to_string(columns / size - 1);
    ++counts[size_t(group)];
  }
  for (auto [group, count] : llvm::enumerate(counts))
    if (count != size)
      return "has " + std::to_string(count) + " columns in group " +
             std::to_string(group) + ", expected " + std::to_string(size) +
             " in each";
  groups = std::move(*values);
  return "";
}

/// Checks that each group consists of neighbouring columns.
static std::string checkGroups(const SafetensorsEntry &entry, int64_t columns,
                               int64_t groupColumns) {
  std::vector<int64_t> groups;
  std::string what = readGroups(entry, columns, groupColumns, groups);
  if (!what.empty())
    return what;
  int64_t size = groupColumns ? groupColumns : columns;
  for (auto [column, group] : llvm::enumerate(groups))
    if (group != int64_t(column) / size)
      return "has column " + std::to_string(column) + " in group " +
             std::to_string(group) + ", expected " +
             std::to_string(int64_t(column) / size) + ": groups are of " +
             std::to_string(size) +
             " adjacent columns; another column order (act-order) needs "
             "desc_act, or actorder \"group\", in the configuration";
  return "";
}

static std::string checkMiddleZeros(const CheckpointPart &part,
                                    const SafetensorsEntry &entry, int64_t rows,
                                    int64_t columns) {
  const ElementPacking &packing = part.packing;
  std::vector<int64_t> expected =
      getPackedShape(packing, part.transposed, rows, columns);
  if (entry.dtype != getPackedType(packing) ||
      !isSameShape(entry.shape, expected))
    return "is " + describe(entry) + ", expected " +
           moert::dtypeName(getPackedType(packing)) + " of shape " +
           printShape(expected);
  std::vector<uint8_t> zeros(size_t(rows * columns));
  unpackElements(packing, part.transposed, entry.data, {rows, columns},
                 {zeros.data(), columns, 0, 1, rows});
  auto middle = uint8_t(1 << (packing.elementBits - 1));
  for (auto [i, zero] : llvm::enumerate(zeros))
    if (zero != middle)
      return "has the zero point " + std::to_string(zero) + " (row " +
             std::to_string(i / size_t(columns)) + ", group " +
             std::to_string(i % size_t(columns)) + "), expected " +
             std::to_string(middle) +
             " everywhere; set \"sym\" to false in the configuration";
  return "";
}

static std::string checkZeros(const SafetensorsEntry &entry) {
  if (entry.dtype == moert::DType::I8) {
    const uint8_t *end = entry.data + entry.bytes;
    const uint8_t *found =
        std::find_if(entry.data, end, [](uint8_t byte) { return byte != 0; });
    return found == end
               ? ""
               : "has the zero point " + std::to_string(int8_t(*found)) +
                     " (element " + std::to_string(found - entry.data) +
                     "), expected 0 everywhere: the configuration's weights "
                     "are symmetric";
  }
  if (!canConvert(entry.dtype, moert::DType::F32))
    return "is " + ::describe(entry) + ", expected numbers that are all 0";
  size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
  for (size_t i = 0; i < entry.bytes / size; ++i) {
    float value = 1;
    convertElement(entry.data + i * size, entry.dtype,
                   reinterpret_cast<uint8_t *>(&value), moert::DType::F32);
    if (value != 0)
      return "has a " + showElement(entry.data + i * size, entry.dtype) +
             " (element " + std::to_string(i) +
             "), and the model's experts have no bias; a bias that is all 0 is "
             "read past";
  }
  return "";
}

std::string moec::checkBeside(const CheckpointPart &part,
                              const SafetensorsEntry &entry, int64_t rows,
                              int64_t columns) {
  switch (part.use) {
  case PartUse::Shape:
    return checkShape(entry, rows, columns);
  case PartUse::GroupOfColumn:
    return checkGroups(entry, columns, part.groupColumns);
  case PartUse::MiddleZeros:
    return checkMiddleZeros(part, entry, rows, columns);
  case PartUse::Zeros:
    return checkZeros(entry);
  case PartUse::NF4Numbers:
    return checkNF4Numbers(entry);
  case PartUse::NF4State:
    return checkNF4State(part, entry, rows, columns);
  default:
    return "";
  }
}
