//===- PassInputs.cpp - what passes over kernels begin with -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PassInputs.h"

using namespace mlir;
using namespace moec;

std::optional<PassInputs> PassInputs::read(Operation *op, StringRef pass,
                                           StringRef target, StringRef part,
                                           ArrayRef<std::string> configs,
                                           int64_t lanes, StringRef products) {
  std::optional<Target> found =
      Target::findFor(op, pass, target, lanes, part, products);
  if (!found)
    return std::nullopt;
  llvm::Expected<std::vector<ForcedConfig>> forced =
      parseForcedConfigs(configs);
  if (forced)
    return PassInputs{*found, std::move(*forced)};
  op->emitError(pass) << ": " << llvm::toString(forced.takeError());
  return std::nullopt;
}
