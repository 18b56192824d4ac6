//===- ControlForms.cpp - branches and hints --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/Engine.h"
#include "CopyForms.h"

using namespace moec::ptx;

namespace {

Step jump(Warp &warp, const Instruction &instruction, LaneMask mask) {
  warp.branch(instruction, mask);
  return Step::Jumped;
}

Step end(Warp &warp, const Instruction &, LaneMask mask) {
  Group &group = warp.current();
  if (group.lanes != mask)
    ++group.pc;
  warp.exitLanes(mask);
  return Step::Jumped;
}

Step trap(Warp &warp, const Instruction &instruction, LaneMask mask) {
  return warp.fail(instruction, unsigned(__builtin_ctz(mask)),
                   "the kernel has trapped");
}

Step nothing(Warp &, const Instruction &, LaneMask) { return Step::Next; }

Step pause(Warp &, const Instruction &, LaneMask) { return Step::Yield; }

Step letDependentsBegin(Warp &warp, const Instruction &, LaneMask) {
  warp.cta.launch.engine->letDependentsBegin(warp.cta);
  return Step::Next;
}

Step waitForLaunchBefore(Warp &warp, const Instruction &, LaneMask mask) {
  return warp.cta.launch.engine->waitForLaunchBefore(warp, mask)
             ? Step::Next
             : Step::Blocked;
}

} // namespace

void moec::ptx::decodeHint(Decoder &d) {
  while (!d.takeNext().empty())
    ;
  d.instruction.handler = nothing;
}

void moec::ptx::addControlForms(FormTable &table) {
  table["bra"] = [](Decoder &d) {
    d.take("uni");
    if (!d.expectOperands(1, 1))
      return;
    d.instruction.immediate = d.label(0);
    d.instruction.isCollective = true;
    d.instruction.handler = jump;
  };
  table["ret"] = table["exit"] = [](Decoder &d) {
    d.take("uni");
    d.instruction.handler = end;
  };
  table["trap"] = [](Decoder &d) { d.instruction.handler = trap; };
  table["nanosleep"] = [](Decoder &d) {
    if (d.takeType() != "u32" || !d.expectOperands(1, 1))
      return;
    d.value(0, 4);
    d.instruction.handler = pause;
  };
  table["prefetch"] = table["prefetchu"] = decodeHint;
  table["griddepcontrol"] = [](Decoder &d) {
    std::string action = d.takeOneOf({"wait", "launch_dependents"});
    if (!action.empty())
      d.instruction.handler =
          action == "wait" ? waitForLaunchBefore : letDependentsBegin;
  };
}
