//===- GeneratorCases.cpp - tests of the generator on a GPU -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Run/GuardedBuffer.h"
#include "DeviceCases.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace moec;
using namespace moec::gputest;
using moert::Result;

namespace {

/// Rows of a generated tensor, with padding after each.
struct Rows {
  RandomTensor tensor;
  int64_t first, count, columns, padding;

  /// The expected contents of memory whose bytes were all 0xFF.
  std::vector<uint8_t> makeWanted() const {
    auto size = static_cast<size_t>(moert::dtypeBits(tensor.dtype) / 8);
    std::vector<uint8_t> bytes(
        llvm::divideCeil(count, columns) * (columns + padding) * size, 0xFF);
    uint8_t *row = bytes.data();
    for (int64_t done = 0; done < count; done += columns) {
      tensor.write(first + done, std::min(columns, count - done), row);
      row += (columns + padding) * size;
    }
    return bytes;
  }
};

void compare(SuiteContext &context, const Rows &rows, moert::Stream &stream,
             Outcome &outcome) {
  std::vector<uint8_t> wanted = rows.makeWanted();
  std::vector<uint8_t> seen(wanted.size(), 0xFF);
  moert::Device &device = context.device;
  Result<GuardedBuffer> buffer =
      GuardedBuffer::create(device, "generated", seen.size());
  if (!outcome.expect(buffer.status()) ||
      !outcome.expect(device.copyIn(buffer->data(), seen.data(), seen.size())))
    return;
  moert::Status status =
      context.generator.write(stream, rows.tensor, rows.first, rows.count,
                              buffer->data(), rows.columns, rows.padding);
  if (!outcome.expect(status) || !outcome.expect(device.synchronize(stream)) ||
      !outcome.expect(
          device.copyOut(seen.data(), buffer->data(), seen.size())) ||
      !outcome.expect(buffer->check()))
    return;
  auto differ = std::mismatch(seen.begin(), seen.end(), wanted.begin());
  if (differ.first != seen.end())
    outcome.fail(llvm::formatv(
        "byte {0} of {1} elements from {2} on, in rows of {3} and {4} of "
        "padding, times {5:e1}, differs from the C++ generator",
        differ.first - seen.begin(), rows.count, rows.first, rows.columns,
        rows.padding, rows.tensor.factor));
}

Outcome compareGenerators(SuiteContext &context, moert::DType dtype) {
  std::lock_guard<std::mutex> lock(context.deviceMutex);
  Outcome outcome;
  auto stream = context.device.createStream();
  if (!outcome.expect(stream.status()))
    return outcome;
  // Deviations down to subnormal f16, and for bytes up to where they wrap
  // around; indices beyond 32 bits.
  double largest = dtype == moert::DType::I8 ? 2400.0 : 1.0;
  for (double deviation : {largest, 0.1, 1.0 / 64, 3e-6})
    for (int64_t first : {int64_t(0), (int64_t(1) << 32) - 5})
      for (int64_t count : {1, 4097, 300001})
        for (int64_t padding : {0, 28}) {
          RandomTensor tensor = {RandomStream(7, "experts.w13"), dtype,
                                 getFactor(deviation)};
          compare(context, {tensor, first, count, /*columns=*/100, padding},
                  **stream, outcome);
          if (!outcome.hasPassed())
            return outcome;
        }
  return outcome;
}

} // namespace

std::vector<Case>
moec::gputest::makeGeneratorCases(const std::unique_ptr<SuiteContext> &shared) {
  std::vector<Case> cases;
  for (moert::DType dtype :
       {moert::DType::F32, moert::DType::BF16, moert::DType::F16,
        moert::DType::F8E4M3, moert::DType::F8E8M0, moert::DType::I8})
    cases.push_back(
        {std::string("generator/") + moert::dtypeName(dtype),
         [&shared, dtype] { return compareGenerators(*shared, dtype); }});
  return cases;
}
