//===- Wgmma.cpp - wgmma.mma_async ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Matrix.h"
#include "Forms.h"
#include "moec/PtxConform/Number.h"

namespace moec::conform {

namespace {

constexpr unsigned kTiles = 4;
constexpr unsigned kThreads = 128;
constexpr unsigned kRegistersA = 4;

/// Layout of an operand in shared memory.
struct Layout {
  /// Bytes of a swizzled row: 128, 64, 32, or 0 without swizzle.
  unsigned swizzle = 128;
  /// M (of A) or N (of B) is the contiguous dimension instead of K.
  bool isTransposed = false;
  /// Index of the 32-byte slice along K that the instruction uses.
  unsigned slice = 0;
};

struct Row {
  std::string types;
  Product product;
  Layout layoutA, layoutB;
  bool isAInRegisters = false;
  Values values = Values::Integers;
  std::string note;
};

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

unsigned swizzled(unsigned address, unsigned swizzle) {
  switch (swizzle) {
  case 128:
    return address ^ (address >> 7 & 7) << 4;
  case 64:
    return address ^ (address >> 7 & 3) << 4;
  case 32:
    return address ^ (address >> 7 & 1) << 4;
  default:
    return address;
  }
}

/// Image in shared memory of an operand with `rows` rows (of A, or columns of
/// B) and K = `k`.
class Image {
public:
  Image(const Layout &layout, unsigned rows, unsigned k, unsigned width)
      : layout(layout), rows(rows), k(k), width(width / 8) {}

  unsigned bytes() const {
    unsigned size = 0;
    if (layout.isTransposed)
      size = strideOfRows() * ceilDiv(rows, 64);
    else if (layout.swizzle == 0)
      size = rows / 8 * 256;
    else
      size = rows * layout.swizzle;
    return (size + 1023) / 1024 * 1024;
  }

  unsigned offset(unsigned row, unsigned depth) const {
    if (layout.isTransposed) {
      unsigned at = row / 64 * strideOfRows() + depth / 8 * 1024 +
                    depth % 8 * 128 + row % 64 * width;
      return swizzled(at, 128);
    }
    unsigned byte = depth * width;
    if (layout.swizzle == 0)
      return row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
    return swizzled(row * layout.swizzle + layout.slice * 32 + byte,
                    layout.swizzle);
  }

  /// The descriptor without the address.
  uint64_t descriptor() const {
    uint64_t leading = 1, stride = 0, kind = 0;
    if (layout.isTransposed) {
      leading = strideOfRows() / 16;
      stride = 1024 / 16;
      kind = 1;
    } else if (layout.swizzle == 0) {
      leading = 128 / 16;
      stride = 256 / 16;
    } else {
      stride = layout.swizzle * 8 / 16;
      kind = layout.swizzle == 128 ? 1 : layout.swizzle == 64 ? 2 : 3;
    }
    return leading << 16 | stride << 32 | kind << 62;
  }

  unsigned sliceOffset() const { return layout.slice * 32; }

private:
  static unsigned ceilDiv(unsigned a, unsigned b) { return (a + b - 1) / b; }
  /// Stride between groups of 64 contiguous rows, where rows are contiguous.
  unsigned strideOfRows() const { return k / 8 * 1024; }

  const Layout layout;
  const unsigned rows, k, width;
};

Image imageOfA(const Row &row) {
  return Image(row.layoutA, row.product.m, row.product.k,
               formatWidth(row.product.a));
}

Image imageOfB(const Row &row) {
  return Image(row.layoutB, row.product.n, row.product.k,
               formatWidth(row.product.b));
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

std::string range(const char *prefix, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::string(prefix) + std::to_string(i);
  return text + "}";
}

/// Copies an image to shared memory, 16 bytes per thread and iteration.
std::string copyImage(const char *label, unsigned param, unsigned bytes,
                      unsigned offset) {
  std::string at = std::string("copy") + label;
  return "\tld.param.b64 %u0, [b" + std::to_string(param) +
         "];\n"
         "\tmad.wide.u32 %u0, %cta, " +
         std::to_string(bytes) +
         ", %u0;\n"
         "\tmul.lo.s32 %t0, %thread, 16;\n" +
         at +
         ":\n"
         "\tsetp.ge.u32 %p0, %t0, " +
         std::to_string(bytes) + ";\n\t@%p0 bra " + at +
         "Done;\n"
         "\tcvt.u64.u32 %u1, %t0;\n"
         "\tadd.s64 %u1, %u1, %u0;\n"
         "\tld.global.v4.b32 {%t1, %t2, %t3, %t4}, [%u1];\n"
         "\tadd.s32 %t5, %t0, %smem;\n"
         "\tst.shared.v4.b32 [%t5+" +
         std::to_string(offset) +
         "], {%t1, %t2, %t3, %t4};\n"
         "\tadd.s32 %t0, %t0, 2048;\n"
         "\tbra.uni " +
         at + ";\n" + at + "Done:\n";
}

std::string descriptorText(const char *reg, const Image &image,
                           unsigned offset) {
  return "\tadd.s32 %t0, %smem, " +
         std::to_string(offset + image.sliceOffset()) +
         ";\n"
         "\tand.b32 %t0, %t0, 0x3ffff;\n"
         "\tshr.u32 %t0, %t0, 4;\n"
         "\tcvt.u64.u32 " +
         reg + ", %t0;\n\tor.b64 " + std::string(reg) + ", " + reg + ", " +
         std::to_string(static_cast<int64_t>(image.descriptor())) + ";\n";
}

/// Moves consecutive registers of a thread from or to the buffer `param`.
std::string moveRegisters(unsigned param, const char *prefix, unsigned count,
                          bool isLoad) {
  std::string text = "\tld.param.b64 %u0, [b" + std::to_string(param) +
                     "];\n"
                     "\tmad.lo.s32 %t0, %cta, 128, %thread;\n"
                     "\tmad.wide.u32 %u0, %t0, " +
                     std::to_string(4 * count) + ", %u0;\n";
  for (unsigned i = 0; i < count; ++i) {
    std::string reg = prefix + std::to_string(i);
    std::string place = "[%u0+" + std::to_string(4 * i) + "]";
    text += isLoad ? "\tld.global.b32 " + reg + ", " + place + ";\n"
                   : "\tst.global.b32 " + place + ", " + reg + ";\n";
  }
  return text;
}

std::string instruction(const Row &row) {
  const Product &product = row.product;
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(product.n) + "k" +
         std::to_string(product.k) + "." + row.types;
}

std::string kernel(const Row &row, unsigned bytesA, unsigned bytesB) {
  const Product &product = row.product;
  unsigned regs = product.registersD();
  std::string text = moduleHead(1) +
                     ".visible .entry conform(\n"
                     "\t.param .u64 .ptr .global .align 16 b0,\n"
                     "\t.param .u64 .ptr .global .align 16 b1,\n"
                     "\t.param .u64 .ptr .global .align 16 b2,\n"
                     "\t.param .u64 .ptr .global .align 16 b3\n"
                     ")\n.reqntid 128\n.minnctapersm 1\n{\n"
                     "\t.reg .pred %p<2>;\n"
                     "\t.reg .b32 %t<8>, %thread, %cta, %smem, %a<4>, %d<" +
                     std::to_string(regs) +
                     ">;\n"
                     "\t.reg .b64 %u<4>;\n"
                     "\tmov.u32 %thread, %tid.x;\n"
                     "\tmov.u32 %cta, %ctaid.x;\n"
                     "\tmov.b32 %smem, smem;\n";
  unsigned offsetB = row.isAInRegisters ? 0 : bytesA;
  if (row.isAInRegisters)
    text += moveRegisters(0, "%a", kRegistersA, /*isLoad=*/true);
  else
    text += copyImage("A", 0, bytesA, 0);
  text += copyImage("B", 1, bytesB, offsetB);
  text += "\tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n";
  text += moveRegisters(2, "%d", regs, /*isLoad=*/true);
  if (!row.isAInRegisters)
    text += descriptorText("%u2", imageOfA(row), 0);
  text += descriptorText("%u3", imageOfB(row), offsetB);
  text += std::string("\tsetp.ne.b32 %p1, ") + (product.ignoresC ? "0" : "1") +
          ", 0;\n"
          "\twgmma.fence.sync.aligned;\n\t" +
          instruction(row) + " " + range("%d", regs) + ", " +
          (row.isAInRegisters ? range("%a", kRegistersA) : "%u2") +
          ", %u3, %p1";
  if (product.a != Format::S8) {
    text += product.negatesA ? ", -1" : ", 1";
    text += product.negatesB ? ", -1" : ", 1";
  }
  if (formatWidth(product.a) == 16) {
    if (!row.isAInRegisters)
      text += row.layoutA.isTransposed ? ", 1" : ", 0";
    text += row.layoutB.isTransposed ? ", 1" : ", 0";
  }
  text += ";\n"
          "\twgmma.commit_group.sync.aligned;\n"
          "\twgmma.wait_group.sync.aligned 0;\n";
  text += moveRegisters(3, "%d", regs, /*isLoad=*/false);
  return text + "\tret;\n}\n";
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Byte offset of an element of A in one tile: in its image, or in registers.
size_t addressOfA(const Row &row, unsigned tile, size_t bytesA, unsigned at,
                  unsigned depth) {
  unsigned width = formatWidth(row.product.a) / 8;
  if (!row.isAInRegisters)
    return tile * bytesA + imageOfA(row).offset(at, depth);
  // The lane and register that hold the element.
  unsigned per = row.product.perRegister();
  unsigned inWarp = at % 16;
  unsigned lane = inWarp % 8 * 4 + depth / per % 4;
  unsigned reg = inWarp / 8 + depth / (4 * per) * 2;
  size_t thread = tile * kThreads + at / 16 * 32 + lane;
  return (thread * kRegistersA + reg) * 4 + depth % per * width;
}

uint32_t readNumber(const Bytes &bytes, size_t at, Format format) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, formatWidth(format) / 8);
  return value;
}

/// Index in D's (or C's) buffer of a matrix position.
size_t indexOfD(const Product &product, unsigned tile, unsigned row,
                unsigned column) {
  unsigned lane = row % 8 * 4 + column % 8 / 2;
  size_t thread = tile * kThreads + row / 16 * 32 + lane;
  unsigned numbers = product.m * product.n / kThreads;
  return thread * numbers + column / 8 * 4 + row / 8 % 2 * 2 + column % 2;
}

/// Calls `fn(which, row, column, byte)` for every element of a tile.
template <typename Fn>
void forEachNumber(const Row &row, size_t bytesA, size_t bytesB, unsigned tile,
                   Fn &&fn) {
  const Product &product = row.product;
  Image b = imageOfB(row);
  for (unsigned depth = 0; depth < product.k; ++depth) {
    for (unsigned at = 0; at < product.m; ++at)
      fn(0, at, depth, addressOfA(row, tile, bytesA, at, depth));
    for (unsigned at = 0; at < product.n; ++at)
      fn(1, depth, at, tile * bytesB + b.offset(at, depth));
  }
  for (unsigned at = 0; at < product.m; ++at)
    for (unsigned column = 0; column < product.n; ++column)
      fn(2, at, column,
         indexOfD(product, tile, at, column) * formatWidth(product.d) / 8);
}

void addRow(Forms &forms, const Row &row) {
  const Product &product = row.product;
  size_t bytesA =
      row.isAInRegisters ? kThreads * kRegistersA * 4 : imageOfA(row).bytes();
  size_t bytesB = imageOfB(row).bytes();
  size_t bytesD = size_t(product.m) * product.n * formatWidth(product.d) / 8;
  forms.emplace_back();
  Form &form = forms.back();
  form.name = instruction(row) + " [" + row.note +
              (row.note.empty() ? "" : ", ") + valuesName(row.values) + "]";
  form.family = "wgmma";
  form.ptx = kernel(row, bytesA, bytesB);
  form.grid = kTiles;
  form.block = kThreads;
  form.shared = (row.isAInRegisters ? 0 : bytesA) + bytesB;
  form.elements = kTiles * product.m * product.n;
  form.buffers = {{kTiles * bytesA, false, Format::None},
                  {kTiles * bytesB, false, Format::None},
                  {kTiles * bytesD, false, Format::None},
                  {kTiles * bytesD, true, product.d}};
  form.rule = Rule::Bound;
  form.unit = "relative to the terms";
  form.bound = productBound(product, row.values);
  std::vector<size_t> sizes;
  for (const BufferSpec &buffer : form.buffers)
    sizes.push_back(buffer.bytes);
  form.fill = [=, label = form.name](uint64_t seed) {
    Random random(formSeed(label, seed));
    Buffers buffers;
    for (size_t size : sizes)
      buffers.emplace_back(size, 0xa5);
    for (unsigned i = 0; i < kTiles; ++i) {
      Tile tile = drawTile(product, row.values, random);
      const std::vector<uint32_t> *numbers[] = {&tile.a, &tile.b, &tile.c};
      const unsigned columns[] = {product.k, product.n, product.n};
      const Format formats[] = {product.a, product.b, product.d};
      forEachNumber(row, bytesA, bytesB, i,
                    [&](int which, unsigned at, unsigned column, size_t byte) {
                      uint32_t number =
                          (*numbers[which])[at * columns[which] + column];
                      std::memcpy(buffers[which].data() + byte, &number,
                                  formatWidth(formats[which]) / 8);
                    });
    }
    return buffers;
  };
  form.judge = [=](const Buffers &before, const Buffers &after) {
    Verdict verdict;
    for (unsigned i = 0; i < kTiles; ++i) {
      Tile tile;
      tile.a.resize(product.m * product.k);
      tile.b.resize(product.k * product.n);
      tile.c.resize(product.m * product.n);
      std::vector<uint32_t> d(product.m * product.n);
      forEachNumber(row, bytesA, bytesB, i,
                    [&](int which, unsigned at, unsigned column, size_t byte) {
                      if (which == 0)
                        tile.a[at * product.k + column] =
                            readNumber(before[0], byte, product.a);
                      else if (which == 1)
                        tile.b[at * product.n + column] =
                            readNumber(before[1], byte, product.b);
                      else {
                        tile.c[at * product.n + column] =
                            readNumber(before[2], byte, product.d);
                        d[at * product.n + column] =
                            readNumber(after[3], byte, product.d);
                      }
                    });
      judgeTile(product, tile, d, verdict);
    }
    return verdict;
  };
}

Product product(Format type, Format d, unsigned n, unsigned k) {
  Product made;
  made.a = made.b = type;
  made.d = d;
  made.m = 64;
  made.n = n;
  made.k = k;
  return made;
}

/// Adds variants other than the number of columns, for one type.
void addVariants(Forms &forms, const Row &plain) {
  for (unsigned swizzle : {64u, 32u, 0u}) {
    Row row = plain;
    row.layoutA.swizzle = row.layoutB.swizzle = swizzle;
    row.note =
        swizzle ? std::to_string(swizzle) + "-byte swizzle" : "no swizzle";
    addRow(forms, row);
  }
  for (unsigned slice : {1u, 2u, 3u}) {
    Row row = plain;
    row.layoutA.slice = slice;
    row.layoutB.slice = 3 - slice;
    row.note =
        "slices " + std::to_string(slice) + " and " + std::to_string(3 - slice);
    addRow(forms, row);
  }
  Row registers = plain;
  registers.isAInRegisters = true;
  registers.note = "A in registers";
  addRow(forms, registers);
  Row fresh = plain;
  fresh.product.ignoresC = true;
  fresh.note = "scale-d 0";
  addRow(forms, fresh);
  if (plain.product.a == Format::S8)
    return;
  Row negated = plain;
  negated.product.negatesA = true;
  negated.note = "A negated";
  addRow(forms, negated);
  negated.product.negatesB = true;
  negated.note = "both negated";
  addRow(forms, negated);
  if (formatWidth(plain.product.a) != 16)
    return;
  Row transposed = plain;
  transposed.layoutB.isTransposed = true;
  transposed.note = "B in rows";
  addRow(forms, transposed);
  transposed.layoutB.isTransposed = false;
  transposed.layoutA.isTransposed = true;
  transposed.note = "A in columns";
  addRow(forms, transposed);
}

} // namespace

void addWgmma(Forms &forms) {
  const std::pair<const char *, Product> types[] = {
      {"f32.bf16.bf16", product(Format::BF16, Format::F32, 64, 16)},
      {"f32.f16.f16", product(Format::F16, Format::F32, 64, 16)},
      {"f32.e4m3.e4m3", product(Format::E4M3, Format::F32, 64, 32)},
      {"f32.e5m2.e5m2", product(Format::E5M2, Format::F32, 64, 32)},
      {"f32.tf32.tf32", product(Format::TF32, Format::F32, 64, 8)},
      {"f16.f16.f16", product(Format::F16, Format::F16, 64, 16)},
      {"s32.s8.s8", product(Format::S8, Format::S32, 64, 32)},
  };
  for (const auto &[name, about] : types) {
    Row row;
    row.types = name;
    row.product = about;
    bool isEmitted = about.a == Format::BF16 || about.a == Format::E4M3 ||
                     about.a == Format::S8 ||
                     (about.a == Format::F16 && about.d == Format::F32);
    // Beyond 24, integer MMAs need a multiple of 16 columns.
    auto exists = [&about = about](unsigned n) {
      return about.a != Format::S8 || n <= 24 || n % 16 == 0;
    };
    if (isEmitted)
      for (unsigned n = 8; n <= 256; n += 8) {
        if (!exists(n))
          continue;
        row.product.n = n;
        addRow(forms, row);
      }
    row.product.n = 64;
    if (!isEmitted)
      addRow(forms, row);
    addVariants(forms, row);
    if (about.a == Format::S8)
      continue;
    for (Values values :
         {Values::Special, Values::Normal, Values::Wide, Values::Tiny}) {
      row.values = values;
      addRow(forms, row);
    }
  }
}

} // namespace moec::conform
