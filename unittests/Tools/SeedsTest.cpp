//===- SeedsTest.cpp - several seeds of the simulator -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorTesting.h"

#include "Tools/Run/OpenDevice.h"
#include "Tools/Run/RunLevel.h"

using namespace moec;
using namespace moec::testing;

namespace {

constexpr int64_t kTokens = 8;

/// A CTA per token: `value` computes %r0 from the address %d1 of a counter, and
/// the token gets it.
moert::Package makePackage(const std::string &value) {
  std::string ptx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 counter, .param .u64 y, .param .u64 tokens)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [counter];
  ld.param.u64 %d2, [y];
  )" + value + R"(
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %d3, %r1, 4;
  add.s64 %d4, %d2, %d3;
  st.global.b32 [%d4], %r0;
  ret;
}
)";
  moert::PackageProgram program;
  program.images.push_back(
      {"sm_80", moert::ModuleImage::Kind::Ptx, {{ptx.begin(), ptx.end()}}});
  moert::Plan &plan = program.plan;
  plan.target = "sm_80";
  plan.maxTokens = kTokens;
  moert::Expr tokens = moert::Expr::tokens();
  plan.tensors = {{"counter", ElementType::I32, {1}, Role::Input},
                  {"y", ElementType::I32, {tokens}, Role::Output}};
  plan.kernels = {{"k", tokens, 1, 0}};
  plan.variants = {{0,
                    kTokens,
                    {moert::Step::launch(0,
                                         {moert::Argument::ofTensor(0),
                                          moert::Argument::ofTensor(1),
                                          moert::Argument::ofTokens()},
                                         0)}}};
  moert::Package package;
  package.programs.push_back(std::move(program));
  return package;
}

/// The output of runPackage() with the seeds 0 to 7; empty if it succeeds.
std::string run(const moert::Package &package) {
  auto devices = openDevices("sim:0-7", /*threads=*/1);
  EXPECT_TRUE(devices);
  std::vector<HostTensor> tensors =
      makeTensors({{"counter", Role::Input, ElementType::I32, {1}},
                   {"y", Role::Output, ElementType::I32, {kTokens}}});
  *reinterpret_cast<int32_t *>(tensors[0].data()) = 0;
  RunOptions options;
  options.tokens = kTokens;
  options.device = devices->front().get();
  options.others = llvm::ArrayRef(*devices).drop_front();
  ::testing::internal::CaptureStderr();
  bool isWell = mlir::succeeded(runPackage(package, {}, tensors, options));
  std::string messages = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(isWell, messages.find("error") == std::string::npos) << messages;
  return isWell ? "" : messages;
}

TEST(SeedsTest, SameBits) {
  EXPECT_EQ(run(makePackage("mov.u32 %r0, %ctaid.x;")), "");
}

TEST(SeedsTest, BitsThatDependOnTheSchedule) {
  // The first CTA gets the first ticket, which is no race.
  std::string messages = run(makePackage("atom.global.add.u32 %r0, [%d1], 1;"));
  EXPECT_NE(messages.find("they depend on the order of threads"),
            std::string::npos)
      << messages;
  EXPECT_NE(messages.find("seed "), std::string::npos) << messages;
}

TEST(SeedsTest, ErrorsNameTheSeed) {
  std::string messages = run(makePackage("ld.global.b32 %r0, [%d1+64];"));
  EXPECT_NE(messages.find("sim (sm_90, seed 0): "), std::string::npos)
      << messages;
  EXPECT_NE(messages.find("out of bounds"), std::string::npos) << messages;
}

TEST(SeedsTest, RangesAreChecked) {
  auto count = [](llvm::StringRef name) {
    auto devices = openDevices(name, /*threads=*/1);
    return devices ? devices->size() : 0;
  };
  EXPECT_EQ(count("sim"), 1u);
  EXPECT_EQ(count("sim:5"), 1u);
  EXPECT_EQ(count("sim:5-5"), 1u);
  EXPECT_EQ(count("sim:5-7"), 3u);
  EXPECT_EQ(count("host"), 1u);
  for (const char *bad : {"sim:7-5", "sim:5-", "sim:-5", "sim:0-100000000",
                          "sim:a-b", "sim-3", "cuda:0-1", "tpu"})
    EXPECT_EQ(count(bad), 0u) << bad;
  EXPECT_EQ((*openDevices("sim:5-7", 1))[1]->name(), "sim (sm_90, seed 6)");
}

} // namespace
