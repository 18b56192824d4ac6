//===- ProcessCommunicator.cpp - ranks that are processes -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each rank sends every other rank its request together with the rows for it.
// Hence each rank itself knows which others are missing, and the end of a
// process is the end of its connections.

#include "moert/ProcessCommunicator.h"
#include "../../support/Check.h"
#include "../Collectives.h"
#include "../StagedMessages.h"
#include "../Staging.h"
#include "Connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace moert {

//===----------------------------------------------------------------------===//
// Sockets
//===----------------------------------------------------------------------===//

Result<ProcessSockets> ProcessSockets::create(int64_t ranks) {
  ProcessSockets made;
  auto count = static_cast<size_t>(ranks);
  made.ends.assign(count, std::vector<int>(count, -1));
  for (size_t r = 0; r < count; ++r)
    for (size_t s = r + 1; s < count; ++s) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return unavailable("sockets for " + std::to_string(ranks) +
                           " ranks: " + strerror(errno) +
                           "; raise the limit of open files (ulimit -n)");
      made.ends[r][s] = pair[0];
      made.ends[s][r] = pair[1];
    }
  return made;
}

std::vector<int> ProcessSockets::take(int64_t rank) {
  std::vector<int> taken = std::move(ends[static_cast<size_t>(rank)]);
  ends[static_cast<size_t>(rank)].clear();
  closeAll();
  return taken;
}

void ProcessSockets::closeAll() {
  for (const std::vector<int> &row : ends)
    for (int descriptor : row)
      if (descriptor >= 0)
        close(descriptor);
  ends.clear();
}

namespace {

//===----------------------------------------------------------------------===//
// A rank
//===----------------------------------------------------------------------===//

using Clock = std::chrono::steady_clock;

/// Time that a failed or leaving rank spends on telling the others.
constexpr std::chrono::milliseconds kTelling(200);

/// Each section of a message is padded to max_align_t.
constexpr size_t kAlignment = alignof(std::max_align_t);
const char kPadding[kAlignment] = {};

size_t roundedUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Another rank, and the data it has sent for the current or next call.
struct Peer {
  Peer(int64_t rank, int socket) : rank(rank), connection(socket) {}

  const int64_t rank;
  Connection connection;
  bool hasLeft = false;
  std::optional<DecodedRequest> come;
  std::string rows;
};

class ProcessRank : public Communicator {
public:
  ProcessRank(const ProcessOptions &options, Device &device);
  ~ProcessRank() override;

  const Mesh &mesh() const override { return options.mesh; }
  int64_t rank() const override { return options.rank; }

  Status agree(const std::string &subject, const std::string &what) override;
  Status run(Stream &stream, const Collective &collective) override;
  Status transfer(Stream &stream, const Transfer &transfer) override;
  /// Collectives are complete when run() returns.
  Status synchronize(Stream &stream) override {
    MOERT_CHECK(check());
    return device.synchronize(stream);
  }
  Status check() override;
  void abort(const std::string &reason) override {
    (void)fail(unavailable(self() + ": aborted: " + reason));
  }

private:
  std::string self() const { return "rank " + std::to_string(options.rank); }
  template <typename Test>
  std::vector<int64_t> ranksThat(Test test) const {
    std::vector<int64_t> ranks;
    for (const std::unique_ptr<Peer> &peer : peers)
      if (test(*peer))
        ranks.push_back(peer->rank);
    return ranks;
  }
  bool isOnAxis(MeshAxis axis, int64_t other) const;
  size_t countRows(const Peer &peer) const;
  bool isComplete(const Peer &peer) const {
    return peer.come && peer.rows.size() == countRows(peer);
  }
  bool takeOne(Peer &peer, const ReceivedMessage &message);
  Status take(Peer &peer, const Request *request);
  void queueRows(Peer &peer, const Collective &collective);
  void queueMessages(Peer &peer, const Transfer &transfer);
  void forgetCall();
  Status meet(const Request &request);
  Status exchange(const Request &request);
  Status wait(const Request &request, Clock::time_point begin,
              Clock::time_point &lastMoved);
  bool move(std::chrono::milliseconds limit);
  void flush();
  Status fail(Status status);

  const ProcessOptions options;
  Device &device;
  Staging staging;
  StagedMessages messages;
  std::vector<std::unique_ptr<Peer>> peers;
  Status failure;
};

} // namespace

Result<std::unique_ptr<Communicator>>
createProcessCommunicator(const ProcessOptions &options, Device &device) {
  // The communicator owns the sockets from here on.
  auto made = std::make_unique<ProcessRank>(options, device);
  MOERT_CHECK(checkMesh(options.mesh));
  MOERT_CHECK(checkLimit(options.limitSeconds));
  int64_t ranks = options.mesh.numRanks();
  if (options.rank < 0 || options.rank >= ranks ||
      static_cast<int64_t>(options.sockets.size()) != ranks)
    return invalidArgument("rank " + std::to_string(options.rank) + " with " +
                           std::to_string(options.sockets.size()) +
                           " sockets of a mesh of " + options.mesh.str() +
                           "; give a rank of the mesh, and one entry per rank");
  for (int64_t other = 0; other < ranks; ++other)
    if ((options.sockets[static_cast<size_t>(other)] < 0) !=
        (other == options.rank))
      return invalidArgument("rank " + std::to_string(options.rank) +
                             " needs a socket for each other rank; that of "
                             "rank " +
                             std::to_string(other) + " is wrong");
  return std::unique_ptr<Communicator>(std::move(made));
}

ProcessRank::ProcessRank(const ProcessOptions &options, Device &device)
    : options(options), device(device), staging(options.mesh, device),
      messages(options.mesh, device) {
  for (size_t other = 0; other < options.sockets.size(); ++other)
    if (options.sockets[other] >= 0)
      peers.push_back(std::make_unique<Peer>(static_cast<int64_t>(other),
                                             options.sockets[other]));
}

ProcessRank::~ProcessRank() {
  if (!failure.isOk())
    return;
  for (const std::unique_ptr<Peer> &peer : peers)
    peer->connection.queue(MessageKind::Left, "");
  flush();
}

/// Keeps the first failure only, and tells it to all other ranks.
Status ProcessRank::fail(Status status) {
  if (!failure.isOk())
    return failure;
  failure = std::move(status);
  std::string text(1, static_cast<char>(failure.code()));
  text += failure.message().substr(0, MessageHead::kRowsBytes);
  for (const std::unique_ptr<Peer> &peer : peers) {
    peer->connection.dropQueued();
    peer->connection.queue(MessageKind::Failed, text);
  }
  flush();
  for (const std::unique_ptr<Peer> &peer : peers)
    peer->connection.shutDown();
  return failure;
}

/// Sends queued data as far as peers accept it.
void ProcessRank::flush() {
  auto until = Clock::now() + kTelling;
  auto isDone = [&] {
    return std::none_of(peers.begin(), peers.end(), [](const auto &peer) {
      return peer->connection.hasQueued();
    });
  };
  for (const std::unique_ptr<Peer> &peer : peers)
    peer->connection.write();
  while (!isDone() && Clock::now() < until) {
    std::vector<pollfd> polled;
    for (const std::unique_ptr<Peer> &peer : peers)
      if (peer->connection.hasQueued())
        polled.push_back({peer->connection.socket(), POLLOUT, 0});
    (void)poll(polled.data(), polled.size(), /*timeout=*/10);
    for (const std::unique_ptr<Peer> &peer : peers)
      peer->connection.write();
  }
}

//===----------------------------------------------------------------------===//
// Messages from other ranks
//===----------------------------------------------------------------------===//

/// Whether the other rank is in the same group along the axis.
bool ProcessRank::isOnAxis(MeshAxis axis, int64_t other) const {
  MeshAxis across = axis == MeshAxis::Data ? MeshAxis::Tensor : MeshAxis::Data;
  return mesh().index(across, other) == mesh().index(across, rank());
}

/// Bytes that the peer's current request sends to this rank.
size_t ProcessRank::countRows(const Peer &peer) const {
  using Kind = DecodedRequest::Kind;
  size_t bytes = 0;
  if (peer.come->kind == Kind::Transfer)
    for (const Message &message : peer.come->transfer.sends)
      if (message.rank == rank())
        bytes += static_cast<size_t>(message.bytes);
  if (peer.come->kind != Kind::Collective ||
      !isOnAxis(peer.come->collective.axis, peer.rank))
    return bytes;
  for (const CollectivePart &part : peer.come->parts)
    bytes += roundedUp(partBytes(part));
  return bytes;
}

/// Handles a message; false if it is invalid.
bool ProcessRank::takeOne(Peer &peer, const ReceivedMessage &message) {
  switch (message.kind) {
  case MessageKind::Come:
    peer.come = decodeRequest(message.bytes);
    return peer.come.has_value();
  case MessageKind::Rows:
    peer.rows += message.bytes;
    return peer.come && peer.rows.size() <= countRows(peer);
  case MessageKind::Failed:
    return !message.bytes.empty() &&
           message.bytes[0] != static_cast<char>(StatusCode::Ok);
  case MessageKind::Left:
    peer.hasLeft = true;
    return true;
  }
  return false;
}

/// Handles received messages of a rank; `request` is the call under way, or
/// null.
Status ProcessRank::take(Peer &peer, const Request *request) {
  std::string name = "rank " + std::to_string(peer.rank);
  std::string where = request ? request->where() + ": " : "";
  Status noMessage = internalError(
      where + name +
      " has sent an invalid message; check that it runs the same version");
  Connection &connection = peer.connection;
  while (const ReceivedMessage *message = connection.front()) {
    // Belongs to the next call.
    if (message->kind == MessageKind::Come && peer.come)
      break;
    bool isOne = takeOne(peer, *message);
    if (isOne && message->kind == MessageKind::Failed)
      return Status(static_cast<StatusCode>(message->bytes[0]),
                    message->bytes.substr(1));
    connection.pop();
    if (!isOne)
      return noMessage;
  }
  if (connection.isBroken())
    return noMessage;
  if (request && peer.come) {
    Request other = peer.come->get();
    MOERT_CHECK(checkSame(rank(), *request, peer.rank, other));
  }
  bool isDue = !request || !isComplete(peer);
  if (isDue && connection.isAtEnd() && !peer.hasLeft)
    return unavailable(where + name +
                       " is gone: its process has ended or given up; look for "
                       "an earlier error there");
  if (request && isDue && peer.hasLeft) {
    std::vector<int64_t> waiting =
        ranksThat([](const Peer &other) { return other.come.has_value(); });
    waiting.insert(std::upper_bound(waiting.begin(), waiting.end(), rank()),
                   rank());
    return describeLeaving(*request, peer.rank, waiting);
  }
  return Status::ok();
}

Status ProcessRank::check() {
  MOERT_CHECK(failure);
  for (const std::unique_ptr<Peer> &peer : peers) {
    peer->connection.read();
    if (Status status = take(*peer, nullptr); !status)
      return fail(status);
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Meeting of ranks
//===----------------------------------------------------------------------===//

void ProcessRank::queueRows(Peer &peer, const Collective &collective) {
  if (!isOnAxis(collective.axis, peer.rank))
    return;
  int64_t index = mesh().index(collective.axis, peer.rank);
  for (size_t i = 0; i < collective.numParts; ++i) {
    size_t bytes = partBytes(collective.parts[i]);
    peer.connection.queueRows(sentTo(collective, i, index), bytes);
    peer.connection.queueRows(kPadding, roundedUp(bytes) - bytes);
  }
}

void ProcessRank::queueMessages(Peer &peer, const Transfer &transfer) {
  for (const Message &message : transfer.sends)
    if (message.rank == peer.rank)
      peer.connection.queueRows(static_cast<const char *>(message.data),
                                static_cast<size_t>(message.bytes));
}

/// Clears the data of a call, before the next one.
void ProcessRank::forgetCall() {
  for (const std::unique_ptr<Peer> &peer : peers) {
    peer->come.reset();
    peer->rows.clear();
  }
}

/// Returns when all ranks have made the same request, their rows are here and
/// this rank's rows are sent.
Status ProcessRank::meet(const Request &request) {
  std::vector<int64_t> gone =
      ranksThat([](const Peer &peer) { return peer.hasLeft; });
  if (!gone.empty())
    return fail(describeGone(request, rank(), gone));
  std::string text = encodeRequest(request);
  if (text.size() > MessageHead::kMostBytes)
    return fail(invalidArgument(request.where() + ": its description has " +
                                std::to_string(text.size()) +
                                " bytes; at most 1 MiB is accepted"));
  for (const std::unique_ptr<Peer> &peer : peers) {
    peer->connection.queue(MessageKind::Come, text);
    if (request.collective)
      queueRows(*peer, *request.collective);
    if (request.transfer)
      queueMessages(*peer, *request.transfer);
  }
  Status met = exchange(request);
  return met ? met : fail(met);
}

Status ProcessRank::exchange(const Request &request) {
  Clock::time_point begin = Clock::now(), lastMoved = begin;
  while (true) {
    bool isDone = true;
    for (const std::unique_ptr<Peer> &peer : peers) {
      MOERT_CHECK(take(*peer, &request));
      isDone = isDone && isComplete(*peer) && !peer->connection.hasQueued();
    }
    if (isDone)
      return Status::ok();
    // Read before checking the time: this rank itself may have been stopped
    // while others made progress.
    if (move(std::chrono::milliseconds(0)))
      lastMoved = Clock::now();
    else if (Status late = wait(request, begin, lastMoved); !late)
      return late;
  }
}

/// Waits until data can be moved; an error after the limit.
Status ProcessRank::wait(const Request &request, Clock::time_point begin,
                         Clock::time_point &lastMoved) {
  // The range of steady_clock is far smaller than that of a double.
  auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::min(options.limitSeconds, 1e6)));
  std::vector<int64_t> missing =
      ranksThat([](const Peer &peer) { return !peer.come; });
  auto until = (missing.empty() ? lastMoved : begin) + limit;
  auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  if (left.count() > 0) {
    if (move(left))
      lastMoved = Clock::now();
    return Status::ok();
  }
  if (!missing.empty())
    return describeMissing(request, missing, options.limitSeconds, "");
  missing = ranksThat([&](const Peer &peer) {
    return !isComplete(peer) || peer.connection.hasQueued();
  });
  return describeMissing(request, missing, options.limitSeconds,
                         " with the rest of the rows");
}

/// Sends and receives within the limit. Returns whether any data moved.
bool ProcessRank::move(std::chrono::milliseconds limit) {
  std::vector<pollfd> polled;
  std::vector<Peer *> of;
  for (const std::unique_ptr<Peer> &peer : peers) {
    short events = 0;
    if (!isComplete(*peer))
      events |= POLLIN;
    if (peer->connection.hasQueued())
      events |= POLLOUT;
    if (events == 0)
      continue;
    polled.push_back({peer->connection.socket(), events, 0});
    of.push_back(peer.get());
  }
  int timeout = static_cast<int>(
      std::min<int64_t>(limit.count(), std::numeric_limits<int>::max()));
  if (poll(polled.data(), polled.size(), timeout) <= 0)
    return false;
  bool hasMoved = false;
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents & (POLLOUT | POLLERR | POLLHUP))
      hasMoved |= of[i]->connection.write();
    if ((polled[i].events & POLLIN) && polled[i].revents != 0)
      hasMoved |= of[i]->connection.read();
  }
  return hasMoved;
}

Status ProcessRank::agree(const std::string &subject, const std::string &what) {
  MOERT_CHECK(failure);
  Request request;
  request.subject = &subject;
  request.what = &what;
  Status met = meet(request);
  forgetCall();
  return met;
}

Status ProcessRank::run(Stream &stream, const Collective &collective) {
  MOERT_CHECK(failure);
  if (Status copied = staging.copyOut(stream, collective); !copied)
    return fail(copied.withContext(self()));
  const Collective &onHost = staging.onHost();
  Request request;
  request.collective = &onHost;
  MOERT_CHECK(meet(request));
  // Indexed along the axis.
  std::vector<const char *> from(
      static_cast<size_t>(mesh().size(collective.axis)));
  for (const std::unique_ptr<Peer> &peer : peers)
    if (isOnAxis(collective.axis, peer->rank))
      from[static_cast<size_t>(mesh().index(collective.axis, peer->rank))] =
          peer->rows.data();
  int64_t own = mesh().index(collective.axis, rank());
  size_t begin = 0;
  for (size_t i = 0; i < onHost.numParts; ++i) {
    std::vector<const void *> sources;
    for (const char *rows : from)
      sources.push_back(rows ? rows + begin : sentTo(onHost, i, own));
    staging.receive(i, sources);
    begin += roundedUp(partBytes(onHost.parts[i]));
  }
  forgetCall();
  if (Status copied = staging.copyIn(collective); !copied)
    return fail(copied.withContext(self()));
  return Status::ok();
}

Status ProcessRank::transfer(Stream &stream, const Transfer &transfer) {
  MOERT_CHECK(failure);
  if (Status copied = messages.copyOut(stream, transfer); !copied)
    return fail(copied.withContext(self()));
  Request request;
  request.transfer = &messages.onHost();
  MOERT_CHECK(meet(request));
  // Each rank checks the messages of all, so that all return the same error.
  std::vector<const Transfer *> all(static_cast<size_t>(mesh().numRanks()),
                                    request.transfer);
  for (const std::unique_ptr<Peer> &peer : peers)
    all[static_cast<size_t>(peer->rank)] = &peer->come->transfer;
  if (Status status = checkMessages(all); !status)
    return fail(status);
  messages.receive(rank(), rank(), *request.transfer);
  for (const std::unique_ptr<Peer> &peer : peers) {
    char *next = peer->rows.data();
    for (Message &message : peer->come->transfer.sends)
      if (message.rank == rank()) {
        message.data = next;
        next += message.bytes;
      }
    messages.receive(rank(), peer->rank, peer->come->transfer);
  }
  forgetCall();
  if (Status copied = messages.copyIn(transfer); !copied)
    return fail(copied.withContext(self()));
  return Status::ok();
}

} // namespace moert
