//===- MeasureHost.cpp - measures rates of this CPU -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MeasureHost.h"

#include "../../../runtime/src/host/NumThreads.h"
#include "../../../runtime/src/host/ThreadPool.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <sys/mman.h>

using namespace moec;
using moert::HostKernelFn;
using moert::Result;
using moert::ThreadPool;

#if defined(__x86_64__)

#include <immintrin.h>

namespace {

//===----------------------------------------------------------------------===//
// Kernels: a CTA of instructions that wait for nothing but themselves
//===----------------------------------------------------------------------===//

/// Iterations of a CTA of instructions, and independent sums of an iteration:
/// more than an instruction's latency in clocks, twice as many as it starts.
constexpr int kIterations = 20000, kSums = 12;
/// Bytes of a CTA that reads.
constexpr size_t kReadBytes = 256 << 10;

/// Keeps a vector alive, and unknown to the optimizer.
#define MOEC_KEEP(VECTOR) asm volatile("" : "+v"(VECTOR))
#define MOEC_REPEAT(VECTOR, START, NEXT)                                       \
  VECTOR sums[kSums];                                                          \
  for (auto &sum : sums)                                                       \
    sum = START;                                                               \
  for (int i = 0; i < kIterations; ++i) {                                      \
    _Pragma("clang loop unroll(full)") for (int j = 0; j < kSums; ++j) {       \
      sums[j] = NEXT;                                                          \
      MOEC_KEEP(sums[j]);                                                      \
    }                                                                          \
  }

[[gnu::target("avx2,fma")]] void runFmas8(const uint64_t *, int64_t) {
  __m256 x = _mm256_set1_ps(0.5f);
  MOEC_REPEAT(__m256, x, _mm256_fmadd_ps(x, x, sums[j]))
}

[[gnu::target("avx512f")]] void runFmas16(const uint64_t *, int64_t) {
  __m512 x = _mm512_set1_ps(0.5f);
  MOEC_REPEAT(__m512, x, _mm512_fmadd_ps(x, x, sums[j]))
}

[[gnu::target("avx512f,avx512bf16")]] void runPairs(const uint64_t *, int64_t) {
  auto x = (__m512bh)_mm512_setzero_si512();
  MOEC_REPEAT(__m512, _mm512_setzero_ps(), _mm512_dpbf16_ps(sums[j], x, x))
}

[[gnu::target("avx2,avxvnni")]] void runQuads8(const uint64_t *, int64_t) {
  __m256i x = _mm256_set1_epi8(1);
  MOEC_REPEAT(__m256i, x, _mm256_dpbusd_avx_epi32(sums[j], x, x))
}

[[gnu::target("avx512f,avx512vnni")]] void runQuads16(const uint64_t *,
                                                      int64_t) {
  __m512i x = _mm512_set1_epi8(1);
  MOEC_REPEAT(__m512i, x, _mm512_dpbusd_epi32(sums[j], x, x))
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, startRow = 0, reserved[14] = {};
  uint16_t rowBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr int kTileIterations = 2000, kTileSums = 4;

/// Numbers of tiles are part of an instruction.
#define MOEC_MULTIPLY_TILES(MULTIPLY)                                          \
  TileConfig config;                                                           \
  _tile_loadconfig(&config);                                                   \
  _tile_zero(4);                                                               \
  _tile_zero(5);                                                               \
  for (int i = 0; i < kTileIterations; ++i) {                                  \
    MULTIPLY(0, 4, 5);                                                         \
    MULTIPLY(1, 4, 5);                                                         \
    MULTIPLY(2, 4, 5);                                                         \
    MULTIPLY(3, 4, 5);                                                         \
  }                                                                            \
  _tile_release();

[[gnu::target("amx-tile,amx-bf16")]] void runTiles(const uint64_t *, int64_t) {
  MOEC_MULTIPLY_TILES(_tile_dpbf16ps)
}

[[gnu::target("amx-tile,amx-int8")]] void runByteTiles(const uint64_t *,
                                                       int64_t) {
  MOEC_MULTIPLY_TILES(_tile_dpbssd)
}

[[gnu::target("avx2")]] void readBytes(const uint64_t *args, int64_t cta) {
  const auto *from =
      reinterpret_cast<const __m256i *>(args[0] + uint64_t(cta) * kReadBytes);
  __m256i any[4] = {};
  for (size_t i = 0; i < kReadBytes / sizeof(__m256i); i += 4)
    for (size_t j = 0; j < 4; ++j)
      any[j] = _mm256_or_si256(any[j], _mm256_load_si256(from + i + j));
  for (__m256i &each : any)
    MOEC_KEEP(each);
}

#undef MOEC_MULTIPLY_TILES
#undef MOEC_REPEAT
#undef MOEC_KEEP

void doNothing(const uint64_t *, int64_t) {}

//===----------------------------------------------------------------------===//
// Measurements
//===----------------------------------------------------------------------===//

class Measurement {
public:
  explicit Measurement(ThreadPool &pool) : pool(pool) {}

  /// Seconds of a launch of `grid` CTAs: the best of at least so many. Rounds
  /// go on until the scheduler has moved threads that woke on one core apart.
  double time(HostKernelFn kernel, const uint64_t *args, int64_t grid,
              int rounds) {
    using Seconds = std::chrono::duration<double>;
    constexpr Seconds least(0.03);
    Seconds best(std::numeric_limits<double>::infinity()), all(0);
    for (int round = 0; round < rounds || all < least; ++round) {
      auto start = std::chrono::steady_clock::now();
      pool.run(kernel, args, grid);
      Seconds took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took);
      all += took;
    }
    return best.count();
  }

  /// Operations per second of a kernel whose CTA has that many.
  double getRate(HostKernelFn kernel, double operations) {
    constexpr int rounds = 10, ctasPerThread = 4;
    int64_t grid = int64_t(pool.getNumThreads()) * ctasPerThread;
    return double(grid) * operations / time(kernel, nullptr, grid, rounds);
  }

private:
  ThreadPool &pool;
};

/// Memory that is read, in large pages where the kernel has them.
class Pages {
public:
  explicit Pages(size_t bytes) : bytes(bytes) {
    void *found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
      return;
    data = static_cast<char *>(found);
    (void)madvise(data, bytes, MADV_HUGEPAGE);
    // Pages that were never written to are all the same one.
    constexpr size_t page = 4096;
    for (size_t i = 0; i < bytes; i += page)
      data[i] = 1;
  }
  ~Pages() {
    if (data)
      munmap(data, bytes);
  }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;

  char *data = nullptr;

private:
  size_t bytes;
};

} // namespace

/// The bandwidth from memory of several sizes, each twice the other's factor.
static std::vector<HostRates::Read> measureReads(Measurement &measurement) {
  constexpr size_t mostBytes = size_t(512) << 20;
  std::vector<HostRates::Read> reads;
  Pages pages(mostBytes);
  if (!pages.data)
    return reads;
  uint64_t args[] = {reinterpret_cast<uint64_t>(pages.data)};
  for (size_t bytes = size_t(4) << 20; bytes <= mostBytes; bytes *= 2) {
    constexpr int rounds = 3;
    double seconds =
        measurement.time(readBytes, args, int64_t(bytes / kReadBytes), rounds);
    reads.push_back({double(bytes), double(bytes) / seconds});
  }
  return reads;
}

Result<HostRates> moec::measureHost(const Target &target) {
  if (target.lanes < 8)
    return moert::unavailable("rates of the CPU: it lacks AVX2");
  Result<int> threads = moert::chooseNumThreads();
  if (!threads)
    return threads.status();
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(*threads);
  if (!pool)
    return pool.status();
  Measurement measurement(**pool);
  HostRates rates;
  rates.threads = *threads;
  rates.reads = measureReads(measurement);
  if (rates.reads.empty())
    return moert::resourceExhausted("rates of the CPU: out of memory");
  constexpr double perInstruction = 2.0 * kIterations * kSums;
  bool isWide = target.lanes == 16;
  auto lanes = double(target.lanes);
  rates.fmas = measurement.getRate(isWide ? runFmas16 : runFmas8,
                                   perInstruction * lanes);
  if (target.products >= CpuProducts::Vnni)
    rates.quads = measurement.getRate(isWide ? runQuads16 : runQuads8,
                                      4 * perInstruction * lanes);
  if (target.products >= CpuProducts::Bf16)
    rates.pairs = measurement.getRate(runPairs, 2 * perInstruction * lanes);
  if (target.products >= CpuProducts::Amx) {
    constexpr double products = 2.0 * kTileIterations * kTileSums * 16 * 16;
    rates.tiles = measurement.getRate(runTiles, products * 32);
    rates.byteTiles = measurement.getRate(runByteTiles, products * 64);
  }
  constexpr int launches = 200;
  rates.launchUs =
      1e6 * measurement.time(doNothing, nullptr, rates.threads, launches);
  return rates;
}

#else

Result<HostRates> moec::measureHost(const Target &) {
  return moert::unavailable("rates of the CPU: it is no x86-64");
}

#endif
