//===- Schedules.h - the ways to run a phase on a target --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules: named, parameterized ways to run one tile op on a target. This
// header has the queries that need no code emission. The code is emitted by
// schedule name, in lib/Conversion/TileToVector for the CPU and in
// lib/Conversion/TileToNVVM for GPUs.
//
// A schedule's parameters are an attribute of its own
// (lib/Schedules/*/Config.td). Columns in configs are result columns: with a
// gate/up layout, one column is a pair of weight rows.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_SCHEDULES_H
#define MOEC_SCHEDULES_SCHEDULES_H

#include "mlir/Support/TypeID.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Support/Parts.h"
#include "moec/Support/Targets.h"
#include "moert/Expr.h"

#include <optional>
#include <string>
#include <vector>

namespace moec {

struct DeviceRates;

/// Instructions of a CPU that multiply 16- and 8-bit numbers; one with the last
/// has the others too.
enum class CpuProducts {
  /// FMAs on f32 alone.
  Fma,
  /// AVX512_VNNI, or AVX_VNNI.
  Vnni,
  /// AVX512_BF16.
  Bf16,
  /// AMX_BF16 and AMX_INT8, which the process may use.
  Amx
};

/// The machine, as far as schedules depend on it.
struct Target {
  /// A name of moec/Support/Targets.def.
  std::string name;
  /// CPU: f32 elements of a vector register: 4, 8 or 16.
  int64_t lanes = 0;
  CpuProducts products = CpuProducts::Fma;
  /// GPU: the part to choose configs for; null if none was named and the target
  /// has no default.
  const PartFacts *part = nullptr;
  /// GPU: rates for predictions; null for those of the part.
  const DeviceRates *rates = nullptr;

  const TargetFacts &getFacts() const { return *findTarget(name); }
  Architecture getArchitecture() const { return getFacts().architecture; }
  bool isGpu() const { return name != "cpu"; }
  /// GPU: SMs of the part; 0 without one.
  int64_t getMultiprocessors() const {
    return part ? part->multiprocessors : 0;
  }
  /// GPU: maximum bytes of shared memory of a CTA.
  int64_t getSharedBytes() const;
  /// GPU: has instructions that convert to and from 8-bit floats.
  bool convertsFloat8() const;
  /// CPU: vector registers: 32 with AVX-512, else 16.
  int64_t getNumRegisters() const { return lanes == 16 ? 32 : 16; }

  static bool isLegalLanes(int64_t lanes) {
    return lanes == 4 || lanes == 8 || lanes == 16;
  }
  /// The instructions named "fma", "vnni", "bf16" or "amx".
  static std::optional<CpuProducts> findProducts(llvm::StringRef name);
  static llvm::StringRef getName(CpuProducts products);
  /// A CPU with that many lanes, or the host with its widest vectors.
  static Target cpu(int64_t lanes, CpuProducts products = CpuProducts::Fma) {
    return {"cpu", lanes, products};
  }
  static Target hostCpu();
  /// A CPU with the features for which `hasFeature` is true, by LLVM's names.
  static Target cpuWith(llvm::function_ref<bool(llvm::StringRef)> hasFeature);
  /// Finds a target by name. A CPU has `lanes` (0: the host's, with the host's
  /// products) and `products` (empty: FMAs), a GPU the part named `part`
  /// (empty: the default). No value if `name` is not one of `getNames`, if
  /// `whyNotPart` gives a reason, or if `findProducts` finds none.
  static std::optional<Target> find(llvm::StringRef name, int64_t lanes = 0,
                                    llvm::StringRef part = {},
                                    llvm::StringRef products = {});
  static llvm::ArrayRef<llvm::StringLiteral> getNames();
  /// Finds the target for a pass over `op`, and reports errors on it.
  static std::optional<Target> findFor(mlir::Operation *op,
                                       llvm::StringRef pass,
                                       llvm::StringRef name, int64_t lanes = 0,
                                       llvm::StringRef part = {},
                                       llvm::StringRef products = {});
};

/// Configs of two phases in one kernel, the second of which reads the results
/// of the first.
struct JoinedConfigs {
  tile::ConfigAttr first, second;
  /// Factor on the predicted time of two separate launches. Below 1 if separate
  /// launches have optimizations that a joined kernel lacks.
  double apart = 1;
};

/// A way to run an op. Common queries are members; optional ones are
/// interfaces, declared beside the code that asks for them. A schedule lists
/// those that it supports as arguments of its base class `ScheduleWith`; `as`
/// finds them.
class Schedule {
public:
  virtual ~Schedule() = default;

  /// For example "cpu.gemm", whose configs are `#tile.cpu_gemm`.
  const llvm::StringLiteral name;
  /// The op that it runs, for example "tile.gemm".
  const llvm::StringLiteral opName;

  /// Reason why `config` is illegal for `op`, and what would be legal; empty if
  /// it is legal. Includes a `sum_order` of the op, which the config must have.
  std::string whyIllegal(mlir::Operation *op, tile::ConfigAttr config,
                         const Target &target) const;
  /// The preferred config.
  virtual tile::ConfigAttr choose(mlir::Operation *op,
                                  const Target &target) const = 0;
  /// Number of CTAs of a kernel with only this phase.
  virtual moert::Expr grid(mlir::Operation *op, tile::ConfigAttr config,
                           const Target &target) const = 0;
  /// GPU: threads of a CTA.
  virtual int64_t block(mlir::Operation * /*op*/,
                        tile::ConfigAttr /*config*/) const {
    return 0;
  }
  /// GPU: bytes of a CTA's dynamic shared memory.
  virtual int64_t shared(mlir::Operation * /*op*/,
                         tile::ConfigAttr /*config*/) const {
    return 0;
  }
  /// GPU: the kernel's tensor maps.
  virtual llvm::SmallVector<tile::TensorMapAttr>
  tensorMaps(mlir::Operation * /*op*/, tile::ConfigAttr /*config*/) const {
    return {};
  }
  /// Whether `op` should use this schedule rather than an earlier one in the
  /// list, whatever the number of rows.
  virtual bool isPreferred(mlir::Operation * /*op*/) const { return false; }

  /// The optional interface; null if not supported.
  template <typename Interface>
  const Interface *as() const {
    return static_cast<const Interface *>(find(mlir::TypeID::get<Interface>()));
  }

protected:
  Schedule(llvm::StringLiteral name, llvm::StringLiteral opName)
      : name(name), opName(opName) {}
  Schedule(const Schedule &) = delete;
  Schedule &operator=(const Schedule &) = delete;

  /// `whyIllegal`, apart from the order of sums.
  virtual std::string whyConfigIllegal(mlir::Operation *op,
                                       tile::ConfigAttr config,
                                       const Target &target) const = 0;

  virtual const void *find(mlir::TypeID /*interface*/) const { return nullptr; }
};

/// A schedule (`Base`) with additional interfaces.
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

/// All schedules of a target. The default for an op is the first one that
/// chooses a legal config.
llvm::ArrayRef<const Schedule *> getSchedules(const Target &target);

/// All schedules of GPUs, in the order of Schedules.def.
llvm::ArrayRef<const Schedule *> getGpuSchedules();

/// The target's schedule with that name, or null.
const Schedule *findSchedule(const Target &target, llvm::StringRef name);

/// The target's schedules for the op, in order of preference.
llvm::SmallVector<const Schedule *> getSchedulesFor(const Target &target,
                                                    mlir::Operation *op);

} // namespace moec

#endif // MOEC_SCHEDULES_SCHEDULES_H
