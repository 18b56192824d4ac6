//===- PeerCommunicator.cpp - collectives by peer memory --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PeerHeaps.h"

#include "../../support/Check.h"
#include "../Collectives.h"
#include "moert/PeerHeap.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace moert {

namespace {

class PeerRank : public PeerCommunicator {
public:
  explicit PeerRank(const PeerOptions &options) : options(options) {}
  ~PeerRank() override;

  const Mesh &mesh() const override { return options.base->mesh(); }
  int64_t rank() const override { return options.base->rank(); }

  Status agree(const std::string &subject, const std::string &what) override;
  Status reserve(MeshAxis axis, int64_t bytes, int64_t resultBytes) override;
  int64_t leastCopiedBytes() const override { return options.leastCopiedBytes; }
  void *results(MeshAxis axis) override;
  bool runsKernels() const override { return true; }
  Status run(Stream &stream, const Collective &collective) override;
  Status transfer(Stream &stream, const Transfer &transfer) override;
  Status copyBlocks(Stream &stream, MeshAxis axis, const void *send,
                    int64_t pitch, int64_t bytes) override;
  Status synchronize(Stream &stream) override;
  Status check() override;
  void abort(const std::string &reason) override;

private:
  using Lock = std::unique_lock<std::mutex>;

  PeerHeaps *findHeaps(MeshAxis axis);
  PeerHeaps *findHeaps(const Collective &collective);
  Status checkHeaps(const PeerHeaps *heaps, const Collective &collective) const;
  void addCopies(const PeerHeaps &heaps, const CollectivePart &part,
                 std::vector<PeerCopy> &copies) const;
  Result<uint64_t> copyParts(Stream &stream, const PeerHeaps &heaps,
                             const Collective &collective);
  Status checkSize(const Collective &collective);
  Status readFailure(const PeerHeaps &heaps);
  Status readFailures();
  /// Breaks the communicator and returns the first failure.
  Status fail(const Status &status);
  void stopKernels();

  const PeerOptions options;
  std::mutex mutex;
  Status failure;
  /// Heaps of an axis in order of growing size; graphs may still use earlier
  /// ones.
  std::vector<PeerHeaps> all;
  /// Number of a kernel's CTAs that the GPU runs at once, over all ranks that
  /// share it.
  std::map<const Kernel *, int64_t> known;
  /// Index of the receive buffer that copyBlocks() writes next.
  int64_t nextBuffer = 0;
  /// For messages: the collective whose first result is at this address.
  std::map<uint64_t, std::string> names;
};

} // namespace

Result<std::unique_ptr<PeerCommunicator>>
createPeerCommunicator(const PeerOptions &options) {
  MOERT_CHECK(checkLimit(options.limitSeconds));
  if (!options.base || !options.device || !options.peer)
    return invalidArgument("createPeerCommunicator: base, device and peer are "
                           "needed");
  return std::unique_ptr<PeerCommunicator>(std::make_unique<PeerRank>(options));
}

PeerRank::~PeerRank() {
  if (all.empty())
    return;
  Status ended = check();
  // Barrier: all ranks have stopped using each other's memory.
  if (ended)
    ended = options.base->agree("the end of peer memory", "ended");
  // Barrier: all mappings are gone before any rank frees its memory.
  for (PeerHeaps &heaps : all)
    if (ended)
      heaps.others.clear();
  if (ended)
    ended = options.base->agree("the end of peer memory", "unmapped");
  if (!ended)
    keepForever(std::move(all));
}

//===----------------------------------------------------------------------===//
// Heaps
//===----------------------------------------------------------------------===//

PeerHeaps *PeerRank::findHeaps(MeshAxis axis) {
  for (auto heaps = all.rbegin(); heaps != all.rend(); ++heaps)
    if (heaps->axis == axis)
      return &*heaps;
  return nullptr;
}

/// Rounds up to the alignment of device memory.
static int64_t roundUp(int64_t bytes) {
  constexpr int64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

Status PeerRank::reserve(MeshAxis axis, int64_t bytes, int64_t resultBytes) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  int64_t size = mesh().size(axis);
  if (size > PeerHeap::kMaxRanks)
    return fail(invalidArgument(
        "an exchange through peer memory supports up to " +
        std::to_string(PeerHeap::kMaxRanks) + " ranks, but " +
        meshAxisName(axis) + " has " + std::to_string(size) + "; use NCCL"));
  PeerHeaps heaps;
  heaps.axis = axis;
  heaps.bufferBytes = roundUp(bytes);
  heaps.resultBytes = roundUp(resultBytes);
  if (const PeerHeaps *known = findHeaps(axis)) {
    if (known->bufferBytes >= bytes && known->resultBytes >= resultBytes)
      return Status::ok();
    heaps.bufferBytes = std::max(heaps.bufferBytes, known->bufferBytes);
    heaps.resultBytes = std::max(heaps.resultBytes, known->resultBytes);
  }
  if (Status made = makePeerHeaps(options, heaps); !made)
    return fail(made.withContext(
        "peer memory (use NCCL, or ranks of one host with peer access)"));
  all.push_back(std::move(heaps));
  return Status::ok();
}

void *PeerRank::results(MeshAxis axis) {
  Lock lock(mutex);
  const PeerHeaps *heaps = findHeaps(axis);
  if (!heaps || heaps->resultBytes == 0)
    return nullptr;
  return static_cast<char *>(heaps->own->data()) + heaps->firstResult();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Finds the heaps with a result's address: they may be older than the latest,
/// and all ranks meet in the heaps of the time when the address was taken.
PeerHeaps *PeerRank::findHeaps(const Collective &collective) {
  if (collective.toResults)
    for (PeerHeaps &heaps : all)
      if (heaps.axis == collective.axis &&
          heaps.findResult(collective.parts[0].receive) >= 0)
        return &heaps;
  return findHeaps(collective.axis);
}

/// A kernel writes to other ranks' heaps at the offsets of its own parts.
Status PeerRank::checkHeaps(const PeerHeaps *heaps,
                            const Collective &collective) const {
  int64_t size = mesh().size(collective.axis), bytes = 0;
  bool areResults = heaps != nullptr;
  for (size_t i = 0; i < collective.numParts; ++i) {
    const CollectivePart &part = collective.parts[i];
    auto own = static_cast<int64_t>(partBytes(part));
    bytes += collective.toResults ? 0 : PeerHeap::partBytes(size, own);
    areResults = areResults && heaps->hasResult(part.receive, size * own);
  }
  if (!heaps || bytes > heaps->bufferBytes)
    return internalError(std::to_string(bytes) +
                         " bytes of a heap were not reserved");
  if (collective.toResults && !areResults)
    return internalError("is to results, but a part is not received there");
  return Status::ok();
}

/// Adds the copies that bring a part to all ranks.
void PeerRank::addCopies(const PeerHeaps &heaps, const CollectivePart &part,
                         std::vector<PeerCopy> &copies) const {
  int64_t size = mesh().size(heaps.axis);
  int64_t own = mesh().index(heaps.axis, rank());
  int64_t distance = heaps.findResult(part.receive);
  size_t bytes = partBytes(part);
  for (int64_t next = 0; next < size; ++next) {
    char *heap = heaps.at(static_cast<size_t>((own + next) % size));
    copies.push_back({heap + distance + own * int64_t(bytes), part.send, bytes,
                      heaps.laneTo(next)});
  }
}

/// Returns one bit for each pair that was copied.
Result<uint64_t> PeerRank::copyParts(Stream &stream, const PeerHeaps &heaps,
                                     const Collective &collective) {
  std::vector<PeerCopy> copies;
  uint64_t copied = 0;
  if (!collective.toResults)
    return copied;
  size_t count = std::min<size_t>(collective.numParts, PeerHeap::kMaxCopied);
  for (size_t i = 0; i < count; ++i) {
    if (!collective.parts[i].isCopied)
      continue;
    addCopies(heaps, collective.parts[i], copies);
    copied |= uint64_t(1) << i;
  }
  if (!copies.empty())
    MOERT_CHECK(options.peer->copy(stream, copies));
  return copied;
}

/// Exchanges of all ranks of a GPU, over any axis, wait for each other: a CTA
/// that fits only after others have ended would never begin.
Status PeerRank::checkSize(const Collective &collective) {
  int64_t ranks = 1;
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor})
    if (const PeerHeaps *heaps = findHeaps(axis))
      ranks *= heaps->sharers;
  int64_t &most = known[collective.kernel];
  if (ranks == 1 || collective.dims.grid <= most)
    return Status::ok();
  LaunchDims all = collective.dims;
  for (int64_t ctas = collective.dims.grid; ctas > most; --ctas) {
    all.grid = ctas * ranks;
    if (options.device->checkResident(*collective.kernel, all))
      most = ctas;
  }
  if (collective.dims.grid <= most)
    return Status::ok();
  return invalidArgument(
      std::to_string(ranks) + " ranks share the GPU, which cannot run " +
      std::to_string(collective.dims.grid) +
      " CTAs of each at once; compile the layer by moe-compile "
      "with --config=" +
      collectiveKindName(collective.kind) + "_" +
      meshAxisName(collective.axis) + ":ctas=" + std::to_string(most));
}

Status PeerRank::agree(const std::string &subject, const std::string &what) {
  {
    Lock lock(mutex);
    MOERT_CHECK(failure);
  }
  return options.base->agree(subject, what);
}

Status PeerRank::run(Stream &stream, const Collective &collective) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  std::string where = collective.where + " (" + describe(collective) + ")";
  if (Status status = checkCollective(mesh(), collective); !status)
    return fail(status);
  if (!collective.kernel)
    return fail(invalidArgument(
        where +
        ": the package has no kernel for an exchange through peer memory; "
        "compile it for a GPU with this version of moec, or use NCCL"));
  if (collective.dims.grid == 0)
    return Status::ok();
  int64_t size = mesh().size(collective.axis);
  std::vector<uint64_t> slots, results;
  for (size_t i = 0; i < collective.numParts; ++i) {
    const CollectivePart &part = collective.parts[i];
    slots.push_back(reinterpret_cast<uintptr_t>(part.send));
    results.push_back(reinterpret_cast<uintptr_t>(part.receive));
  }
  PeerHeaps *heaps = findHeaps(collective);
  if (Status fits = checkHeaps(heaps, collective); !fits)
    return fail(fits.withContext(where));
  if (Status fits = checkSize(collective); !fits)
    return fail(fits.withContext(where));
  // The kernel's first write is at this offset.
  auto skipped =
      static_cast<uint64_t>(collective.firstColumn.value_or(0) *
                            dtypeBits(collective.parts[0].dtype) / 8);
  names[results.front() + skipped] = where;
  slots.insert(slots.end(), results.begin(), results.end());
  for (const void *arg : collective.kernelArgs)
    slots.push_back(reinterpret_cast<uintptr_t>(arg));
  int64_t own = mesh().index(collective.axis, rank());
  for (int64_t distance = 0; distance < size; ++distance)
    slots.push_back(reinterpret_cast<uintptr_t>(
        heaps->at(static_cast<size_t>((own + distance) % size))));
  if (collective.firstColumn)
    slots.push_back(static_cast<uint64_t>(*collective.firstColumn));
  // The kernel's flags come after the copies, so that a rank that sees the
  // flags sees the copied rows too.
  Result<uint64_t> copied = copyParts(stream, *heaps, collective);
  if (!copied)
    return fail(copied.status().withContext(where));
  slots.push_back(static_cast<uint64_t>(collective.rows) |
                  *copied << PeerHeap::kRowBits);
  Status launched =
      options.peer->launch(stream, *collective.kernel, collective.dims,
                           {slots.data(), slots.size(), nullptr, 0});
  return launched ? launched : fail(launched.withContext(where));
}

Status PeerRank::copyBlocks(Stream &stream, MeshAxis axis, const void *send,
                            int64_t pitch, int64_t bytes) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  const PeerHeaps *heaps = findHeaps(axis);
  int64_t size = mesh().size(axis), own = mesh().index(axis, rank());
  if (!heaps || size * bytes > heaps->bufferBytes)
    return fail(internalError("copyBlocks: " + std::to_string(size * bytes) +
                              " bytes of a heap were not reserved"));
  // Distinct for each source rank, whatever the bytes of this call.
  int64_t share =
      std::max(bytes, heaps->bufferBytes / size / PeerHeap::kAlignment *
                          PeerHeap::kAlignment);
  int64_t offset =
      PeerHeap::kBuffers + nextBuffer * heaps->bufferBytes + own * share;
  nextBuffer = 1 - nextBuffer;
  std::vector<PeerCopy> copies;
  for (int64_t next = 0; next < size; ++next) {
    int64_t index = (own + next) % size;
    copies.push_back({heaps->at(static_cast<size_t>(index)) + offset,
                      static_cast<const char *>(send) + index * pitch,
                      static_cast<size_t>(bytes), heaps->laneTo(next)});
  }
  Status given = options.peer->prepareCopies(heaps->laneTo(size - 1));
  if (given)
    given = options.peer->copy(stream, copies);
  return given ? given : fail(given.withContext("copyBlocks"));
}

//===----------------------------------------------------------------------===//
// Waiting and failing
//===----------------------------------------------------------------------===//

Status PeerRank::readFailure(const PeerHeaps &heaps) {
  uint64_t words[2] = {};
  static_assert(PeerHeap::kAddress == PeerHeap::kFailure + 8);
  MOERT_CHECK(options.device->copyOut(
      words, static_cast<char *>(heaps.own->data()) + PeerHeap::kFailure,
      sizeof(words)));
  if (words[0] == 0)
    return Status::ok();
  uint64_t reason = words[0] >> PeerHeap::kReasonShift;
  auto index = static_cast<int64_t>(
      words[0] & ((uint64_t(1) << PeerHeap::kReasonShift) - 1));
  int64_t blamed = mesh().peer(heaps.axis, rank(), index);
  auto name = names.find(words[1]);
  std::string text = name == names.end() ? std::string("a collective over ") +
                                               meshAxisName(heaps.axis)
                                         : name->second;
  text += ": rank " + std::to_string(blamed);
  return unavailable(
      reason == PeerHeap::TimedOut
          ? text + " did not come within " + secondsText(options.limitSeconds) +
                "; look for an earlier error there, or give a longer limit"
          : text + " has failed, or did not reach another rank in time; look "
                   "for an earlier error there");
}

Status PeerRank::readFailures() {
  for (const PeerHeaps &heaps : all)
    if (Status status = readFailure(heaps); !status)
      return fail(status);
  return Status::ok();
}

/// Transfers are rare and use the base.
Status PeerRank::transfer(Stream &stream, const Transfer &transfer) {
  {
    Lock lock(mutex);
    MOERT_CHECK(failure);
  }
  return options.base->transfer(stream, transfer);
}

Status PeerRank::synchronize(Stream &stream) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  // Kernels end by themselves, whatever other ranks do.
  if (Status status = options.device->synchronize(stream); !status)
    return fail(status.withContext("synchronize"));
  return readFailures();
}

Status PeerRank::check() {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  MOERT_CHECK(readFailures());
  Status status = options.base->check();
  return status ? status : fail(status);
}

/// Sets the abort word in the heap of every rank.
void PeerRank::stopKernels() {
  for (const PeerHeaps &heaps : all) {
    int64_t word = mesh().index(heaps.axis, rank()) + 1;
    for (size_t index = 0; index < heaps.others.size(); ++index)
      (void)options.device->copyIn(heaps.at(index) + PeerHeap::kAbort, &word,
                                   sizeof(word));
  }
}

Status PeerRank::fail(const Status &status) {
  if (failure.isOk()) {
    failure = status.withContext("rank " + std::to_string(rank()));
    options.base->abort(failure.message());
  }
  return failure;
}

void PeerRank::abort(const std::string &reason) {
  Lock lock(mutex);
  bool isFirst = failure.isOk();
  (void)fail(unavailable("aborted: " + reason));
  if (isFirst)
    stopKernels();
}

} // namespace moert
