//===- PtxText.h - PTX as a list of statements ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The syntax of PTX without its semantics: names are not resolved, and opcodes
// are not checked.

#ifndef MOEC_VERIFY_PTXSIM_PROGRAM_PTXTEXT_H
#define MOEC_VERIFY_PTXSIM_PROGRAM_PTXTEXT_H

#include "moert/Status.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moec::ptx {

/// One operand as written.
struct RawOperand {
  enum class Kind : uint8_t {
    /// A register, symbol or label, or `_`.
    Word,
    /// A number, with its `bits`: a two's complement integer, or a float's
    /// bits.
    Number,
    /// `[parts[0] + offset]`; for a tensor `[parts[0], {coordinates}]`.
    Address,
    /// `{parts...}`.
    Vector,
  };

  Kind kind = Kind::Word;
  std::string text;
  /// The second word of `a|b`.
  std::string second;
  uint64_t bits = 0;
  /// 32 or 64 if written as a float of so many bits; 0 for integers.
  int floatBits = 0;
  /// Set for `!%p`.
  bool isNegated = false;
  int64_t offset = 0;
  std::vector<RawOperand> parts;

  bool isWord() const { return kind == Kind::Word; }
  bool isNumber() const { return kind == Kind::Number; }
};

/// A source position given by `.loc`; file 0 is none.
struct SourceLocation {
  unsigned file = 0, line = 0, column = 0;
};

struct RawInstruction {
  /// The opcode split at dots: {"ld", "shared", "v2", "b32"}.
  std::vector<std::string> parts;
  std::vector<RawOperand> operands;
  std::string guard;
  bool isGuardNegated = false;
  unsigned line = 0;
  SourceLocation location;
  /// Index of the innermost scope for name lookup.
  unsigned scope = 0;
};

/// A variable in shared, global, const or local memory.
struct RawVariable {
  std::string name, space;
  uint64_t size = 0, alignment = 1;
  bool isExtern = false;
  std::vector<uint8_t> bytes;
};

struct RawParam {
  std::string name;
  uint64_t size = 0, alignment = 1;
};

/// Names declared between braces.
struct RawScope {
  int parent = -1;
  /// Type of each register; `%r<8>` is listed as eight.
  std::map<std::string, std::string> registers;
  /// Index of the instruction that follows each label.
  std::map<std::string, unsigned> labels;
};

/// The most CTAs of a cluster on every GPU that has clusters.
inline constexpr unsigned kMaxClusterCtas = 8;

struct RawKernel {
  std::string name;
  std::vector<RawParam> params;
  /// Values of `.reqntid` and `.maxntid`; 0 if absent.
  unsigned requiredThreads = 0, maxThreads = 0;
  /// Value of `.maxnreg`, per thread; 0 if absent.
  unsigned maxRegisters = 0;
  /// CTAs of a cluster, by `.reqnctapercluster`.
  unsigned clusterCtas = 1;
  std::vector<RawScope> scopes;
  std::vector<RawVariable> variables;
  std::vector<RawInstruction> instructions;
  unsigned line = 0;
};

struct RawModule {
  std::string version, target;
  std::map<unsigned, std::string> files;
  std::vector<RawVariable> variables;
  std::vector<RawKernel> kernels;
  /// The lines of the text, for messages.
  std::vector<std::string> lines;
};

/// Bytes of `b32`, `f16x2` and so on; 0 for other names.
unsigned typeBytes(const std::string &type);

/// Parses a module; errors name the line.
moert::Result<RawModule> parsePtx(const std::string &text);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_PROGRAM_PTXTEXT_H
