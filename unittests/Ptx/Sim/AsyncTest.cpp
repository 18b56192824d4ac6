//===- AsyncTest.cpp - tests of asynchronous copies -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

#include <numeric>

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

const char kHead[] = ".extern .shared .align 1024 .b8 sm[];";

std::vector<uint32_t> iota(size_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

/// Each lane copies 16 bytes, zeros in the upper lanes, and reads its
/// neighbour's bytes.
std::string copyKernel() {
  return kernelText("mul.wide.u32 %rd2, %r0, 16;\nadd.s64 %rd3, %rd0, %rd2;\n"
                    "mov.b64 %rd4, sm;\nadd.s64 %rd5, %rd4, %rd2;\n"
                    "setp.lt.u32 %p1, %r0, 16;\nselp.b32 %r1, 16, 0, %p1;\n"
                    "cp.async.cg.shared.global [%rd5], [%rd3], 16, %r1;\n"
                    "cp.async.commit_group;\n"
                    "cp.async.wait_group 0;\nbar.warp.sync -1;\n"
                    "xor.b32 %r2, %r0, 1;\nmul.wide.u32 %rd6, %r2, 16;\n"
                    "add.s64 %rd7, %rd4, %rd6;\n"
                    "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%rd7];\n"
                    "add.s64 %rd8, %rd1, %rd2;\n"
                    "st.global.v4.b32 [%rd8], {%r4, %r5, %r6, %r7};",
                    2, 32, kHead);
}

std::string runCopy(const std::string &text) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(iota(128));
    uint64_t result = kernel.output(512);
    if (moert::Status status = kernel.run(1, 32, 1024); !status)
      return status.message();
    std::vector<uint32_t> values = kernel.read<uint32_t>(result, 128);
    for (uint32_t i = 0; i < 128; ++i)
      EXPECT_EQ(values[i], i < 64 ? i ^ 4 : 0u);
    // Copies of zero bytes are counted, too.
    EXPECT_EQ(kernel.simulator.statistics().work, (Work{32, 16 * 16, 0}));
  }
  return "";
}

TEST(CopyAsync, ArrivesAndFillsWithZeros) {
  EXPECT_EQ(runCopy(copyKernel()), "");
}

TEST(CopyAsync, MutantsDie) {
  EXPECT_MESSAGE(runCopy(without(copyKernel(), "cp.async.wait_group 0;")),
                 "in flight");
  EXPECT_MESSAGE(runCopy(without(copyKernel(), "cp.async.commit_group;")),
                 "in flight");
  EXPECT_MESSAGE(
      runCopy(replaced(copyKernel(), "wait_group 0", "wait_group 1")),
      "in flight");
  EXPECT_MESSAGE(runCopy(without(copyKernel(), "bar.warp.sync -1;")), "race");
}

TEST(CopyAsync, LeftInFlight) {
  KernelRun kernel(
      kernelText("cp.async.cg.shared.global [sm], [%rd0], 16;", 1, 1, kHead));
  kernel.input(iota(4));
  EXPECT_MESSAGE(kernel.run(1, 1, 1024).message(), "wait for it first");
}

//===----------------------------------------------------------------------===//
// Boxes of tensors
//===----------------------------------------------------------------------===//

/// Loads a box of 8 rows of 64 bytes at column 8 and row 2 of a tensor of 6
/// rows of 20 values, and writes shared memory out as it is.
std::string loadKernel() {
  return kernelText(
      "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra made;\n"
      "mbarrier.init.shared.b64 [sm+1024], 1;\n"
      "fence.proxy.async.shared::cta;\n"
      "made:\nbar.sync 0;\n@%p1 bra wait;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [sm+1024], 512;\n"
      "mov.b32 %r1, 8;\nmov.b32 %r2, 2;\n"
      "mov.b64 %rd3, p1;\ncvta.param.u64 %rd4, %rd3;\n"
      "prefetch.tensormap [%rd4];\n"
      "mov.b32 %r4, sm;\nmov.b32 %r5, sm;\nadd.s32 %r5, %r5, 1024;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_"
      "tx::bytes [%r4], [%rd4, {%r1, %r2}], [%r5];\n"
      "wait:\nmov.b32 %r6, 0;\n"
      "again:\nmbarrier.try_wait.parity.shared.b64 %p2, [sm+1024], %r6;\n"
      "@!%p2 bra again;\n"
      "mul.wide.u32 %rd5, %r0, 16;\nmov.b64 %rd6, sm;\n"
      "add.s64 %rd7, %rd6, %rd5;\nadd.s64 %rd8, %rd0, %rd5;\n"
      "ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [%rd7];\n"
      "st.global.v4.b32 [%rd8], {%r8, %r9, %r10, %r11};",
      1, 32, kHead, /*numMaps=*/1);
}

moert::TensorMapRecipe tensor(uint64_t address, int64_t swizzle) {
  moert::TensorMapRecipe recipe;
  recipe.data = reinterpret_cast<void *>(address);
  recipe.dtype = moert::DType::F32;
  recipe.shape = {6, 20};
  recipe.strideBytes = {80};
  recipe.box = {8, 16};
  recipe.swizzleBytes = swizzle;
  return recipe;
}

std::string runLoad(const std::string &text, int64_t swizzle,
                    uint64_t seeds = kSeeds) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    KernelRun kernel(text, seed);
    uint64_t result = kernel.output(512);
    moert::Result<uint64_t> data =
        kernel.simulator.allocate(480, 256, "tensor");
    std::vector<uint32_t> values = iota(120);
    EXPECT_TRUE(kernel.simulator.write(*data, values.data(), 480));
    kernel.map(tensor(*data, swizzle));
    if (moert::Status status = kernel.run(1, 32, 2048); !status)
      return status.message();
    EXPECT_EQ(kernel.simulator.statistics().work, (Work{1, 512, 0}));
    std::vector<uint32_t> found = kernel.read<uint32_t>(result, 128);
    for (uint32_t row = 0; row < 8; ++row)
      for (uint32_t i = 0; i < 16; ++i) {
        uint32_t address = row * 64 + i * 4;
        uint32_t mask = swizzle == 64 ? 3 : 0;
        uint32_t at = address ^ ((address >> 7 & mask) << 4);
        bool isInside = row + 2 < 6 && i + 8 < 20;
        EXPECT_EQ(found[at / 4], isInside ? (row + 2) * 20 + i + 8 : 0u)
            << row << " " << i;
      }
  }
  return "";
}

TEST(TensorCopy, LoadsFillsAndSwizzles) {
  EXPECT_EQ(runLoad(loadKernel(), 0), "");
  EXPECT_EQ(runLoad(loadKernel(), 64), "");
}

TEST(TensorCopy, HandsOnWhatNobodyWrote) {
  std::string text = loadKernel();
  for (bool uses : {false, true}) {
    // Without its tail the kernel does not read the loaded bytes.
    size_t tail = text.find("ld.shared.v4");
    KernelRun kernel(uses ? text : text.substr(0, tail) + "ret;\n}\n");
    kernel.output(512);
    moert::Result<uint64_t> data =
        kernel.simulator.allocate(480, 256, "tensor");
    kernel.map(tensor(*data, 0));
    std::string error = kernel.run(1, 32, 2048).message();
    if (uses)
      EXPECT_MESSAGE(error, "never written");
    else
      EXPECT_EQ(error, "");
  }
}

TEST(TensorCopy, MutantsOfLoadsDie) {
  std::string text = loadKernel();
  EXPECT_MESSAGE(runLoad(without(text, "fence.proxy.async.shared::cta;"), 0),
                 "fence.proxy.async");
  EXPECT_NE(runLoad(without(text, "bar.sync 0;"), 0), "");
  EXPECT_NE(runLoad(without(text, "@!%p2 bra again;"), 0), "");
  EXPECT_MESSAGE(
      runLoad(without(text, "mbarrier.arrive.expect_tx.shared.b64 _, "
                            "[sm+1024], 512;"),
              0),
      "deadlock");
  EXPECT_MESSAGE(
      runLoad(replaced(text, "[sm+1024], 512;", "[sm+1024], 528;"), 0),
      "16 bytes missing");
  EXPECT_NE(runLoad(replaced(text, "[sm+1024], 512;", "[sm+1024], 496;"), 0),
            "");
}

TEST(TensorCopy, MapsThatCannotBe) {
  auto message = [](moert::TensorMapRecipe recipe) {
    return encodeTensorMap(recipe).status().message();
  };
  moert::TensorMapRecipe recipe = tensor(0x1000, 32);
  EXPECT_MESSAGE(message(recipe), "innermost box has 64 bytes");
  recipe = tensor(0x1008, 0);
  EXPECT_MESSAGE(message(recipe), "multiple of 16");
  recipe = tensor(0x1000, 0);
  recipe.strideBytes = {84};
  EXPECT_MESSAGE(message(recipe), "stride of dimension 0");
}

/// Threads write 4 rows of 32 bytes; one of them stores the box at row 1 of 3.
std::string storeKernel() {
  return kernelText(
      "mul.wide.u32 %rd3, %r0, 4;\nmov.b64 %rd4, sm;\n"
      "add.s64 %rd5, %rd4, %rd3;\n"
      "st.shared.b32 [%rd5], %r0;\n"
      "fence.proxy.async.shared::cta;\nbar.warp.sync -1;\n"
      "setp.ne.b32 %p1, %r0, 0;\n@%p1 bra end;\n"
      "mov.b64 %rd6, p0;\ncvta.param.u64 %rd7, %rd6;\n"
      "mov.b32 %r1, 0;\nmov.b32 %r2, 1;\nmov.b32 %r3, sm;\n"
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
      "[%rd7, {%r1, %r2}], [%r3];\n"
      "cp.async.bulk.commit_group;\n"
      "cp.async.bulk.wait_group.read 0;\n"
      "st.shared.b32 [sm], 99;\n"
      "end:\n",
      0, 32, kHead, /*numMaps=*/1);
}

std::string runStore(const std::string &text) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(text, seed);
    moert::Result<uint64_t> data = kernel.simulator.allocate(96, 256, "tensor");
    moert::TensorMapRecipe recipe;
    recipe.data = reinterpret_cast<void *>(*data);
    recipe.dtype = moert::DType::F32;
    recipe.shape = {3, 8};
    recipe.strideBytes = {32};
    recipe.box = {4, 8};
    std::vector<uint32_t> zeros(24);
    EXPECT_TRUE(kernel.simulator.write(*data, zeros.data(), 96));
    kernel.map(recipe);
    if (moert::Status status = kernel.run(1, 32, 2048); !status)
      return status.message();
    std::vector<uint32_t> found = kernel.read<uint32_t>(*data, 24);
    for (uint32_t i = 0; i < 24; ++i)
      if (found[i] != (i < 8 ? 0 : i - 8))
        return "wrong value";
  }
  return "";
}

TEST(TensorCopy, StoresWhatIsInside) { EXPECT_EQ(runStore(storeKernel()), ""); }

TEST(TensorCopy, MutantsOfStoresDie) {
  std::string text = storeKernel();
  EXPECT_MESSAGE(runStore(without(text, "fence.proxy.async.shared::cta;")),
                 "unfenced generic write");
  // fence.mbarrier_init covers only mbarriers.
  EXPECT_MESSAGE(runStore(replaced(text, "fence.proxy.async.shared::cta;",
                                   "fence.mbarrier_init.release.cluster;")),
                 "unfenced generic write");
  EXPECT_MESSAGE(runStore(without(text, "bar.warp.sync -1;")), "race");
  EXPECT_NE(runStore(without(text, "cp.async.bulk.wait_group.read 0;")), "");
  EXPECT_NE(runStore(without(text, "cp.async.bulk.commit_group;")), "");
  EXPECT_MESSAGE(
      runStore(without(without(text, "cp.async.bulk.wait_group.read 0;"),
                       "st.shared.b32 [sm], 99;")),
      "wait for it first");
}

//===----------------------------------------------------------------------===//
// Copies of bytes
//===----------------------------------------------------------------------===//

std::string bytesKernel() {
  return kernelText(
      "mbarrier.init.shared.b64 [sm+1024], 1;\n"
      "fence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared.b64 _, [sm+1024], 128;\n"
      "mov.b64 %rd3, sm;\nmov.b32 %r1, 128;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%rd3], [%rd0], %r1, [%rd3+1024];\n"
      "mov.b32 %r2, 0;\n"
      "again:\nmbarrier.try_wait.parity.shared.b64 %p2, [sm+1024], %r2;\n"
      "@!%p2 bra again;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%rd3], %r1;\n"
      "cp.async.bulk.commit_group;\n"
      "cp.async.bulk.wait_group 0;\n"
      "ld.global.b32 %r3, [%rd1+4];\nst.global.b32 [%rd1+4], %r3;",
      2, 1, kHead);
}

std::string runBytes(const std::string &text) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    KernelRun kernel(text, seed);
    kernel.input(iota(32));
    uint64_t result = kernel.output(128);
    if (moert::Status status = kernel.run(1, 1, 2048); !status)
      return status.message();
    EXPECT_EQ(kernel.read<uint32_t>(result, 32), iota(32));
    EXPECT_EQ(kernel.simulator.statistics().work, (Work{2, 2 * 128, 0}));
  }
  return "";
}

TEST(BulkCopy, ThereAndBack) { EXPECT_EQ(runBytes(bytesKernel()), ""); }

TEST(BulkCopy, WaitingForReadsIsNotWaitingForWrites) {
  std::string error = runBytes(
      replaced(bytesKernel(), "bulk.wait_group 0", "bulk.wait_group.read 0"));
  EXPECT_TRUE(error.find("race") != std::string::npos ||
              error.find("never written") != std::string::npos)
      << error;
}

} // namespace
