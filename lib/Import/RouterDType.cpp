//===- RouterDType.cpp - the dtype of a model's router --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models of bf16 may have a router in f32, whose values bf16 lacks. No
// configuration says so, but the checkpoint does.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "CheckpointNames.h"
#include "ModuleRules.h"

using namespace llvm;

namespace moec {

void readRouterDType(const Family &family, const SpecOverrides &overrides,
                     LayerSpec &spec) {
  if (!overrides.tensors || spec.entry != Entry::Gate ||
      spec.dtype == DType::F32 || spec.routing.gateBias)
    return;
  LayerModules modules(family, spec);
  SmallVector<StringRef> names;
  family.names.gate.split(names, '|', -1, /*KeepEmpty=*/false);
  for (const std::string &prefix : modules.getPrefixes())
    for (StringRef name : names)
      if (overrides.tensors->findDType(prefix + numberName(name, spec)) ==
          DType::F32)
        spec.routing.splitGate = true;
}

} // namespace moec
