//===- Sm90Choice.h - configs of the schedules sm90.* -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90CHOICE_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90CHOICE_H

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Sm90.h"

namespace moec::sm90 {

/// Reason why tensor cores cannot multiply the operands as stored; empty if
/// they can.
std::string declineQuant(tile::ContractOp op);

/// Candidate configs of sm90.contract and of sm80.gemv.
std::vector<Candidate> getContractCandidates(mlir::Operation *op,
                                             tile::LoadAttr load,
                                             const Target &target);

/// `ModelsTime::getTile` of these.
std::pair<int64_t, int64_t> getLargestTile(tile::ConfigAttr candidate);

/// Candidate configs of sm90.contract without the dynamic scheduler.
std::vector<Candidate> getOrderedCandidates(mlir::Operation *op,
                                            tile::LoadAttr load,
                                            const Target &target);

/// Estimated lines of PTX of all epilogues; each BLOCK_M has its own.
int64_t estimateLines(tile::ContractOp op, const Contract &shape);

/// `KnowsSpills::whySpills` of sm90.contract.
std::string whySpills(mlir::Operation *op, tile::ConfigAttr config);

/// The chosen config of sm90.contract: the best candidate for the kernel's load
/// or, without a load, one that suits any.
tile::ConfigAttr chooseContract(mlir::Operation *op, const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90CHOICE_H
