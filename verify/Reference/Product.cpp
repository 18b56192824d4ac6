//===- Product.cpp - products in float64 ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Product.h"

#include "moec/Support/CpuClones.h"

#include <algorithm>
#include <cmath>

using namespace moec;
using namespace moec::reference;

namespace {

/// Rows of weights per task: converted once, then kept in the cache for all
/// rows of x.
constexpr int64_t kBlockN = 16;
/// Elements along K per iteration, so that rows of x stay in the cache.
constexpr int64_t kBlockK = 1024;
/// Columns of `out` with sums, for four rows, in registers.
constexpr int kColumns = 2;

/// out[4, kColumns] += x[4, K] @ w[kColumns, K]^T.
template <int Lanes>
MOEC_INLINE void multiplyBlock(const double *x, int64_t xStride,
                               const double *w, int64_t wStride, int64_t sizeK,
                               double *out, int64_t outStride) {
  // Aligned to eight bytes only.
  typedef double Vector __attribute__((vector_size(Lanes * 8), aligned(8)));
  Vector sums[4][kColumns] = {};
  for (int64_t k = 0; k < sizeK; k += Lanes) {
    Vector weights[kColumns];
    for (int j = 0; j < kColumns; ++j)
      weights[j] = *reinterpret_cast<const Vector *>(w + j * wStride + k);
    for (int i = 0; i < 4; ++i) {
      Vector value = *reinterpret_cast<const Vector *>(x + i * xStride + k);
      for (int j = 0; j < kColumns; ++j)
        sums[i][j] += value * weights[j];
    }
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < kColumns; ++j) {
      double total = 0;
      for (int lane = 0; lane < Lanes; ++lane)
        total += sums[i][j][lane];
      out[i * outStride + j] += total;
    }
}

/// Multiplies an N tile of weights by all rows of x, four at a time.
template <int VectorBytes>
MOEC_INLINE void multiplyNTile(const Matrix &x, const double *nTile,
                               int64_t numColumns, double *out,
                               int64_t outStride) {
  int64_t sizeK = x.getStride();
  for (int64_t k = 0; k < sizeK; k += kBlockK)
    for (int64_t i = 0; i < x.getNumRows(); i += 4)
      for (int64_t j = 0; j < numColumns; j += kColumns)
        multiplyBlock<VectorBytes / 8>(
            x.row(i) + k, sizeK, nTile + j * sizeK + k, sizeK,
            std::min(kBlockK, sizeK - k), out + i * outStride + j, outStride);
}

MOEC_CPU_CLONES(multiply, multiplyNTile<kVectorBytes>,
                (const Matrix &x, const double *nTile, int64_t numColumns,
                 double *out, int64_t outStride),
                (x, nTile, numColumns, out, outStride))

struct Task {
  const Product *product;
  int64_t column;
};

/// Codes of a sign, two bits of exponent and one of mantissa.
constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

/// NormalFloat: quantiles of the normal distribution, with an exact 0.
constexpr float kNormalFloat[16] = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

/// Reads the stored elements of a row of the stack, without scales; 8 is
/// subtracted from int4 without a zero point and a minimum.
void readElements(const Product &product, int64_t row, int64_t sizeK,
                  double *to) {
  StorageType storage = product.quantization->storage;
  bool isInPairs = storage == StorageType::Fp4E2M1 ||
                   storage == StorageType::NF4 || storage == StorageType::Int4;
  if (!isInPairs) {
    product.weight->read(row * sizeK, sizeK, to);
    if (storage == StorageType::Int8)
      for (int64_t k = 0; k < sizeK; ++k) {
        int byte = static_cast<int>(to[k]) & 0xFF;
        to[k] = product.zeroPoints || byte < 128 ? byte : byte - 256;
      }
    return;
  }
  double values[16];
  for (int code = 0; code < 16; ++code)
    values[code] = storage == StorageType::Fp4E2M1        ? kE2M1[code]
                   : storage == StorageType::NF4          ? kNormalFloat[code]
                   : product.zeroPoints || product.minima ? code
                                                          : code - 8;
  // The upper half of `to`, of which each byte is read before it is written.
  double *bytes = to + sizeK / 2;
  product.weight->read(row * (sizeK / 2), sizeK / 2, bytes);
  for (int64_t i = 0; i < sizeK / 2; ++i) {
    int byte = static_cast<int>(bytes[i]);
    to[2 * i] = values[byte & 0xF];
    to[2 * i + 1] = values[byte >> 4 & 0xF];
  }
}

/// Dequantizes elements of row `column` of the matrix: (q - z) * (s * g) - m.
void applyScales(const Product &product, int64_t column, double *weights) {
  int64_t sizeK = product.x->getNumColumns();
  int64_t rows = product.out->getNumColumns();
  int64_t run = product.hasHalves ? rows / 2 : rows;
  // Rows and elements that share a scale: a whole run of rows and a whole row,
  // unless the granularity is finer.
  int64_t height = run, width = sizeK;
  switch (product.quantization->granularity) {
  case Granularity::Tensor:
    break;
  case Granularity::Channel:
  case Granularity::Token:
    height = 1;
    break;
  case Granularity::Group:
  case Granularity::Block:
    height = product.quantization->blockRows;
    width = product.quantization->blockColumns;
    break;
  }
  auto divideUp = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t matrix = product.firstRow / rows, half = column / run;
  int64_t scaleRow = (matrix * (rows / run) + half) * divideUp(run, height) +
                     column % run / height;
  int64_t count = divideUp(sizeK, width);
  std::vector<double> scales(count), zeroPoints(count), minima(count);
  product.scales->read(scaleRow * count, count, scales.data());
  if (product.zeroPoints)
    product.zeroPoints->read(scaleRow * count, count, zeroPoints.data());
  if (product.minima)
    product.minima->read(scaleRow * count, count, minima.data());
  if (product.globalScales) {
    double global;
    product.globalScales->read(matrix * (rows / run) + half, 1, &global);
    for (double &scale : scales)
      scale = static_cast<float>(scale) * static_cast<float>(global);
  }
  for (int64_t i = 0; i < count; ++i) {
    int zeroPoint = static_cast<int>(zeroPoints[i]) & 0xFF;
    for (int64_t k = i * width; k < std::min((i + 1) * width, sizeK); ++k)
      weights[k] = (weights[k] - zeroPoint) * scales[i] - minima[i];
  }
}

/// The product of one row, which blocks of rows would pad.
double multiplyRow(const double *x, const double *weights, int64_t sizeK) {
  constexpr int numSums = 8;
  double sums[numSums] = {};
  for (int64_t k = 0; k < sizeK; k += numSums)
    for (int i = 0; i < numSums; ++i)
      sums[i] += x[k + i] * weights[k + i];
  double total = 0;
  for (double sum : sums)
    total += sum;
  return total;
}

void run(const Task &task) {
  const Matrix &x = *task.product->x;
  Matrix &out = *task.product->out;
  int64_t sizeK = x.getNumColumns(), stride = x.getStride();
  int64_t count = std::min(kBlockN, out.getNumColumns() - task.column);
  // Kept, since a large allocation per task costs more than its use.
  static thread_local std::vector<double> nTile;
  nTile.assign(kBlockN * stride, 0);
  for (int64_t j = 0; j < count; ++j) {
    int64_t row = task.product->firstRow + task.column + j;
    double *weights = nTile.data() + j * stride;
    if (!task.product->scales) {
      task.product->weight->read(row * sizeK, sizeK, weights);
      continue;
    }
    readElements(*task.product, row, sizeK, weights);
    applyScales(*task.product, task.column + j, weights);
  }
  if (x.getNumRows() == 1) {
    for (int64_t j = 0; j < count; ++j)
      out.row(0)[task.column + j] =
          multiplyRow(x.row(0), nTile.data() + j * stride, stride);
    return;
  }
  // Rows of the output are padded to whole vectors, so an odd last column has a
  // neighbour, which gets 0 * x, perhaps NaN.
  multiply(x, nTile.data(), count, out.row(0) + task.column, out.getStride());
  for (int64_t i = 0; count % kColumns != 0 && i < out.getNumRows(); ++i)
    out.row(i)[task.column + count] = 0;
}

} // namespace

void moec::reference::computeProducts(const std::vector<Product> &products,
                                      int threads) {
  std::vector<Task> tasks;
  for (const Product &product : products)
    for (int64_t column = 0; column < product.out->getNumColumns();
         column += kBlockN)
      tasks.push_back({&product, column});
  parallelFor(threads, static_cast<int64_t>(tasks.size()),
              [&](int64_t i) { run(tasks[i]); });
}

Matrix moec::reference::computeProduct(const Matrix &x, const Source &weight,
                                       int64_t columns, int threads) {
  Matrix out(x.getNumRows(), columns);
  computeProducts({{&x, &weight, 0, &out}}, threads);
  return out;
}
