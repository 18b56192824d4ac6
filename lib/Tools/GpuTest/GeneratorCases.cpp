//===- GeneratorCases.cpp - the same bits everywhere ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceCases.h"
#include "GuardedBuffer.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using namespace moec;
using namespace moec::gputest;
using moert::Result;

static Outcome compareGenerators(SuiteContext &context, moert::DType dtype) {
  std::lock_guard<std::mutex> lock(context.deviceMutex);
  Outcome outcome;
  auto stream = context.device.createStream();
  if (!outcome.expect(stream.status()))
    return outcome;
  auto size = static_cast<size_t>(moert::dtypeBits(dtype) / 8);
  // Deviations down to where f16 is subnormal, indices beyond 32 bits.
  for (double deviation : {1.0, 0.1, 1.0 / 64, 3e-6})
    for (int64_t first : {int64_t(0), (int64_t(1) << 32) - 5})
      for (int64_t count : {int64_t(1), int64_t(4097), int64_t(300001)}) {
        RandomTensor tensor = {RandomStream(7, "experts.w13"), dtype,
                               getFactor(deviation)};
        std::vector<uint8_t> wanted(count * size), seen(count * size);
        tensor.write(first, count, wanted.data());
        Result<GuardedBuffer> buffer =
            GuardedBuffer::create(context.device, "generated", seen.size());
        if (!outcome.expect(buffer.status()) ||
            !outcome.expect(context.generator.write(**stream, tensor, first,
                                                    count, buffer->data())) ||
            !outcome.expect(context.device.synchronize(**stream)) ||
            !outcome.expect(context.device.copyOut(seen.data(), buffer->data(),
                                                   seen.size())) ||
            !outcome.expect(buffer->check()))
          return outcome;
        auto differ = std::mismatch(seen.begin(), seen.end(), wanted.begin());
        if (differ.first != seen.end())
          outcome.fail(llvm::formatv(
              "element {0} of {1} from {2} on, of deviation {3:e1}, has other "
              "bits than in C++",
              (differ.first - seen.begin()) / size, count, first, deviation));
      }
  return outcome;
}

std::vector<Case>
moec::gputest::makeGeneratorCases(const std::unique_ptr<SuiteContext> &shared) {
  std::vector<Case> cases;
  for (moert::DType dtype :
       {moert::DType::F32, moert::DType::BF16, moert::DType::F16})
    cases.push_back(
        {std::string("generator/") + moert::dtypeName(dtype),
         [&shared, dtype] { return compareGenerators(*shared, dtype); }});
  return cases;
}
