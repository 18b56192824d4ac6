//===- DecodeMatrix.h - matrices in forms of other tools --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Some tools store a matrix in a form that no kernel of a layer takes: an order
// of elements for one kernel, zeros that are numbers, vectors of a code book.
// The loader decodes these matrices to the layer's dtype.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_DECODEMATRIX_H
#define MOEC_LIB_TOOLS_RUN_DECODEMATRIX_H

#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"
#include "llvm/ADT/ArrayRef.h"

namespace moec {

/// Type of elements in a file.
using FileType = moert::DType;

/// A tensor of a module in the memory of the host.
struct ModuleTensor {
  std::string what;
  moert::DType dtype = moert::DType::F32;
  std::vector<int64_t> shape;
  const uint8_t *data = nullptr;
  size_t bytes = 0;

  int64_t count() const { return int64_t(bytes) * 8 / moert::dtypeBits(dtype); }
  /// Element `i`, of a type of numbers.
  float get(int64_t i) const;
  /// Element `i` of an integer type, without its sign.
  uint32_t getBits(int64_t i) const;
  uint32_t getByte(int64_t i) const { return data[i]; }
  moert::Status fail(const llvm::Twine &what) const;
};

/// The tensors of one module, and the matrix that they stand for.
class ModuleMatrix {
public:
  ModuleMatrix(moert::Checkpoint &checkpoint, std::string module,
               const StoredMatrix &stored)
      : stored(stored), rows(stored.tensors.front().shape[1]),
        columns(stored.tensors.front().shape[2]), checkpoint(checkpoint),
        module(std::move(module)) {}

  bool has(llvm::StringRef suffix) const;
  /// Fails unless rows and columns are whole units of the form, which elements
  /// of a tensor share.
  moert::Status checkMultiple(int64_t ofRows, int64_t ofColumns) const;
  /// A tensor of one of these types; of any shape if `shape` is empty.
  moert::Result<ModuleTensor> find(llvm::StringRef suffix,
                                   llvm::ArrayRef<moert::DType> types,
                                   llvm::ArrayRef<int64_t> shape = {}) const;
  /// A tensor of f32, bf16 or f16.
  moert::Result<ModuleTensor>
  findNumbers(llvm::StringRef suffix, llvm::ArrayRef<int64_t> shape = {}) const;

  const StoredMatrix &stored;
  const int64_t rows, columns;

private:
  moert::Checkpoint &checkpoint;
  std::string module;
};

/// Fills the matrix: rows x columns.
using Decoder = moert::Status (*)(const ModuleMatrix &matrix,
                                  llvm::MutableArrayRef<float> values);
Decoder findAwqDecoder(Packing packing);
Decoder findCodeDecoder(Packing packing);

/// Reads a matrix whose packing the loader decodes: rows x K elements of
/// `dtype`, computed in f32. `prefix` stands ahead of the names in the matrix.
moert::Result<std::vector<uint8_t>>
decodeMatrix(moert::Checkpoint &checkpoint, const std::string &prefix,
             const StoredMatrix &matrix, int64_t expert, moert::DType dtype);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_DECODEMATRIX_H
