//===- Forms.cpp - all instruction forms ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms/Forms.h"

namespace moec::conform {

static Forms makeForms() {
  Forms forms;
  addInteger(forms);
  addCompare(forms);
  addFloat(forms);
  addHalf(forms);
  addApprox(forms);
  addConvert(forms);
  addMove(forms);
  addMemory(forms);
  addWarp(forms);
  addAtomic(forms);
  addBarrier(forms);
  addAsyncCopy(forms);
  addTensorCopy(forms);
  addMatrixCopy(forms);
  addMma(forms);
  addWgmma(forms);
  return forms;
}

const std::vector<Form> &allForms() {
  static const std::vector<Form> forms = makeForms();
  return forms;
}

} // namespace moec::conform
