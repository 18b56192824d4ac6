//===- Schedules.h - the ways to run a phase on the CPU ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule is a named, parameterized way to run one tile op on a target. What
// can be asked of it without emitting code is here; the code itself is emitted
// in lib/Conversion/TileToVector, by schedule name.
//
// Units of a config: `n` and `panel` count columns of the result, so that with
// a gate/up layout one of them is a pair of weight rows. `k` is the number of
// contracted elements of one step, `rows` the tokens that one CTA owns.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SCHEDULES_H
#define MOEC_ANALYSIS_SCHEDULES_H

#include "moec/Dialect/Tile/Tile.h"
#include "moert/Expr.h"

#include <string>

namespace moec {

/// What a schedule has to know of the CPU.
struct CpuTarget {
  /// f32 elements of a vector register: 4, 8 or 16.
  int64_t lanes;

  /// Vector registers: 32 with AVX-512, else 16.
  int64_t getNumRegisters() const { return lanes == 16 ? 32 : 16; }

  static bool isLegalLanes(int64_t lanes) {
    return lanes == 4 || lanes == 8 || lanes == 16;
  }
  /// The widest vectors of the machine that this runs on.
  static CpuTarget host();
};

/// One row of the table of schedules.
struct Schedule {
  /// As in `#tile.config<schedule = "cpu.contract">`.
  llvm::StringLiteral name;
  /// The op that it runs: "tile.contract".
  llvm::StringLiteral opName;
  /// Empty if `config` is legal for `op`, else why not and what would be.
  std::string (*whyIllegal)(mlir::Operation *op, tile::ConfigAttr config,
                            const CpuTarget &target);
  /// The config of choice.
  tile::ConfigAttr (*choose)(mlir::Operation *op, const CpuTarget &target);
  /// The number of CTAs of a kernel with this one phase.
  moert::Expr (*grid)(mlir::Operation *op, tile::ConfigAttr config);
};

/// All schedules of the CPU; the first one for an op is the one of choice.
llvm::ArrayRef<Schedule> getCpuSchedules();

/// The schedule called `name`, or null.
const Schedule *findCpuSchedule(llvm::StringRef name);

/// The schedule of choice for the op, or null for an op without one.
const Schedule *findCpuScheduleFor(mlir::Operation *op);

} // namespace moec

#endif // MOEC_ANALYSIS_SCHEDULES_H
