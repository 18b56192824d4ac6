//===- Decoder.cpp - decodes statements to instructions ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"

#include "../Machine/Machine.h"
#include "../Program/WgmmaForms.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

using namespace moec::ptx;
using moert::Status;

Decoder::Decoder(const RawModule &module, const RawKernel &raw, Kernel &kernel,
                 const SymbolTable &globals)
    : module(module), rawKernel(raw), kernel(kernel), symbols(globals) {}

void Decoder::fail(const std::string &text) {
  if (failure.empty())
    failure = text;
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

static uint64_t alignTo(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

void Decoder::layOutParams() {
  uint64_t offset = 0;
  for (const RawParam &param : rawKernel.params) {
    offset = alignTo(offset, param.alignment);
    kernel.params.push_back({offset, param.size});
    symbols[param.name] = offset;
    offset += param.size;
  }
  kernel.paramBytes = offset;
}

/// Static shared memory comes first, then dynamic.
void Decoder::layOutVariables() {
  uint64_t shared = 0;
  std::vector<const RawVariable *> dynamic;
  auto add = [&](const RawVariable &variable) {
    if (variable.space == "local") {
      kernel.localBytes = alignTo(kernel.localBytes, variable.alignment);
      symbols[variable.name] = kernel.localBytes;
      kernel.localBytes += variable.size;
    } else if (variable.space == "shared" && variable.size == 0) {
      dynamic.push_back(&variable);
    } else if (variable.space == "shared") {
      shared = alignTo(shared, variable.alignment);
      symbols[variable.name] = kFirstSharedAddress + shared;
      shared += variable.size;
    }
  };
  // Variables of the module belong to the kernels that name them.
  for (const RawVariable &variable : module.variables) {
    auto names = [&](const RawOperand &operand) {
      return operand.text == variable.name ||
             std::any_of(operand.parts.begin(), operand.parts.end(),
                         [&](const RawOperand &part) {
                           return part.text == variable.name;
                         });
    };
    bool isUsed = std::any_of(
        rawKernel.instructions.begin(), rawKernel.instructions.end(),
        [&](const RawInstruction &source) {
          return std::any_of(source.operands.begin(), source.operands.end(),
                             names);
        });
    if (isUsed)
      add(variable);
  }
  for (const RawVariable &variable : rawKernel.variables)
    add(variable);
  for (const RawVariable *variable : dynamic)
    shared = alignTo(shared, variable->alignment);
  for (const RawVariable *variable : dynamic)
    symbols[variable->name] = kFirstSharedAddress + shared;
  kernel.staticShared = shared;
}

Slot Decoder::allocate(unsigned bytes, uint64_t alignment) {
  kernel.registerBytes = uint32_t(alignTo(kernel.registerBytes, alignment));
  Slot slot;
  slot.bits = kernel.registerBytes;
  kernel.registerBytes += bytes;
  return slot;
}

void Decoder::layOutRegisters() {
  registers.resize(rawKernel.scopes.size());
  for (size_t i = 0; i < rawKernel.scopes.size(); ++i)
    for (const auto &[name, type] : rawKernel.scopes[i].registers) {
      if (type == "pred")
        registers[i][name] = {allocate(sizeof(LaneMask), sizeof(LaneMask)),
                              255};
      else
        registers[i][name] = {allocate(typeBytes(type) * kWarpLanes, 64),
                              typeBytes(type)};
    }
}

//===----------------------------------------------------------------------===//
// The opcode
//===----------------------------------------------------------------------===//

bool Decoder::take(const char *word) {
  for (size_t i = 1; i < raw->parts.size(); ++i)
    if (!isTaken[i] && raw->parts[i] == word) {
      isTaken[i] = true;
      return true;
    }
  return false;
}

std::string Decoder::takeOneOf(std::initializer_list<const char *> words) {
  for (size_t i = 1; i < raw->parts.size(); ++i) {
    if (isTaken[i])
      continue;
    for (const char *word : words)
      if (raw->parts[i] == word) {
        isTaken[i] = true;
        return word;
      }
    return "";
  }
  return "";
}

std::string Decoder::takeNext() {
  for (size_t i = 1; i < raw->parts.size(); ++i)
    if (!isTaken[i]) {
      isTaken[i] = true;
      return raw->parts[i];
    }
  return "";
}

std::string Decoder::takeType() {
  for (size_t i = raw->parts.size(); i-- > 1;)
    if (!isTaken[i]) {
      isTaken[i] = true;
      return raw->parts[i];
    }
  return "";
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

const RawOperand &Decoder::operand(size_t index) {
  static const RawOperand none;
  if (index < raw->operands.size())
    return raw->operands[index];
  fail("an operand is missing");
  return none;
}

bool Decoder::expectOperands(size_t least, size_t most) {
  if (numOperands() >= least && numOperands() <= most)
    return true;
  fail(std::to_string(numOperands()) + " operands, expected " +
       std::to_string(least) +
       (most == least ? "" : " to " + std::to_string(most)));
  return false;
}

const Decoder::Register *Decoder::findRegister(const std::string &name) const {
  for (int scope = int(raw->scope); scope >= 0;
       scope = rawKernel.scopes[size_t(scope)].parent) {
    auto found = registers[size_t(scope)].find(name);
    if (found != registers[size_t(scope)].end())
      return &found->second;
  }
  return nullptr;
}

unsigned Decoder::registerBytes(const RawOperand &operand) const {
  if (!operand.isWord())
    return 0;
  const Register *found = findRegister(operand.text);
  return found ? found->bytes : 0;
}

void Decoder::result(const RawOperand &operand, unsigned bytes) {
  if (operand.isWord() && operand.text == "_") {
    instruction.operands.push_back(allocate(bytes * kWarpLanes, 64));
    return;
  }
  const Register *found =
      operand.isWord() ? findRegister(operand.text) : nullptr;
  if (!found)
    return fail("'" + operand.text + "' is not a writable register");
  if (found->bytes != bytes)
    return fail("'" + operand.text + "' does not have " +
                std::to_string(8 * bytes) + " bits");
  instruction.operands.push_back(found->slot);
}

void Decoder::predicateResult(const RawOperand &operand) {
  if (operand.isWord() && operand.text == "_") {
    instruction.operands.push_back(
        allocate(sizeof(LaneMask), sizeof(LaneMask)));
    return;
  }
  result(operand, 255);
}

Slot Decoder::constantSlot(uint64_t bits, unsigned bytes) {
  if (bytes < 8)
    bits &= (uint64_t(1) << (8 * bytes)) - 1;
  std::string key = std::to_string(bytes) + ":" + std::to_string(bits);
  auto [entry, isNew] = constants.emplace(key, Slot());
  if (isNew) {
    entry->second.bits =
        Slot::kConstant | uint32_t(alignTo(kernel.constants.size(), 64));
    kernel.constants.resize(alignTo(kernel.constants.size(), 64));
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      const auto *raw = reinterpret_cast<const uint8_t *>(&bits);
      kernel.constants.insert(kernel.constants.end(), raw, raw + bytes);
    }
  }
  return entry->second;
}

bool Decoder::symbolValue(const RawOperand &operand, uint64_t &value) const {
  auto found = symbols.find(operand.text);
  if (found == symbols.end())
    return false;
  value = found->second + uint64_t(operand.offset);
  return true;
}

static bool findSpecial(const std::string &name, SpecialRegister &which) {
  static const std::unordered_map<std::string, SpecialRegister> names = {
      {"%tid.x", SpecialRegister::TidX},
      {"%tid.y", SpecialRegister::TidY},
      {"%tid.z", SpecialRegister::TidZ},
      {"%ntid.x", SpecialRegister::NtidX},
      {"%ntid.y", SpecialRegister::NtidY},
      {"%ntid.z", SpecialRegister::NtidZ},
      {"%ctaid.x", SpecialRegister::CtaidX},
      {"%ctaid.y", SpecialRegister::CtaidY},
      {"%ctaid.z", SpecialRegister::CtaidZ},
      {"%nctaid.x", SpecialRegister::NctaidX},
      {"%nctaid.y", SpecialRegister::NctaidY},
      {"%nctaid.z", SpecialRegister::NctaidZ},
      {"%laneid", SpecialRegister::LaneId},
      {"%warpid", SpecialRegister::WarpId},
      {"%dynamic_smem_size", SpecialRegister::DynamicSharedSize},
      {"%cluster_ctarank", SpecialRegister::ClusterCtaRank},
      {"%cluster_nctarank", SpecialRegister::ClusterNctaRank},
      {"%lanemask_lt", SpecialRegister::LanemaskLt},
      {"%lanemask_le", SpecialRegister::LanemaskLe},
      {"%lanemask_eq", SpecialRegister::LanemaskEq},
      {"%lanemask_gt", SpecialRegister::LanemaskGt},
      {"%lanemask_ge", SpecialRegister::LanemaskGe},
  };
  auto found = names.find(name);
  if (found == names.end())
    return false;
  which = found->second;
  return true;
}

Slot Decoder::specialSlot(SpecialRegister which) {
  for (const SpecialSlot &special : kernel.specials)
    if (special.which == which)
      return special.slot;
  Slot slot = allocate(4 * kWarpLanes, 64);
  kernel.specials.push_back({which, slot});
  return slot;
}

Slot Decoder::valueSlot(const RawOperand &operand, unsigned bytes) {
  if (operand.isNumber()) {
    uint64_t bits = operand.bits;
    if (operand.floatBits == 64 && bytes == 4) {
      double wide;
      std::memcpy(&wide, &bits, sizeof(wide));
      float narrow = float(wide);
      bits = 0;
      std::memcpy(&bits, &narrow, sizeof(narrow));
    }
    return constantSlot(bits, bytes);
  }
  SpecialRegister which;
  uint64_t symbol;
  if (!operand.isWord()) {
    fail("expected a register or a number");
  } else if (const Register *found = findRegister(operand.text)) {
    if (found->bytes == bytes)
      return found->slot;
    fail("'" + operand.text + "' does not have " + std::to_string(8 * bytes) +
         " bits");
  } else if (findSpecial(operand.text, which)) {
    if (bytes == 4)
      return specialSlot(which);
    fail("'" + operand.text + "' has 32 bits");
  } else if (operand.text == "WARP_SZ") {
    return constantSlot(kWarpLanes, bytes);
  } else if (symbolValue(operand, symbol)) {
    return constantSlot(symbol, bytes);
  } else {
    fail("'" + operand.text + "' is not known");
  }
  return constantSlot(0, 8);
}

void Decoder::value(const RawOperand &operand, unsigned bytes) {
  instruction.operands.push_back(valueSlot(operand, bytes));
}

void Decoder::predicate(const RawOperand &operand) {
  if (operand.isNumber()) {
    instruction.operands.push_back(
        constantSlot(operand.bits ? ~uint64_t(0) : 0, 4));
    return;
  }
  const Register *found =
      operand.isWord() ? findRegister(operand.text) : nullptr;
  if (!found || found->bytes != 255)
    return fail("'" + operand.text + "' is not a predicate");
  instruction.operands.push_back(found->slot);
}

void Decoder::address(const RawOperand &operand) {
  if (operand.kind != RawOperand::Kind::Address || operand.parts.empty())
    return fail("expected an address in brackets");
  const RawOperand &base = operand.parts[0];
  AddressOperand made;
  uint64_t symbol;
  if (const Register *found =
          base.isWord() ? findRegister(base.text) : nullptr) {
    if (found->bytes != 4 && found->bytes != 8)
      return fail("'" + base.text + "' is too small for an address");
    made.slot = found->slot;
    made.is32 = found->bytes == 4;
    made.offset = base.offset;
  } else if (base.isNumber()) {
    made.slot = constantSlot(base.bits, 8);
  } else if (base.isWord() && symbolValue(base, symbol)) {
    made.slot = constantSlot(symbol, 8);
  } else {
    return fail("'" + base.text + "' is not known");
  }
  instruction.addresses.push_back(made);
}

int64_t Decoder::constant(size_t index) {
  const RawOperand &source = operand(index);
  if (!source.isNumber())
    fail("operand " + std::to_string(index) + " must be a number");
  return int64_t(source.bits);
}

int64_t Decoder::label(size_t index) {
  const std::string &name = operand(index).text;
  for (int scope = int(raw->scope); scope >= 0;
       scope = rawKernel.scopes[size_t(scope)].parent) {
    const auto &labels = rawKernel.scopes[size_t(scope)].labels;
    auto found = labels.find(name);
    if (found != labels.end())
      return found->second;
  }
  fail("the label '" + name + "' is not defined");
  return 0;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void Decoder::decodeOne(const RawInstruction &source, const FormTable &table) {
  raw = &source;
  instruction = Instruction();
  instruction.line = source.line;
  instruction.location = source.location;
  isTaken.assign(source.parts.size(), false);
  if (!source.guard.empty()) {
    const Register *guard = findRegister(source.guard);
    if (!guard || guard->bytes != 255)
      return fail("the guard '" + source.guard + "' is not a predicate");
    instruction.guard = guard->slot;
    instruction.isGuardNegated = source.isGuardNegated;
  }
  auto form = table.find(source.parts[0]);
  if (form != table.end())
    form->second(*this);
  bool isKnown = instruction.handler != nullptr;
  for (size_t i = 1; i < isTaken.size(); ++i)
    isKnown &= isTaken[i];
  if (!isKnown)
    fail("this form of the instruction is not known to the simulator");
}

Status Decoder::decode(const FormTable &table) {
  layOutParams();
  layOutVariables();
  layOutRegisters();
  for (const RawInstruction &source : rawKernel.instructions) {
    decodeOne(source, table);
    if (hasFailed())
      return moert::invalidArgument("line " + std::to_string(source.line) +
                                    ": '" + module.lines[source.line - 1] +
                                    "': " + failure);
    kernel.code.push_back(std::move(instruction));
  }
  // Control that falls off the end returns.
  RawInstruction end;
  end.parts = {"ret"};
  decodeOne(end, table);
  kernel.code.push_back(std::move(instruction));
  markAccumulators();
  return Status::ok();
}

/// Finds the instructions that use registers of asynchronous MMAs.
void Decoder::markAccumulators() {
  std::unordered_set<uint32_t> slots;
  for (const Instruction &made : kernel.code)
    if (isAsyncProduct(made))
      for (size_t i = 0; i < getNumWgmmaRegisters(made); ++i)
        slots.insert(made.operands[i].bits);
  for (Instruction &made : kernel.code)
    made.touchesAccumulators =
        !isAsyncProduct(made) &&
        std::any_of(
            made.operands.begin(), made.operands.end(),
            [&](const Slot &slot) { return slots.count(slot.bits) != 0; });
}

Status moec::ptx::decodeProgram(const RawModule &module,
                                const SymbolTable &globals, Program &program) {
  FormTable table;
  addIntegerForms(table);
  addFloatForms(table);
  addMoveForms(table);
  addConvertForms(table);
  addControlForms(table);
  addMemoryForms(table);
  addAtomicForms(table);
  addWarpForms(table);
  addMatrixForms(table);
  addBarrierForms(table);
  addClusterForms(table);
  addCopyForms(table);
  addWgmmaForms(table);
  addTensorForms(table);
  program.target = module.target;
  program.lines = module.lines;
  program.files = module.files;
  for (const RawKernel &raw : module.kernels) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = raw.name;
    kernel->requiredThreads = raw.requiredThreads;
    kernel->maxThreads = raw.maxThreads;
    kernel->maxRegisters = raw.maxRegisters;
    kernel->clusterCtas = raw.clusterCtas;
    Decoder decoder(module, raw, *kernel, globals);
    if (Status status = decoder.decode(table); !status)
      return status;
    program.kernelByName[kernel->name] = kernel.get();
    program.kernels.push_back(std::move(kernel));
  }
  return Status::ok();
}
