//===- Forms.h - the tables of forms ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXCONFORM_FORMS_FORMS_H
#define MOEC_VERIFY_PTXCONFORM_FORMS_FORMS_H

#include "../Elementwise.h"

namespace moec::conform {

using Forms = std::vector<Form>;

void addInteger(Forms &forms);
void addCompare(Forms &forms);
void addFloat(Forms &forms);
void addHalf(Forms &forms);
void addApprox(Forms &forms);
void addConvert(Forms &forms);
void addMove(Forms &forms);
void addMemory(Forms &forms);
void addWarp(Forms &forms);
void addAtomic(Forms &forms);
void addBarrier(Forms &forms);
void addAsyncCopy(Forms &forms);
void addTensorCopy(Forms &forms);
void addMatrixCopy(Forms &forms);
void addMma(Forms &forms);
void addWgmma(Forms &forms);

} // namespace moec::conform

#endif // MOEC_VERIFY_PTXCONFORM_FORMS_FORMS_H
