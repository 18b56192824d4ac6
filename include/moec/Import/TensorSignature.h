//===- TensorSignature.h - the tensors of a layer ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table "Tensors" of docs/layers.md for one layer, with the names and
// forms under which Hugging Face checkpoints hold the same values.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_TENSORSIGNATURE_H
#define MOEC_IMPORT_TENSORSIGNATURE_H

#include "moec/Import/LayerSpec.h"

#include <array>

namespace moec {

/// The size of a dimension that is the number of tokens of a call.
constexpr int64_t kTokenDimension = -1;

enum class TensorType {
  F32,
  BF16,
  F16,
  I32,
  F8E4M3FN,
  F8E5M2,
  F8E8M0FNU,
  /// Bytes: integers of 8 bits, or two elements of 4.
  I8
};

/// As messages and signatures spell it: "bf16", "f8E4M3FN", ...
llvm::StringRef stringify(TensorType type);

TensorType getTensorType(DType dtype);
TensorType getTensorType(StorageType storage);
TensorType getTensorType(ScaleType scale);

/// Bits that an element takes.
int64_t getStorageBits(TensorType type);

enum class TensorRole { Input, Weight, Output };
llvm::StringRef stringify(TensorRole role);

/// How a checkpoint packs elements of 4 or 8 bits, the first one in the lowest
/// bits of a word of little endian.
struct ElementPacking {
  /// 8 or 32; 0 for elements that lie as the layer's do.
  int64_t wordBits = 0;
  /// Bits of an element in the word.
  int64_t elementBits = 8;
  /// Bits of an element in the layer: more for zero points, which are bytes
  /// there.
  int64_t layerBits = 8;
  /// The elements of a word are neighbours in a column, not in a row.
  bool alongRows = false;
  /// Place i of a word holds the element `order[i]` of those in it. Of words
  /// along a row only those of 8 bits have another order.
  std::array<uint8_t, 8> order = {0, 1, 2, 3, 4, 5, 6, 7};
  /// Added to each element, modulo 256.
  uint8_t offset = 0;
  /// Added to each word, as one number of 32 bits: elements that leave their
  /// range carry into the next.
  uint32_t wordOffset = 0;

  explicit operator bool() const { return wordBits != 0; }
};

/// What a tensor of a GGUF file has in each block of neighbours of a row: their
/// scale and their elements, of which one is the part.
struct BlockPacking {
  /// What ggml calls the block; empty for elements that are in none.
  std::string type;
  enum class Part {
    /// Bytes as the layer has them.
    Bytes,
    /// Elements of 4 bits: byte i has elements i and i + count, low half first.
    Halves,
    /// The 256 elements of q6_K, of 6 bits, which become i8.
    SixBits,
    /// Its 16 scales, i8 with one f16 behind them, whose products are f32.
    ScaledBytes,
    /// Elements of 4 bits: of each 64 as `Halves` has them.
    RunsOfHalves,
    /// The 256 elements of q5_K, which become i8: their upper bits, then their
    /// lower ones as `RunsOfHalves` has them.
    FiveBits,
    /// The 8 scales of q4_K and q5_K, or their minima: two f16, of which one is
    /// a factor of all scales and one of all minima, then those, of 6 bits.
    /// Products are f32.
    SixBitScales,
    SixBitMinima,
  };

  /// Bytes of a block, the first one of the part, and how many it has in the
  /// layer.
  int64_t bytes = 0, first = 0, count = 0;
  Part part = Part::Bytes;

  explicit operator bool() const { return bytes != 0; }
};

/// What a tensor of a checkpoint is for.
enum class PartUse {
  Values,        ///< its elements go in
  Scales,        ///< likewise, and each is finite and not below 0
  InverseScales, ///< their reciprocals go in; each is finite and above 0
  AnyScales,     ///< likewise finite, but of either sign
  /// The one element of the destination becomes the largest of all such parts,
  /// of every expert; each is finite and above 0. (The scale of a product's
  /// input, of which checkpoints have one for each expert's gate and up.)
  LargestScale,
  /// Codes of scales; beside the tensor lie the numbers of the codes and what
  /// blocks of them are multiplied by (bitsandbytes' double quantization).
  NestedScales,
  // Nothing goes in; a tensor that is not as expected is refused.
  Shape,         ///< two integers: rows and columns of the matrix
  GroupOfColumn, ///< for each column the number of its group, which ascend
  ColumnOrder,   ///< likewise in any order, in which the layer has columns
  MiddleZeros,   ///< zero points, all of them half the range of elements
  NF4Numbers,    ///< what the codes of nf4 stand for
  NF4State, ///< JSON of bitsandbytes: type, blocks, and shape of the matrix
  Unused,   ///< read past
};
/// Whether nothing of such a part goes into the layer.
inline bool isBeside(PartUse use) { return use >= PartUse::Shape; }

/// One tensor of a checkpoint: where it goes in a tensor of the layer.
struct CheckpointPart {
  /// Name inside the MoE block; the checkpoint's own name ends in a dot and
  /// this. `{e}` stands for the global id of an expert: there is one such
  /// tensor for each expert held here, without the expert dimension.
  std::string name;
  /// Row i of the part is row `firstRow + i * rowStride` of the destination;
  /// rows are the second to last dimension of a matrix (the last of a bias).
  int64_t firstRow = 0;
  int64_t rowStride = 1;
  /// Rows of the part: less than those of the destination when gate and up
  /// come apart.
  int64_t numRows = 0;
  /// The last two dimensions are swapped in the checkpoint.
  bool transposed = false;
  /// All experts lie in one matrix, one behind the other: E x R x C is E * R
  /// rows of C there (E * C rows of R if transposed).
  bool flattened = false;
  /// Rows lie one behind the other in a single dimension.
  bool isFlat = false;
  PartUse use = PartUse::Values;
  ElementPacking packing;
  BlockPacking blocks;
  /// A checkpoint may do without it.
  bool isOptional = false;
  /// Columns of a group, for `GroupOfColumn`, `ColumnOrder` and `NF4State`; 0
  /// for one group.
  int64_t groupColumns = 0;

  /// Whether there is one tensor for each expert.
  bool isPerExpert() const;
  /// The name for an expert.
  std::string getName(int64_t expert) const;
  /// Whether a tensor that a file calls `fileName` is this part.
  bool matches(llvm::StringRef fileName, int64_t expert) const;
};

/// One way in which checkpoints hold a tensor: parts that fill it together.
using CheckpointForm = std::vector<CheckpointPart>;

/// A tensor of a layer.
struct TensorInfo {
  /// Canonical name.
  std::string name;
  std::vector<int64_t> shape;
  TensorType type = TensorType::F32;
  TensorRole role = TensorRole::Input;
  /// May be bound with gaps between its rows.
  bool isStrided = false;
  /// What is accepted instead of the canonical name; may be empty. Shapes with
  /// other dimensions of size 1 are the same tensor.
  std::vector<CheckpointForm> checkpointForms;
  /// The same for a GGUF file, which has one form at most.
  std::vector<CheckpointForm> ggufForms;
};

/// The tensors of a layer in the order of docs/layers.md, `output` and what is
/// recorded beside it last. The
/// scales of a quantized weight follow it (`experts.w13_scale`), then that of
/// the product's input, if it is given (`experts.w13_input_scale`).
std::vector<TensorInfo> getTensorSignature(const LayerSpec &spec);

/// Whether a tensor says the order of the columns of a first product.
inline bool isColumnOrder(llvm::StringRef tensor) {
  return tensor.ends_with("experts.w13_columns");
}

/// A weight of i32 that follows from the layer's description.
struct NamedTable {
  std::string name;
  std::vector<int32_t> values;
};

} // namespace moec

#endif // MOEC_IMPORT_TENSORSIGNATURE_H
