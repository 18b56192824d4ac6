//===- ReadTensors.cpp - what the runs of a plan read -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReadTensors.h"

namespace moert {

static void markRead(const std::vector<Step> &steps,
                     std::vector<bool> &isRead) {
  for (const Step &step : steps)
    for (const Argument &arg : step.args)
      if (arg.kind == Argument::Kind::Tensor)
        isRead[arg.tensor] = true;
}

std::vector<bool> findReadByRuns(const Plan &plan) {
  std::vector<bool> isRead(plan.tensors.size());
  for (const Variant &variant : plan.variants)
    markRead(variant.steps, isRead);
  return isRead;
}

std::vector<bool> findReadByPrepare(const Plan &plan) {
  std::vector<bool> isRead(plan.tensors.size());
  markRead(plan.prepare, isRead);
  for (const TensorDecl &tensor : plan.tensors)
    if (tensor.inPlaceOf >= 0)
      isRead[static_cast<size_t>(tensor.inPlaceOf)] = true;
  return isRead;
}

std::vector<bool> findMemoryReadByRuns(const Plan &plan) {
  std::vector<bool> isRead = findReadByRuns(plan);
  for (size_t i = 0; i < isRead.size(); ++i)
    if (plan.tensors[i].inPlaceOf >= 0 && isRead[i])
      isRead[static_cast<size_t>(plan.tensors[i].inPlaceOf)] = true;
  return isRead;
}

} // namespace moert
