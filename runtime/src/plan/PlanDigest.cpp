//===- PlanDigest.cpp - digests of plans and layers -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanDigest.h"
#include "../support/Sha256.h"
#include "moert/PlanText.h"

namespace moert {

static void addArguments(const std::vector<Step> &steps, std::string &text) {
  for (const Step &step : steps) {
    for (const Argument &arg : step.args)
      text +=
          ' ' + (arg.kind == Argument::Kind::Tensor ? std::to_string(arg.tensor)
                                                    : arg.scalar.str());
    text += '\n';
  }
}

/// printPlan() omits the arguments of steps.
static std::string printWhole(const Plan &plan) {
  std::string text = printPlan(plan);
  for (const Variant &variant : plan.variants)
    addArguments(variant.steps, text);
  addArguments(plan.prepare, text);
  return text;
}

std::string digestPlan(const Plan &plan) {
  std::string text = printWhole(plan);
  return showDigest(sha256(text.data(), text.size()));
}

std::string digestLayer(const Plan &plan, const ModuleImage &image,
                        bool isDescribed) {
  std::string text = printWhole(plan);
  if (!plan.prepare.empty() || !isDescribed)
    for (const std::vector<uint8_t> &module : image.modules)
      text += '\n' + showDigest(sha256(module.data(), module.size()));
  return showDigest(sha256(text.data(), text.size()));
}

} // namespace moert
