//===- SimulatorTesting.cpp - small kernels for tests -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;

std::string moec::ptx::test::kernelText(const std::string &body,
                                        unsigned numParams, unsigned threads,
                                        const std::string &head,
                                        unsigned numMaps) {
  std::string text = ".version 8.6\n.target sm_90a\n.address_size 64\n" + head +
                     "\n.visible .entry k(";
  for (unsigned i = 0; i < numParams + numMaps; ++i)
    text += (i ? "," : "") +
            std::string(i < numParams ? "\n.param .u64 p" + std::to_string(i)
                                      : "\n.param .align 64 .b8 p" +
                                            std::to_string(i) + "[128]");
  text += "\n)\n.reqntid " + std::to_string(threads) +
          "\n{\n.reg .pred %p<16>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<300>;\n"
          ".reg .b64 %rd<64>;\n";
  for (unsigned i = 0; i < numParams; ++i)
    text += "ld.param.b64 %rd" + std::to_string(i) + ", [p" +
            std::to_string(i) + "];\n";
  return text + "mov.u32 %r0, %tid.x;\n" + body + "\nret;\n}\n";
}

std::string moec::ptx::test::replaced(const std::string &text,
                                      const std::string &what,
                                      const std::string &with) {
  size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << "no '" << what << "' in the kernel";
  return at == std::string::npos
             ? text
             : text.substr(0, at) + with + text.substr(at + what.size());
}

std::string moec::ptx::test::without(const std::string &text,
                                     const std::string &what) {
  return replaced(text, what, "");
}

static SimulatorOptions withSeed(SimulatorOptions options, uint64_t seed) {
  options.seed = seed;
  return options;
}

KernelRun::KernelRun(const std::string &text, uint64_t seed,
                     SimulatorOptions options)
    : simulator(withSeed(options, seed)) {
  moert::Result<LoadedModule *> result = simulator.load(text, "test.ptx");
  loaded = result.status();
  if (result)
    module = *result;
}

uint64_t KernelRun::output(size_t bytes) {
  moert::Result<uint64_t> address =
      simulator.allocate(bytes, 256, "buffer " + std::to_string(slots.size()));
  EXPECT_TRUE(address);
  slots.push_back(*address);
  return *address;
}

void KernelRun::map(moert::TensorMapRecipe recipe) {
  moert::Result<moert::TensorMap> made = encodeTensorMap(recipe);
  ASSERT_TRUE(made) << made.status().message();
  maps.push_back(*made);
}

moert::Status KernelRun::run(int64_t grid, int64_t threads, int64_t shared,
                             bool isResident) {
  if (!loaded)
    return loaded;
  moert::Result<std::vector<uint8_t>> params =
      packParams(module->kernels().front(), slots, maps);
  if (!params)
    return params.status();
  moert::LaunchDims dims;
  dims.grid = grid;
  dims.block = threads;
  dims.shared = shared;
  dims.resident = isResident;
  return simulator.launch(*module, "k", dims, *params);
}
