//===- Candidates.h - configs of the schedules sm90.* -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_CANDIDATES_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_CANDIDATES_H

#include "Shape.h"
#include "moec/Schedules/Cost.h"

namespace moec::sm90 {

/// Reason why tensor cores cannot multiply the operands as stored; empty if
/// they can.
std::string declineQuant(tile::GemmOp op);

/// Candidate configs of sm90.gemm and of gpu.gemv.
std::vector<Candidate> getGemmCandidates(mlir::Operation *op,
                                         tile::LoadAttr load,
                                         const Target &target);

/// `ModelsTime::adaptToSkew` of these: changes `block_m` alone.
tile::ConfigAttr adaptToSkew(mlir::Operation *op, tile::LoadAttr load,
                             const Target &target, tile::ConfigAttr chosen);

/// `ModelsTime::getTile` of these.
std::pair<int64_t, int64_t> getLargestTile(tile::ConfigAttr candidate);

/// Candidate configs of sm90.gemm without the dynamic scheduler.
std::vector<Candidate> getOrderedCandidates(mlir::Operation *op,
                                            tile::LoadAttr load,
                                            const Target &target);

/// Estimated lines of PTX of all epilogues; each BLOCK_M has its own.
int64_t estimateLines(tile::GemmOp op, const GemmShape &shape);

/// `KnowsSpills::whySpills` of sm90.gemm.
std::string whySpills(mlir::Operation *op, tile::ConfigAttr config);

/// The chosen config of sm90.gemm: the best candidate for the kernel's load
/// or, without a load, one that suits any.
tile::ConfigAttr chooseGemm(mlir::Operation *op, const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_CANDIDATES_H
