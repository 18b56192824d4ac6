//===- DeviceKernels.cpp - handwritten kernels for tests --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceKernels.h"

#include <cstring>

using namespace moec::gputest;
using namespace moert;

const char *const moec::gputest::kStepPtx = R"(
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];

.visible .entry step(.param .u64 in, .param .u64 out, .param .u64 tokens)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d<8>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 128, %r2;
  cvt.u64.u32 %d1, %r1;
  ld.param.u64 %d2, [tokens];
  shl.b64 %d2, %d2, 2;
  setp.ge.u64 %p, %d1, %d2;
  @%p ret;
  ld.param.u64 %d3, [in];
  ld.param.u64 %d4, [out];
  shl.b64 %d1, %d1, 2;
  add.u64 %d3, %d3, %d1;
  add.u64 %d4, %d4, %d1;
  ld.global.f32 %f1, [%d3];
  fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000;
  st.global.f32 [%d4], %f1;
  ret;
}

.visible .entry staged(.param .u64 in, .param .u64 out, .param .u64 tokens)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 128, %r2;
  cvt.u64.u32 %d1, %r1;
  ld.param.u64 %d2, [tokens];
  shl.b64 %d2, %d2, 2;
  setp.ge.u64 %p, %d1, %d2;
  mov.u32 %r3, dynamic;
  mad.lo.u32 %r4, %r2, 796, %r3;
  ld.param.u64 %d3, [in];
  ld.param.u64 %d4, [out];
  shl.b64 %d1, %d1, 2;
  add.u64 %d3, %d3, %d1;
  add.u64 %d4, %d4, %d1;
  @!%p ld.global.f32 %f1, [%d3];
  @!%p st.shared.f32 [%r4], %f1;
  bar.sync 0;
  @!%p ld.shared.f32 %f2, [%r4];
  @!%p fma.rn.f32 %f2, %f2, 0f40000000, 0f3F800000;
  @!%p st.global.f32 [%d4], %f2;
  ret;
}
)";

const char *const moec::gputest::kMapPtx = R"(
.version 8.0
.target sm_90
.address_size 64

.visible .entry copied(.param .u64 in, .param .u64 out, .param .u64 tokens,
                       .param .align 64 .b8 map[128])
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %d<6>;
  .reg .f32 %f<2>;
  .shared .align 128 .b8 tile[256];
  .shared .align 8 .b64 barrier;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, tile;
  mov.u32 %r4, barrier;
  setp.ne.u32 %p, %r1, 0;
  @%p bra started;
  mbarrier.init.shared.b64 [%r4], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;
  mov.b64 %d1, map;
  cvta.param.u64 %d1, %d1;
  mov.u32 %r5, 0;
  shl.b32 %r6, %r2, 4;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r3], [%d1, {%r5, %r6}], [%r4];
started:
  bar.sync 0;
waiting:
  mbarrier.try_wait.parity.shared.b64 %p, [%r4], 0;
  @!%p bra waiting;
  mad.lo.u32 %r2, %r2, 64, %r1;
  cvt.u64.u32 %d2, %r2;
  ld.param.u64 %d3, [tokens];
  shl.b64 %d3, %d3, 2;
  setp.ge.u64 %p, %d2, %d3;
  @%p ret;
  shl.b32 %r1, %r1, 2;
  add.u32 %r3, %r3, %r1;
  ld.shared.f32 %f1, [%r3];
  fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000;
  ld.param.u64 %d4, [out];
  shl.b64 %d2, %d2, 2;
  add.u64 %d4, %d4, %d2;
  st.global.f32 [%d4], %f1;
  ret;
}
)";

constexpr int64_t kShared = 100 * 1024;

ModuleImage moec::gputest::makeStepImage() {
  ModuleImage image;
  image.kind = ModuleImage::Kind::Ptx;
  image.modules.emplace_back(kStepPtx, kStepPtx + std::strlen(kStepPtx));
  return image;
}

Plan moec::gputest::makeStepPlan() {
  Plan plan;
  plan.target = "sm_80";
  plan.maxTokens = kPlanRows;
  plan.numSlots = 2;
  plan.numStreams = 2;
  plan.numEvents = 4;
  Expr tokens = Expr::tokens();
  plan.tensors = {
      {"x", DType::F32, {tokens, 4}, TensorRole::Input},
      {"a", DType::F32, {tokens, 4}, TensorRole::Workspace, 0, 16},
      {"b", DType::F32, {tokens, 4}, TensorRole::Workspace, 1, 16},
      {"y", DType::F32, {tokens, 4}, TensorRole::Output},
  };
  Expr grid = Expr::ceilDiv(tokens * 4, 128);
  plan.kernels = {{"step", grid, 128, 0}, {"staged", grid, 128, kShared}};
  auto launch = [](int64_t kernel, int64_t from, int64_t to, int64_t stream) {
    return Step::launch(kernel,
                        {Argument::ofTensor(from), Argument::ofTensor(to),
                         Argument::ofTokens()},
                        stream);
  };
  plan.variants = {{0,
                    kPlanRows,
                    {launch(0, 0, 1, 0), launch(0, 1, 2, 0), Step::record(0, 0),
                     Step::wait(0, 1), launch(0, 2, 1, 1), Step::record(1, 1),
                     Step::wait(1, 0), launch(1, 1, 2, 0), Step::record(2, 0),
                     Step::wait(2, 1), launch(0, 2, 1, 1), Step::record(3, 1),
                     Step::wait(3, 0), launch(0, 1, 3, 0)}}};
  return plan;
}

float moec::gputest::stepAll(float x) {
  for (int i = 0; i < kPlanLaunches; ++i)
    x = x * 2 + 1;
  return x;
}
