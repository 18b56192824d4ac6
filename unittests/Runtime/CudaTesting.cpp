//===- CudaTesting.cpp - an emulated GPU ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaTesting.h"
#include "TestPlan.h"

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

using namespace moert;
using namespace moert::test;

const char *const moert::test::kFakeDriver = FAKE_CUDA_LIBRARY;
const char *const moert::test::kEmptyLibrary = EMPTY_CUDA_LIBRARY;

FakeCuda &moert::test::resetFakeCuda() {
  // Never closed, like the real driver.
  static void *library = dlopen(kFakeDriver, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  auto *getState =
      reinterpret_cast<FakeCuda *(*)()>(dlsym(library, "fakeCudaState"));
  FakeCuda &fake = *getState();
  fake.reset();
  fake.numArgs = [](const std::string &name) {
    const std::map<std::string, int> counts = {
        {"prepare_scale", 2}, {"spread", 4}, {"add_one", 3},
        {"square", 3},        {"copy", 3},   {"reduce", 5}};
    auto found = counts.find(name);
    return found == counts.end() ? -1 : found->second;
  };
  fake.numMaps = [](const std::string &name) {
    return name == "prepare_scale" ? 1 : name == "spread" ? 2 : 0;
  };
  fake.kernel = [image = makeImage()](const std::string &name,
                                      const uint64_t *args, int64_t grid) {
    HostKernelFn function = *image.lookup(name);
    for (int64_t cta = 0; cta < grid; ++cta)
      function(args, cta);
  };
  return fake;
}

Plan moert::test::makeGpuPlan() {
  Plan plan = makePlan();
  plan.target = "sm_80";
  for (KernelDecl &kernel : plan.kernels) {
    kernel.block = 128;
    kernel.shared = 1024;
  }
  plan.kernels[3].shared = 200 * 1024;
  plan.kernels[5].resident = true;
  for (TensorIndex tensor : {X, Scale})
    plan.tensors[tensor].alignment = 16;
  constexpr int64_t rows = TensorMapDecl::kOwnRows;
  plan.kernels[0].tensorMaps = {{0, {kWidth}, {0}, {1}, {kWidth}, 0}};
  plan.kernels[1].tensorMaps = {
      {0, {rows, kWidth}, {0, 1}, {1, 1}, {16, kWidth}, 32},
      {2, {rows, kWidth}, {0, 1}, {1, 1}, {8, kWidth}, 0}};
  return plan;
}

std::vector<std::vector<uint8_t>>
moert::test::makePtxModules(const std::string &target) {
  std::vector<std::vector<uint8_t>> modules;
  for (const char *entries :
       {".entry prepare_scale() {}\n.entry spread() {}\n.entry add_one() {}\n",
        ".entry square() {}\n.entry copy() {}\n.entry reduce() {}\n"}) {
    std::string text = ".version 8.0\n.target " + target + "\n" + entries;
    modules.emplace_back(text.begin(), text.end());
  }
  return modules;
}

ModuleImage moert::test::makePtxImage() {
  ModuleImage image;
  image.kind = ModuleImage::Kind::Ptx;
  image.modules = makePtxModules("sm_80");
  return image;
}
