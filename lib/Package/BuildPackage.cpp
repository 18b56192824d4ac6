//===- BuildPackage.cpp - compiles a layer to a package ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Package/BuildPackage.h"
#include "moec/Schedules/Device.h"

#include "moec/Package/SpecText.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/Version.h"
#include "moec/Target/NVPTX.h"
#include "moert/GpuTarget.h"

using namespace mlir;
using namespace moec;
using moert::GpuTarget;

static std::vector<uint8_t> toBytes(StringRef text) {
  return {text.begin(), text.end()};
}

FailureOr<moert::Package>
moec::buildPackage(ModuleOp module, const std::optional<LayerSpec> &spec,
                   const CompileOptions &options,
                   ArrayRef<std::string> architectures) {
  if (!options.isGpu())
    return module.emitError(
        "target 'cpu' cannot be compiled into a package: CPU kernels exist "
        "only in the compiler's process; give a GPU, as in --target=sm_90a, or "
        "run the layer with moe-run");
  if (!architectures.empty() && getAssembler(options.assembler).empty())
    return module.emitError(
        "cubins need ptxas, which was not found; name it in the environment "
        "variable MOEC_PTXAS, or let the driver assemble the PTX");
  FailureOr<CompiledGpuLayer> compiled =
      compileForGpu(module, options, architectures);
  if (failed(compiled))
    return failure();
  moert::Package package;
  package.producer = std::string("moec ") + getVersion();
  if (spec) {
    package.spec = printLayerSpec(*spec);
    package.modelType = spec->modelType;
  }
  moert::PackageProgram &program = package.programs.emplace_back();
  program.plan = std::move(compiled->plan);
  moert::PackageImage ptx = {options.target, moert::ModuleImage::Kind::Ptx,
                             /*modules=*/{}};
  for (const CompiledKernel &kernel : compiled->kernels)
    ptx.modules.push_back(toBytes(kernel.ptx));
  program.images.push_back(std::move(ptx));
  for (size_t i = 0; i < architectures.size(); ++i) {
    moert::PackageImage cubin = {
        architectures[i], moert::ModuleImage::Kind::Cubin, /*modules=*/{}};
    for (const CompiledKernel &kernel : compiled->kernels)
      cubin.modules.push_back(toBytes(kernel.assembled[i].cubin));
    program.images.push_back(std::move(cubin));
  }
  if (moert::Status status = moert::verifyPackage(package); !status)
    return module.emitError(status.message());
  return package;
}

std::vector<std::string>
moec::chooseArchitectures(const CompileOptions &options,
                          StringRef architecture) {
  if (!options.isGpu() || getAssembler(options.assembler).empty())
    return {};
  // Code for a target with a suffix (sm_90a) runs on that architecture only.
  std::optional<GpuTarget> target = GpuTarget::parse(options.target);
  if (architecture.empty() || (target && target->suffix))
    return {options.target};
  return {architecture.str()};
}

std::string moec::choosePart(StringRef target, const moert::Device &device) {
  if (device.multiprocessors() == 0)
    return {};
  const PartFacts *part =
      findPartOfDevice(target, device.multiprocessors(), device.memoryBytes());
  // Borrowed coefficients choose worse configs than measured ones of another
  // part, even on the device that they are meant for
  // (docs/design/cost-model.md).
  return part && getPartRates(*part).isMeasured() ? part->name.str() : "";
}
