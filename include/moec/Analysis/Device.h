//===- Device.h - rates of a GPU --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_DEVICE_H
#define MOEC_ANALYSIS_DEVICE_H

#include "moec/Analysis/ProductTypes.h"
#include "moec/Analysis/Schedules.h"

namespace moec {

/// What predictions of time are made of beside PartFacts, from measurements.
/// Rates are per second, or per clock of all multiprocessors where `Clk` says
/// so; times are in microseconds.
struct PartFit {
  /// The part that it was measured on (PartFacts::name). For another part its
  /// coefficients are borrowed: rates and sizes that data sheets tell of both
  /// are scaled by these, all others stay.
  llvm::StringLiteral fittedOn;

  // Ceilings that floors are counted by: what was reached.
  double readBytes;
  double bf16Operations;
  double fp8Operations;
  double getOperations(ComputeType type) const {
    return areBytes(type) ? fp8Operations : bf16Operations;
  }

  // Memory.
  /// What kernels hold that read and write rows.
  double copyBytes;
  /// Share of `readBytes` that a stream of weights holds.
  double streamShare;
  /// What one multiprocessor reads from memory.
  double smReadBytes;
  /// How long a read takes when the bus is full: so many bytes have to be on
  /// their way, or more where they come in bursts.
  double latencyUs;
  /// Stages of a ring that do not wait for memory.
  double stagesRead;
  /// Share of its last item by which the slowest multiprocessor is late.
  double unevenShare;
  /// Share of the deviation of the number of tiles that few waves are late by.
  double uncertainShare;
  /// From the second-level cache, to all multiprocessors.
  double l2BytesPerClk;
  /// An intermediate below this stays there from its writer to its reader.
  double l2KeptBytes;

  // Power. Kernels that draw as much as the board may run at lower clocks.
  /// W, without what the idle device draws.
  double power;
  /// J per byte from memory, and from the second-level cache; per operation on
  /// 16 and on 8 bits.
  double readEnergy, l2Energy, bf16Energy, fp8Energy;
  double getEnergy(ComputeType type) const {
    return areBytes(type) ? fp8Energy : bf16Energy;
  }

  // Tensor cores.
  /// Clocks per second of a multiprocessor where power does not bound.
  double tensorClock;
  /// Share of PartFacts::operationsPerClk that is held, at `tensorClock`.
  double tensorShare;
  /// The least clocks of one product of 64 weight rows and few input rows.
  double productClk;

  // What each step of a ring, each item of work and each kernel cost on top.
  double stepClk;
  double itemClk;
  /// An epilogue runs PartFacts::instructionsPerClk of its lines of PTX; how
  /// much of its time adds to that of the products: less than 1 if it overlaps
  /// with them, more if its instructions wait for one another.
  double epilogueExposed;
  /// Share of the products that gathering rows without tensor maps costs, and
  /// how much more traffic it is than its bytes.
  double gatherShare;
  double gatherL2Share;
  /// Share of the products that there being several heights costs.
  double heightsShare;
  /// Share of the time of two products that their queues save, next to tiles in
  /// a fixed order.
  double queueShare;
  /// Rows of a group that stay in the second-level cache while CTAs go through
  /// its columns, in bytes.
  double rasterGroupBytes;
  /// How many standard deviations of the time of its items the multiprocessor
  /// with the longest ones is behind.
  double unevenDeviations;
  /// Share of an f32 promotion of block-scaled sums that is not overlapped,
  /// with weight rows and with input rows on the tensor cores' side of 64.
  double promotionExposed, rowPromotionExposed;
  /// Weights that are multiplied from registers: clocks of a multiprocessor's
  /// issue for decoding 64 rows by 64 of the depth, of mxfp4, of nvfp4 and of
  /// int4, and how many more with zero points; what a consumer waits with
  /// each step, and with each such unit of all consumers; how much of the time
  /// of their products it waits too.
  double decodeMxfp4Clk, decodeNvfp4Clk, decodeInt4Clk, decodeZeroPointsClk,
      registerStepClk, registerUnitClk, registerProductShare;
  double launchUs;
  double prologueUs;
  double firstBytesUs;
  double drainUs;
  /// What a launch takes beside its work.
  double getLaunchTime() const {
    return launchUs + prologueUs + firstBytesUs + drainUs;
  }
  /// What one takes that finds no work: it copies nothing and stores nothing.
  double getIdleTime() const { return launchUs + prologueUs; }
  /// What one takes that counts or ranks slots, which waits for no table and no
  /// ring.
  double getRankingLaunchTime() const { return launchUs + drainUs; }

  // Slots that are counted and ranked.
  /// What each CTA waits for in turn.
  double rankUs;
  /// A counter of a CTA, to be cleared and added up; a slot of its own chunk,
  /// to be placed.
  double rankCounterUs, rankSlotUs;
  /// A ranking without counts: what it waits until it counts the slots of other
  /// chunks. With counts: a count, to be read and added.
  double otherSlotsUs, readCountUs;
  /// A slot, to be counted.
  double countSlotUs;

  /// How well streams and products overlap: times add up as the root of this
  /// order of the sum of their powers.
  double overlapOrder;
};

/// All that predictions are made of.
struct DeviceRates : PartFacts, PartFit {
  /// Whether the fit is the part's own.
  bool isMeasured() const { return fittedOn == name; }
  /// "an H200", "an H100 SXM, with coefficients fitted on an H200".
  std::string describe() const;
};

/// Those of a part, which is one of `getParts`.
const DeviceRates &getPartRates(const PartFacts &part);

/// Those of a target's part, or null where the target has none, or no schedules
/// with a model of their time.
const DeviceRates *getDeviceRates(const Target &target);

} // namespace moec

#endif // MOEC_ANALYSIS_DEVICE_H
