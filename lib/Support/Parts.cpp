//===- Parts.cpp - published facts about supported GPUs -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Parts.h"

#include "moec/Support/Targets.h"
#include "moert/GpuTarget.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

using namespace moec;
using llvm::StringRef;

/// NVIDIA A100 80GB SXM4. Sources: NVIDIA A100 Tensor Core GPU data sheet
/// (2,039 GB/s, 312 TFLOP/s bf16, 19.5 f32, 400 W, NVLink 600 GB/s in both
/// directions together); NVIDIA A100 Tensor Core GPU Architecture, white paper
/// (108 multiprocessors, 40 MB L2, 1024 FMAs per clock, 64 B/clk from L2); CUDA
/// C++ Programming Guide, technical specifications of compute capability 8.0
/// (shared memory, registers).
static constexpr PartFacts kA100Sxm = {
    "a100-sxm",
    "an A100 SXM",
    "sm_80",
    /*isKnown=*/true,
    /*multiprocessors=*/108,
    /*memoryBytes=*/85'000'000'000,
    /*l2Bytes=*/40 << 20,
    /*sharedBytesPerCta=*/163 << 10,
    /*sharedBytesPerMultiprocessor=*/164 << 10,
    /*sheetReadBytes=*/2.039e12,
    /*sheetBf16Operations=*/312e12,
    /*sheetFp8Operations=*/0,
    /*sheetFp4Operations=*/0,
    /*sheetF32Operations=*/19.5e12,
    /*sheetPower=*/400,
    /*sheetLinkBytes=*/300e9,
    /*operationsPerClk=*/2048,
    /*sharedBytesPerClk=*/128,
    /*smL2BytesPerClk=*/64,
    /*instructionsPerClk=*/128,
    /*convertsFloat8=*/false,
    /*hasDependentLaunches=*/false,
    /*hasBulkCopies=*/false,
    /*hasWarpgroupProducts=*/false,
    /*hasTensorMemory=*/false,
};

/// NVIDIA H100 SXM5 80 GB. Sources: NVIDIA H100 Tensor Core GPU data sheet
/// (3.35 TB/s; with sparsity 1979 TFLOP/s bf16 and 3958 fp8, 67 f32, 700 W,
/// NVLink 900 GB/s); NVIDIA H100 Tensor Core GPU Architecture, white paper (132
/// multiprocessors, 50 MB L2, 989.4 and 1978.9 TFLOP/s dense, 66.9 f32, 2048
/// FMAs per clock); CUDA C++ Programming Guide, compute capability 9.0. The
/// driver reports the same multiprocessors, L2, shared memory and registers.
static constexpr PartFacts kH100Sxm = {
    "h100-sxm",
    "an H100 SXM",
    "sm_90a",
    /*isKnown=*/true,
    /*multiprocessors=*/132,
    /*memoryBytes=*/85'017'493'504,
    /*l2Bytes=*/50 << 20,
    /*sharedBytesPerCta=*/227 << 10,
    /*sharedBytesPerMultiprocessor=*/228 << 10,
    /*sheetReadBytes=*/3.35e12,
    /*sheetBf16Operations=*/989.4e12,
    /*sheetFp8Operations=*/1978.9e12,
    /*sheetFp4Operations=*/0,
    /*sheetF32Operations=*/66.9e12,
    /*sheetPower=*/700,
    /*sheetLinkBytes=*/450e9,
    /*operationsPerClk=*/4096,
    /*sharedBytesPerClk=*/128,
    /*smL2BytesPerClk=*/64,
    /*instructionsPerClk=*/128,
    /*convertsFloat8=*/true,
    /*hasDependentLaunches=*/true,
    /*hasBulkCopies=*/true,
    /*hasWarpgroupProducts=*/true,
    /*hasTensorMemory=*/false,
};

/// NVIDIA H200 SXM. Source: NVIDIA H200 Tensor Core GPU data sheet (141 GB, 4.8
/// TB/s, 700 W; with sparsity 1979 TFLOP/s bf16 and 3958 fp8, as the H100,
/// which has the same multiprocessors). Memory and L2 are as reported by the
/// driver.
static constexpr PartFacts makeH200() {
  PartFacts part = kH100Sxm;
  part.name = "h200";
  part.phrase = "an H200";
  part.memoryBytes = 150'109'880'320;
  part.l2Bytes = 60 << 20;
  part.sheetReadBytes = 4.8e12;
  return part;
}

/// NVIDIA B200 as in the HGX B200 with 180 GB per GPU. Sources: NVIDIA HGX B200
/// data sheet, for eight GPUs (1.44 TB, 64 TB/s; with sparsity 36, 72 and 144
/// PFLOP/s bf16, fp8 and fp4; 600 TFLOP/s f32; 1000 W each, NVLink 1.8 TB/s);
/// CUDA C++ Programming Guide, compute capability 10.0 (shared memory,
/// registers); Chips and Cheese, "Nvidia's B200: Keeping the CUDA Juggernaut
/// Rolling" (148 multiprocessors, 126 MB L2).
static constexpr PartFacts makeB200() {
  PartFacts part = kH100Sxm;
  part.name = "b200";
  part.phrase = "a B200";
  part.architecture = "sm_100a";
  part.multiprocessors = 148;
  part.memoryBytes = 191'500'000'000;
  part.l2Bytes = 126 << 20;
  part.sheetReadBytes = 8e12;
  part.sheetBf16Operations = 2250e12;
  part.sheetFp8Operations = 4500e12;
  part.sheetFp4Operations = 9000e12;
  part.sheetF32Operations = 75e12;
  part.sheetPower = 1000;
  part.sheetLinkBytes = 900e9;
  part.operationsPerClk = 8192;
  part.hasWarpgroupProducts = false;
  part.hasTensorMemory = true;
  return part;
}
static constexpr PartFacts kB200 = makeB200();

/// The generic part of an architecture, copied from `like`: the number of
/// multiprocessors of most boards with that architecture, and the slowest
/// memory of the known ones.
static constexpr PartFacts makeUnknown(const PartFacts &like,
                                       llvm::StringLiteral phrase) {
  PartFacts part = like;
  part.name = like.architecture;
  part.phrase = phrase;
  part.isKnown = false;
  return part;
}

static constexpr PartFacts kParts[] = {
    kA100Sxm,
    makeUnknown(kA100Sxm, "an unknown part of sm_80"),
    kH100Sxm,
    makeH200(),
    makeUnknown(kH100Sxm, "an unknown part of sm_90a"),
    kB200,
    makeUnknown(kB200, "an unknown part of sm_100a"),
};

llvm::ArrayRef<PartFacts> moec::getParts() { return kParts; }

const PartFacts *moec::findPart(StringRef name) {
  // "h100" is short for "h100-sxm".
  const PartFacts *found = llvm::find_if(kParts, [&](const PartFacts &part) {
    return part.name.equals_insensitive(name) ||
           part.name.split('-').first.equals_insensitive(name);
  });
  return found == std::end(kParts) ? nullptr : found;
}

const PartFacts *moec::getDefaultPart(StringRef target) {
  const TargetFacts *facts = findTarget(target);
  return facts ? findPart(facts->defaultPart) : nullptr;
}

const PartFacts *moec::getUnknownPart(StringRef target) {
  const PartFacts *found = findPart(target);
  return found && !found->isKnown ? found : nullptr;
}

bool moec::runsOn(StringRef target, const PartFacts &part) {
  auto code = moert::GpuTarget::parse(target.str());
  auto device = moert::GpuTarget::parse(part.architecture.str());
  return code && device && code->runsOn(*device);
}

static std::string
listParts(llvm::function_ref<bool(const PartFacts &)> isAccepted) {
  llvm::SmallVector<StringRef> names;
  for (const PartFacts &part : kParts)
    if (isAccepted(part))
      names.push_back(part.name);
  return llvm::join(names, ", ");
}

std::string moec::whyNotPart(StringRef target, StringRef name) {
  if (name.empty())
    return {};
  const PartFacts *part = findPart(name);
  if (!part)
    return "'" + name.str() + "' is unknown; accepted are " +
           listParts([](const PartFacts &) { return true; });
  if (runsOn(target, *part))
    return {};
  std::string accepted =
      listParts([&](const PartFacts &other) { return runsOn(target, other); });
  return "'" + name.str() + "' does not run code for target '" + target.str() +
         "'; give target '" + part->architecture.str() + "'" +
         (accepted.empty() ? ", or leave out the part"
                           : ", or one of " + accepted);
}

const PartFacts *moec::findPartOfDevice(StringRef target,
                                        int64_t multiprocessors,
                                        int64_t memoryBytes) {
  if (!getDefaultPart(target))
    return nullptr;
  // Drivers and boards reserve different amounts of memory.
  constexpr double tolerance = 0.06;
  for (const PartFacts &part : kParts)
    if (part.isKnown && part.architecture == target &&
        part.multiprocessors == multiprocessors &&
        std::abs(double(memoryBytes - part.memoryBytes)) <=
            tolerance * double(part.memoryBytes))
      return &part;
  return getUnknownPart(target);
}
