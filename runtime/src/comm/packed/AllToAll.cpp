//===- AllToAll.cpp - rows go to their owners alone -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A gather: routes are found from the ids of the rank's own rows, rows are
// packed for each other rank, with all that has a row per token, the ids too,
// and sent to where the receiver has the block of the sender's rows. Rows of a
// block that nothing came for have the id -1, which is nobody's. A sum sends
// rows of such blocks back, as they lie, and each rank sums what comes to it.
//
// How many rows that are each rank finds for what it sends. Without room all
// ranks gather these counts, and the host waits for them; a sum has those of
// its gather.
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

/// What parts of a buffer begin at multiples of.
constexpr int64_t kGranule = 256;

int64_t roundUp(int64_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

/// What an axis has in device memory.
struct AxisMemory {
  /// tile.route_rows' results.
  std::unique_ptr<Buffer> positions, counts;
  /// Those of all ranks.
  std::unique_ptr<Buffer> allCounts;
  /// Rows for other ranks, or from them.
  std::unique_ptr<Buffer> packed;
};

/// How many rows each rank sends to each one: `[from * ranks + to]`.
using Counts = std::vector<int32_t>;

/// The rows that go between two ranks, and where those for each rank, or from
/// each, begin in packed memory.
struct Blocks {
  Blocks(const Counts &counts, int64_t ranks, int64_t own, int64_t room)
      : counts(counts), ranks(ranks), room(room) {
    int64_t begin = 0;
    for (int64_t other = 0; other < ranks; ++other) {
      begins.push_back(begin);
      begin += other == own ? 0 : rows(own, other);
    }
  }
  int64_t rows(int64_t from, int64_t to) const {
    return room > 0 ? room : counts[static_cast<size_t>(from * ranks + to)];
  }

  const Counts &counts;
  int64_t ranks, room;
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
                       const std::vector<PackedRoom> &rooms) override;
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
  /// One call.
  struct Call;

  int64_t roomFor(int64_t rows) const;
  int64_t countPackedRows(int64_t rows, int64_t ranks,
                          int64_t ownersOfRow) const;
  Status grow(std::unique_ptr<Buffer> &buffer, int64_t bytes);
  Result<void *> getHeader(MeshAxis axis, int64_t room);
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
  /// Earlier ones, which graphs may still use.
  std::vector<std::unique_ptr<Buffer>> retired;
  /// By axis and room.
  std::map<std::pair<MeshAxis, int64_t>, std::unique_ptr<Buffer>> headers;
  /// What the host waits by for counts.
  std::unique_ptr<Stream> waiting;
  std::unique_ptr<Event> counted;
  /// What a sum needs to know of its gather.
  struct Gathered {
    int64_t rows = 0;
    const void *numValidTokens = nullptr;
    /// Without room.
    Counts counts = {};
  };
  /// The newest one of such ids.
  std::map<const void *, Gathered> gathered;
};

struct AllToAllRank::Call {
  Stream &stream;
  const Collective &collective;
  AxisMemory &memory;
  /// Of the axis.
  int64_t ranks, own;
  int64_t rows, room;
  void *header;

  const PackedKernels &packed() const { return *collective.packed; }
  int64_t rowBytes(const CollectivePart &part) const {
    return part.rowElements * dtypeBits(part.dtype) / 8;
  }
  /// Of packed rows in all.
  int64_t packedRows = 0;
};

} // namespace

Result<std::unique_ptr<Communicator>>
createAllToAll(const AllToAllOptions &options) {
  if (!options.base || !options.device)
    return invalidArgument("createAllToAll: base and device are needed");
  if (!(options.room >= 0 && options.room <= 1))
    return invalidArgument("the room of an all-to-all is " +
                           std::to_string(options.room) +
                           " of a rank's rows; 0 (as many as there are) to 1 "
                           "is accepted");
  if (options.leastRows < 1)
    return invalidArgument("an all-to-all from " +
                           std::to_string(options.leastRows) +
                           " rows on was asked for; 1 or more is accepted");
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
  // Who packs rows and who does not would wait for each other's messages.
  return agree("the all-to-all",
               "room " + std::to_string(options.room) + ", from " +
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

/// Rows of a block that goes to another rank; 0 where it has as many as there
/// are.
int64_t AllToAllRank::roomFor(int64_t rows) const {
  if (options.room == 0)
    return 0;
  auto room =
      static_cast<int64_t>(std::ceil(options.room * static_cast<double>(rows)));
  return std::clamp<int64_t>(room, 1, std::max<int64_t>(rows, 1));
}

/// The most rows that are packed at once.
int64_t AllToAllRank::countPackedRows(int64_t rows, int64_t ranks,
                                      int64_t ownersOfRow) const {
  return options.room == 0 ? rows * ownersOfRow : roomFor(rows) * (ranks - 1);
}

Status AllToAllRank::grow(std::unique_ptr<Buffer> &buffer, int64_t bytes) {
  auto size = static_cast<size_t>(bytes);
  if (buffer && buffer->size() >= size)
    return Status::ok();
  Result<std::unique_ptr<Buffer>> made =
      options.device->allocate(size, kGranule);
  if (!made)
    return made.status().withContext("the room of an all-to-all");
  if (buffer)
    retired.push_back(std::move(buffer));
  buffer = std::move(*made);
  return Status::ok();
}

Status AllToAllRank::reservePacked(MeshAxis axis,
                                   const std::vector<PackedRoom> &rooms) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  int64_t ranks = mesh().size(axis);
  AxisMemory &memory = memories[static_cast<size_t>(axis)];
  int64_t rows = 0, bytes = 0;
  for (const PackedRoom &room : rooms) {
    rows = std::max(rows, room.rows);
    int64_t total = 0;
    for (int64_t each : room.rowBytes)
      total +=
          roundUp(each * countPackedRows(room.rows, ranks, room.ownersOfRow));
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

Result<void *> AllToAllRank::getHeader(MeshAxis axis, int64_t room) {
  std::unique_ptr<Buffer> &header = headers[{axis, room}];
  if (!header) {
    int64_t words[PackedRows::kNumWords] = {};
    words[PackedRows::kPlace] = mesh().index(axis, rank());
    words[PackedRows::kRoom] = room;
    MOERT_CHECK(grow(header, sizeof(words)));
    MOERT_CHECK(options.device->copyIn(header->data(), words, sizeof(words)));
  }
  return header->data();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// All ranks find the same.
Result<bool> AllToAllRank::isPacked(Stream &stream,
                                    const Collective &collective) {
  if (!collective.packed || collective.rows < options.leastRows)
    return false;
  if (options.room > 0)
    return true;
  // Nobody can wait for counts in a capture.
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
  int64_t room = roomFor(collective.rows), ranks = mesh().size(axis);
  std::string where = collective.where + " (" + describe(collective) + ")";
  Result<void *> header = getHeader(axis, room);
  if (!header)
    return header.status().withContext(where);
  Call call{
      stream,
      collective,
      memories[static_cast<size_t>(axis)],
      ranks,
      mesh().index(axis, rank()),
      collective.rows,
      room,
      *header,
      countPackedRows(collective.rows, ranks, collective.packed->ownersOfRow)};
  MOERT_CHECK(checkCall(call).withContext(where));
  Status status =
      collective.kind == CollectiveKind::AllGather ? pack(call) : sum(call);
  return status.withContext(where);
}

/// All of it was reserved.
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

/// `numValidTokens` is null where all rows of the rank count.
Status AllToAllRank::findRoutes(const Call &call, const void *numValidTokens) {
  const PackedKernels &packed = call.packed();
  std::vector<uint64_t> slots;
  for (const void *address :
       {packed.ids, packed.owners, numValidTokens,
        static_cast<const void *>(call.memory.positions->data()),
        static_cast<const void *>(call.memory.counts->data())})
    if (address)
      slots.push_back(reinterpret_cast<uintptr_t>(address));
  slots.push_back(static_cast<uint64_t>(call.rows));
  return options.device->launch(call.stream, *packed.route, packed.routeDims,
                                {slots.data(), slots.size(), nullptr, 0});
}

/// `rows` are those of tensors, then what both kernels have behind them.
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

/// What a gather has that is no row of a token: the base gathers it.
Status AllToAllRank::gatherOthers(const Call &call) {
  std::vector<CollectivePart> others;
  for (size_t i = 0; i < call.collective.numParts; ++i)
    if (call.collective.parts[i].rowElements == 0)
      others.push_back(call.collective.parts[i]);
  // The counts go with it.
  if (call.room == 0)
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
  // Not for what follows on the stream.
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

/// What goes between packed rows, which this rank's rows are or come back to,
/// and the blocks of other ranks' rows, of one part with so many bytes of a
/// row.
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
  if (call.room == 0)
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
    if (part.isOwned)
      continue;
    // Rows that nothing comes for are nobody's: the id is -1, and what else
    // they have is read, but not used.
    MOERT_CHECK(options.device->fill(call.stream, part.receive, 0xff,
                                     static_cast<size_t>(call.ranks) *
                                         partBytes(part)));
    if (call.room > 0 && part.send == call.packed().ids)
      MOERT_CHECK(options.device->fill(call.stream, begins.back(), 0xff,
                                       static_cast<size_t>(bytes)));
  }
  std::vector<const void *> rows = ins;
  rows.insert(rows.end(), outs.begin(), outs.end());
  rows.insert(rows.end(), packed.begin(), packed.end());
  rows.insert(rows.end(), {call.memory.positions->data(),
                           call.memory.counts->data(), call.header});
  MOERT_CHECK(launchPack(call, rows));
  if (call.room == 0) {
    Result<Counts> read = readCounts(call);
    if (!read)
      return read.status();
    known.counts = std::move(*read);
  }
  Blocks blocks(known.counts, call.ranks, call.own, call.room);
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
  Blocks blocks(known.counts, call.ranks, call.own, call.room);
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

/// Fails where rows had no room.
Status AllToAllRank::readLost() {
  for (auto &[key, header] : headers) {
    int64_t room = key.second, most = 0;
    if (room == 0 || !header)
      continue;
    MOERT_CHECK(options.device->copyOut(
        &most,
        advance(header->data(), PackedRows::kMost * int64_t(sizeof(int64_t))),
        sizeof(most)));
    if (most > 0)
      return fail(outOfRange(
          "an all-to-all over " + std::string(meshAxisName(key.first)) +
          " has " + std::to_string(most) + " rows for one rank, and room for " +
          std::to_string(room) +
          ", so that results of some rows are NaN; give it more room, or "
          "none (as many rows as there are, without graphs)"));
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
