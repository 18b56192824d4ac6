//===- UnpackElements.cpp - unpacks elements of a file ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Unpacks straight from the mapped file into the layer, without a buffer.
//
//===----------------------------------------------------------------------===//

#include "UnpackElements.h"

#include "ConvertElements.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace moec;

/// Rows that are filled together if columns are contiguous in the file: the
/// words of a cache line.
constexpr int64_t kRowsAtOnce = 16;

/// The words of consecutive elements; the last word may be padded.
static int64_t countWords(const ElementPacking &packing, int64_t elements) {
  // Planes are of 32 elements each.
  constexpr int64_t ofPlane = 32;
  if (packing.hasPlanes)
    return int64_t(llvm::divideCeil(uint64_t(elements), uint64_t(ofPlane))) *
           packing.elementBits;
  return int64_t(llvm::divideCeil(uint64_t(elements * packing.elementBits),
                                  uint64_t(packing.wordBits)));
}

std::vector<int64_t> moec::getPackedShape(const ElementPacking &packing,
                                          bool transposed, int64_t rows,
                                          int64_t columns) {
  int64_t &packed = packing.alongRows ? rows : columns;
  packed = countWords(packing, packed);
  if (transposed)
    std::swap(rows, columns);
  return {rows, columns};
}

moert::DType moec::getPackedType(const ElementPacking &packing) {
  return packing.wordBits == 8 ? moert::DType::I8 : moert::DType::I32;
}

/// The bytes of a word are those of the row, with elements of the same order
/// and width; the two elements of a byte may be swapped.
static void unpackAlongColumns(const ElementPacking &packing, bool transposed,
                               const uint8_t *words, const PartWindow &window,
                               const PartRows &rows) {
  int64_t wordBytes = packing.wordBits / 8;
  bool areSwapped = packing.order.front() != 0;
  auto countWords = [&](int64_t bytes) {
    return int64_t(llvm::divideCeil(uint64_t(bytes), uint64_t(wordBytes)));
  };
  int64_t wordsOfRow = countWords(window.rowBytes);
  int64_t firstByte = window.firstByte, endByte = firstByte + rows.rowBytes;
  for (int64_t first = 0; first < rows.numRows; first += kRowsAtOnce) {
    int64_t end = std::min(first + kRowsAtOnce, rows.numRows);
    for (int64_t word = firstByte / wordBytes; word < countWords(endByte);
         ++word) {
      int64_t begin = word * wordBytes;
      int64_t from = std::max(begin, firstByte);
      int64_t to = std::min(begin + wordBytes, endByte);
      for (int64_t row = first; row < end; ++row) {
        int64_t partRow = window.firstRow + row;
        int64_t at = transposed ? word * window.numRows + partRow
                                : partRow * wordsOfRow + word;
        uint8_t *result = rows.getRow(row) + from - firstByte;
        for (int64_t i = from; i < to; ++i) {
          uint8_t byte = words[at * wordBytes + i - begin];
          *result++ = areSwapped ? uint8_t(byte << 4 | byte >> 4)
                                 : uint8_t(byte ^ packing.flipped);
        }
      }
    }
  }
}

/// Unpacks words that hold one element of each of several rows.
static void unpackAlongRows(const ElementPacking &packing, bool transposed,
                            const uint8_t *words, const PartWindow &window,
                            const PartRows &rows) {
  int64_t perWord = packing.wordBits / packing.elementBits;
  int64_t columnsOfPart = window.rowBytes * 8 / packing.layerBits;
  int64_t firstColumn = window.firstByte * 8 / packing.layerBits;
  int64_t columns = rows.rowBytes * 8 / packing.layerBits;
  int64_t wordsOfColumn = countWords(packing, window.numRows);
  uint32_t mask = (uint32_t(1) << packing.elementBits) - 1;
  int64_t perByte = 8 / packing.layerBits;
  for (int64_t word = window.firstRow / perWord;
       word < countWords(packing, window.firstRow + rows.numRows); ++word)
    for (int64_t column = 0; column < columns; ++column) {
      int64_t partColumn = firstColumn + column;
      int64_t at = transposed ? partColumn * wordsOfColumn + word
                              : word * columnsOfPart + partColumn;
      uint32_t value =
          llvm::support::endian::read32le(words + at * 4) + packing.wordOffset;
      for (int64_t place = 0; place < perWord; ++place) {
        int64_t row =
            word * perWord + packing.order[size_t(place)] - window.firstRow;
        if (row < 0 || row >= rows.numRows)
          continue;
        auto element =
            uint8_t(((value >> (place * packing.elementBits)) & mask) ^
                    packing.flipped);
        uint8_t &result = rows.getRow(row)[column / perByte];
        // Columns are visited in order: the first one of a byte clears it.
        int64_t shift = column % perByte * packing.layerBits;
        result = uint8_t((shift ? result : 0) | element << shift);
      }
    }
}

/// Some bits of an element: those from `shift` on of a word.
struct BitRange {
  int64_t word = 0, shift = 0, bits = 0;
};

/// Where the bits of element i of a row or column are, the low ones first.
static llvm::SmallVector<BitRange, 3> findBits(const ElementPacking &packing,
                                               int64_t i) {
  constexpr int64_t wordBits = 32;
  int64_t bits = packing.elementBits;
  llvm::SmallVector<BitRange, 3> ranges;
  if (packing.hasPlanes) {
    int64_t word = i / wordBits * bits;
    for (int64_t plane : {4, 2, 1}) {
      // 3 bits are planes of 2 and 1, others begin with 4.
      if (!(bits & plane))
        continue;
      int64_t bit = i % wordBits * plane;
      ranges.push_back({word + bit / wordBits, bit % wordBits, plane});
      word += plane;
    }
    return ranges;
  }
  int64_t word = i * bits / wordBits, shift = i * bits % wordBits;
  int64_t first = std::min(bits, wordBits - shift);
  ranges.push_back({word, shift, first});
  if (first < bits)
    ranges.push_back({word + 1, 0, bits - first});
  return ranges;
}

/// Unpacks elements that have more bits in the layer than in the file.
static void unpackBits(const ElementPacking &packing, bool transposed,
                       const uint8_t *words, const PartWindow &window,
                       const PartRows &rows) {
  int64_t columnsOfPart = window.rowBytes * 8 / packing.layerBits;
  int64_t firstColumn = window.firstByte * 8 / packing.layerBits;
  int64_t columns = rows.rowBytes * 8 / packing.layerBits;
  // A line is a row or a column whose elements are packed together.
  int64_t numLines = packing.alongRows ? columnsOfPart : window.numRows;
  int64_t wordsOfLine =
      countWords(packing, packing.alongRows ? window.numRows : columnsOfPart);
  bool areLinesApart = transposed == packing.alongRows;
  uint32_t range = uint32_t(1) << packing.elementBits;
  bool isWordWhole = packing.wordBits % packing.elementBits == 0;
  uint32_t ofWord = isWordWhole ? packing.wordOffset : 0;
  uint32_t ofElement = isWordWhole ? 0 : packing.wordOffset;
  auto read = [&](llvm::ArrayRef<BitRange> bits, int64_t line) {
    uint32_t element = 0;
    int64_t at = 0;
    for (const BitRange &part : bits) {
      int64_t word = areLinesApart ? line * wordsOfLine + part.word
                                   : part.word * numLines + line;
      uint32_t value =
          llvm::support::endian::read32le(words + word * 4) + ofWord;
      element |= (value >> part.shift & ((uint32_t(1) << part.bits) - 1)) << at;
      at += part.bits;
    }
    return uint8_t((element + ofElement) % range + packing.addend);
  };
  int64_t perByte = 8 / packing.layerBits;
  auto write = [&](int64_t row, int64_t column, uint8_t element) {
    uint8_t &result = rows.getRow(row)[column / perByte];
    // Columns are visited in order: the first one of a byte clears it.
    int64_t shift = column % perByte * packing.layerBits;
    result = uint8_t((shift ? result : 0) | element << shift);
  };
  if (packing.alongRows) {
    for (int64_t row = 0; row < rows.numRows; ++row) {
      auto bits = findBits(packing, window.firstRow + row);
      for (int64_t column = 0; column < columns; ++column)
        write(row, column, read(bits, firstColumn + column));
    }
    return;
  }
  for (int64_t first = 0; first < rows.numRows; first += kRowsAtOnce)
    for (int64_t column = 0; column < columns; ++column) {
      auto bits = findBits(packing, firstColumn + column);
      int64_t end = std::min(first + kRowsAtOnce, rows.numRows);
      for (int64_t row = first; row < end; ++row)
        write(row, column, read(bits, window.firstRow + row));
    }
}

void moec::unpackElements(const ElementPacking &packing, bool transposed,
                          const uint8_t *words, const PartWindow &window,
                          const PartRows &rows) {
  // Among words of whole bytes or halves, only zero points have other bits in
  // the layer, and their words are along rows.
  if (packing.elementBits != 4 && packing.elementBits != 8)
    unpackBits(packing, transposed, words, window, rows);
  else if (packing.alongRows)
    unpackAlongRows(packing, transposed, words, window, rows);
  else
    unpackAlongColumns(packing, transposed, words, window, rows);
}

/// Packs the elements of a row in order, two per byte. The file has the
/// elements of the first half in the low nibbles, and those of the second half
/// in the high ones.
static void copyHalves(const uint8_t *from, int64_t count, uint8_t *to) {
  for (int64_t i = 0; i < count; ++i) {
    // First the low nibbles of all bytes, then the high ones.
    int64_t half = count / 2, shift = i < half ? 0 : 4;
    const uint8_t *pair = from + 2 * (i % half);
    to[i] = uint8_t((pair[0] >> shift & 15) | (pair[1] >> shift & 15) << 4);
  }
}

/// Unpacks 256 elements of 6 bits. Each half of 128 elements has 64 bytes of
/// low nibbles and, after those of both halves, 32 bytes of upper bits. Element
/// l of quarter q (32 elements) has its upper bits at bit 2q of byte l, and its
/// low ones in byte l (q even) or l + 32 (q odd).
static void unpackSixBits(const uint8_t *from, uint8_t *to) {
  constexpr int64_t elements = 256, half = 128, neighbours = 32;
  constexpr uint8_t zero = 32;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t quarter = i % half / neighbours, place = i % neighbours;
    const uint8_t *low = from + i / half * (half / 2);
    const uint8_t *high = from + elements / 2 + i / half * neighbours;
    uint8_t lowBits =
        low[quarter % 2 * neighbours + place] >> (quarter / 2 * 4) & 15;
    uint8_t highBits = high[place] >> (quarter * 2) & 3;
    to[i] = uint8_t((lowBits | highBits << 4) - zero);
  }
}

/// Unpacks 256 elements of 5 bits. 32 bytes hold the fifth bits: bit i / 32 of
/// byte i % 32. Then each 64 elements have 32 bytes of nibbles, the first 32
/// elements in the low ones.
static void unpackFiveBits(const uint8_t *from, uint8_t *to) {
  constexpr int64_t elements = 256, run = 64, half = 32;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t place = i % half, isUpper = i % run / half;
    uint8_t low = from[half + i / run * half + place] >> 4 * isUpper & 15;
    uint8_t high = from[place] >> i / half & 1;
    to[i] = uint8_t(low | high << 4);
  }
}

static float toF32(const uint8_t *half) {
  float value = 0;
  convertElement(half, moert::DType::F16, reinterpret_cast<uint8_t *>(&value),
                 moert::DType::F32);
  return value;
}

/// Unpacks 8 scales or minima of 6 bits. Bytes 0 to 3 hold the first four
/// scales in their lower six bits, bytes 4 to 7 the first four minima. The
/// upper two bits of these bytes are those of the other four, whose lower four
/// bits are in bytes 8 to 11: scales in the low nibbles, minima in the high
/// ones. Products are exact: 6 and 11 binary digits.
static void unpackSixBitScales(const uint8_t *from, bool areMinima,
                               uint8_t *to) {
  constexpr int64_t scales = 8, first = 4;
  float factor = toF32(from + (areMinima ? 2 : 0));
  const uint8_t *bytes = from + 4;
  for (int64_t i = 0; i < scales; ++i) {
    uint8_t own = bytes[i % first + (areMinima ? first : 0)];
    uint8_t rest = bytes[i % first + 2 * first];
    int code = i < first ? own & 63
                         : (rest >> (areMinima ? 4 : 0) & 15) | own >> 6 << 4;
    float scale = float(code) * factor;
    memcpy(to + i * int64_t(sizeof(float)), &scale, sizeof(float));
  }
}

/// Products are exact: 8 and 11 binary digits.
static void multiplyScales(const uint8_t *from, uint8_t *to) {
  constexpr int64_t scales = 16;
  float factor = toF32(from + scales);
  for (int64_t i = 0; i < scales; ++i) {
    float scale = float(int8_t(from[i])) * factor;
    memcpy(to + i * int64_t(sizeof(float)), &scale, sizeof(float));
  }
}

static void unpackBlock(const BlockPacking &packing, const uint8_t *from,
                        uint8_t *to) {
  switch (packing.part) {
  case BlockPacking::Part::Bytes:
    std::copy(from, from + packing.count, to);
    return;
  case BlockPacking::Part::Halves:
    return copyHalves(from, packing.count, to);
  case BlockPacking::Part::SixBits:
    return unpackSixBits(from, to);
  case BlockPacking::Part::ScaledBytes:
    return multiplyScales(from, to);
  case BlockPacking::Part::RunsOfHalves:
  case BlockPacking::Part::HalvesOf16: {
    int64_t run = packing.part == BlockPacking::Part::HalvesOf16 ? 8 : 32;
    for (int64_t i = 0; i < packing.count; i += run)
      copyHalves(from + i, run, to + i);
    return;
  }
  case BlockPacking::Part::FiveBits:
    return unpackFiveBits(from, to);
  case BlockPacking::Part::SixBitScales:
    return unpackSixBitScales(from, /*areMinima=*/false, to);
  case BlockPacking::Part::SixBitMinima:
    return unpackSixBitScales(from, /*areMinima=*/true, to);
  }
}

void moec::unpackBlocks(const BlockPacking &packing, const uint8_t *blocks,
                        const PartWindow &window, const PartRows &rows) {
  int64_t count = packing.count, blocksOfRow = window.rowBytes / count;
  int64_t firstByte = window.firstByte, endByte = firstByte + rows.rowBytes;
  std::vector<uint8_t> cut(static_cast<size_t>(count));
  for (int64_t row = 0; row < rows.numRows; ++row)
    for (int64_t begin = firstByte / count * count; begin < endByte;
         begin += count) {
      int64_t block = (window.firstRow + row) * blocksOfRow + begin / count;
      const uint8_t *from = blocks + block * packing.bytes + packing.first;
      uint8_t *result = rows.getRow(row);
      if (begin >= firstByte && begin + count <= endByte) {
        unpackBlock(packing, from, result + begin - firstByte);
        continue;
      }
      unpackBlock(packing, from, cut.data());
      int64_t first = std::max(begin, firstByte);
      int64_t end = std::min(begin + count, endByte);
      std::copy(cut.begin() + (first - begin), cut.begin() + (end - begin),
                result + first - firstByte);
    }
}
