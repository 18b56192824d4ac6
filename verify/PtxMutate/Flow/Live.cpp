//===- Live.cpp - liveness of sources of predicates -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Live.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;

std::set<std::string> mutate::guardsOfBranches(const RawKernel &kernel) {
  std::set<std::string> guards;
  for (const RawInstruction &instruction : kernel.instructions)
    if (instruction.parts[0] == "bra" && !instruction.guard.empty())
      guards.insert(instruction.guard);
  return guards;
}

Live::Live(const Flow &flow, const std::set<std::string> &guards,
           std::optional<size_t> reader)
    : followed(guards) {
  // Adds all registers that these are computed from.
  for (size_t before = 0; before != followed.size();) {
    before = followed.size();
    for (const RawInstruction &instruction : flow.kernel.instructions)
      for (const std::string &name : resultsOf(instruction))
        if (followed.count(name))
          for (size_t i = 1; i < instruction.operands.size(); ++i)
            if (instruction.operands[i].isWord())
              followed.insert(instruction.operands[i].text);
  }
  solve(flow, guards, reader);
}

void Live::solve(const Flow &flow, const std::set<std::string> &guards,
                 std::optional<size_t> reader) {
  for (const std::string &name : followed)
    numbers.emplace(name, numbers.size());
  size_t count = flow.kernel.instructions.size();
  needed.assign(count, std::vector<bool>(numbers.size()));
  std::vector<size_t> open(count);
  for (size_t i = 0; i < count; ++i)
    open[i] = i;
  while (!open.empty()) {
    size_t at = open.back();
    open.pop_back();
    const RawInstruction &instruction = flow.kernel.instructions[at];
    std::vector<bool> here(numbers.size());
    for (size_t next : flow.successors(at))
      for (size_t i = 0; i < here.size(); ++i)
        here[i] = here[i] || needed[next][i];
    bool isFollowed = reader && at == *reader;
    for (const std::string &name : resultsOf(instruction))
      if (auto number = numbers.find(name); number != numbers.end()) {
        isFollowed |= here[number->second];
        if (instruction.guard.empty())
          here[number->second] = false;
      }
    auto add = [&](const std::string &name) {
      if (auto number = numbers.find(name); number != numbers.end())
        here[number->second] = true;
    };
    if (isFollowed)
      for (size_t i = 1; i < instruction.operands.size(); ++i)
        add(instruction.operands[i].text);
    if (guards.count(instruction.guard))
      add(instruction.guard);
    if (here == needed[at])
      continue;
    needed[at] = std::move(here);
    for (size_t before : flow.predecessors(at))
      open.push_back(before);
  }
}
