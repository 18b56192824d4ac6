//===- Report.cpp - error messages ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"

#include <algorithm>

using namespace moec::ptx;

static std::string positionOf(const Program &program,
                              const Instruction &instruction) {
  std::string text = program.fileName + ":" + std::to_string(instruction.line);
  auto file = program.files.find(instruction.location.file);
  if (file != program.files.end() && instruction.location.line > 0)
    text += " (" + file->second + ":" +
            std::to_string(instruction.location.line) +
            (instruction.location.column > 0
                 ? ":" + std::to_string(instruction.location.column)
                 : "") +
            ")";
  return text;
}

static std::string textOf(const Program &program,
                          const Instruction &instruction) {
  constexpr size_t kMaxCharacters = 100;
  if (instruction.line == 0 || instruction.line > program.lines.size())
    return "the end";
  std::string text = program.lines[instruction.line - 1];
  for (char &c : text)
    if (c == '\t')
      c = ' ';
  size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos)
    return "";
  text = text.substr(begin);
  if (text.size() > kMaxCharacters)
    text = text.substr(0, kMaxCharacters) + "...";
  return "'" + text.substr(0, text.find_last_not_of(" ;") + 1) + "'";
}

std::string moec::ptx::describeThread(unsigned warp, unsigned lane) {
  return "thread " + std::to_string(warp * kWarpLanes + lane) + " (warp " +
         std::to_string(warp) + ", lane " + std::to_string(lane) + ")";
}

std::string Engine::describe(const Warp &warp, const Instruction &instruction,
                             unsigned lane) const {
  const Launch &launch = warp.cta.launch;
  return positionOf(*launch.program, instruction) + ": '" +
         launch.kernel->name + "', cta " + std::to_string(warp.cta.index) +
         ", " + describeThread(warp.index, lane) + ": " +
         textOf(*launch.program, instruction);
}

std::string Engine::describeInstruction(uint32_t id) const {
  if (id == kCopyInstruction)
    return "a copy between kernels";
  for (const std::unique_ptr<Program> &program : programs)
    for (const std::unique_ptr<Kernel> &kernel : program->kernels)
      if (id - kernel->firstId < kernel->code.size()) {
        const Instruction &instruction = kernel->code[id - kernel->firstId];
        return positionOf(*program, instruction) + " " +
               textOf(*program, instruction);
      }
  return "an unknown instruction";
}

std::string Engine::describeConflict(const Conflict &conflict, bool isWrite,
                                     bool isAsync) const {
  const Access &other = conflict.other;
  std::string who;
  if (isWarpUnit(other.unit()))
    who = "thread " +
          std::to_string(other.unit() * kWarpLanes +
                         unsigned(__builtin_ctz(other.lanes | 1u << 31)));
  else if (isAsyncUnit(other.unit()) || isStoreUnit(other.unit()))
    who = "an asynchronous operation";
  else
    who =
        "a copy in flight of warp " + std::to_string(other.unit() - kCopyUnit);
  if (other.serial() >= horizon)
    who += " of cta " + std::to_string(indexOfSerial[other.serial() - horizon]);
  std::string what = conflict.isOtherWrite ? "write" : "read";
  std::string here = isWrite ? "write" : "read";
  if (conflict.kind == Conflict::Kind::Unfenced)
    return "async-proxy " + here + " of an unfenced generic write by " + who +
           " at " + describeInstruction(other.id) +
           "; the writer needs fence.proxy.async before it signals";
  return std::string("race: a ") + (isAsync ? "late " : "") + here +
         " that nothing orders after the " + what + " by " + who + " at " +
         describeInstruction(other.id);
}

//===----------------------------------------------------------------------===//
// Deadlock
//===----------------------------------------------------------------------===//

static std::string describeState(const Warp &warp, const Group &group) {
  const Launch &launch = warp.cta.launch;
  const Instruction &instruction = launch.kernel->code[group.pc];
  static const char *const states[] = {"runs",
                                       "waits for other lanes",
                                       "waits at a barrier",
                                       "waits for an mbarrier",
                                       "waits for registers",
                                       "waits for its warpgroup",
                                       "waits for the previous launch",
                                       "waits for its cluster"};
  unsigned lane = unsigned(__builtin_ctz(group.lanes | 1u << 31));
  std::string text = "  cta " + std::to_string(warp.cta.index) + ", warp " +
                     std::to_string(warp.index) + ", " +
                     std::to_string(__builtin_popcount(group.lanes)) +
                     " lanes from " + std::to_string(lane) + " " +
                     states[size_t(group.state)] + " at " +
                     positionOf(*launch.program, instruction) + " " +
                     textOf(*launch.program, instruction);
  return text + "\n";
}

static std::string describeBarriers(const Cta &cta) {
  std::string text;
  std::string where = "  cta " + std::to_string(cta.index) + ", ";
  for (unsigned id = 0; id < 16; ++id)
    if (cta.barriers[id].arrived > 0)
      text += where + "barrier " + std::to_string(id) + ": " +
              std::to_string(cta.barriers[id].arrived) + " of " +
              std::to_string(cta.barriers[id].expected) +
              " threads have arrived\n";
  std::vector<uint64_t> addresses;
  for (const auto &entry : cta.mbarriers)
    addresses.push_back(entry.first);
  std::sort(addresses.begin(), addresses.end());
  for (uint64_t address : addresses) {
    const Mbarrier &barrier = cta.mbarriers.at(address);
    text += where + "mbarrier at shared address " + std::to_string(address) +
            ": phase " + std::to_string(barrier.phase) + ", " +
            std::to_string(barrier.pending) + " of " +
            std::to_string(barrier.expected) + " arrivals and " +
            std::to_string(barrier.transactions) + " bytes missing\n";
  }
  return text;
}

void Engine::reportDeadlock() {
  constexpr size_t kMaxLines = 40;
  std::string text = "deadlock: no thread can continue\n";
  size_t lines = 0;
  for (const std::unique_ptr<Cta> &cta : ctas) {
    for (const std::unique_ptr<Warp> &warp : cta->warps)
      for (const Group &group : warp->groups)
        if (lines++ < kMaxLines)
          text += describeState(*warp, group);
    if (lines < kMaxLines)
      text += describeBarriers(*cta);
  }
  for (const Launch *launch : active)
    if (launch->started < launch->gridCtas)
      text += "  " + std::to_string(launch->gridCtas - launch->started) +
              " of " + std::to_string(launch->gridCtas) + " CTAs of '" +
              launch->kernel->name +
              "' have yet to begin; if others wait for them, mark the kernel "
              "resident\n";
  text.pop_back();
  fail(text);
}
