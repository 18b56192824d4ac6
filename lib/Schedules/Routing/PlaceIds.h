//===- PlaceIds.h - one id as that of this rank's weights -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_PLACEIDS_H
#define MOEC_LIB_SCHEDULES_ROUTING_PLACEIDS_H

#include "KernelBuilder/KernelEmitter.h"

namespace moec {

/// Emits one thread's work for choice `choice` of token `token`, both of type
/// index and in bounds.
void emitPlacedId(tile::PlaceIdsOp op, KernelEmitter &emitter,
                  mlir::Value token, mlir::Value choice);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_PLACEIDS_H
