//===- Mma.cpp - mma.sync ---------------------------------------*- C++ -*-===//
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

constexpr unsigned kTiles = 64;
constexpr unsigned kLanes = 32;

struct Row {
  const char *shape;
  const char *types;
  Product product;
};

/// Stores `number` as element `part` of the lane's 32-bit register `reg`.
void place(Bytes &fragments, size_t reg, Format format, unsigned part,
           uint32_t number) {
  unsigned width = formatWidth(format);
  uint32_t value = load<uint32_t>(fragments, reg);
  store<uint32_t>(fragments, reg, value | number << (part * width));
}

/// The tiles of a launch; drawn again where needed, with the same values.
std::vector<Tile> drawTiles(const Product &product, Values values,
                            const std::string &name, uint64_t seed) {
  Random random(formSeed(name, seed));
  std::vector<Tile> tiles;
  for (unsigned i = 0; i < kTiles; ++i)
    tiles.push_back(drawTile(product, values, random));
  return tiles;
}

Buffers fragmentsOf(const Product &product, const std::vector<Tile> &tiles) {
  unsigned regsA = product.registersA(), regsB = product.registersB();
  unsigned regsD = product.registersD();
  unsigned perD = 32 / formatWidth(product.d);
  Buffers buffers;
  for (unsigned regs : {regsA, regsB, regsD})
    buffers.emplace_back(size_t(kTiles) * kLanes * regs * 4);
  for (unsigned i = 0; i < kTiles; ++i)
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      size_t thread = i * kLanes + lane;
      for (unsigned reg = 0; reg < regsA; ++reg)
        for (unsigned part = 0; part < product.perRegister(); ++part) {
          Place at = placeInA(product, lane, reg, part);
          place(buffers[0], thread * regsA + reg, product.a, part,
                tiles[i].a[at.row * product.k + at.column]);
        }
      for (unsigned reg = 0; reg < regsB; ++reg)
        for (unsigned part = 0; part < product.perRegister(); ++part) {
          Place at = placeInB(product, lane, reg, part);
          place(buffers[1], thread * regsB + reg, product.b, part,
                tiles[i].b[at.row * product.n + at.column]);
        }
      for (unsigned index = 0; index < regsD * perD; ++index) {
        Place at = placeInD(lane, index);
        place(buffers[2], thread * regsD + index / perD, product.d,
              index % perD, tiles[i].c[at.row * product.n + at.column]);
      }
    }
  buffers.emplace_back(buffers[2].size(), 0xa5);
  return buffers;
}

/// Reads the tiles back from the buffers, so that a verdict needs no seed.
Tile tileFrom(const Product &product, const Buffers &buffers, unsigned tile) {
  Tile result;
  result.a.resize(product.m * product.k);
  result.b.resize(product.k * product.n);
  result.c.resize(product.m * product.n);
  unsigned regsA = product.registersA(), regsB = product.registersB();
  unsigned per = product.perRegister(), width = formatWidth(product.a);
  uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    size_t thread = tile * kLanes + lane;
    for (unsigned part = 0; part < per; ++part) {
      for (unsigned reg = 0; reg < regsA; ++reg) {
        Place at = placeInA(product, lane, reg, part);
        result.a[at.row * product.k + at.column] =
            load<uint32_t>(buffers[0], thread * regsA + reg) >> (part * width) &
            mask;
      }
      for (unsigned reg = 0; reg < regsB; ++reg) {
        Place at = placeInB(product, lane, reg, part);
        result.b[at.row * product.n + at.column] =
            load<uint32_t>(buffers[1], thread * regsB + reg) >> (part * width) &
            mask;
      }
    }
  }
  return result;
}

std::vector<uint32_t> matrixD(const Product &product, const Bytes &fragments,
                              unsigned tile) {
  std::vector<uint32_t> matrix(product.m * product.n);
  unsigned numbers = product.m * product.n / kLanes;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned index = 0; index < numbers; ++index) {
      Place at = placeInD(lane, index);
      matrix[at.row * product.n + at.column] = loadNumber(
          product.d, fragments, (tile * kLanes + lane) * numbers + index);
    }
  return matrix;
}

std::string operands(const char *prefix, unsigned count) {
  if (count == 1)
    return "{" + std::string(prefix) + "}";
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::string(prefix) + "_" + std::to_string(i);
  return text + "}";
}

void addRow(Family &family, const Row &row, Values values) {
  const Product &product = row.product;
  std::string name =
      std::string("mma.sync.aligned.") + row.shape + ".row.col." + row.types;
  Operand a = B32.times(product.registersA());
  Operand b = B32.times(product.registersB());
  Operand d = B32.times(product.registersD());
  Form &form = family.body(name + " [" + valuesName(values) + "]",
                           "\t" + name + " " + operands("%d0", d.count) + ", " +
                               operands("%a0", a.count) + ", " +
                               operands("%a1", b.count) + ", " +
                               operands("%a2", d.count) + ";\n",
                           {d}, {a, b, d});
  form.buffers[3].format = product.d;
  form.rule = Rule::Bound;
  form.unit = "relative to the terms";
  form.bound = productBound(product, values);
  form.elements = kTiles * product.m * product.n;
  form.fill = [product, values, label = form.name](uint64_t seed) {
    return fragmentsOf(product, drawTiles(product, values, label, seed));
  };
  form.judge = [product](const Buffers &before, const Buffers &after) {
    Verdict verdict;
    for (unsigned i = 0; i < kTiles; ++i) {
      Tile tile = tileFrom(product, before, i);
      tile.c = matrixD(product, before[2], i);
      judgeTile(product, tile, matrixD(product, after[3], i), verdict);
    }
    return verdict;
  };
}

} // namespace

void addMma(Forms &forms) {
  Family family("mma", forms);
  family.launch(kTiles / 4, 4 * kLanes);
  auto product = [](Format type, Format d, unsigned k) {
    Product made;
    made.a = made.b = type;
    made.d = d;
    made.k = k;
    return made;
  };
  const Row rows[] = {
      {"m16n8k16", "f32.bf16.bf16.f32", product(Format::BF16, Format::F32, 16)},
      {"m16n8k16", "f32.f16.f16.f32", product(Format::F16, Format::F32, 16)},
      {"m16n8k16", "f16.f16.f16.f16", product(Format::F16, Format::F16, 16)},
      {"m16n8k8", "f32.bf16.bf16.f32", product(Format::BF16, Format::F32, 8)},
      {"m16n8k8", "f32.f16.f16.f32", product(Format::F16, Format::F32, 8)},
      {"m16n8k8", "f32.tf32.tf32.f32", product(Format::TF32, Format::F32, 8)},
      {"m16n8k32", "f32.e4m3.e4m3.f32", product(Format::E4M3, Format::F32, 32)},
      {"m16n8k32", "f32.e5m2.e5m2.f32", product(Format::E5M2, Format::F32, 32)},
  };
  for (const Row &row : rows)
    for (Values values : {Values::Integers, Values::Special, Values::Normal,
                          Values::Wide, Values::Tiny})
      addRow(family, row, values);
  addRow(family,
         {"m16n8k32", "s32.s8.s8.s32", product(Format::S8, Format::S32, 32)},
         Values::Integers);
}

} // namespace moec::conform
