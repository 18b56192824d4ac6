//===- Decoder.h - decodes statements to instructions -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_DECODER_H
#define MOEC_VERIFY_PTXSIM_FORMS_DECODER_H

#include "../Program/Program.h"

namespace moec::ptx {

class Decoder;

/// Decodes the instructions whose opcode begins with one word. Reports errors
/// through the decoder; words of the opcode that it does not take make the form
/// unknown.
using DecodeFn = void (*)(Decoder &);
using FormTable = std::unordered_map<std::string, DecodeFn>;

// Each function adds one family's opcodes.
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
void addClusterForms(FormTable &table);
void addCopyForms(FormTable &table);
void addWgmmaForms(FormTable &table);
void addTensorForms(FormTable &table);

/// Addresses of variables by name, each in its own state space.
using SymbolTable = std::unordered_map<std::string, uint64_t>;

/// Decodes one kernel.
class Decoder {
public:
  Decoder(const RawModule &module, const RawKernel &raw, Kernel &kernel,
          const SymbolTable &globals);

  moert::Status decode(const FormTable &table);

  //--- The opcode ---//

  /// Whether the opcode has this word, which is then taken.
  bool take(const char *word);
  /// Takes the next word if it is one of `words`; else returns an empty one.
  std::string takeOneOf(std::initializer_list<const char *> words);
  /// Takes the next word; empty at the end.
  std::string takeNext();
  /// Takes the last word, which is the type in most forms.
  std::string takeType();
  const std::string &lastType() const { return raw->parts.back(); }
  const std::string &firstWord() const { return raw->parts.front(); }

  //--- Operands ---//

  size_t numOperands() const { return raw->operands.size(); }
  const RawOperand &operand(size_t index);
  bool expectOperands(size_t least, size_t most);
  /// Append registers that are written, or values that are read, to the
  /// instruction's operands. A result `_` goes to a scratch register.
  void result(const RawOperand &operand, unsigned bytes);
  void value(const RawOperand &operand, unsigned bytes);
  void result(size_t index, unsigned bytes) { result(operand(index), bytes); }
  void value(size_t index, unsigned bytes) { value(operand(index), bytes); }
  void predicateResult(const RawOperand &operand);
  /// Appends a predicate that is read, which may be the constant 0 or 1.
  void predicate(const RawOperand &operand);
  /// Appends to the instruction's addresses.
  void address(const RawOperand &operand);
  void address(size_t index) { address(operand(index)); }
  /// A constant operand.
  int64_t constant(size_t index);
  /// Index of the instruction that follows a label.
  int64_t label(size_t index);
  /// The slot of a source, without appending it.
  Slot valueSlot(const RawOperand &operand, unsigned bytes);
  /// Bytes of a register; 0 for other operands, 255 for predicates.
  unsigned registerBytes(const RawOperand &operand) const;
  Slot constantSlot(uint64_t bits, unsigned bytes);

  //--- Errors ---//

  void fail(const std::string &text);
  bool hasFailed() const { return !failure.empty(); }

  /// The instruction that is being decoded.
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

/// Decodes all kernels of a module. `globals` has its variables in global
/// memory.
moert::Status decodeProgram(const RawModule &module, const SymbolTable &globals,
                            Program &program);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_DECODER_H
