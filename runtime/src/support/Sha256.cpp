//===- Sha256.cpp - SHA-256 -------------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sha256.h"

#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace moert {

/// The first 32 bits of the fractional parts of the cube roots of the first 64
/// primes.
static const uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t value, int bits) {
  return value >> bits | value << (32 - bits);
}

static void addBlock(uint32_t (&state)[8], const uint8_t *block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t(block[4 * i]) << 24 | uint32_t(block[4 * i + 1]) << 16 |
           uint32_t(block[4 * i + 2]) << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  uint32_t v[8];
  memcpy(v, state, sizeof(v));
  for (int i = 0; i < 64; ++i) {
    uint32_t e = v[4], a = v[0];
    uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                  ((e & v[5]) ^ (~e & v[6])) + kRounds[i] + w[i];
    uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                  ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof(v[0]));
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i)
    state[i] += v[i];
}

static void addBlocks(uint32_t (&state)[8], const uint8_t *data,
                      size_t blocks) {
  for (size_t i = 0; i < blocks; ++i)
    addBlock(state, data + 64 * i);
}

//===----------------------------------------------------------------------===//
// SHA instructions
//===----------------------------------------------------------------------===//
// A package of 1.5 MB takes 15 ms by the portable code above, most of the time
// of loading a layer from the cache, and 1 ms by these instructions.

#if defined(__x86_64__)

static bool hasInstructions() {
  constexpr unsigned features = 7, sha = 1u << 29, sse41 = 1u << 19;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & sse41))
    return false;
  return __get_cpuid_count(features, 0, &a, &b, &c, &d) && (b & sha);
}

static __m128i load(const void *from) {
  return _mm_loadu_si128(static_cast<const __m128i *>(from));
}

/// The state is held as words a, b, e, f and c, d, g, h; four message words at
/// a time are computed from the previous 16.
__attribute__((target("sha,sse4.1"))) static void
addBlocksByInstructions(uint32_t (&state)[8], const uint8_t *data,
                        size_t blocks) {
  const __m128i bigEndian =
      _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i badc = _mm_shuffle_epi32(load(state), 0xb1);
  __m128i hgfe = _mm_shuffle_epi32(load(state + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (size_t block = 0; block < blocks; ++block) {
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(load(data + 64 * block + 16 * i), bigEndian);
    __m128i first = abef, second = cdgh;
    for (int i = 0; i < 16; ++i) {
      __m128i added = _mm_add_epi32(w[i % 4], load(kRounds + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0e));
      __m128i last = w[(i + 3) % 4];
      __m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
      next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
      w[i % 4] = _mm_sha256msg2_epu32(next, last);
    }
    abef = _mm_add_epi32(abef, first);
    cdgh = _mm_add_epi32(cdgh, second);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state),
                   _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(state + 4),
                   _mm_alignr_epi8(dchg, feba, 8));
}

#else

static bool hasInstructions() { return false; }

static void addBlocksByInstructions(uint32_t (&state)[8], const uint8_t *data,
                                    size_t blocks) {
  addBlocks(state, data, blocks);
}

#endif

Sha256Digest sha256(const void *data, size_t size, bool mayUseInstructions) {
  static const bool areThere = hasInstructions();
  auto *add =
      mayUseInstructions && areThere ? addBlocksByInstructions : addBlocks;
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  auto *bytes = static_cast<const uint8_t *>(data);
  size_t whole = size / 64 * 64;
  add(state, bytes, size / 64);
  // The remainder, a one bit, zeros and the length in bits fill one or two
  // blocks.
  uint8_t last[128] = {};
  size_t rest = size - whole;
  if (rest > 0)
    memcpy(last, bytes + whole, rest);
  last[rest] = 0x80;
  size_t end = rest < 56 ? 64 : 128;
  uint64_t bits = uint64_t(size) * 8;
  for (int i = 0; i < 8; ++i)
    last[end - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  add(state, last, end / 64);
  Sha256Digest digest;
  for (int i = 0; i < 32; ++i)
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

std::string showDigest(const Sha256Digest &digest) {
  std::string digits;
  for (uint8_t byte : digest)
    for (int shift : {4, 0})
      digits += "0123456789abcdef"[byte >> shift & 15];
  return digits;
}

} // namespace moert
