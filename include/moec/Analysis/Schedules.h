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

#include "mlir/Support/TypeID.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Support/Parts.h"
#include "moert/Expr.h"

#include <optional>
#include <string>
#include <vector>

namespace moec {

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

/// The configs of two phases that run in one kernel, the second one on the
/// results of the first.
struct JoinedConfigs {
  tile::ConfigAttr first, second;
  /// What the two take apart, relative to what their models say: together they
  /// lack what is known to save time apart.
  double apart = 1;
};

/// One way to run an op. What every schedule has is here; what only some can do
/// is an interface of its own, beside what asks for it: a schedule that can
/// derives from `ScheduleWith` that interface, and `as` finds it.
class Schedule {
public:
  virtual ~Schedule() = default;

  /// "cpu.contract", whose configs are `#tile.cpu_contract`.
  const llvm::StringLiteral name;
  /// The op that it runs: "tile.contract".
  const llvm::StringLiteral opName;

  /// Empty if `config` is legal for `op`, else why not and what would be.
  virtual std::string whyIllegal(mlir::Operation *op, tile::ConfigAttr config,
                                 const Target &target) const = 0;
  /// The config of choice.
  virtual tile::ConfigAttr choose(mlir::Operation *op,
                                  const Target &target) const = 0;
  /// The number of CTAs of a kernel with this one phase.
  virtual moert::Expr grid(mlir::Operation *op, tile::ConfigAttr config,
                           const Target &target) const = 0;
  /// GPU: threads of a CTA, and bytes of dynamic shared memory.
  virtual int64_t block(mlir::Operation * /*op*/,
                        tile::ConfigAttr /*config*/) const {
    return 0;
  }
  virtual int64_t shared(mlir::Operation * /*op*/,
                         tile::ConfigAttr /*config*/) const {
    return 0;
  }
  /// GPU: the tensor maps of the kernel.
  virtual llvm::SmallVector<tile::TensorMapAttr>
  tensorMaps(mlir::Operation * /*op*/, tile::ConfigAttr /*config*/) const {
    return {};
  }
  /// Whether it is preferred to those before it, for any number of rows.
  virtual bool isPreferred(mlir::Operation * /*op*/) const { return false; }

  /// What else it can do; null if it cannot.
  template <typename Interface>
  const Interface *as() const {
    return static_cast<const Interface *>(find(mlir::TypeID::get<Interface>()));
  }

protected:
  Schedule(llvm::StringLiteral name, llvm::StringLiteral opName)
      : name(name), opName(opName) {}
  Schedule(const Schedule &) = delete;
  Schedule &operator=(const Schedule &) = delete;

  virtual const void *find(mlir::TypeID /*interface*/) const { return nullptr; }
};

/// A schedule, `Base`, that has these interfaces too.
template <typename Base, typename... Interfaces>
class ScheduleWith : public Base, public Interfaces... {
public:
  using Base::Base;

protected:
  const void *find(mlir::TypeID interface) const override {
    const void *found = Base::find(interface);
    (void)((interface == mlir::TypeID::get<Interfaces>() &&
            (found = static_cast<const Interfaces *>(this))) ||
           ...);
    return found;
  }
};

/// All schedules of a target; of those for an op, the first one whose choice of
/// a config is legal is the one of choice.
llvm::ArrayRef<const Schedule *> getSchedules(const Target &target);

/// The target's schedule called `name`, or null.
const Schedule *findSchedule(const Target &target, llvm::StringRef name);

/// The target's schedules for the op, in order of preference.
llvm::SmallVector<const Schedule *> getSchedulesFor(const Target &target,
                                                    mlir::Operation *op);

} // namespace moec

#endif // MOEC_ANALYSIS_SCHEDULES_H
