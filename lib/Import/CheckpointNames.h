//===- CheckpointNames.h - names in Hugging Face checkpoints ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_CHECKPOINTNAMES_H
#define MOEC_LIB_IMPORT_CHECKPOINTNAMES_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// The checkpoint layouts of a weight in the layer's family. A layer without a
/// family accepts the layouts of families that store experts separately.
std::vector<CheckpointForm> getCheckpointForms(const LayerSpec &spec,
                                               const TensorInfo &tensor);

} // namespace moec

#endif // MOEC_LIB_IMPORT_CHECKPOINTNAMES_H
