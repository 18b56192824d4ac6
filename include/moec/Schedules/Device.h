//===- Device.h - rates of a GPU --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_DEVICE_H
#define MOEC_SCHEDULES_DEVICE_H

#include "ProductTypes.h"
#include "Schedules.h"

namespace moec {

/// Measured coefficients of the cost model, in addition to PartFacts. Rates are
/// per second, or per clock of all SMs where the name says `Clk`; times are in
/// microseconds.
struct PartFit {
  /// The part that was measured (PartFacts::name). Another part borrows its
  /// coefficients: rates and sizes in the data sheets of both are scaled, all
  /// others stay.
  llvm::StringLiteral fittedOn = "";

  // Measured ceilings, by which floors are computed.
  double readBytes;
  double bf16Operations;
  double fp8Operations;
  double getOperations(ComputeType type) const {
    return areBytes(type) ? fp8Operations : bf16Operations;
  }

  // Memory.
  /// Bandwidth that kernels sustain when they read and write rows.
  double copyBytes;
  /// Share of `readBytes` that a stream of weights sustains.
  double streamShare;
  /// Bandwidth of one SM from memory.
  double smReadBytes;
  /// Latency of a read on a saturated bus: determines the bytes that must be in
  /// flight, more of them if reads come in bursts.
  double latencyUs;
  /// Pipeline stages that do not wait for memory.
  double stagesRead;
  /// Delay of the slowest SM, as a share of its last item.
  double unevenShare;
  /// Delay with few waves, as a share of the standard deviation of the number
  /// of tiles.
  double uncertainShare;
  /// L2 bandwidth to all SMs.
  double l2BytesPerClk;
  /// An intermediate smaller than this stays in L2 between its writer and its
  /// reader.
  double l2KeptBytes;

  // Power. Kernels that draw the board's limit may run at lower clocks.
  /// W, above the draw of the idle device.
  double power;
  /// J per byte from memory and from L2; J per operation on 16 and on 8 bits.
  double readEnergy, l2Energy, bf16Energy, fp8Energy;
  double getEnergy(ComputeType type) const {
    return areBytes(type) ? fp8Energy : bf16Energy;
  }

  // Tensor cores.
  /// Clocks per second of an SM that is not limited by power.
  double tensorClock;
  /// Sustained share of PartFacts::operationsPerClk at `tensorClock`.
  double tensorShare;
  /// Least clocks of one wgmma of 64 weight rows and few input rows.
  double productClk;

  // Overhead of each k tile, each work item and each kernel.
  double stepClk;
  double itemClk;
  /// Share of the epilogue's time that adds to that of the wgmmas, at
  /// PartFacts::instructionsPerClk lines of PTX: less than 1 if it overlaps
  /// with them, more if its instructions wait for one another.
  double epilogueExposed;
  /// Cost of gathering rows without tensor maps: a share of the wgmmas' time,
  /// and its traffic relative to its bytes.
  double gatherShare;
  double gatherL2Share;
  /// Cost of several values of BLOCK_M, as a share of the wgmmas' time.
  double blockMsShare;
  /// Share of the time of two gemms that dynamic schedulers save, relative to
  /// static ones.
  double dynamicSchedulerShare;
  /// Bytes of a group's rows that stay in L2 while CTAs go through its columns.
  double rasterGroupBytes;
  /// Delay of the SM with the longest items, in standard deviations of its
  /// time.
  double unevenDeviations;
  /// Share of an f32 promotion that is not overlapped, with weight rows and
  /// with input rows on M.
  double promotionExposed, rowPromotionExposed;
  /// Weights multiplied from registers: issue clocks of an SM to decode a
  /// packed tile (64 x 64) of mxfp4, nvfp4 and int4, and the addition for zero
  /// points; clocks that a consumer waits per k tile and per packed tile of all
  /// consumers; the share of the wgmmas' time that it waits as well.
  double decodeMxfp4Clk, decodeNvfp4Clk, decodeInt4Clk, decodeZeroPointsClk,
      registerStepClk, registerTileClk, registerProductShare;
  double launchUs;
  double prologueUs;
  double firstBytesUs;
  double drainUs;
  /// How much later a launch ends if the CTAs of the gemm before it take all
  /// registers of an SM, so that none of its own CTAs starts beside them.
  double behindUs;
  /// Time of a launch besides its work.
  double getLaunchTime() const {
    return launchUs + prologueUs + firstBytesUs + drainUs;
  }
  /// Time of a launch that finds no work and neither loads nor stores.
  double getIdleTime() const { return launchUs + prologueUs; }
  /// Time of a launch that counts or ranks slots, without the wait for a table
  /// of tiles or a pipeline.
  double getRankingLaunchTime() const { return launchUs + drainUs; }

  // Counting and ranking of slots.
  /// Serial latency of each CTA.
  double rankUs;
  /// Per counter of a CTA, to clear and add up; per slot of its own chunk, to
  /// store.
  double rankCounterUs, rankSlotUs;
  /// Without counts: latency until a ranking can count the slots of other
  /// chunks. With counts: per count, to read and add.
  double otherSlotsUs, readCountUs;
  /// Per counted slot.
  double countSlotUs;

  /// Overlap of streams and wgmmas: times combine as the norm of this order.
  double overlapOrder;
};

/// Rates of a CPU, of all threads together, measured on it
/// (lib/Tools/HostRates.h).
struct HostRates {
  /// "Intel(R) Xeon(R) Processor, 2 threads".
  std::string name;
  int64_t threads = 1;
  /// The bandwidth with which memory of some size is read again and again:
  /// caches hold the smaller ones. In ascending order, at least one.
  struct Read {
    double size, bytesPerSecond;
  };
  std::vector<Read> reads;
  /// The bandwidth for a run that touches `size` bytes, by interpolation over
  /// the logarithm of the size.
  double getReadBytes(double size) const;
  /// Operations per second; 0 without such instructions: FMAs on f32,
  /// VDPBF16PS, TDPBF16PS, VPDPBUSD, TDPBSSD.
  double fmas = 0, pairs = 0, tiles = 0, quads = 0, byteTiles = 0;
  double launchUs = 0;
};

/// All inputs of the cost model.
struct DeviceRates : PartFacts, PartFit {
  /// Set for a CPU alone. Its bandwidth from memory, rate of FMAs and launch
  /// are in the members of the bases too.
  std::optional<HostRates> host;
  /// Whether the fit was measured on this part.
  bool isMeasured() const { return fittedOn == name; }
  /// For example "an H200", "an H100 SXM, with coefficients fitted on an H200".
  std::string describe() const;
};

/// The rates of a CPU.
DeviceRates makeHostRates(HostRates host);

/// The rates of a part, which is one of `getParts`.
const DeviceRates &getPartRates(const PartFacts &part);

/// The rates of a target's part; null if the target has no part or no schedule
/// with a cost model.
const DeviceRates *getDeviceRates(const Target &target);

} // namespace moec

#endif // MOEC_SCHEDULES_DEVICE_H
