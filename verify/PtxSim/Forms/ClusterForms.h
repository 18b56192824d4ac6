//===- ClusterForms.h - barriers, stores of clusters ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_FORMS_CLUSTERFORMS_H
#define MOEC_VERIFY_PTXSIM_FORMS_CLUSTERFORMS_H

#include "Decoder.h"

namespace moec::ptx {

/// Decodes the words behind `barrier.cluster`.
void decodeClusterBarrier(Decoder &decoder);

/// Decodes the words behind `st.async`.
void decodeAsyncStore(Decoder &decoder);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_FORMS_CLUSTERFORMS_H
