//===- Decoder.h - from statements to instructions --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_SIM_FORMS_DECODER_H
#define MOEC_LIB_PTX_SIM_FORMS_DECODER_H

#include "../Program/Program.h"

namespace moec::ptx {

class Decoder;

/// Decodes the instructions whose opcode begins with one word. Says what is
/// wrong through the decoder; what it leaves of the opcode makes the form
/// unknown.
using DecodeFn = void (*)(Decoder &);
using FormTable = std::unordered_map<std::string, DecodeFn>;

// Each is the list of one family's opcodes.
void addIntegerForms(FormTable &table);
void addFloatForms(FormTable &table);
void addMoveForms(FormTable &table);
void addConvertForms(FormTable &table);
void addControlForms(FormTable &table);
void addMemoryForms(FormTable &table);
void addAtomicForms(FormTable &table);
void addWarpForms(FormTable &table);
void addMatrixForms(FormTable &table);
void addBarrierForms(FormTable &table);
void addCopyForms(FormTable &table);
void addWgmmaForms(FormTable &table);
void addTensorForms(FormTable &table);

/// Addresses of variables by name, each in its own space.
using SymbolTable = std::unordered_map<std::string, uint64_t>;

/// One kernel on its way.
class Decoder {
public:
  Decoder(const RawModule &module, const RawKernel &raw, Kernel &kernel,
          const SymbolTable &globals);

  moert::Status decode(const FormTable &table);

  //--- The opcode ---//

  /// Whether the opcode has this word, which then counts as understood.
  bool take(const char *word);
  /// The one of `words` that is next in the opcode; empty if another one is.
  std::string takeOneOf(std::initializer_list<const char *> words);
  /// The next word, whatever it is; empty at the end.
  std::string takeNext();
  /// The last word, which most forms end with: the type.
  std::string takeType();
  const std::string &lastType() const { return raw->parts.back(); }
  const std::string &firstWord() const { return raw->parts.front(); }

  //--- Operands ---//

  size_t numOperands() const { return raw->operands.size(); }
  const RawOperand &operand(size_t index);
  bool expectOperands(size_t least, size_t most);
  /// Registers that are written and values that are read; both are appended to
  /// the instruction's operands. `_` is written to a register of nobody.
  void result(const RawOperand &operand, unsigned bytes);
  void value(const RawOperand &operand, unsigned bytes);
  void result(size_t index, unsigned bytes) { result(operand(index), bytes); }
  void value(size_t index, unsigned bytes) { value(operand(index), bytes); }
  void predicateResult(const RawOperand &operand);
  /// A predicate that is read; constants 0 and 1 too.
  void predicate(const RawOperand &operand);
  /// Appends to the instruction's addresses.
  void address(const RawOperand &operand);
  void address(size_t index) { address(operand(index)); }
  /// A number that is known now.
  int64_t constant(size_t index);
  /// The instruction that a label stands before.
  int64_t label(size_t index);
  /// The slot of a source, without appending it.
  Slot valueSlot(const RawOperand &operand, unsigned bytes);
  /// Bytes of a register; 0 for other operands, 255 for predicates.
  unsigned registerBytes(const RawOperand &operand) const;
  Slot constantSlot(uint64_t bits, unsigned bytes);

  //--- Errors ---//

  void fail(const std::string &text);
  bool hasFailed() const { return !failure.empty(); }

  /// The one that is being made.
  Instruction instruction;

private:
  struct Register {
    Slot slot;
    unsigned bytes;
  };

  void layOutParams();
  void layOutVariables();
  void layOutRegisters();
  void markAccumulators();
  void decodeOne(const RawInstruction &source, const FormTable &table);
  const Register *findRegister(const std::string &name) const;
  Slot specialSlot(SpecialRegister which);
  Slot allocate(unsigned bytes, uint64_t alignment);
  bool symbolValue(const RawOperand &operand, uint64_t &value) const;

  const RawModule &module;
  const RawKernel &rawKernel;
  const RawInstruction *raw = nullptr;
  Kernel &kernel;
  SymbolTable symbols;
  std::vector<std::unordered_map<std::string, Register>> registers;
  std::vector<bool> isTaken;
  std::string failure;
  std::unordered_map<std::string, Slot> constants;
};

/// All kernels of a module. `globals` has its variables in global memory.
moert::Status decodeProgram(const RawModule &module, const SymbolTable &globals,
                            Program &program);

} // namespace moec::ptx

#endif // MOEC_LIB_PTX_SIM_FORMS_DECODER_H
