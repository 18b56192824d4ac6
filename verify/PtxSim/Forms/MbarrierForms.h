//===- MbarrierForms.h - barriers in shared memory --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_MBARRIERFORMS_H
#define MOEC_VERIFY_PTXSIM_FORMS_MBARRIERFORMS_H

#include "../Machine/Machine.h"
#include "Decoder.h"

namespace moec::ptx {

void addMbarrierForms(FormTable &table);

/// The mbarrier at address operand `index`; null after an error.
Mbarrier *findMbarrier(Warp &warp, const Instruction &instruction,
                       unsigned lane, size_t index);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_MBARRIERFORMS_H
