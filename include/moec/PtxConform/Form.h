//===- Form.h - an instruction form and its kernel --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_FORM_H
#define MOEC_PTXCONFORM_FORM_H

#include "moert/DType.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moec::conform {

using Bytes = std::vector<uint8_t>;

/// Encoding of a number. A packed format is named by its elements' format.
enum class Format : uint8_t { None, F16, BF16, TF32, F32, E4M3, E5M2, S8, S32 };

/// A buffer of a kernel: a 64-bit parameter that holds its address.
struct BufferSpec {
  size_t bytes = 0;
  /// Whether the launch writes it, and it is compared afterwards.
  bool isOutput = false;
  /// Format of an output's elements, needed to recognize NaN.
  Format format = Format::None;
};

/// A tensor map over one of the buffers. Kernels get maps by value, after the
/// addresses of the buffers.
struct TensorMapSpec {
  unsigned buffer = 0;
  moert::DType dtype = moert::DType::F32;
  /// Innermost dimension last.
  std::vector<int64_t> shape, strideBytes, box;
  int64_t swizzleBytes = 0;
};

/// Required relation between an output and the recorded one.
enum class Rule : uint8_t {
  /// Equal bits.
  Bits,
  /// Equal bits, except that any two NaNs match: the PTX ISA leaves the payload
  /// open.
  AnyNan,
  /// Within a bound of the exact result. The record holds the error measured on
  /// the device; `judge` computes that of the output at hand.
  Bound,
};

/// Error of an output against the exact result.
struct Verdict {
  /// In the unit of `Form::bound`.
  double error = 0;
  /// The failure regardless of the bound, such as "NaN expected at element
  /// 7"; empty if nothing is.
  std::string failure;
};

/// Contents of a launch's buffers, before or after it.
using Buffers = std::vector<Bytes>;

struct Form {
  /// Unique name: the instruction with its qualifiers, and a distinction in
  /// brackets where needed: "shf.r.wrap.b32", "mma... [integers]".
  std::string name;
  /// Section of the table, such as "integer", "convert", "wgmma".
  std::string family;
  /// A module with one entry, `conform`.
  std::string ptx;
  int64_t grid = 1;
  int64_t block = 32;
  int64_t shared = 0;
  /// Results per launch, for the table.
  int64_t elements = 0;
  std::vector<BufferSpec> buffers;
  std::vector<TensorMapSpec> maps;
  /// Contents of the buffers before the launch.
  std::function<Buffers(uint64_t seed)> fill;
  Rule rule = Rule::Bits;
  /// For Rule::Bound: the largest accepted error, and its unit.
  double bound = 0;
  std::string unit;
  std::function<Verdict(const Buffers &before, const Buffers &after)> judge;
};

/// All forms, in the order of the table.
const std::vector<Form> &allForms();

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_FORM_H
