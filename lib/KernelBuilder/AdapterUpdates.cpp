//===- AdapterUpdates.cpp - what adapters add to a gemm's sums --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AdapterUpdates.h"

using namespace mlir;
using namespace moec;

F32 moec::loadAdapterUpdate(KernelEmitter &emitter, tile::GemmOp op,
                            int64_t number, Value group, Index row,
                            Index column) {
  constexpr int64_t mostLanes = 8, mostUnrolled = 4;
  Value matrix = emitter.operand(op.getMatrices()[number]);
  Value shrunk = emitter.operand(op.getShrunk());
  int64_t rank = cast<MemRefType>(matrix.getType()).getDimSize(3);
  int64_t lanes = std::min(rank & -rank, mostLanes);
  I32 given = emitter.loadI32(emitter.operand(op.getAdapters()),
                              {row, emitter.index(0)});
  // Rows without an adapter read the first one, and drop the sum.
  Index adapter = max(given, 0).toIndex();
  auto add = [&](Index j, F32 sums) {
    F32 x = emitter.loadVector(shrunk, {row, j + number * rank}, lanes);
    F32 weights =
        emitter.loadVector(matrix, {adapter, group, column, j}, lanes);
    return fma(x, weights, sums);
  };
  F32 sums = emitter.splat(0.0, lanes);
  if (rank / lanes <= mostUnrolled)
    for (int64_t j = 0; j < rank; j += lanes)
      sums = add(emitter.index(j), sums);
  else
    sums =
        emitter.loop(emitter.index(0), emitter.index(rank), lanes, sums, add);
  return select(given >= 0, emitter.sum(sums), 0.0);
}
