//===- Schedules.h - the ways to run a phase on a target --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule is a named, parameterized way to run one tile op on a target. What
// can be asked of it without emitting code is here; the code itself is emitted
// by schedule name, in lib/Conversion/TileToVector for the CPU and in
// lib/Conversion/TileToNVVM for GPUs.
//
// Its parameters are an attribute of its own (dialects/Tile/TileConfigs.td).
// Columns in configs are those of the result, so that with a gate/up layout one
// of them is a pair of weight rows.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_SCHEDULES_H
#define MOEC_ANALYSIS_SCHEDULES_H

#include "moec/Support/Parts.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moert/Expr.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moec {

struct Candidate;
class CostModel;
struct DeviceRates;

/// What a schedule has to know of the machine.
struct Target {
  /// "cpu", or a GPU as ptxas names it: "sm_80", "sm_90a", "sm_100a".
  std::string name;
  /// CPU: f32 elements of a vector register: 4, 8 or 16.
  int64_t lanes = 0;
  /// GPU: the part that configs are chosen for; null where none was named and
  /// the target has no default.
  const PartFacts *part = nullptr;
  /// GPU: what times are predicted by in place of what is known of the part;
  /// null for that.
  const DeviceRates *rates = nullptr;

  bool isGpu() const { return name != "cpu"; }
  /// GPU: of the part; 0 where there is none.
  int64_t getMultiprocessors() const {
    return part ? part->multiprocessors : 0;
  }
  /// GPU: bytes of shared memory that a CTA may have.
  int64_t getSharedBytes() const;
  /// GPU: instructions convert to and from floats of 8 bits.
  bool convertsFloat8() const;
  /// CPU: vector registers: 32 with AVX-512, else 16.
  int64_t getNumRegisters() const { return lanes == 16 ? 32 : 16; }

  static bool isLegalLanes(int64_t lanes) {
    return lanes == 4 || lanes == 8 || lanes == 16;
  }
  /// The CPU with that many lanes, or with the widest vectors of the machine
  /// that this runs on.
  static Target cpu(int64_t lanes) { return {"cpu", lanes}; }
  static Target hostCpu();
  /// The target of that name, with `lanes` for a CPU (0: those of the host), or
  /// the part of that name for a GPU (empty: the target's default); no value
  /// for a name that is none of `getNames`, or where `whyNotPart` has a reason.
  static std::optional<Target> find(llvm::StringRef name, int64_t lanes = 0,
                                    llvm::StringRef part = {});
  static llvm::ArrayRef<llvm::StringLiteral> getNames();
  /// The same for a pass over `op`, which reports what is wrong.
  static std::optional<Target> findFor(mlir::Operation *op,
                                       llvm::StringRef pass,
                                       llvm::StringRef name, int64_t lanes = 0,
                                       llvm::StringRef part = {});
};

/// Those of two phases that run in one kernel, the second one on the results of
/// the first.
struct JoinedConfigs {
  tile::ConfigAttr first, second;
  /// Of two products: the share of what they take apart that is saved, summed
  /// over the powers of two of the load; 0 where it is not known.
  double saved = 0;
};

/// How `tile.count_slots` cuts tokens into chunks: into `most` at most, of at
/// least `tokens` each.
struct TokenChunks {
  int64_t most, tokens;
};

/// One row of the table of schedules.
struct Schedule {
  /// "cpu.contract", whose configs are `#tile.cpu_contract`.
  llvm::StringLiteral name;
  /// The op that it runs: "tile.contract".
  llvm::StringLiteral opName;
  /// Empty if `config` is legal for `op`, else why not and what would be.
  std::string (*whyIllegal)(mlir::Operation *op, tile::ConfigAttr config,
                            const Target &target);
  /// The config of choice.
  tile::ConfigAttr (*choose)(mlir::Operation *op, const Target &target);
  /// The number of CTAs of a kernel with this one phase.
  moert::Expr (*grid)(mlir::Operation *op, tile::ConfigAttr config,
                      const Target &target);
  /// GPU: threads of a CTA, and bytes of dynamic shared memory. Null on a CPU.
  int64_t (*block)(mlir::Operation *op, tile::ConfigAttr config) = nullptr;
  int64_t (*shared)(mlir::Operation *op, tile::ConfigAttr config) = nullptr;
  /// GPU: the tensor maps of the kernel; null where it has none.
  llvm::SmallVector<tile::TensorMapAttr> (*tensorMaps)(
      mlir::Operation *op, tile::ConfigAttr config) = nullptr;
  /// What Cost.h chooses from for a load, and by. Null where one config suits
  /// any number of rows.
  std::vector<Candidate> (*candidates)(mlir::Operation *op, tile::LoadAttr load,
                                       const Target &target) = nullptr;
  std::unique_ptr<CostModel> (*costModel)(mlir::Operation *op,
                                          tile::LoadAttr load,
                                          const Target &target) = nullptr;
  /// Whether it is preferred to those before it, for any number of rows. Null
  /// where it is not.
  bool (*isPreferred)(mlir::Operation *op) = nullptr;
  /// GPU: whether code counts `ids` where it has them.
  bool countsIds = false;
  /// GPU: the configs with which two products, which have configs of this
  /// schedule, are one kernel; nothing if they cannot be, or are expected to
  /// take longer. With `areFixed` those that they have. Null where no code does
  /// that.
  std::optional<JoinedConfigs> (*join)(tile::ContractOp first,
                                       tile::ContractOp second,
                                       tile::LoadAttr load, bool areFixed,
                                       const Target &target) = nullptr;
  /// GPU: the config with which a product, which has one of this schedule,
  /// quantizes its results itself, as `quantized` does, the same product with
  /// `result_scale`; null if it cannot, or is expected to take longer than with
  /// `quantization` behind it. With `isFixed` the config that it has. Null
  /// where no code does that.
  tile::ConfigAttr (*quantizeResult)(tile::ContractOp product,
                                     tile::QuantizeOp quantization,
                                     tile::ContractOp quantized,
                                     tile::LoadAttr load, bool isFixed,
                                     const Target &target) = nullptr;
  /// GPU: the config of `permuted`, which is a product with a config of this
  /// schedule, but for its rows, which `gather` has brought into order; null if
  /// it cannot, or if it is expected to take longer than `product` does, which
  /// finds them by `source`. That is not asked for with `always`. With
  /// `isFixed` the config that it has, by tensor maps, and only with `always`.
  /// Null where no code does that.
  tile::ConfigAttr (*permuteRows)(tile::ContractOp product,
                                  tile::GatherRowsOp gather,
                                  tile::ContractOp permuted,
                                  tile::LoadAttr load, bool isFixed,
                                  bool always, const Target &target) = nullptr;
  /// GPU: the chunks whose slots a `tile.count_slots` may count for a ranking,
  /// which has a config of this schedule; nothing where that would not pay.
  /// `isRouted`: in the kernel that routes these tokens. Null where no code
  /// reads `counts`.
  std::optional<TokenChunks> (*chunks)(tile::RankOp op, tile::ConfigAttr config,
                                       bool isRouted) = nullptr;
  /// GPU: the configs with which a CTA needs, of all that the phase `first`
  /// makes, at most its own share when it goes on to `second`, which has a
  /// config of this schedule, so that both are phases of one kernel for `load`;
  /// nothing where there are none. Null where no CTA can do that.
  std::optional<JoinedConfigs> (*follow)(mlir::Operation *first,
                                         mlir::Operation *second,
                                         tile::LoadAttr load) = nullptr;
  /// GPU: empty if the configs that both have are such, else why not.
  std::string (*whyApart)(mlir::Operation *first, mlir::Operation *second,
                          tile::LoadAttr load) = nullptr;
  /// GPU: from how many rows on a group has a launch of its own, behind that of
  /// a product with a config of this schedule, if `splitHeavy` says so. Null
  /// where no code tells groups apart by their rows.
  int64_t (*getHeavyRows)(tile::ContractOp product,
                          tile::LoadAttr load) = nullptr;
  /// GPU: the config of `heavy`, which is `product` for groups with
  /// `group_rows` of a `min` alone; null if it is not expected to take less
  /// time for such groups, or if one more launch is expected to take too much
  /// where there are none. That is not asked for with `always`.
  tile::ConfigAttr (*splitHeavy)(tile::ContractOp product,
                                 tile::ContractOp heavy, tile::LoadAttr load,
                                 bool always, const Target &target) = nullptr;
};

/// All schedules of a target; of those for an op, the first one whose choice of
/// a config is legal is the one of choice.
llvm::ArrayRef<Schedule> getSchedules(const Target &target);

/// The target's schedule called `name`, or null.
const Schedule *findSchedule(const Target &target, llvm::StringRef name);

/// The target's schedules for the op, in order of preference.
llvm::SmallVector<const Schedule *> getSchedulesFor(const Target &target,
                                                    mlir::Operation *op);

} // namespace moec

#endif // MOEC_ANALYSIS_SCHEDULES_H
