//===- Machine.cpp - the target machine for CPUs --------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "moert/HostDevice.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;
using namespace moec;

/// Instruction sets that affect which code runs, by their LLVM names.
static constexpr StringLiteral kInstructionSets[] = {
    "avx",        "avx2",       "fma",      "f16c",       "bmi",
    "bmi2",       "lzcnt",      "movbe",    "popcnt",     "sse4.2",
    "avx512f",    "avx512bw",   "avx512cd", "avx512dq",   "avx512vl",
    "avx512vbmi", "avx512vnni", "avxvnni",  "avx512bf16", "avx512fp16",
    "amx-tile",   "amx-bf16",   "amx-int8"};

static Expected<orc::JITTargetMachineBuilder> makeHostBuilder() {
  Triple triple(sys::getProcessTriple());
  if (triple.getArch() != Triple::x86_64)
    return createStringError(
        "target cpu: its kernels are x86-64 code, and this process is " +
        triple.getArchName() + "; compile for a GPU, such as sm_90a");
  // Once per process: target registration is not thread-safe.
  static const bool initialized = [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  auto builder = orc::JITTargetMachineBuilder::detectHost();
  if (!builder)
    return builder;
  if (!moert::allowTileRegisters())
    builder->addFeatures({"-amx-tile", "-amx-bf16", "-amx-int8"});
  builder->setCodeGenOptLevel(CodeGenOptLevel::Aggressive);
  // The JIT's default code model loads the address of every constant through a
  // register.
  builder->setRelocationModel(Reloc::PIC_);
  builder->setCodeModel(CodeModel::Small);
  return builder;
}

/// Without these, gemms and roundings would call the C library.
static constexpr StringLiteral kBaseline[] = {"avx2", "fma", "f16c"};

static Error checkBaseline(const TargetMachine &machine) {
  for (StringRef name : kBaseline)
    if (!machine.getMCSubtargetInfo()->checkFeatures(("+" + name).str()))
      return createStringError("the CPU '" + machine.getTargetCPU() +
                               "' lacks " + name +
                               "; kernels need at least 'x86-64-v3'");
  return Error::success();
}

Expected<orc::JITTargetMachineBuilder>
moec::makeMachineBuilder(const CpuTargetOptions &options) {
  auto builder = makeHostBuilder();
  if (!builder)
    return builder;
  auto machine = builder->createTargetMachine();
  if (!machine)
    return machine.takeError();
  if (options.cpu != "host") {
    if (!(*machine)->getMCSubtargetInfo()->isCPUStringValid(options.cpu))
      return createStringError("unknown CPU '" + options.cpu +
                               "'; use 'host' or a name that LLVM knows, such "
                               "as 'x86-64-v3'");
    builder->setCPU(options.cpu);
    builder->setFeatures("");
    machine = builder->createTargetMachine();
    if (!machine)
      return machine.takeError();
  }
  if (Error error = checkBaseline(**machine))
    return std::move(error);
  return builder;
}

std::string moec::getMissingFeatures(const TargetMachine &machine) {
  auto host = makeHostBuilder();
  if (!host) {
    consumeError(host.takeError());
    return "";
  }
  auto hostMachine = host->createTargetMachine();
  if (!hostMachine) {
    consumeError(hostMachine.takeError());
    return "";
  }
  SmallVector<StringRef> missing;
  for (StringRef name : kInstructionSets) {
    std::string flag = ("+" + name).str();
    if (machine.getMCSubtargetInfo()->checkFeatures(flag) &&
        !(*hostMachine)->getMCSubtargetInfo()->checkFeatures(flag))
      missing.push_back(name);
  }
  return join(missing, ", ");
}

mlir::LogicalResult moec::checkCpu(mlir::Operation *op,
                                   const CpuTargetOptions &options) {
  auto builder = makeMachineBuilder(options);
  if (builder)
    return mlir::success();
  return op->emitError(toString(builder.takeError()));
}

moec::Target moec::getCpuTarget(const CpuTargetOptions &options) {
  auto builder = makeMachineBuilder(options);
  if (!builder) {
    consumeError(builder.takeError());
    return moec::Target::cpu(8);
  }
  auto machine = builder->createTargetMachine();
  if (!machine) {
    consumeError(machine.takeError());
    return moec::Target::cpu(8);
  }
  return moec::Target::cpuWith([&](StringRef name) {
    return (*machine)->getMCSubtargetInfo()->checkFeatures(("+" + name).str());
  });
}
