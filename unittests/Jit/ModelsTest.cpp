//===- ModelsTest.cpp - how long the kernels of models take -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every other model without quantization, for one kind of kernels or the other;
// with MOEC_ALL_CASES set, every night, all models for both. Prints what ptxas
// takes; a kernel that takes it more than a second is a defect.
//
//===----------------------------------------------------------------------===//

#include "../Target/PtxasSeconds.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/Registry.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Schedules/PtxasLimits.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

LayerSpec readSpec(const std::string &path) {
  Diagnostics diagnostics(llvm::errs());
  FailureOr<LayerSpec> spec = importJsonFile(path, {}, diagnostics);
  return succeeded(spec) ? *spec : LayerSpec();
}

std::vector<std::string> findModels() {
  std::vector<std::string> models;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(MODELS, error), end;
       it != end && !error; it.increment(error))
    if (llvm::StringRef(it->path()).ends_with(".json") &&
        !readSpec(it->path()).quantization)
      models.push_back(it->path());
  llvm::sort(models);
  return models;
}

class ModelsTest : public testing::TestWithParam<std::string> {};

bool runsAll() { return getenv("MOEC_ALL_CASES"); }

std::vector<std::string> chooseModels() {
  std::vector<std::string> models = findModels(), chosen;
  for (const auto &[index, model] : llvm::enumerate(models))
    if (runsAll() || index % 2 == 0)
      chosen.push_back(model);
  return chosen;
}

/// What a model is compiled for. Shards have every other one of the chosen
/// models, and both targets.
std::vector<const char *> chooseTargets(const std::string &path) {
  if (runsAll())
    return {"sm_80", "sm_90a"};
  std::vector<std::string> models = chooseModels();
  size_t index = size_t(llvm::find(models, path) - models.begin());
  return {index / 2 % 2 ? "sm_80" : "sm_90a"};
}

// field-bug: flashinfer#4110, flashinfer#2968, vllm#54794
TEST_P(ModelsTest, AssemblesQuickly) {
  for (const char *target : chooseTargets(GetParam())) {
    DialectRegistry registry;
    registerDialects(registry);
    MLIRContext context(registry);
    OwningOpRef<ModuleOp> module = buildLayer(context, readSpec(GetParam()));
    CompileOptions options;
    options.target = target;
    FailureOr<CompiledGpuLayer> layer =
        compileForGpu(*module, options, {target});
    ASSERT_TRUE(succeeded(layer));
    for (const CompiledKernel &kernel : layer->kernels) {
      const AssembledKernels &assembled = kernel.assembled.front();
      double seconds =
          getPtxasSeconds(kernel.ptx, target, assembled.cpuSeconds);
      printf("  %-8s %-20s %7zu bytes of PTX  ptxas %5.0f ms\n", target,
             kernel.name.c_str(), kernel.ptx.size(), seconds * 1e3);
      EXPECT_LT(seconds, ptxas::kMaxSeconds) << kernel.name;
      EXPECT_TRUE(assembled.complaints.empty()) << assembled.complaints.front();
      for (const KernelReport &report : assembled.kernels) {
        EXPECT_EQ(report.spillStoreBytes, 0) << report.name;
        EXPECT_EQ(report.spillLoadBytes, 0) << report.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelsTest, testing::ValuesIn(chooseModels()),
                         [](const testing::TestParamInfo<std::string> &info) {
                           std::string name =
                               llvm::sys::path::stem(info.param).str();
                           for (char &c : name)
                             if (!isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           return name;
                         });

TEST(Models, AreFound) { EXPECT_GE(findModels().size(), 14u); }

} // namespace
