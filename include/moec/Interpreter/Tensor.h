//===- Tensor.h - tensors of the interpreter --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_INTERPRETER_TENSOR_H
#define MOEC_INTERPRETER_TENSOR_H

#include "moert/DType.h"
#include "moert/Status.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moec::interpreter {

/// A row-major, contiguous tensor in host memory, not owned.
struct TensorRef {
  void *data = nullptr;
  moert::DType dtype = moert::DType::F32;
  llvm::SmallVector<int64_t, 4> shape;

  int64_t numElements() const;
  /// Elements per index of dimension 0.
  int64_t rowSize() const;

  template <typename T>
  T *as() const {
    return static_cast<T *>(data);
  }
};

/// A tensor that owns its memory.
class Tensor {
public:
  Tensor() = default;
  /// All bits set: floats that were never written are NaN, and so are their
  /// results.
  static Tensor undefined(moert::DType dtype, llvm::ArrayRef<int64_t> shape);

  /// Valid as long as this object is.
  TensorRef ref();
  moert::DType dtype() const { return type; }
  llvm::ArrayRef<int64_t> shape() const { return dims; }
  const uint8_t *data() const { return bytes.data(); }
  size_t size() const { return bytes.size(); }

private:
  moert::DType type = moert::DType::F32;
  llvm::SmallVector<int64_t, 4> dims;
  std::vector<uint8_t> bytes;
};

/// The element types that the interpreter supports: f32, bf16, f16, e4m3, e8m0,
/// i8, i32.
moert::Result<moert::DType> elementDType(mlir::ShapedType type);

/// A type or a tensor as text, as in "bf16[4x?x2]".
std::string describe(mlir::ShapedType type);
std::string describe(const TensorRef &tensor);

/// Whether `tensor` has the element type and all static sizes of `type`.
bool matches(const TensorRef &tensor, mlir::ShapedType type);

/// Loads elements of `tensor` from flat index `first` on, converted exactly; i8
/// is signed.
void load(const TensorRef &tensor, int64_t first,
          llvm::MutableArrayRef<float> values);
void load(const TensorRef &tensor, int64_t first,
          llvm::MutableArrayRef<double> values);
float loadAt(const TensorRef &tensor, int64_t index);

/// Rounds to the element type, to nearest even, and stores from `first` on. i8
/// saturates at -127 and 127, and NaN becomes 0.
void store(const TensorRef &tensor, int64_t first,
           llvm::ArrayRef<float> values);

/// `value` rounded to an element type; for arith.truncf followed by extf.
float roundTo(moert::DType dtype, float value);

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_TENSOR_H
