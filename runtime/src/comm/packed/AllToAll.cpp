//===- AllToAll.cpp - rows go to destination ranks only ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A gather computes routes from the expert ids of the rank's own rows, packs
// all tensors with a row per token (the ids too) for each other rank, and sends
// them to the receiver's block for the sender's rows. Unused rows of a block
// have the id -1, which is no expert's. A sum sends the rows of such blocks
// back unpacked, and each rank sums the rows that it receives.
//
// Each rank counts the rows that it sends to every peer. In exact mode, without
// a capacity, the counts are all-gathered and the host waits for them; a sum
// reuses the counts of its gather.
//
//===----------------------------------------------------------------------===//

#include "moert/AllToAll.h"

#include "../../support/Check.h"
#include "../Collectives.h"
#include "moert/PackedRows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

namespace moert {

namespace {

/// Alignment of the sections of a packed buffer, in bytes.
constexpr int64_t kBufferAlignment = 256;

int64_t roundUp(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

struct AxisMemory {
  /// Outputs of tile.route_rows.
  std::unique_ptr<Buffer> positions, counts;
  std::unique_ptr<Buffer> allCounts;
  /// Rows for other ranks, or from them.
  std::unique_ptr<Buffer> packed;
};

/// Number of rows that each rank sends to each other: `[from * ranks + to]`.
using Counts = std::vector<int32_t>;

/// Sizes of the blocks between two ranks, and their offsets in packed memory.
struct Blocks {
  Blocks(const Counts &counts, int64_t ranks, int64_t own, int64_t capacity)
      : counts(counts), ranks(ranks), capacity(capacity) {
    int64_t begin = 0;
    for (int64_t other = 0; other < ranks; ++other) {
      begins.push_back(begin);
      begin += other == own ? 0 : rows(own, other);
    }
  }
  int64_t rows(int64_t from, int64_t to) const {
    return capacity > 0 ? capacity
                        : counts[static_cast<size_t>(from * ranks + to)];
  }

  const Counts &counts;
  int64_t ranks, capacity;
  std::vector<int64_t> begins;
};

class AllToAllRank : public Communicator {
public:
  explicit AllToAllRank(const AllToAllOptions &options) : options(options) {}

  Status open();

  const Mesh &mesh() const override { return options.base->mesh(); }
  int64_t rank() const override { return options.base->rank(); }

  Status agree(const std::string &subject, const std::string &what) override;
  Status reserve(MeshAxis axis, int64_t bytes, int64_t resultBytes) override {
    return options.base->reserve(axis, bytes, resultBytes);
  }
  Status reservePacked(MeshAxis axis,
                       const std::vector<PackedSizes> &sizes) override;
  Status run(Stream &stream, const Collective &collective) override;
  Status transfer(Stream &stream, const Transfer &transfer) override {
    return options.base->transfer(stream, transfer);
  }
  Status synchronize(Stream &stream) override;
  Status check() override;
  void abort(const std::string &reason) override {
    options.base->abort(reason);
  }

private:
  using Lock = std::unique_lock<std::mutex>;
  struct Call;

  int64_t capacityFor(int64_t rows) const;
  int64_t countPackedRows(int64_t rows, int64_t ranks,
                          int64_t destinationsOfRow) const;
  Status grow(std::unique_ptr<Buffer> &buffer, int64_t bytes);
  Result<void *> getHeader(MeshAxis axis, int64_t capacity);
  Result<bool> isPacked(Stream &stream, const Collective &collective);
  Status runPacked(Stream &stream, const Collective &collective);
  Status checkCall(const Call &call) const;
  Status findRoutes(const Call &call, const void *numValidTokens);
  Status gatherOthers(const Call &call);
  Status pack(const Call &call);
  Status sum(const Call &call);
  Result<Counts> readCounts(const Call &call);
  Status launchPack(const Call &call, const std::vector<const void *> &rows);
  void addMessages(const Call &call, const Blocks &blocks, int64_t bytes,
                   void *packed, std::vector<Message> &ofPacked, void *received,
                   std::vector<Message> &ofReceived) const;
  Status readLost();
  /// Breaks the communicator.
  Status fail(const Status &status);

  const AllToAllOptions options;
  std::mutex mutex;
  Status failure;
  std::array<AxisMemory, 2> memories;
  /// Outgrown buffers, which graphs may still use.
  std::vector<std::unique_ptr<Buffer>> retired;
  /// Headers (PackedRows.h), by axis and capacity.
  std::map<std::pair<MeshAxis, int64_t>, std::unique_ptr<Buffer>> headers;
  /// Stream and event by which the host waits for counts.
  std::unique_ptr<Stream> waiting;
  std::unique_ptr<Event> counted;
  /// State of a gather that its sum needs.
  struct Gathered {
    int64_t rows = 0;
    const void *numValidTokens = nullptr;
    /// Exact mode only.
    Counts counts = {};
  };
  /// The latest gather for each address of ids.
  std::map<const void *, Gathered> gathered;
};

struct AllToAllRank::Call {
  Stream &stream;
  const Collective &collective;
  AxisMemory &memory;
  /// Number of ranks of the axis, and this rank's index.
  int64_t ranks, own;
  int64_t rows, capacity;
  void *header;

  const PackedKernels &packed() const { return *collective.packed; }
  int64_t rowBytes(const CollectivePart &part) const {
    return part.rowElements * dtypeBits(part.dtype) / 8;
  }
  int64_t packedRows = 0;
};

} // namespace

Result<std::unique_ptr<Communicator>>
createAllToAll(const AllToAllOptions &options) {
  if (!options.base || !options.device)
    return invalidArgument("createAllToAll: base and device are needed");
  if (!(options.capacity >= 0 && options.capacity <= 1))
    return invalidArgument(
        "the capacity of an all-to-all is " + std::to_string(options.capacity) +
        " of a rank's rows; 0 (exact sizes) to 1 is accepted");
  if (options.leastRows < 1)
    return invalidArgument("an all-to-all from " +
                           std::to_string(options.leastRows) +
                           " rows on was requested; 1 or more is accepted");
  auto made = std::make_unique<AllToAllRank>(options);
  MOERT_CHECK(made->open());
  return std::unique_ptr<Communicator>(std::move(made));
}

Status AllToAllRank::open() {
  Result<std::unique_ptr<Stream>> stream = options.device->createStream();
  if (!stream)
    return stream.status();
  waiting = std::move(*stream);
  Result<std::unique_ptr<Event>> event = options.device->createEvent();
  if (!event)
    return event.status();
  counted = std::move(*event);
  // All ranks must use the same mode, or they deadlock.
  return agree("the all-to-all",
               "capacity " + std::to_string(options.capacity) + ", from " +
                   std::to_string(options.leastRows) + " rows on");
}

Status AllToAllRank::agree(const std::string &subject,
                           const std::string &what) {
  {
    Lock lock(mutex);
    MOERT_CHECK(failure);
  }
  return options.base->agree(subject, what);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Capacity of a block to another rank, in rows; 0 in exact mode.
int64_t AllToAllRank::capacityFor(int64_t rows) const {
  if (options.capacity == 0)
    return 0;
  auto capacity = static_cast<int64_t>(
      std::ceil(options.capacity * static_cast<double>(rows)));
  return std::clamp<int64_t>(capacity, 1, std::max<int64_t>(rows, 1));
}

/// Maximum number of rows packed at once.
int64_t AllToAllRank::countPackedRows(int64_t rows, int64_t ranks,
                                      int64_t destinationsOfRow) const {
  return options.capacity == 0 ? rows * destinationsOfRow
                               : capacityFor(rows) * (ranks - 1);
}

Status AllToAllRank::grow(std::unique_ptr<Buffer> &buffer, int64_t bytes) {
  auto size = static_cast<size_t>(bytes);
  if (buffer && buffer->size() >= size)
    return Status::ok();
  Result<std::unique_ptr<Buffer>> made =
      options.device->allocate(size, kBufferAlignment);
  if (!made)
    return made.status().withContext("the capacity of an all-to-all");
  if (buffer)
    retired.push_back(std::move(buffer));
  buffer = std::move(*made);
  return Status::ok();
}

Status AllToAllRank::reservePacked(MeshAxis axis,
                                   const std::vector<PackedSizes> &sizes) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  int64_t ranks = mesh().size(axis);
  AxisMemory &memory = memories[static_cast<size_t>(axis)];
  int64_t rows = 0, bytes = 0;
  for (const PackedSizes &needed : sizes) {
    rows = std::max(rows, needed.rows);
    int64_t total = 0;
    for (int64_t each : needed.rowBytes)
      total += roundUp(
          each * countPackedRows(needed.rows, ranks, needed.destinationsOfRow));
    bytes = std::max(bytes, total);
  }
  constexpr int64_t word = sizeof(int32_t);
  for (auto [buffer, size] :
       {std::pair(&memory.positions, ranks * rows * word),
        std::pair(&memory.counts, ranks * word),
        std::pair(&memory.allCounts, ranks * ranks * word),
        std::pair(&memory.packed, bytes)})
    if (Status grown = grow(*buffer, size); !grown)
      return fail(grown);
  return Status::ok();
}

Result<void *> AllToAllRank::getHeader(MeshAxis axis, int64_t capacity) {
  std::unique_ptr<Buffer> &header = headers[{axis, capacity}];
  if (!header) {
    int64_t words[PackedRows::kNumWords] = {};
    words[PackedRows::kIndex] = mesh().index(axis, rank());
    words[PackedRows::kCapacity] = capacity;
    MOERT_CHECK(grow(header, sizeof(words)));
    MOERT_CHECK(options.device->copyIn(header->data(), words, sizeof(words)));
  }
  return header->data();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Whether the call is an all-to-all; equal on all ranks.
Result<bool> AllToAllRank::isPacked(Stream &stream,
                                    const Collective &collective) {
  if (!collective.packed || collective.rows < options.leastRows)
    return false;
  if (options.capacity > 0)
    return true;
  // In a capture the host cannot wait for counts.
  Result<bool> captures = options.device->isCapturing(stream);
  return captures ? Result<bool>(!*captures) : captures;
}

Status AllToAllRank::run(Stream &stream, const Collective &collective) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  Result<bool> packed = isPacked(stream, collective);
  if (!packed)
    return fail(packed.status());
  Status status = *packed ? runPacked(stream, collective)
                          : options.base->run(stream, collective);
  return status ? status : fail(status);
}

Status AllToAllRank::runPacked(Stream &stream, const Collective &collective) {
  MOERT_CHECK(checkCollective(mesh(), collective));
  MeshAxis axis = collective.axis;
  int64_t capacity = capacityFor(collective.rows), ranks = mesh().size(axis);
  std::string where = collective.where + " (" + describe(collective) + ")";
  Result<void *> header = getHeader(axis, capacity);
  if (!header)
    return header.status().withContext(where);
  Call call{stream,
            collective,
            memories[static_cast<size_t>(axis)],
            ranks,
            mesh().index(axis, rank()),
            collective.rows,
            capacity,
            *header,
            countPackedRows(collective.rows, ranks,
                            collective.packed->destinationsOfRow)};
  MOERT_CHECK(checkCall(call).withContext(where));
  Status status =
      collective.kind == CollectiveKind::AllGather ? pack(call) : sum(call);
  return status.withContext(where);
}

/// Success if the call fits in what was reserved.
Status AllToAllRank::checkCall(const Call &call) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.collective.numParts; ++i)
    bytes += roundUp(call.rowBytes(call.collective.parts[i]) * call.packedRows);
  auto has = [](const std::unique_ptr<Buffer> &buffer, int64_t needed) {
    return buffer && static_cast<int64_t>(buffer->size()) >= needed;
  };
  if (has(call.memory.packed, bytes) &&
      has(call.memory.positions,
          call.ranks * call.rows * int64_t(sizeof(int32_t))))
    return Status::ok();
  return internalError(std::to_string(bytes) +
                       " bytes of an all-to-all were not reserved");
}

/// `numValidTokens` is null if all rows of the rank are valid.
Status AllToAllRank::findRoutes(const Call &call, const void *numValidTokens) {
  const PackedKernels &packed = call.packed();
  std::vector<uint64_t> slots;
  for (const void *address :
       {packed.ids, packed.destinations, numValidTokens,
        static_cast<const void *>(call.memory.positions->data()),
        static_cast<const void *>(call.memory.counts->data())})
    if (address)
      slots.push_back(reinterpret_cast<uintptr_t>(address));
  slots.push_back(static_cast<uint64_t>(call.rows));
  return options.device->launch(call.stream, *packed.route, packed.routeDims,
                                {slots.data(), slots.size(), nullptr, 0});
}

/// `rows` are the addresses of row tensors; the arguments common to both
/// kernels follow.
Status AllToAllRank::launchPack(const Call &call,
                                const std::vector<const void *> &rows) {
  std::vector<uint64_t> slots;
  for (const void *address : rows)
    slots.push_back(reinterpret_cast<uintptr_t>(address));
  slots.push_back(static_cast<uint64_t>(call.rows));
  const PackedKernels &packed = call.packed();
  return options.device->launch(call.stream, *packed.pack, packed.packDims,
                                {slots.data(), slots.size(), nullptr, 0});
}

/// Gathers the parts that have no row per token by the base.
Status AllToAllRank::gatherOthers(const Call &call) {
  std::vector<CollectivePart> others;
  for (size_t i = 0; i < call.collective.numParts; ++i)
    if (call.collective.parts[i].rowElements == 0)
      others.push_back(call.collective.parts[i]);
  // Gather the counts in the same call.
  if (call.capacity == 0)
    others.push_back({call.memory.counts->data(), call.memory.allCounts->data(),
                      DType::I32, call.ranks});
  if (others.empty())
    return Status::ok();
  Collective rest;
  rest.kind = CollectiveKind::AllGather;
  rest.axis = call.collective.axis;
  rest.where = call.collective.where;
  rest.parts = others.data();
  rest.numParts = others.size();
  return options.base->run(call.stream, rest);
}

/// Waits for the counts of all ranks.
Result<Counts> AllToAllRank::readCounts(const Call &call) {
  Device &device = *options.device;
  Counts counts(static_cast<size_t>(call.ranks * call.ranks));
  // Wait for the event only, not for later work of the stream.
  MOERT_CHECK(device.wait(*waiting, *counted));
  MOERT_CHECK(options.base->synchronize(*waiting));
  MOERT_CHECK(device.copyOut(counts.data(), call.memory.allCounts->data(),
                             counts.size() * sizeof(int32_t)));
  for (int32_t count : counts)
    if (count < 0 || count > call.rows)
      return internalError("a rank sends " + std::to_string(count) +
                           " rows of " + std::to_string(call.rows));
  return counts;
}

static char *advance(void *memory, int64_t bytes) {
  return static_cast<char *>(memory) + bytes;
}

/// Adds the messages of one part, with `bytes` bytes per row. `packed` holds
/// this rank's rows, sent or returned; `received` holds the blocks of other
/// ranks' rows.
void AllToAllRank::addMessages(const Call &call, const Blocks &blocks,
                               int64_t bytes, void *packed,
                               std::vector<Message> &ofPacked, void *received,
                               std::vector<Message> &ofReceived) const {
  for (int64_t other = 0; other < call.ranks; ++other) {
    if (other == call.own)
      continue;
    int64_t peer = mesh().peer(call.collective.axis, rank(), other);
    ofPacked.push_back({peer,
                        advance(packed, blocks.begins[size_t(other)] * bytes),
                        blocks.rows(call.own, other) * bytes});
    ofReceived.push_back({peer, advance(received, other * call.rows * bytes),
                          blocks.rows(other, call.own) * bytes});
  }
}

Status AllToAllRank::pack(const Call &call) {
  const Collective &collective = call.collective;
  Gathered known{call.rows};
  for (size_t i = 0; i < collective.numParts; ++i)
    if (collective.parts[i].rowElements == 0)
      known.numValidTokens = collective.parts[i].send;
  MOERT_CHECK(findRoutes(call, known.numValidTokens));
  MOERT_CHECK(gatherOthers(call));
  if (call.capacity == 0)
    MOERT_CHECK(options.device->record(call.stream, *counted));
  std::vector<const void *> ins, outs, packed;
  std::vector<const CollectivePart *> parts;
  std::vector<char *> begins;
  int64_t begin = 0;
  for (size_t i = 0; i < collective.numParts; ++i) {
    const CollectivePart &part = collective.parts[i];
    if (part.rowElements == 0)
      continue;
    parts.push_back(&part);
    begins.push_back(advance(call.memory.packed->data(), begin));
    int64_t bytes = call.rowBytes(part) * call.packedRows;
    begin += roundUp(bytes);
    ins.push_back(part.send);
    outs.push_back(part.receive);
    packed.push_back(begins.back());
    if (part.isRouted)
      continue;
    // Mark unused rows with the id -1; their other data are read but have no
    // effect.
    MOERT_CHECK(options.device->fill(call.stream, part.receive, 0xff,
                                     static_cast<size_t>(call.ranks) *
                                         partBytes(part)));
    if (call.capacity > 0 && part.send == call.packed().ids)
      MOERT_CHECK(options.device->fill(call.stream, begins.back(), 0xff,
                                       static_cast<size_t>(bytes)));
  }
  std::vector<const void *> rows = ins;
  rows.insert(rows.end(), outs.begin(), outs.end());
  rows.insert(rows.end(), packed.begin(), packed.end());
  rows.insert(rows.end(), {call.memory.positions->data(),
                           call.memory.counts->data(), call.header});
  MOERT_CHECK(launchPack(call, rows));
  if (call.capacity == 0) {
    Result<Counts> read = readCounts(call);
    if (!read)
      return read.status();
    known.counts = std::move(*read);
  }
  Blocks blocks(known.counts, call.ranks, call.own, call.capacity);
  gathered[call.packed().ids] = known;
  Transfer transfer;
  transfer.where = collective.where;
  for (size_t i = 0; i < parts.size(); ++i)
    addMessages(call, blocks, call.rowBytes(*parts[i]), begins[i],
                transfer.sends, parts[i]->receive, transfer.receives);
  return options.base->transfer(call.stream, transfer);
}

Status AllToAllRank::sum(const Call &call) {
  const Collective &collective = call.collective;
  const CollectivePart &part = collective.parts[0];
  auto found = gathered.find(call.packed().ids);
  if (found == gathered.end() || found->second.rows != call.rows)
    return internalError("sums rows that no all-to-all has gathered");
  const Gathered &known = found->second;
  MOERT_CHECK(findRoutes(call, known.numValidTokens));
  Blocks blocks(known.counts, call.ranks, call.own, call.capacity);
  Transfer transfer;
  transfer.where = collective.where;
  addMessages(call, blocks, call.rowBytes(part), call.memory.packed->data(),
              transfer.receives, const_cast<void *>(part.send), transfer.sends);
  MOERT_CHECK(options.base->transfer(call.stream, transfer));
  return launchPack(call,
                    {part.send, call.memory.packed->data(),
                     call.memory.positions->data(), call.memory.counts->data(),
                     call.header, part.receive});
}

//===----------------------------------------------------------------------===//
// Waiting and failing
//===----------------------------------------------------------------------===//

/// Fails if rows exceeded the capacity.
Status AllToAllRank::readLost() {
  for (auto &[key, header] : headers) {
    int64_t capacity = key.second, most = 0;
    if (capacity == 0 || !header)
      continue;
    MOERT_CHECK(options.device->copyOut(
        &most,
        advance(header->data(), PackedRows::kMost * int64_t(sizeof(int64_t))),
        sizeof(most)));
    if (most > 0)
      return fail(outOfRange(
          "an all-to-all over " + std::string(meshAxisName(key.first)) +
          " has " + std::to_string(most) +
          " rows for one rank, more than the capacity of " +
          std::to_string(capacity) +
          ", so results of some rows are NaN; increase the capacity, or give 0 "
          "(exact sizes, without graphs)"));
  }
  return Status::ok();
}

Status AllToAllRank::synchronize(Stream &stream) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  if (Status status = options.base->synchronize(stream); !status)
    return fail(status);
  return readLost();
}

Status AllToAllRank::check() {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  MOERT_CHECK(readLost());
  Status status = options.base->check();
  return status ? status : fail(status);
}

Status AllToAllRank::fail(const Status &status) {
  if (failure.isOk()) {
    failure = status;
    options.base->abort(failure.message());
  }
  return failure;
}

} // namespace moert
