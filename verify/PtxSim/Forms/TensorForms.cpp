//===- TensorForms.cpp - tcgen05 --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/TensorMemory.h"
#include "Decoder.h"
#include "MbarrierForms.h"
#include "MemoryForms.h"
#include "WarpForms.h"

#include <cstring>

using namespace moec::ptx;

namespace {

constexpr unsigned kWarpsOfQuarters = 4;

//===----------------------------------------------------------------------===//
// alloc, dealloc
//===----------------------------------------------------------------------===//

bool isColumnCount(uint32_t count) {
  return count >= 32 && count <= TensorMemory::kColumns &&
         (count & (count - 1)) == 0;
}

/// addresses[0]: destination of the address; operands[0]: number of columns.
Step take(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Cta &cta = warp.cta;
  uint32_t count = warp.lanes<uint32_t>(instruction.operands[0])[0];
  if (!isColumnCount(count))
    return warp.fail(instruction, 0,
                     std::to_string(count) +
                         " columns; a power of two from 32 to 512 is accepted");
  if (cta.tensor || cta.hasGivenUpTensor)
    return warp.fail(instruction, 0,
                     "the CTA has allocated tensor memory or relinquished the "
                     "permit; only one allocation is supported");
  constexpr uint64_t bytes = 4;
  Warp::Place place =
      warp.locate(instruction, 0, Space::Shared,
                  addressOf(warp, instruction.addresses[0], 0), bytes, bytes);
  if (!place.bytes || !warp.checkWrite(instruction, 0, 1, place, bytes))
    return Step::Failed;
  // The first column is random, so that no kernel relies on 0.
  constexpr uint32_t unit = 32;
  uint32_t places = (TensorMemory::kColumns - count) / unit + 1;
  uint32_t first = uint32_t(cta.launch.engine->random.below(places)) * unit;
  std::memcpy(place.bytes, &first, bytes);
  cta.tensor = std::make_unique<TensorMemory>(
      first, count, Visit{instruction.id, warp.index * kWarpLanes});
  return Step::Next;
}

/// operands: address, number of columns.
Step give(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Cta &cta = warp.cta;
  uint32_t first = warp.lanes<uint32_t>(instruction.operands[0])[0];
  uint32_t count = warp.lanes<uint32_t>(instruction.operands[1])[0];
  if (!cta.tensor || cta.tensor->first != first || cta.tensor->columns != count)
    return warp.fail(instruction, 0, "these columns were not allocated");
  // All accesses to the columns must be ordered before their release.
  Region &cells = cta.tensor->cells;
  for (unsigned lane = 0; lane < TensorMemory::kLanes; ++lane) {
    uint64_t at = TensorMemory::address(lane, first);
    if (!warp.checkWrite(instruction, 0, 1, {cells.at(at), &cells, at},
                         uint64_t(count) * TensorMemory::kCellBytes))
      return Step::Failed;
  }
  for (const auto &[thread, queue] : cta.tensor->queues)
    if (!queue->isDone())
      return warp.fail(instruction, 0,
                       "operations of thread " + std::to_string(thread) +
                           " are pending");
  cta.tensor.reset();
  cta.hasGivenUpTensor = true;
  return Step::Next;
}

Step giveUp(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  warp.cta.hasGivenUpTensor = true;
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// cp, mma, commit
//===----------------------------------------------------------------------===//

/// Whether the lanes have executed tcgen05.fence::after_thread_sync since their
/// last wait; else reports an error.
bool checkFence(Warp &warp, const Instruction &instruction, LaneMask mask) {
  LaneMask lacking = warp.needsTensorFence & mask;
  if (lacking == 0)
    return true;
  warp.fail(instruction, unsigned(__builtin_ctz(lacking)),
            "the thread has waited for other threads without a later "
            "tcgen05.fence::after_thread_sync");
  return false;
}

/// Adds an operation, filled in by `fill`, for each lane; false after an error.
template <typename F>
Step addOperations(Warp &warp, const Instruction &instruction, LaneMask mask,
                   F fill) {
  Cta &cta = warp.cta;
  Engine &engine = *cta.launch.engine;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    if (!cta.tensor)
      return warp.fail(instruction, lane, "no tensor memory is allocated");
    TensorOperation operation;
    operation.instruction = &instruction;
    if (!fill(lane, operation) ||
        (operation.kind != TensorOperation::Kind::Commit &&
         !checkFence(warp, instruction, 1u << lane)))
      return Step::Failed;
    std::shared_ptr<TensorQueue> &queue =
        cta.tensor->queues[warp.index * kWarpLanes + lane];
    if (!queue)
      queue = std::make_shared<TensorQueue>(warp, lane);
    if (queue->isDone())
      engine.start(queue);
    queue->add(std::move(operation));
  }
  return Step::Next;
}

uint32_t tensorAddress(Warp &warp, const Instruction &instruction, size_t index,
                       unsigned lane) {
  return uint32_t(addressOf(warp, instruction.addresses[index], lane));
}

/// addresses[0]: destination; operands[0]: descriptor.
Step copyScales(Warp &warp, const Instruction &instruction, LaneMask mask) {
  return addOperations(
      warp, instruction, mask, [&](unsigned lane, TensorOperation &operation) {
        operation.kind = TensorOperation::Kind::Copy;
        operation.target = tensorAddress(warp, instruction, 0, lane);
        operation.a = {warp.lanes<uint64_t>(instruction.operands[0])[lane]};
        std::string text = operation.a.verify(/*swizzleBytes=*/0);
        if (!text.empty())
          warp.fail(instruction, lane, text);
        return text.empty();
      });
}

/// addresses: accumulators, scales of A and B; operands: descriptors of A and
/// B, instruction descriptor, and predicate.
Step multiply(Warp &warp, const Instruction &instruction, LaneMask mask) {
  return addOperations(
      warp, instruction, mask, [&](unsigned lane, TensorOperation &operation) {
        const std::vector<Slot> &operands = instruction.operands;
        operation.kind = TensorOperation::Kind::Product;
        operation.target = tensorAddress(warp, instruction, 0, lane);
        operation.scaleA = tensorAddress(warp, instruction, 1, lane);
        operation.scaleB = tensorAddress(warp, instruction, 2, lane);
        operation.a = {warp.lanes<uint64_t>(operands[0])[lane]};
        operation.b = {warp.lanes<uint64_t>(operands[1])[lane]};
        operation.product = {warp.lanes<uint32_t>(operands[2])[lane]};
        operation.keepsSums = warp.predicate(operands[3]) >> lane & 1;
        constexpr unsigned swizzleBytes = 128;
        for (const std::string &text :
             {operation.a.verify(swizzleBytes),
              operation.b.verify(swizzleBytes), operation.product.verify()})
          if (!text.empty()) {
            warp.fail(instruction, lane, text);
            return false;
          }
        constexpr uint64_t rows = 128, depth = 32;
        warp.cta.launch.engine->statistics.work.products +=
            rows * depth * operation.product.rows();
        return true;
      });
}

Step commit(Warp &warp, const Instruction &instruction, LaneMask mask) {
  return addOperations(
      warp, instruction, mask, [&](unsigned lane, TensorOperation &operation) {
        operation.kind = TensorOperation::Kind::Commit;
        operation.mbarrier = addressOf(warp, instruction.addresses[0], lane);
        return findMbarrier(warp, instruction, lane, 0) != nullptr;
      });
}

//===----------------------------------------------------------------------===//
// ld, wait, fence
//===----------------------------------------------------------------------===//

/// Shape 32x32b: one lane of tensor memory for each lane of the warp.
Step load(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Cta &cta = warp.cta;
  if (!cta.tensor)
    return warp.fail(instruction, 0, "no tensor memory is allocated");
  if (!checkFence(warp, instruction, mask))
    return Step::Failed;
  warp.openTensorLoads |= mask;
  TensorMemory &memory = *cta.tensor;
  uint32_t address = tensorAddress(warp, instruction, 0, 0);
  unsigned first = address >> TensorMemory::kLaneBit;
  unsigned column = address & ((1u << TensorMemory::kLaneBit) - 1);
  unsigned count = instruction.count;
  if (first != warp.index % kWarpsOfQuarters * kWarpLanes)
    return warp.fail(instruction, 0,
                     "a warp can load only its own quarter of the lanes");
  if (!memory.has(column, count))
    return warp.fail(instruction, 0,
                     "these columns are not allocated by the CTA");
  TensorMemory::Load loaded;
  loaded.registers = instruction.operands;
  loaded.values.resize(size_t(count) * kWarpLanes);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    uint64_t at = TensorMemory::address(first + lane, column);
    uint8_t *cells = memory.cells.at(at);
    if (!warp.checkRead(instruction, lane, 1u << lane,
                        {cells, &memory.cells, at},
                        uint64_t(count) * TensorMemory::kCellBytes))
      return Step::Failed;
    for (unsigned i = 0; i < count; ++i) {
      std::memcpy(&loaded.values[i * kWarpLanes + lane],
                  cells + i * TensorMemory::kCellBytes,
                  TensorMemory::kCellBytes);
      // The value until tcgen05.wait::ld.
      constexpr uint32_t garbage = 0x7FC0DEAD;
      warp.lanes<uint32_t>(instruction.operands[i])[lane] = garbage;
    }
  }
  memory.loads[warp.index].push_back(std::move(loaded));
  return Step::Next;
}

Step waitLoads(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  if (!warp.cta.tensor)
    return Step::Next;
  auto &loads = warp.cta.tensor->loads[warp.index];
  for (const TensorMemory::Load &loaded : loads)
    for (size_t i = 0; i < loaded.registers.size(); ++i)
      std::memcpy(warp.lanes<uint32_t>(loaded.registers[i]),
                  &loaded.values[i * kWarpLanes],
                  kWarpLanes * sizeof(uint32_t));
  loads.clear();
  return Step::Next;
}

Step fenceBefore(Warp &warp, const Instruction &, LaneMask mask) {
  warp.openTensorLoads &= ~mask;
  return Step::Next;
}

Step fenceAfter(Warp &warp, const Instruction &, LaneMask mask) {
  warp.needsTensorFence &= ~mask;
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

void decodeMemory(Decoder &d, const std::string &what) {
  d.instruction.isCollective = true;
  if (!d.take("sync") || !d.take("aligned"))
    return;
  if (what == "relinquish_alloc_permit") {
    d.instruction.handler = giveUp;
    return;
  }
  d.take("shared::cta");
  if (!d.take("b32") || !d.expectOperands(2, 2))
    return;
  if (what == "alloc") {
    d.address(size_t(0));
    d.value(1, 4);
    d.instruction.handler = take;
    return;
  }
  d.value(size_t(0), 4);
  d.value(1, 4);
  d.instruction.handler = give;
}

void decodeLoad(Decoder &d) {
  d.instruction.isCollective = true;
  if (!d.take("sync") || !d.take("aligned") || !d.take("32x32b") ||
      !d.take("b32") || !d.expectOperands(2, 2))
    return;
  std::string times = d.takeNext();
  const RawOperand &registers = d.operand(0);
  if (registers.kind != RawOperand::Kind::Vector ||
      "x" + std::to_string(registers.parts.size()) != times)
    return d.fail("the number of registers does not match the form");
  for (const RawOperand &part : registers.parts)
    d.result(part, 4);
  d.instruction.count = uint8_t(registers.parts.size());
  d.address(1);
  d.instruction.handler = load;
}

void decodeTensor(Decoder &d) {
  std::string what = d.takeNext();
  if (what == "ld")
    return decodeLoad(d);
  if (what == "wait::ld") {
    d.instruction.isCollective = true;
    if (d.take("sync") && d.take("aligned"))
      d.instruction.handler = waitLoads;
    return;
  }
  if (what == "fence::before_thread_sync")
    d.instruction.handler = fenceBefore;
  if (what == "fence::after_thread_sync")
    d.instruction.handler = fenceAfter;
  if (!d.take("cta_group::1"))
    return;
  if (what == "alloc" || what == "dealloc" || what == "relinquish_alloc_permit")
    return decodeMemory(d, what);
  if (what == "cp" && d.take("32x128b") && d.take("warpx4") &&
      d.expectOperands(2, 2)) {
    d.address(size_t(0));
    d.value(1, 8);
    d.instruction.handler = copyScales;
  }
  if (what == "commit" && d.take("mbarrier::arrive::one") && d.take("b64") &&
      d.expectOperands(1, 1)) {
    d.take("shared::cluster");
    d.address(size_t(0));
    d.instruction.space = Space::Shared;
    d.instruction.handler = commit;
  }
  if (what == "mma" && d.take("kind::mxf8f6f4") && d.take("block_scale") &&
      d.expectOperands(7, 7)) {
    d.takeOneOf({"scale_vec::1X", "block32"});
    d.take("collector::a::discard");
    for (size_t index : {0, 4, 5})
      d.address(index);
    d.value(1, 8);
    d.value(2, 8);
    d.value(3, 4);
    d.predicate(d.operand(6));
    d.instruction.handler = multiply;
  }
}

} // namespace

void moec::ptx::addTensorForms(FormTable &table) {
  table["tcgen05"] = decodeTensor;
}
