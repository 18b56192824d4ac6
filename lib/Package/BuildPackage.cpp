//===- BuildPackage.cpp - a compiled layer as a package ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Package/BuildPackage.h"

#include "moec/Analysis/Schedules.h"
#include "moec/Package/SpecText.h"
#include "moec/Target/NVPTX.h"
#include "moert/GpuTarget.h"

using namespace mlir;
using namespace moec;
using moert::GpuTarget;

static std::vector<uint8_t> toBytes(StringRef text) {
  return {text.begin(), text.end()};
}

static FailureOr<moert::PackageImage>
assembleImage(Operation *op, StringRef ptx, StringRef architecture) {
  auto assembled = assemble(ptx, architecture);
  if (!assembled)
    return op->emitError("the kernels do not assemble for ")
           << architecture << ": " << llvm::toString(assembled.takeError());
  return moert::PackageImage{architecture.str(),
                             moert::ModuleImage::Kind::Cubin,
                             {toBytes(assembled->cubin)}};
}

FailureOr<moert::Package>
moec::buildPackage(ModuleOp module, const std::optional<LayerSpec> &spec,
                   const CompileOptions &options,
                   ArrayRef<std::string> architectures) {
  if (!options.isGpu())
    return module.emitError("kernels of target 'cpu' cannot be packed: they "
                            "live in the compiler's process alone; give a "
                            "GPU, as in --target=sm_90a, or run the layer "
                            "with moe-run");
  if (!architectures.empty() && findPtxas().empty())
    return module.emitError("cubins were asked for, and there is no ptxas; "
                            "name it in the environment variable MOEC_PTXAS, "
                            "or leave the driver to assemble the PTX");
  FailureOr<CompiledPtx> compiled = compileForGpu(module, options);
  if (failed(compiled))
    return failure();
  moert::Package package;
  package.producer = "moec " MOEC_VERSION;
  if (spec)
    package.spec = printLayerSpec(*spec);
  moert::PackageProgram &program = package.programs.emplace_back();
  program.plan = std::move(compiled->plan);
  program.images.push_back(
      {options.target, moert::ModuleImage::Kind::Ptx, {toBytes(compiled->ptx)}});
  std::vector<std::string> wanted = architectures.vec();
  if (wanted.empty() && !findPtxas().empty())
    wanted = {options.target};
  for (const std::string &architecture : wanted) {
    FailureOr<moert::PackageImage> image =
        assembleImage(module, compiled->ptx, architecture);
    if (failed(image))
      return failure();
    program.images.push_back(std::move(*image));
  }
  if (moert::Status status = moert::verifyPackage(package); !status)
    return module.emitError(status.message());
  return package;
}

FailureOr<moert::ModuleImage> moec::makeImage(Operation *op,
                                              const std::string &ptx,
                                              StringRef target,
                                              StringRef architecture) {
  if (findPtxas().empty()) {
    moert::ModuleImage image;
    image.kind = moert::ModuleImage::Kind::Ptx;
    image.modules = {toBytes(ptx)};
    return image;
  }
  // Code with a suffix is for its own architecture alone.
  std::optional<GpuTarget> parsed = GpuTarget::parse(target.str());
  StringRef chip = parsed && parsed->suffix ? target : architecture;
  FailureOr<moert::PackageImage> cubin = assembleImage(op, ptx, chip);
  if (failed(cubin))
    return failure();
  return cubin->load();
}

std::string moec::chooseTarget(StringRef architecture) {
  std::optional<GpuTarget> device = GpuTarget::parse(architecture.str());
  std::string best;
  int bestRank = -1;
  if (!device)
    return best;
  for (StringRef name : Target::getNames()) {
    std::optional<GpuTarget> target = GpuTarget::parse(name.str());
    if (!target || !target->runsOn(*device))
      continue;
    int rank = target->number() * 2 + (target->suffix != 0);
    if (rank > bestRank) {
      best = name.str();
      bestRank = rank;
    }
  }
  return best;
}
