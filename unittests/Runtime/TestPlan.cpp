//===- TestPlan.cpp - a small plan with kernels written by hand -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"

#include <map>

using namespace moert;
using namespace moert::test;

template <typename T>
static T *pointer(uint64_t slot) {
  return reinterpret_cast<T *>(static_cast<uintptr_t>(slot));
}

/// Calls `body` for the indices of one CTA that are below `count`. A CTA covers
/// four, so that the last one may be partial.
template <typename Body>
static void forEach(int64_t cta, int64_t count, Body body) {
  for (int64_t i = cta * 4; i < cta * 4 + 4 && i < count; ++i)
    body(i);
}

// twice = 2 * scale
static void prepareScale(const uint64_t *args, int64_t cta) {
  auto *scale = pointer<const float>(args[0]);
  auto *twice = pointer<float>(args[1]);
  forEach(cta, kWidth, [&](int64_t i) { twice[i] = 2 * scale[i]; });
}

// h[2t + i] = x[t] * twice + i
static void spread(const uint64_t *args, int64_t cta) {
  auto *x = pointer<const float>(args[0]);
  auto *twice = pointer<const float>(args[1]);
  auto *h = pointer<float>(args[2]);
  auto tokens = static_cast<int64_t>(args[3]);
  forEach(cta, tokens * 2 * kWidth, [&](int64_t i) {
    int64_t row = i / kWidth, c = i % kWidth;
    h[i] = x[row / 2 * kWidth + c] * twice[c] + static_cast<float>(row % 2);
  });
}

// out = in + 1
static void addOne(const uint64_t *args, int64_t cta) {
  auto *in = pointer<const float>(args[0]);
  auto *out = pointer<float>(args[1]);
  forEach(cta, static_cast<int64_t>(args[2]) * 2 * kWidth,
          [&](int64_t i) { out[i] = in[i] + 1; });
}

// out = in * in
static void square(const uint64_t *args, int64_t cta) {
  auto *in = pointer<const float>(args[0]);
  auto *out = pointer<float>(args[1]);
  forEach(cta, static_cast<int64_t>(args[2]) * 2 * kWidth,
          [&](int64_t i) { out[i] = in[i] * in[i]; });
}

// s = x
static void copy(const uint64_t *args, int64_t cta) {
  auto *x = pointer<const float>(args[0]);
  auto *s = pointer<float>(args[1]);
  forEach(cta, static_cast<int64_t>(args[2]) * kWidth,
          [&](int64_t i) { s[i] = x[i]; });
}

// y[t] = z[2t] + z[2t + 1] + offset (+ s[t])
static void reduce(const uint64_t *args, int64_t cta) {
  auto *z = pointer<const float>(args[0]);
  auto *offset = pointer<const int32_t>(args[1]);
  auto *y = pointer<float>(args[2]);
  auto *s = args[4] ? pointer<const float>(args[4]) : nullptr;
  forEach(cta, static_cast<int64_t>(args[3]) * kWidth, [&](int64_t i) {
    int64_t t = i / kWidth, c = i % kWidth;
    y[i] = z[2 * t * kWidth + c] + z[(2 * t + 1) * kWidth + c] +
           static_cast<float>(*offset) + (s ? s[i] : 0.0f);
  });
}

Plan moert::test::makePlan() {
  Expr tokens = Expr::tokens();
  Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 100;
  plan.numSlots = 3;
  plan.numStreams = 2;
  plan.numEvents = 2;
  auto workspace = [&](const char *name, Expr rows, int64_t slot) {
    return TensorDecl{name, DType::F32, {rows, kWidth}, TensorRole::Workspace,
                      slot, 64};
  };
  plan.tensors = {
      {"x", DType::F32, {tokens, kWidth}, TensorRole::Input},
      {"scale", DType::F32, {kWidth}, TensorRole::Weight},
      {"twice", DType::F32, {kWidth}, TensorRole::Prepared},
      {"offset", DType::I32, {1}, TensorRole::Input},
      workspace("h", tokens * 2, 0),
      workspace("g", tokens * 2, 1),
      workspace("z", tokens * 2, 0),
      workspace("s", tokens, 2),
      {"y", DType::F32, {tokens, kWidth}, TensorRole::Output, -1, 16},
  };
  Expr wide = Expr::ceilDiv(tokens * 2 * kWidth, 4);
  Expr narrow = Expr::ceilDiv(tokens * kWidth, 4);
  plan.kernels = {{"prepare_scale", 1}, {"spread", wide}, {"add_one", wide},
                  {"square", wide},     {"copy", narrow}, {"reduce", narrow}};
  auto tensor = [](int64_t index) { return Argument::ofTensor(index); };
  Argument count = Argument::ofTokens();
  plan.prepare = {Step::launch(0, {tensor(Scale), tensor(Twice)})};

  Step spread = Step::launch(1, {tensor(X), tensor(Twice), tensor(H), count});
  Step addOne = Step::launch(2, {tensor(H), tensor(G), count});
  Step square = Step::launch(3, {tensor(G), tensor(Z), count});
  Step copy = Step::launch(4, {tensor(X), tensor(S), count}, /*stream=*/1);
  auto reduce = [&](Argument addend) {
    return Step::launch(5,
                        {tensor(Z), tensor(Offset), tensor(Y), count, addend});
  };
  plan.variants = {
      {0, 3, {spread, addOne, square, reduce(Argument::ofScalar(0))}},
      {4,
       100,
       {Step::record(0, 0), spread, Step::wait(0, 1), copy, Step::record(1, 1),
        addOne, square, Step::wait(1, 0), reduce(tensor(S))}}};
  return plan;
}

ModuleImage moert::test::makeImage() {
  ModuleImage image;
  image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
    static const std::map<std::string, HostKernelFn> kernels = {
        {"prepare_scale", &prepareScale},
        {"spread", &spread},
        {"add_one", &addOne},
        {"square", &square},
        {"copy", &copy},
        {"reduce", &reduce}};
    auto it = kernels.find(name);
    if (it == kernels.end())
      return notFound("no such symbol");
    return it->second;
  };
  return image;
}

float moert::test::expectedY(const std::vector<float> &x,
                             const std::vector<float> &scale, int32_t offset,
                             int64_t t, int64_t c, int64_t tokens) {
  float value = x[t * kWidth + c] * (2 * scale[c]);
  float first = value + 0 + 1, second = value + 1 + 1;
  float sum = first * first + second * second + static_cast<float>(offset);
  return tokens > 3 ? sum + x[t * kWidth + c] : sum;
}
