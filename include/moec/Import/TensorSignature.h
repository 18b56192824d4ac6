//===- TensorSignature.h - the tensors of a layer ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table "Tensors" of docs/use/layers.md for one layer, with the names and
// layouts of the same values in Hugging Face checkpoints and GGUF files.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_TENSORSIGNATURE_H
#define MOEC_IMPORT_TENSORSIGNATURE_H

#include "moec/Import/LayerSpec.h"

#include <array>
#include <memory>

namespace moec {

/// Size of a dimension that is the number of tokens of a call.
constexpr int64_t kTokenDimension = -1;

enum class TensorType {
  F32,
  BF16,
  F16,
  I32,
  I16,
  F8E4M3FN,
  F8E5M2,
  F8E8M0FNU,
  /// Bytes: 8-bit integers, or two 4-bit elements.
  I8
};

/// The name in messages and signatures: "bf16", "f8E4M3FN", ...
llvm::StringRef stringify(TensorType type);

TensorType getTensorType(DType dtype);
TensorType getTensorType(StorageType storage);
TensorType getTensorType(ScaleType scale);
/// Ids of 8 bits are bytes.
TensorType getTensorType(IdType type);

/// Bits per element.
int64_t getStorageBits(TensorType type);

enum class TensorRole { Input, Weight, Output };
llvm::StringRef stringify(TensorRole role);

/// Packing of elements of 2 to 8 bits in a checkpoint: little-endian words,
/// first element in the lowest bits. Elements whose bits do not divide a word's
/// may begin in one word and end in the next.
struct ElementPacking {
  /// 8 or 32; 0 if elements are stored as in the layer.
  int64_t wordBits = 0;
  /// Bits per element in the word.
  int64_t elementBits = 8;
  /// Bits per element in the layer. Zero points have more there: they are
  /// bytes; and so have elements of bits that no storage type has.
  int64_t layerBits = 8;
  /// Each 32 elements have words of their low bits, then words of their next
  /// ones: planes of 4, 2 and 1 bits of an element.
  bool hasPlanes = false;
  /// A word packs elements of one column instead of one row.
  bool alongRows = false;
  /// Element index at each position of a word. Among words along a row, only
  /// 8-bit ones are permuted.
  std::array<uint8_t, 8> order = {0, 1, 2, 3, 4, 5, 6, 7};
  /// Bits of each byte that are flipped: the signs of two's complement.
  uint8_t flipped = 0;
  /// Added to each word as a 32-bit number; an overflow of an element carries
  /// into the next. Added to each element, modulo its range, if the bits of an
  /// element do not divide those of a word.
  uint32_t wordOffset = 0;
  /// Added to each element: moves the middle of the range to that of the
  /// layer's type, which has more bits.
  uint8_t addend = 0;

  explicit operator bool() const { return wordBits != 0; }
};

/// Block format of a GGUF tensor. A block holds consecutive elements of a row
/// and their scales; a part of it becomes one tensor of the layer.
struct BlockPacking {
  /// The name of the block type in ggml; empty for elements without blocks.
  std::string type;
  enum class Part {
    /// Bytes as in the layer.
    Bytes,
    /// 4-bit elements: byte i holds elements i (low half) and i + count.
    Halves,
    /// The 256 6-bit elements of q6_K, converted to i8.
    SixBits,
    /// The 16 scales of q6_K: i8, followed by one f16 factor; converted to f32
    /// products.
    ScaledBytes,
    /// 4-bit elements, packed as `Halves` per 64 elements, and per 16.
    RunsOfHalves,
    HalvesOf16,
    /// The 256 elements of q5_K, converted to i8: the upper bits, then the
    /// lower ones packed as `RunsOfHalves`.
    FiveBits,
    /// The 8 scales or minima of q4_K and q5_K: one f16 factor of all scales,
    /// one of all minima, then 6-bit values; converted to f32 products.
    SixBitScales,
    SixBitMinima,
  };

  /// Bytes of a block, offset of the part in it, and number of elements of the
  /// part in the layer.
  int64_t bytes = 0, first = 0, count = 0;
  Part part = Part::Bytes;

  explicit operator bool() const { return bytes != 0; }
};

/// Treatment of a checkpoint tensor by the loader.
enum class PartUse {
  Values,        ///< copied
  RoundedValues, ///< copied, each rounded to the layer's dtype
  Remainders,    ///< errors of that rounding, rounded likewise
  Scales,        ///< copied; each finite and >= 0
  InverseScales, ///< inverted; each finite and > 0
  AnyScales,     ///< copied; each finite
  ScalesOf127,   ///< divided by 127; each finite and >= 0
  /// The maximum over all such tensors, of all experts, becomes the one element
  /// of the destination; each is finite and > 0. For a gemm's input scale,
  /// which checkpoints store per expert, for gate and for up.
  LargestScale,
  /// Quantized scales, stored beside their code book and the scales of their
  /// blocks (double quantization of bitsandbytes).
  NestedScales,
  /// Values that the middle code stands for, one per group, stored beside the
  /// scales. The minimum is 8 times the scale less the value.
  MiddleValues,
  /// Values that code 0 of unsigned bytes stands for, stored beside the scales.
  /// The minimum of signed bytes is the value and 128 times the scale,
  /// negative.
  LeastValues,
  // Nothing is copied; an unexpected value is refused.
  Shape,         ///< two integers: rows and columns of the matrix
  GroupOfColumn, ///< group index of each column, ascending
  ColumnOrder,   ///< group index of each column, in any order: a permutation
  MiddleZeros,   ///< zero points, all half the element range
  Zeros,         ///< each element is 0
  NF4Numbers,    ///< the nf4 code book
  NF4State,      ///< bitsandbytes JSON: type, blocks, matrix shape
  Unused,        ///< ignored
};
/// Whether nothing of such a tensor is copied into the layer.
inline bool isBeside(PartUse use) { return use >= PartUse::Shape; }

struct StoredMatrix;

/// One tensor of a checkpoint and its destination in a tensor of the layer.
struct CheckpointPart {
  /// Name inside the MoE block; the checkpoint's name ends in a dot and this
  /// name. `{e}` is the global id of an expert: there is one such tensor for
  /// each local expert, without the expert dimension.
  std::string name;
  /// Row i is copied to row `firstRow + i * rowStride` of the destination. Rows
  /// are the second to last dimension of a matrix, the last of a bias.
  int64_t firstRow = 0;
  int64_t rowStride = 1;
  /// Number of rows; fewer than the destination's if gate and up are separate.
  int64_t numRows = 0;
  /// The last two dimensions are swapped in the checkpoint.
  bool transposed = false;
  /// The last two dimensions may have either order, since models publish the
  /// same name in both; the file's shapes decide.
  bool maybeTransposed = false;
  /// All experts are stacked in one matrix: E x R x C is stored as E * R rows
  /// of C (E * C rows of R if transposed).
  bool flattened = false;
  /// A tensor of all experts may have those of a range of ids only; 0: all.
  int64_t firstExpert = 0, numExperts = 0;
  /// The tensor has one element, the value of all rows.
  bool isSplat = false;
  /// All rows are stored in a single dimension.
  bool isFlat = false;
  /// The matrix may be stored in tiles of 128 x 4, the order in which tensor
  /// cores of sm_100a read scales; the file's shape tells.
  bool maybeTiled = false;
  PartUse use = PartUse::Values;
  ElementPacking packing;
  BlockPacking blocks;
  /// The checkpoint may lack it.
  bool isOptional = false;
  /// Columns per group, for `GroupOfColumn`, `ColumnOrder` and `NF4State`; 0
  /// means one group.
  int64_t groupColumns = 0;
  /// Ids of the experts that have the tensor; empty for all.
  std::vector<int64_t> onlyExperts;
  /// The quantized matrix that is dequantized into this part; the tensor holds
  /// its elements. Null for a tensor that is stored as in the layer.
  std::shared_ptr<const StoredMatrix> matrix;
  /// The columns of a matrix that the part fills; 0: all.
  int64_t firstColumn = 0, numColumns = 0;
  /// Multiplies each value, which is rounded again.
  double factor = 1.0;
  /// Neighbouring experts with one tensor, which is numbered by their group, or
  /// with one matrix of a tensor of all.
  int64_t expertsPerTensor = 1;
  /// Number of the tensor of expert 0.
  int64_t firstNumber = 0;
  /// The part is one of several pieces of the tensor, which follow one another.
  int64_t piece = 0, numPieces = 1;

  /// Whether there is one tensor per expert.
  bool isPerExpert() const;
  /// The name for one expert.
  std::string getName(int64_t expert) const;
  /// Whether the tensor named `fileName` in a file is this one.
  bool matches(llvm::StringRef fileName, int64_t expert) const;
  /// Whether an expert has the tensor.
  bool isOf(int64_t expert) const;
  /// Columns of the part in a matrix of `columns`.
  int64_t countColumns(int64_t columns) const {
    return numColumns ? numColumns : columns;
  }
  /// Whether a tensor of all experts, or of a range, has this one.
  bool hasExpert(int64_t expert) const {
    return numExperts == 0 ||
           (expert >= firstExpert && expert < firstExpert + numExperts);
  }
};

/// One checkpoint layout of a tensor: the parts that fill it together.
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
  /// Alternatives to the canonical name; may be empty. Dimensions of size 1 may
  /// be added or left out.
  std::vector<CheckpointForm> checkpointForms;
  /// The layout in a GGUF file: at most one.
  std::vector<CheckpointForm> ggufForms;
};

/// Quantized matrices of the experts, which the layer stores in its dtype.
struct StoredMatrix {
  OperandQuantization quantization;
  /// The name of the tensor with the values of the codes, with `{e}` as in
  /// CheckpointPart; empty if the type of the elements says them.
  std::string table;
  /// The module and the form of a matrix that the loader decodes by itself:
  /// `tensors` has the elements' shape alone, and the names of all tensors.
  std::string module;
  Packing packing = Packing::Unstated;
  int64_t storedBits = 0;
  std::string storedBlocks = {};
  /// E x rows x K for the elements, named "". Then the other tensors by the
  /// suffixes of the layer's: "_scale", "_zero_point", "_global_scale". Each
  /// has one form.
  std::vector<TensorInfo> tensors;
};

/// The tensors of a quantized weight of this shape: elements, scales and any
/// others of its format. `hasHalves`: gate and up rows have separate scales.
std::vector<TensorInfo>
getQuantizedTensors(const OperandQuantization &quantization,
                    llvm::StringRef name, std::vector<int64_t> shape,
                    bool hasHalves);

/// The tensors of a layer in the order of docs/use/layers.md; `output` and
/// recorded routing are last. A quantized weight is followed by its scales
/// (`experts.w13_scale`) and by the gemm's input scale, if it is given
/// (`experts.w13_input_scale`).
std::vector<TensorInfo> getTensorSignature(const LayerSpec &spec);

/// Whether a tensor is the column order of a gate and up gemm.
inline bool isColumnOrder(llvm::StringRef tensor) {
  return tensor.ends_with("experts.w13_columns");
}

/// An i32 weight that is computed from the layer's description.
struct NamedTable {
  std::string name;
  std::vector<int32_t> values;
};

} // namespace moec

#endif // MOEC_IMPORT_TENSORSIGNATURE_H
