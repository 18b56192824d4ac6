//===- PeerHeaps.cpp - heaps of a rank's peers ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PeerHeaps.h"

#include "../../support/Check.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace moert {

namespace {

/// Buffers for exchanging handles with other ranks.
struct HandleMemory {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Buffer> send, receive;
};

class HeapMaker {
public:
  explicit HeapMaker(const PeerOptions &options) : options(options) {}

  Status make(PeerHeaps &heaps);

private:
  const Mesh &mesh() const { return options.base->mesh(); }
  int64_t rank() const { return options.base->rank(); }

  Status fillBuffers(const PeerHeaps &heaps);
  Result<HandleMemory> makeHandleMemory() const;
  Status moveHandles(const HandleMemory &memory, MeshAxis axis,
                     const PeerHandle &own, std::vector<PeerHandle> &handles);
  Result<std::vector<PeerHandle>> gatherHandles(const HandleMemory &memory,
                                                MeshAxis axis,
                                                const PeerHandle &own);
  Result<bool> isSoOnAll(const HandleMemory &memory, bool isSo);
  Status makeOwnHeap(PeerHeaps &heaps, PeerHandle &handle);
  Status openOthers(PeerHeaps &heaps, const HandleMemory &memory,
                    const PeerHandle &handle);

  const PeerOptions &options;
};

} // namespace

Result<HandleMemory> HeapMaker::makeHandleMemory() const {
  HandleMemory memory;
  Device &device = *options.device;
  Result<std::unique_ptr<Stream>> stream = device.createStream();
  if (!stream)
    return stream.status();
  auto most = static_cast<size_t>(std::max(mesh().dp, mesh().tp));
  auto send = device.allocate(sizeof(PeerHandle), 256);
  auto receive = device.allocate(sizeof(PeerHandle) * most, 256);
  if (!send || !receive)
    return (send ? receive : send).status();
  memory.stream = std::move(*stream);
  memory.send = std::move(*send);
  memory.receive = std::move(*receive);
  return memory;
}

Status HeapMaker::moveHandles(const HandleMemory &memory, MeshAxis axis,
                              const PeerHandle &own,
                              std::vector<PeerHandle> &handles) {
  Device &device = *options.device;
  MOERT_CHECK(device.copyIn(memory.send->data(), &own, sizeof(own)));
  CollectivePart part;
  part.send = memory.send->data();
  part.receive = memory.receive->data();
  part.dtype = DType::U8;
  part.count = sizeof(PeerHandle);
  Collective collective;
  collective.axis = axis;
  collective.parts = &part;
  collective.numParts = 1;
  collective.where = "exchange of memory handles";
  MOERT_CHECK(options.base->run(*memory.stream, collective));
  MOERT_CHECK(options.base->synchronize(*memory.stream));
  handles.resize(static_cast<size_t>(mesh().size(axis)));
  return device.copyOut(handles.data(), memory.receive->data(),
                        sizeof(PeerHandle) * handles.size());
}

/// The handles of all ranks of the axis; a failure is reported to the others.
Result<std::vector<PeerHandle>>
HeapMaker::gatherHandles(const HandleMemory &memory, MeshAxis axis,
                         const PeerHandle &own) {
  std::vector<PeerHandle> handles;
  Status moved = moveHandles(memory, axis, own, handles)
                     .withContext("exchange of memory handles");
  if (moved)
    return handles;
  options.base->abort(moved.message());
  return moved;
}

/// Whether a condition holds on all ranks of the mesh; also a barrier.
Result<bool> HeapMaker::isSoOnAll(const HandleMemory &memory, bool isSo) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    if (mesh().size(axis) == 1)
      continue;
    PeerHandle flag;
    flag.bytes = isSo;
    Result<std::vector<PeerHandle>> flags = gatherHandles(memory, axis, flag);
    if (!flags)
      return flags.status();
    for (const PeerHandle &other : *flags)
      isSo = isSo && other.bytes != 0;
  }
  return isSo;
}

/// Exchanges handles, maps the other heaps, and prepares copies to them.
Status HeapMaker::openOthers(PeerHeaps &heaps, const HandleMemory &memory,
                             const PeerHandle &handle) {
  Result<std::vector<PeerHandle>> gathered =
      gatherHandles(memory, heaps.axis, handle);
  if (!gathered)
    return gathered.status();
  const std::vector<PeerHandle> &handles = *gathered;
  auto own = static_cast<size_t>(mesh().index(heaps.axis, rank()));
  constexpr std::array<uint8_t, 16> noGpu = {};
  for (size_t index = 0; index < handles.size(); ++index) {
    std::unique_ptr<Buffer> &other = heaps.others.emplace_back();
    if (index == own)
      continue;
    if (handles[index].process == handle.process &&
        handles[index].uuid == handle.uuid && handle.uuid != noGpu)
      ++heaps.sharers;
    int64_t peer = mesh().peer(heaps.axis, rank(), int64_t(index));
    Result<std::unique_ptr<Buffer>> opened = options.peer->open(handles[index]);
    if (!opened)
      return opened.status().withContext("rank " + std::to_string(rank()) +
                                         " cannot reach the memory of rank " +
                                         std::to_string(peer));
    other = std::move(*opened);
  }
  if (heaps.resultBytes == 0)
    return Status::ok();
  return options.peer->prepareCopies(heaps.laneTo(mesh().size(heaps.axis) - 1))
      .withContext("streams that copy rows");
}

/// Fills the receive buffers and results with NaN of every float format. Bytes
/// that no rank writes are read but must not affect results; NaN would show if
/// they did.
Status HeapMaker::fillBuffers(const PeerHeaps &heaps) {
  Result<std::unique_ptr<Stream>> stream = options.device->createStream();
  if (!stream)
    return stream.status();
  MOERT_CHECK(options.device->fill(
      **stream, static_cast<char *>(heaps.own->data()) + PeerHeap::kBuffers,
      0xff, static_cast<size_t>(2 * heaps.bufferBytes + heaps.resultBytes)));
  return options.device->synchronize(**stream);
}

Status HeapMaker::makeOwnHeap(PeerHeaps &heaps, PeerHandle &handle) {
  int64_t heapBytes = heaps.firstResult() + heaps.resultBytes;
  std::string what =
      "allocation of " + std::to_string(heapBytes) + " bytes of peer memory";
  Result<std::unique_ptr<Buffer>> own =
      options.peer->allocate(static_cast<size_t>(heapBytes));
  if (!own)
    return own.status().withContext(what);
  heaps.own = std::move(*own);
  auto setWord = [&](int64_t offset, int64_t value) {
    return options.device
        ->copyIn(static_cast<char *>(heaps.own->data()) + offset, &value,
                 sizeof(value))
        .withContext(what);
  };
  MOERT_CHECK(setWord(PeerHeap::kIndex, mesh().index(heaps.axis, rank())));
  MOERT_CHECK(
      setWord(PeerHeap::kLimit,
              static_cast<int64_t>(std::min(options.limitSeconds, 1e9) * 1e9)));
  MOERT_CHECK(setWord(PeerHeap::kBufferBytes, heaps.bufferBytes));
  MOERT_CHECK(fillBuffers(heaps).withContext(what));
  Result<PeerHandle> shared = options.peer->share(*heaps.own);
  if (!shared)
    return shared.status().withContext("a handle of the peer memory");
  handle = *shared;
  return Status::ok();
}

Status HeapMaker::make(PeerHeaps &heaps) {
  std::string subject =
      std::string("memory of other ranks over ") + meshAxisName(heaps.axis);
  // If a rank failed, the difference in text reports its error.
  auto agreeOn = [&](const Status &made, const std::string &what) {
    Status agreed = options.base->agree(subject, made ? what : made.message());
    return agreed ? made : agreed;
  };
  PeerHandle handle;
  Result<HandleMemory> memory = makeHandleMemory();
  Status made = memory.status();
  if (made)
    made = makeOwnHeap(heaps, handle);
  // All ranks must use the same threshold: a rank that copies and a rank that
  // waits for a kernel to write would deadlock.
  MOERT_CHECK(agreeOn(
      made, options.leastCopiedBytes == Communicator::kNeverCopied
                ? std::string("all is there")
                : "all is there, and rows are copied from " +
                      std::to_string(options.leastCopiedBytes) + " bytes on"));

  made = openOthers(heaps, *memory, handle);
  Result<bool> areMade = isSoOnAll(*memory, made.isOk());
  if (made && !areMade)
    made = areMade.status();
  bool areUnmapped = false;
  if (!areMade || !*areMade) {
    heaps.others.clear();
    areUnmapped = areMade && isSoOnAll(*memory, true);
  }
  made = agreeOn(made, "all is reached");
  if (!made && !areUnmapped) {
    std::vector<PeerHeaps> left;
    left.push_back(std::move(heaps));
    keepForever(std::move(left));
  }
  return made;
}

Status makePeerHeaps(const PeerOptions &options, PeerHeaps &heaps) {
  return HeapMaker(options).make(heaps);
}

void keepForever(std::vector<PeerHeaps> heaps) {
  static std::mutex mutex;
  static auto *kept = new std::vector<std::vector<PeerHeaps>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(std::move(heaps));
}

} // namespace moert
