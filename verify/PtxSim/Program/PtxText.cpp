//===- PtxText.cpp - the parser of PTX --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxText.h"

#include "Lexer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace moec::ptx;
using moert::Result;
using moert::Status;

unsigned moec::ptx::typeBytes(const std::string &type) {
  static const std::map<std::string, unsigned> sizes = {
      {"b8", 1},   {"u8", 1},     {"s8", 1},   {"b16", 2},    {"u16", 2},
      {"s16", 2},  {"f16", 2},    {"bf16", 2}, {"b32", 4},    {"u32", 4},
      {"s32", 4},  {"f32", 4},    {"b64", 8},  {"u64", 8},    {"s64", 8},
      {"f64", 8},  {"f16x2", 4},  {"tf32", 4}, {"b128", 16},  {"bf16x2", 4},
      {"e4m3", 1}, {"e4m3x2", 2}, {"e5m2", 1}, {"e5m2x2", 2}, {"f32x2", 8}};
  auto found = sizes.find(type);
  return found == sizes.end() ? 0 : found->second;
}

namespace {

std::vector<std::string> splitAtDots(const std::string &text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    size_t end = text.find('.', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos)
      return parts;
    begin = end + 1;
  }
}

class Parser {
public:
  Parser(std::vector<Token> tokens, RawModule &module)
      : tokens(std::move(tokens)), module(module) {}

  Status parse() {
    while (!isAtEnd()) {
      parseTopLevel();
      if (failed)
        return moert::invalidArgument("line " + std::to_string(failureLine) +
                                      ": " + message);
    }
    return Status::ok();
  }

private:
  const Token &peek(size_t ahead = 0) const {
    return tokens[std::min(position + ahead, tokens.size() - 1)];
  }
  bool isAtEnd() const { return peek().text.empty(); }
  bool is(const char *text) const { return peek().text == text; }
  Token next() {
    Token token = peek();
    if (!isAtEnd())
      ++position;
    return token;
  }
  bool accept(const char *text) {
    if (!is(text))
      return false;
    next();
    return true;
  }
  void expect(const char *text) {
    if (!accept(text))
      fail(std::string("expected '") + text + "', found '" + peek().text + "'");
  }
  void fail(const std::string &text) {
    if (failed)
      return;
    failed = true;
    failureLine = peek().line;
    message = text;
  }
  void skipRestOf(unsigned line) {
    while (!isAtEnd() && peek().line == line)
      next();
  }
  /// Skips from an opening brace to its closing one.
  void skipBlock() {
    int depth = 0;
    do {
      depth += is("{") - is("}");
      next();
    } while (depth > 0 && !isAtEnd());
  }

  uint64_t parseNumberText(const std::string &text, int &floatBits) {
    floatBits = 0;
    if (text.size() > 2 && text[0] == '0' && strchr("fFdD", text[1])) {
      floatBits = text.size() == 10 ? 32 : 64;
      return strtoull(text.c_str() + 2, nullptr, 16);
    }
    if (text.find('.') != std::string::npos) {
      double value = strtod(text.c_str(), nullptr);
      uint64_t bits;
      memcpy(&bits, &value, sizeof(bits));
      floatBits = 64;
      return bits;
    }
    return strtoull(text.c_str(), nullptr, 0);
  }

  uint64_t parseInteger() {
    bool isNegative = accept("-");
    Token token = next();
    if (token.text.empty() || !isdigit(token.text[0])) {
      fail("expected a number, found '" + token.text + "'");
      return 0;
    }
    int floatBits;
    uint64_t value = parseNumberText(token.text, floatBits);
    return isNegative ? -value : value;
  }

  RawOperand parseOperand();
  void parseAddress(RawOperand &operand);
  void parseTopLevel();
  void parseVariable(std::vector<RawVariable> &variables);
  void parseInitializer(RawVariable &variable, unsigned itemBytes);
  void parseKernel();
  void parseParams(RawKernel &kernel);
  void parseBody(RawKernel &kernel);
  void parseStatement(RawKernel &kernel, unsigned scope);
  void parseRegisters(RawScope &scope);
  void parseInstruction(RawKernel &kernel, unsigned scope);
  void parseLocation();

  std::vector<Token> tokens;
  RawModule &module;
  size_t position = 0;
  bool failed = false;
  unsigned failureLine = 0;
  std::string message;
  /// The current `.loc` location, and the first one of the kernel.
  SourceLocation location, entry;
};

} // namespace

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

RawOperand Parser::parseOperand() {
  RawOperand operand;
  if (accept("[")) {
    parseAddress(operand);
    return operand;
  }
  if (accept("{")) {
    operand.kind = RawOperand::Kind::Vector;
    do
      operand.parts.push_back(parseOperand());
    while (!failed && accept(","));
    expect("}");
    return operand;
  }
  operand.isNegated = accept("!");
  bool isNegative = accept("-");
  Token token = next();
  if (token.text.empty() || strchr(",;:{}[]()+=<>@", token.text[0])) {
    fail("expected an operand, found '" + token.text + "'");
    return operand;
  }
  if (isdigit(token.text[0])) {
    operand.kind = RawOperand::Kind::Number;
    operand.bits = parseNumberText(token.text, operand.floatBits);
    if (isNegative && operand.floatBits)
      operand.bits ^= uint64_t(1) << (operand.floatBits - 1);
    else if (isNegative)
      operand.bits = -operand.bits;
    return operand;
  }
  operand.text = token.text;
  if (accept("|"))
    operand.second = next().text;
  if (accept("+"))
    operand.offset = int64_t(parseInteger());
  return operand;
}

void Parser::parseAddress(RawOperand &operand) {
  operand.kind = RawOperand::Kind::Address;
  operand.parts.push_back(parseOperand());
  operand.offset = operand.parts[0].offset;
  while (accept(","))
    operand.parts.push_back(parseOperand());
  expect("]");
}

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

void Parser::parseTopLevel() {
  Token token = peek();
  if (token.text == ".version" || token.text == ".target" ||
      token.text == ".address_size") {
    next();
    std::string value = next().text;
    if (token.text == ".version")
      module.version = value;
    else if (token.text == ".target")
      module.target = value;
    skipRestOf(token.line);
    return;
  }
  if (token.text == ".file") {
    next();
    unsigned number = unsigned(parseInteger());
    module.files[number] = next().text;
    skipRestOf(token.line);
    return;
  }
  if (token.text == ".section") {
    while (!isAtEnd() && !is("{"))
      next();
    skipBlock();
    return;
  }
  if (token.text == ".visible" || token.text == ".weak") {
    next();
    return;
  }
  if (token.text == ".entry")
    return parseKernel();
  if (token.text == ".extern" || token.text == ".shared" ||
      token.text == ".global" || token.text == ".const")
    return parseVariable(module.variables);
  fail("'" + token.text +
       "' is not known here; functions and aliases are "
       "not supported");
}

void Parser::parseVariable(std::vector<RawVariable> &variables) {
  RawVariable variable;
  variable.isExtern = accept(".extern");
  variable.space = next().text.substr(1);
  if (variable.space != "shared" && variable.space != "global" &&
      variable.space != "const" && variable.space != "local")
    return fail("a variable of space '." + variable.space +
                "' is not supported");
  if (accept(".align"))
    variable.alignment = parseInteger();
  std::string type = next().text.substr(1);
  unsigned itemBytes = typeBytes(type);
  if (itemBytes == 0)
    return fail("the type '." + type + "' is not known");
  variable.alignment = std::max<uint64_t>(variable.alignment, itemBytes);
  variable.name = next().text;
  variable.size = itemBytes;
  while (accept("[")) {
    variable.size *= is("]") ? 0 : parseInteger();
    expect("]");
  }
  if (accept("="))
    parseInitializer(variable, itemBytes);
  expect(";");
  variables.push_back(std::move(variable));
}

void Parser::parseInitializer(RawVariable &variable, unsigned itemBytes) {
  bool isList = accept("{");
  do {
    if (is("}"))
      break;
    bool isNegative = accept("-");
    int floatBits;
    std::string text = next().text;
    if (text.empty() || !isdigit(text[0]))
      return fail("initial values other than numbers are not supported");
    uint64_t value = parseNumberText(text, floatBits);
    if (isNegative)
      value = -value;
    const char *raw = reinterpret_cast<const char *>(&value);
    variable.bytes.insert(variable.bytes.end(), raw, raw + itemBytes);
  } while (isList && accept(","));
  if (isList)
    expect("}");
}

void Parser::parseKernel() {
  RawKernel kernel;
  kernel.line = next().line;
  kernel.name = next().text;
  if (accept("("))
    parseParams(kernel);
  while (!failed && !isAtEnd() && !is("{")) {
    std::string directive = next().text;
    uint64_t product = 1, others = 1;
    bool hasNumbers = false;
    while (!isAtEnd() && isdigit(peek().text[0])) {
      uint64_t number = parseInteger();
      product *= number;
      others *= hasNumbers ? number : 1;
      hasNumbers = true;
      accept(",");
    }
    if (directive == ".reqntid" && hasNumbers)
      kernel.requiredThreads = unsigned(product);
    else if (directive == ".maxntid" && hasNumbers)
      kernel.maxThreads = unsigned(product);
    else if (directive == ".maxnreg" && hasNumbers)
      kernel.maxRegisters = unsigned(product);
    else if (directive == ".reqnctapercluster" &&
             (others != 1 || product < 1 || product > kMaxClusterCtas))
      fail("clusters have one dimension and up to " +
           std::to_string(kMaxClusterCtas) + " CTAs here");
    else if (directive == ".reqnctapercluster")
      kernel.clusterCtas = unsigned(product);
  }
  if (accept(";")) // A declaration.
    return;
  parseBody(kernel);
  module.kernels.push_back(std::move(kernel));
}

void Parser::parseParams(RawKernel &kernel) {
  while (!failed && !isAtEnd() && !is(")")) {
    expect(".param");
    RawParam param;
    while (is(".align") || is(".ptr") || is(".global") || is(".shared") ||
           is(".const") || is(".local") ||
           (!is(")") && peek().text[0] == '.')) {
      std::string word = next().text;
      if (word == ".align") {
        uint64_t alignment = parseInteger();
        // After a type, `.align` is the alignment of the pointee.
        if (param.size == 0)
          param.alignment = alignment;
        continue;
      }
      if (unsigned bytes = typeBytes(word.substr(1))) {
        param.size = bytes;
        param.alignment = std::max<uint64_t>(param.alignment, bytes);
      }
    }
    param.name = next().text;
    if (accept("[")) {
      param.size *= parseInteger();
      expect("]");
    }
    kernel.params.push_back(std::move(param));
    if (!accept(","))
      break;
  }
  expect(")");
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

void Parser::parseBody(RawKernel &kernel) {
  expect("{");
  location = entry = SourceLocation();
  kernel.scopes.emplace_back();
  std::vector<unsigned> open{0};
  while (!failed && !open.empty()) {
    if (isAtEnd())
      return fail("the body of '" + kernel.name + "' has no end");
    if (accept("{")) {
      RawScope scope;
      scope.parent = int(open.back());
      open.push_back(unsigned(kernel.scopes.size()));
      kernel.scopes.push_back(std::move(scope));
    } else if (accept("}")) {
      open.pop_back();
    } else {
      parseStatement(kernel, open.back());
    }
  }
}

void Parser::parseStatement(RawKernel &kernel, unsigned scope) {
  if (accept(";"))
    return;
  if (is(".loc"))
    return parseLocation();
  if (accept(".reg"))
    return parseRegisters(kernel.scopes[scope]);
  if (is(".shared") || is(".local") || is(".extern"))
    return parseVariable(kernel.variables);
  if (accept(".pragma")) {
    while (!isAtEnd() && !accept(";"))
      next();
    return;
  }
  if (peek(1).text == ":") {
    std::string label = next().text;
    next();
    if (!kernel.scopes[scope]
             .labels.emplace(label, unsigned(kernel.instructions.size()))
             .second)
      fail("the label '" + label + "' is defined twice in one block");
    return;
  }
  parseInstruction(kernel, scope);
}

void Parser::parseLocation() {
  unsigned line = next().line;
  location.file = unsigned(parseInteger());
  location.line = unsigned(parseInteger());
  location.column = unsigned(parseInteger());
  skipRestOf(line);
  // Line 0 marks code merged from several lines; the kernel's own line says
  // more.
  if (location.line == 0)
    location = entry;
  else if (entry.line == 0)
    entry = location;
}

void Parser::parseRegisters(RawScope &scope) {
  std::string type = next().text;
  if (type != ".pred" && typeBytes(type.substr(1)) == 0)
    return fail("the type '" + type + "' is not known");
  do {
    std::string name = next().text;
    if (!accept("<")) {
      scope.registers[name] = type.substr(1);
      continue;
    }
    uint64_t count = parseInteger();
    expect(">");
    constexpr uint64_t kMaxRegisters = 1 << 20;
    if (count > kMaxRegisters)
      return fail("more registers than the limit");
    for (uint64_t i = 0; i < count; ++i)
      scope.registers[name + std::to_string(i)] = type.substr(1);
  } while (!failed && accept(","));
  expect(";");
}

void Parser::parseInstruction(RawKernel &kernel, unsigned scope) {
  RawInstruction instruction;
  instruction.scope = scope;
  instruction.location = location;
  if (accept("@")) {
    instruction.isGuardNegated = accept("!");
    instruction.guard = next().text;
  }
  instruction.line = peek().line;
  std::string opcode = next().text;
  if (opcode.empty() || !isalpha(opcode[0]))
    return fail("expected an instruction, found '" + opcode + "'");
  instruction.parts = splitAtDots(opcode);
  if (!is(";"))
    do
      instruction.operands.push_back(parseOperand());
    while (!failed && accept(","));
  expect(";");
  kernel.instructions.push_back(std::move(instruction));
}

Result<RawModule> moec::ptx::parsePtx(const std::string &text) {
  RawModule module;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    module.lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (Status status = Parser(tokenize(text), module).parse(); !status)
    return status;
  return module;
}
