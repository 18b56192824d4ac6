//===- TensorCopy.cpp - copies through tensor maps --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"
#include "moec/PtxConform/Number.h"

namespace moec::conform {

namespace {

using moert::DType;

constexpr int64_t kThreads = 128;

/// A tensor, and the box that one CTA copies.
struct Shape {
  DType dtype;
  /// Innermost dimension last.
  std::vector<int64_t> sizes, box;
  int64_t swizzle;
  /// Padding bytes between rows.
  int64_t padding = 0;
};

int64_t product(const std::vector<int64_t> &values) {
  int64_t result = 1;
  for (int64_t value : values)
    result *= value;
  return result;
}

class Tensor {
public:
  explicit Tensor(const Shape &shape) : shape(shape) {
    int64_t bytes = elementBytes() * shape.sizes.back() + shape.padding;
    for (size_t i = shape.sizes.size() - 1; i-- > 0;) {
      strides.insert(strides.begin(), bytes);
      bytes *= shape.sizes[i];
    }
    totalBytes = bytes;
  }

  size_t rank() const { return shape.sizes.size(); }
  int64_t elementBytes() const { return moert::dtypeBits(shape.dtype) / 8; }
  int64_t boxBytes() const { return product(shape.box) * elementBytes(); }
  int64_t bytes() const { return totalBytes; }

  /// Byte offset of an element, with indices innermost first; -1 outside of the
  /// tensor.
  int64_t byteAt(const std::vector<int64_t> &indices) const {
    int64_t byte = 0;
    for (size_t i = 0; i < rank(); ++i) {
      size_t dimension = rank() - 1 - i;
      if (indices[i] < 0 || indices[i] >= shape.sizes[dimension])
        return -1;
      byte += indices[i] * (i == 0 ? elementBytes() : strides[dimension]);
    }
    return byte;
  }

  /// Calls `fn(global, shared)` with the byte offsets of each element of a box
  /// at `start`; `global` is -1 outside of the tensor.
  template <typename Fn>
  void forEachElement(const std::vector<int64_t> &start, Fn &&fn) const {
    std::vector<int64_t> at(rank());
    for (int64_t i = 0; i < product(shape.box); ++i) {
      int64_t rest = i;
      for (size_t d = 0; d < rank(); ++d) {
        int64_t box = shape.box[rank() - 1 - d];
        at[d] = start[d] + rest % box;
        rest /= box;
      }
      fn(byteAt(at), swizzled(i * elementBytes()));
    }
  }

  TensorMapSpec map(unsigned buffer) const {
    return {buffer,  shape.dtype, shape.sizes,
            strides, shape.box,   shape.swizzle};
  }

  /// Formats as "2d 64x32 of 300x70, 128-byte swizzle, bf16".
  std::string describe() const {
    auto times = [](const std::vector<int64_t> &values) {
      std::string text;
      for (size_t i = 0; i < values.size(); ++i)
        text += (i ? "x" : "") + std::to_string(values[i]);
      return text;
    };
    return times(shape.box) + " of " + times(shape.sizes) + ", " +
           moert::dtypeName(shape.dtype) +
           (shape.swizzle
                ? ", " + std::to_string(shape.swizzle) + "-byte swizzle"
                : "") +
           (shape.padding ? ", padded rows" : "");
  }

private:
  /// Swizzling permutes 16-byte chunks within 8, 4 or 2 times 128 bytes.
  int64_t swizzled(int64_t byte) const {
    int64_t mask = shape.swizzle == 128 ? 7 : shape.swizzle == 64 ? 3 : 1;
    return shape.swizzle ? byte ^ (byte >> 7 & mask) << 4 : byte;
  }

  const Shape shape;
  std::vector<int64_t> strides;
  int64_t totalBytes = 0;
};

/// Loads a CTA's coordinates, one 32-bit number per dimension, innermost first,
/// into %t8 and on.
std::string coordinates(size_t rank, unsigned param) {
  std::string text = "\tld.param.b64 %u0, [b" + std::to_string(param) +
                     "];\n\tmad.wide.u32 %u0, %cta, " +
                     std::to_string(4 * rank) + ", %u0;\n";
  for (size_t i = 0; i < rank; ++i)
    text += "\tld.global.b32 %t" + std::to_string(8 + i) + ", [%u0+" +
            std::to_string(4 * i) + "];\n";
  return text;
}

std::string place(size_t rank) {
  std::string text = "[%map, {";
  for (size_t i = 0; i < rank; ++i)
    text += (i ? ", %t" : "%t") + std::to_string(8 + i);
  return text + "}]";
}

/// Copies the first `bytes` of the CTA's shared memory from or to a buffer.
std::string copyBox(unsigned param, int64_t bytes, bool isLoad) {
  std::string total = std::to_string(bytes);
  std::string text = "\tld.param.b64 %u0, [b" + std::to_string(param) +
                     "];\n\tmad.wide.u32 %u0, %cta, " + total +
                     ", %u0;\n"
                     "\tshl.b32 %t0, %thread, 2;\n"
                     "copy:\n"
                     "\tsetp.ge.u32 %p0, %t0, " +
                     total +
                     ";\n"
                     "\t@%p0 bra copied;\n"
                     "\tcvt.u64.u32 %u1, %t0;\n"
                     "\tadd.s64 %u1, %u1, %u0;\n"
                     "\tadd.s32 %t1, %t0, %smem;\n";
  text += isLoad ? "\tld.global.b32 %t2, [%u1];\n\tst.shared.b32 [%t1], %t2;\n"
                 : "\tld.shared.b32 %t2, [%t1];\n\tst.global.b32 [%u1], %t2;\n";
  return text + "\tadd.s32 %t0, %t0, 512;\n\tbra.uni copy;\ncopied:\n";
}

std::string kernel(const std::string &body) {
  return moduleHead(1) +
         ".visible .entry conform(\n"
         "\t.param .u64 .ptr .global .align 16 b0,\n"
         "\t.param .u64 .ptr .global .align 16 b1,\n"
         "\t.param .u64 .ptr .global .align 16 b2,\n"
         "\t.param .align 64 .b8 map0[128]\n"
         ")\n.reqntid 128\n{\n"
         "\t.reg .pred %p<4>;\n"
         "\t.reg .b32 %t<16>, %thread, %cta, %smem;\n"
         "\t.reg .b64 %u<8>, %map;\n"
         "\tmov.u32 %thread, %tid.x;\n"
         "\tmov.u32 %cta, %ctaid.x;\n"
         "\tmov.b32 %smem, smem;\n"
         "\tmov.b64 %map, map0;\n"
         "\tcvta.param.u64 %map, %map;\n" +
         body + "\tret;\n}\n";
}

Form &addForm(Forms &forms, const std::string &name, const Tensor &tensor,
              int64_t grid, const std::string &note) {
  forms.emplace_back();
  Form &form = forms.back();
  form.name = name + " [" + tensor.describe() + note + "]";
  form.family = "tensor copy";
  form.grid = grid;
  form.block = kThreads;
  form.elements = grid * tensor.boxBytes() / tensor.elementBytes();
  form.maps = {tensor.map(0)};
  form.rule = Rule::Bound;
  form.unit = "bytes that differ";
  return form;
}

Bytes randomBytes(Random &random, size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<uint8_t>(random.bits() >> 17);
  return bytes;
}

std::vector<int64_t> startOf(const Bytes &coordinates, int64_t cta,
                             size_t rank) {
  std::vector<int64_t> start;
  for (size_t i = 0; i < rank; ++i)
    start.push_back(load<int32_t>(coordinates, cta * rank + i));
  return start;
}

/// Compares exactly: results are known to the last bit.
Verdict compareBytes(const Bytes &expected, const Bytes &got) {
  Verdict verdict;
  for (size_t i = 0; i < expected.size() && verdict.failure.empty(); ++i)
    if (expected[i] != got[i])
      verdict.failure = "byte " + std::to_string(i) + " is " +
                        std::to_string(got[i]) + ", " +
                        std::to_string(expected[i]) + " expected";
  return verdict;
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

constexpr int64_t kLoadGrid = 12;

/// Position of a load's boxes.
enum class Where : uint8_t { Inside, OverEdges, Outside };

int64_t drawStart(Where where, int64_t size, int64_t box, Random &random) {
  switch (where) {
  case Where::Inside:
    return random.between(0, std::max<int64_t>(0, size - box));
  case Where::OverEdges:
    return random.below(2)
               ? random.between(1 - box, 0)
               : random.between(std::max<int64_t>(0, size - box), size - 1);
  case Where::Outside:
    return random.below(2) ? random.between(-2 * box, -box)
                           : random.between(size, size + box);
  }
  return 0;
}

std::string loadKernel(const std::string &instruction, const Tensor &tensor) {
  std::string barrier = std::to_string((tensor.boxBytes() + 7) / 8 * 8);
  return kernel("\tadd.s32 %t7, %smem, " + barrier +
                ";\n"
                "\tsetp.ne.b32 %p1, %thread, 0;\n"
                "\t@%p1 bra made;\n"
                "\tprefetch.tensormap [%map];\n"
                "\tmbarrier.init.shared.b64 [%t7], 1;\n"
                "\tfence.mbarrier_init.release.cluster;\n"
                "\tfence.proxy.async.shared::cta;\n"
                "made:\n"
                "\tbar.sync 0;\n"
                "\t@%p1 bra wait;\n" +
                coordinates(tensor.rank(), 1) +
                "\tmbarrier.arrive.expect_tx.shared.b64 %u1, [%t7], " +
                std::to_string(tensor.boxBytes()) + ";\n\t" + instruction +
                " [%smem], " + place(tensor.rank()) +
                ", [%t7];\n"
                "wait:\n"
                "\tmbarrier.try_wait.parity.shared.b64 %p2, [%t7], 0;\n"
                "\t@!%p2 bra wait;\n" +
                copyBox(2, tensor.boxBytes(), /*isLoad=*/false));
}

void addLoad(Forms &forms, const std::string &instruction, const Shape &shape,
             Where where) {
  Tensor tensor(shape);
  const char *note = where == Where::Inside      ? ""
                     : where == Where::OverEdges ? ", over edges"
                                                 : ", outside";
  Form &form = addForm(forms, instruction, tensor, kLoadGrid, note);
  form.ptx = loadKernel(instruction, tensor);
  form.shared = (tensor.boxBytes() + 7) / 8 * 8 + 8;
  size_t rank = tensor.rank();
  form.buffers = {
      {static_cast<size_t>(tensor.bytes()), false, Format::None},
      {kLoadGrid * rank * 4, false, Format::None},
      {static_cast<size_t>(kLoadGrid * tensor.boxBytes()), true, Format::None}};
  form.fill = [shape, rank, where, step = 16 / tensor.elementBytes(),
               name = form.name, sizes = form.buffers](uint64_t seed) {
    Random random(formSeed(name, seed));
    Buffers buffers = {randomBytes(random, sizes[0].bytes),
                       Bytes(sizes[1].bytes), Bytes(sizes[2].bytes, 0xa5)};
    for (int64_t cta = 0; cta < kLoadGrid; ++cta) {
      // One dimension is enough to be outside.
      size_t chosen = random.below(rank);
      for (size_t i = 0; i < rank; ++i) {
        int64_t at = drawStart(
            where != Where::Outside || i == chosen ? where : Where::OverEdges,
            shape.sizes[rank - 1 - i], shape.box[rank - 1 - i], random);
        // A row has to start at a multiple of 16 bytes, or the instruction is
        // illegal.
        if (i == 0)
          at &= -step;
        store<int32_t>(buffers[1], cta * rank + i, static_cast<int32_t>(at));
      }
    }
    return buffers;
  };
  form.judge = [tensor](const Buffers &before, const Buffers &after) {
    Bytes expected(after[2].size());
    for (int64_t cta = 0; cta < kLoadGrid; ++cta)
      tensor.forEachElement(startOf(before[1], cta, tensor.rank()),
                            [&](int64_t global, int64_t shared) {
                              if (global >= 0)
                                std::memcpy(
                                    &expected[cta * tensor.boxBytes() + shared],
                                    &before[0][global], tensor.elementBytes());
                            });
    return compareBytes(expected, after[2]);
  };
}

//===----------------------------------------------------------------------===//
// Stores and reductions
//===----------------------------------------------------------------------===//

/// Number of adjacent boxes that cover a dimension; the last may reach over the
/// upper edge. (A store may not start below the lower edge.)
int64_t tilesOf(const Shape &shape, size_t dimension) {
  return (shape.sizes[dimension] + shape.box[dimension] - 1) /
         shape.box[dimension];
}

uint32_t reduced(const std::string &operation, uint32_t was, uint32_t with) {
  if (operation == "add")
    return was + with;
  if (operation == "min")
    return std::min(was, with);
  if (operation == "max")
    return std::max(was, with);
  if (operation == "inc")
    return was >= with ? 0 : was + 1;
  if (operation == "dec")
    return was == 0 || was > with ? with : was - 1;
  if (operation == "and")
    return was & with;
  return operation == "or" ? was | with : was ^ with;
}

/// The element after `operation`, or after a store if that is empty.
uint32_t combined(const std::string &operation, Format format, uint32_t was,
                  uint32_t with) {
  if (operation.empty())
    return with;
  if (format == Format::None)
    return reduced(operation, was, with);
  double a = decode(format, was), b = decode(format, with);
  // Double has more than 2p + 2 digits, so double rounding is harmless.
  return operation == "add" ? encode(format, a + b) : a < b ? was : with;
}

std::string storeKernel(const std::string &instruction, const Tensor &tensor) {
  return kernel(copyBox(1, tensor.boxBytes(), /*isLoad=*/true) +
                "\tfence.proxy.async.shared::cta;\n"
                "\tbar.sync 0;\n"
                "\tsetp.ne.b32 %p1, %thread, 0;\n"
                "\t@%p1 bra done;\n" +
                coordinates(tensor.rank(), 2) + "\t" + instruction + " " +
                place(tensor.rank()) +
                ", [%smem];\n"
                "\tcp.async.bulk.commit_group;\n"
                "\tcp.async.bulk.wait_group 0;\n"
                "done:\n");
}

/// `operation` is a reduction: bitwise on words, or min and add of `format`.
void addStore(Forms &forms, const std::string &instruction, const Shape &shape,
              const std::string &operation = "", Format format = Format::None) {
  Tensor tensor(shape);
  int64_t grid = 1;
  for (size_t i = 0; i < tensor.rank(); ++i)
    grid *= tilesOf(shape, i);
  Form &form = addForm(forms, instruction, tensor, grid, "");
  form.ptx = storeKernel(instruction, tensor);
  form.shared = tensor.boxBytes();
  size_t rank = tensor.rank();
  form.buffers = {
      {static_cast<size_t>(tensor.bytes()), true, format},
      {static_cast<size_t>(grid * tensor.boxBytes()), false, Format::None},
      {grid * rank * 4, false, Format::None}};
  form.fill = [shape, rank, grid, format, name = form.name,
               sizes = form.buffers](uint64_t seed) {
    Random random(formSeed(name, seed));
    Buffers buffers = {randomBytes(random, sizes[0].bytes),
                       randomBytes(random, sizes[1].bytes),
                       Bytes(sizes[2].bytes)};
    if (format != Format::None)
      for (size_t which : {0, 1}) {
        unsigned width = formatWidth(format) / 8;
        for (size_t i = 0; i < sizes[which].bytes / width; ++i) {
          uint32_t number = encode(format, random.normal());
          std::memcpy(buffers[which].data() + i * width, &number, width);
        }
      }
    for (int64_t cta = 0; cta < grid; ++cta) {
      int64_t rest = cta;
      for (size_t i = 0; i < rank; ++i) {
        int64_t tiles = tilesOf(shape, rank - 1 - i);
        store<int32_t>(
            buffers[2], cta * rank + i,
            static_cast<int32_t>(rest % tiles * shape.box[rank - 1 - i]));
        rest /= tiles;
      }
    }
    return buffers;
  };
  form.judge = [=](const Buffers &before, const Buffers &after) {
    Bytes expected = before[0];
    int64_t bytes = tensor.elementBytes();
    for (int64_t cta = 0; cta < grid; ++cta)
      tensor.forEachElement(startOf(before[2], cta, rank), [&](int64_t global,
                                                               int64_t shared) {
        if (global < 0)
          return;
        uint32_t was = 0, with = 0;
        std::memcpy(&was, &expected[global], bytes);
        std::memcpy(&with, &before[1][cta * tensor.boxBytes() + shared], bytes);
        with = combined(operation, format, was, with);
        std::memcpy(&expected[global], &with, bytes);
      });
    return compareBytes(expected, after[0]);
  };
}

} // namespace

void addTensorCopy(Forms &forms) {
  const DType bf16 = DType::BF16, u8 = DType::U8, f32 = DType::F32;
  const std::vector<Shape> shapes = {
      {bf16, {1000}, {256}, 0},
      {f32, {77}, {64}, 0},
      {bf16, {70, 200}, {64, 64}, 128},
      {bf16, {70, 200}, {64, 32}, 64},
      {bf16, {70, 200}, {16, 16}, 32},
      {bf16, {70, 200}, {33, 40}, 0},
      {bf16, {70, 200}, {64, 64}, 128, 32},
      {bf16, {90, 64}, {256, 64}, 128},
      {u8, {70, 304}, {32, 128}, 128},
      {DType::F8E4M3, {70, 304}, {32, 128}, 128},
      {f32, {70, 100}, {32, 32}, 128},
      {DType::I32, {70, 100}, {8, 16}, 64},
      {bf16, {5, 70, 96}, {1, 64, 64}, 128},
      {bf16, {5, 70, 96}, {2, 16, 32}, 64},
      {DType::F16, {5, 70, 96}, {3, 5, 24}, 0},
      {bf16, {3, 2, 40, 96}, {1, 2, 32, 64}, 128},
      {bf16, {3, 2, 40, 96}, {2, 2, 8, 16}, 32},
      {bf16, {3, 4, 2, 20, 96}, {1, 2, 2, 16, 64}, 128},
      {u8, {3, 4, 2, 20, 96}, {2, 2, 2, 4, 16}, 0},
  };
  auto rankOf = [](const Shape &shape) {
    return std::to_string(shape.sizes.size()) + "d";
  };
  for (const Shape &shape : shapes) {
    for (Where where : {Where::Inside, Where::OverEdges})
      addLoad(forms,
              "cp.async.bulk.tensor." + rankOf(shape) +
                  ".shared::cluster.global.tile.mbarrier::complete_tx::bytes",
              shape, where);
    addStore(forms,
             "cp.async.bulk.tensor." + rankOf(shape) +
                 ".global.shared::cta.tile.bulk_group",
             shape);
  }
  const std::string load2d = "cp.async.bulk.tensor.2d.shared::";
  const std::string bytes = "mbarrier::complete_tx::bytes";
  addLoad(forms, load2d + "cluster.global.tile." + bytes, shapes[2],
          Where::Outside);
  addLoad(forms, load2d + "cta.global.tile." + bytes, shapes[2], Where::Inside);
  addLoad(forms, load2d + "cluster.global." + bytes, shapes[2], Where::Inside);
  const Shape floats = {f32, {70, 100}, {32, 32}, 128};
  const std::string head = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.";
  addStore(forms, head + "add.tile.bulk_group", floats, "add", Format::F32);
  addStore(forms, head + "add.tile.bulk_group", shapes[2], "add", Format::BF16);
  addStore(forms, head + "min.tile.bulk_group", shapes[2], "min", Format::BF16);
  const Shape words = {DType::U32, {70, 100}, {32, 32}, 128};
  for (const char *operation :
       {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
    addStore(forms, head + operation + ".tile.bulk_group", words, operation);
}

} // namespace moec::conform
