//===- MutateTesting.h - kernels to mutate in tests -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_PTX_MUTATE_MUTATETESTING_H
#define MOEC_UNITTESTS_PTX_MUTATE_MUTATETESTING_H

#include "PtxMutate/Rules/Rules.h"

#include <gtest/gtest.h>

namespace moec::ptx::mutate::test {

/// A module with a kernel `k` whose one parameter is in %rd0; %r0 is the
/// thread. `body` has a statement per line.
inline RawModule parseBody(const std::string &body, unsigned threads = 64) {
  moert::Result<RawModule> module = parsePtx(
      ".version 8.6\n.target sm_90a\n.address_size 64\n"
      ".extern .shared .align 16 .b8 sm[];\n"
      ".shared .align 16 .b8 one[512];\n.shared .align 16 .b8 two[512];\n"
      ".visible .entry k(.param .u64 p0)\n.reqntid " +
      std::to_string(threads) +
      "\n{\n.reg .pred %p<16>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<64>;\n"
      "ld.param.b64 %rd0, [p0];\nmov.u32 %r0, %tid.x;\n" +
      body + "\nret;\n}\n");
  EXPECT_TRUE(module) << module.status().message();
  return module ? *module : RawModule{"", "", {}, {}, {RawKernel()}, {}};
}

/// The mutants of a kind, in the order of the text.
inline std::vector<Mutant> mutantsOf(const RawKernel &kernel,
                                     const std::string &kind) {
  std::vector<Mutant> found;
  for (const Mutant &mutant : listMutants(kernel))
    if (mutant.kind == kind)
      found.push_back(mutant);
  return found;
}

/// The rules that apply to the mutants of a kind, each followed by "; "; "-" if
/// none does.
inline std::string rulesFor(const std::string &body, const std::string &kind,
                            unsigned threads = 64, bool haveSurvived = false) {
  RawModule module = parseBody(body, threads);
  Flow flow(module.kernels[0]);
  std::string text;
  for (const Mutant &mutant : mutantsOf(module.kernels[0], kind)) {
    std::string rule = proveEquivalent(flow, mutant, haveSurvived);
    text += (rule.empty() ? "-" : rule) + "; ";
  }
  return text;
}

} // namespace moec::ptx::mutate::test

#endif // MOEC_UNITTESTS_PTX_MUTATE_MUTATETESTING_H
