//===- Jit.cpp - compiles kernels into this process -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Optimize.h"
#include "Machine.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

#include <map>

using namespace mlir;
using namespace moec;

namespace {

/// Machine code and entry points of the kernels. The JIT owns the memory.
struct JittedKernels {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::map<std::string, moert::HostKernelFn> functions;
};

} // namespace

/// Makes a JIT that compiles an LLVM module as a whole.
static llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>>
makeJit(llvm::orc::JITTargetMachineBuilder builder,
        std::unique_ptr<llvm::Module> module,
        std::unique_ptr<llvm::LLVMContext> context) {
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(builder))
                 .create();
  if (!jit)
    return jit.takeError();
  module->setDataLayout((*jit)->getDataLayout());
  if (llvm::Error error = (*jit)->addIRModule(
          llvm::orc::ThreadSafeModule(std::move(module), std::move(context))))
    return std::move(error);
  return jit;
}

FailureOr<moert::ModuleImage>
moec::jitKernels(ModuleOp module, const CpuTargetOptions &options) {
  auto complain = [&](llvm::Error error) {
    return module.emitError("the kernels could not be compiled: ")
           << llvm::toString(std::move(error));
  };
  auto builder = makeMachineBuilder(options);
  if (!builder)
    return complain(builder.takeError());
  auto machine = builder->createTargetMachine();
  if (!machine)
    return complain(machine.takeError());
  std::string missing = getMissingFeatures(**machine);
  if (!missing.empty())
    return module.emitError("this machine cannot run code for the CPU '")
           << options.cpu << "', it lacks: " << missing
           << "; use 'host' or an older CPU";

  auto context = std::make_unique<llvm::LLVMContext>();
  auto translated = translateKernels(module, **machine, *context);
  if (failed(translated))
    return failure();
  optimizeKernels(**translated, **machine);
  auto jit = makeJit(*builder, std::move(*translated), std::move(context));
  if (!jit)
    return complain(jit.takeError());

  // A failed lookup gives no reason; the session reports it, by default on the
  // error stream.
  auto kernels = std::make_shared<JittedKernels>();
  std::string reasons;
  (*jit)->getExecutionSession().setErrorReporter([&](llvm::Error error) {
    reasons += llvm::toString(std::move(error)) + "; ";
  });
  kernels->jit = std::move(*jit);
  // Look up all kernels now: lookup compiles them, and errors can be reported
  // here.
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    if (function.isExternal() || function.isPrivate())
      continue;
    auto address = kernels->jit->lookup(function.getName());
    if (!address)
      return complain(llvm::joinErrors(llvm::createStringError(reasons),
                                       address.takeError()));
    kernels->functions[function.getName().str()] =
        address->toPtr<moert::HostKernelFn>();
  }
  kernels->jit->getExecutionSession().setErrorReporter(
      [](llvm::Error error) { llvm::consumeError(std::move(error)); });

  moert::ModuleImage image;
  image.kind = moert::ModuleImage::Kind::HostFunctions;
  image.lookup =
      [kernels](const std::string &name) -> moert::Result<moert::HostKernelFn> {
    auto found = kernels->functions.find(name);
    if (found == kernels->functions.end())
      return moert::notFound("there is no compiled kernel named '" + name +
                             "'");
    return found->second;
  };
  return image;
}
