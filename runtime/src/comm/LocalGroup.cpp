//===- LocalGroup.cpp - ranks that are threads of a process -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/LocalGroup.h"
#include "../support/Check.h"
#include "Collectives.h"
#include "RankSum.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>

namespace moert {

LocalGroup::~LocalGroup() = default;

namespace {

/// What a rank has come for: a collective, messages, or a text to compare.
struct Request {
  const Collective *collective = nullptr;
  const Transfer *transfer = nullptr;
  const std::string *subject = nullptr;
  const std::string *what = nullptr;

  std::string where() const {
    return collective ? collective->where + " (" + describe(*collective) + ")"
           : transfer ? transfer->where
                      : *subject;
  }
};

std::string describeDifference(int64_t rank, const Request &request,
                               int64_t otherRank, const Request &other) {
  if (request.collective && other.collective)
    return moert::describeDifference(rank, *request.collective, otherRank,
                                     *other.collective);
  if (request.transfer && other.transfer &&
      request.transfer->where == other.transfer->where)
    return "";
  if (request.subject && other.subject && *request.subject == *other.subject &&
      *request.what == *other.what)
    return "";
  auto text = [](const Request &request) {
    return request.subject ? *request.subject + " '" + *request.what + "'"
                           : request.where();
  };
  return "rank " + std::to_string(rank) + " has " + text(request) + ", rank " +
         std::to_string(otherRank) + " has " + text(other);
}

class Group : public LocalGroup {
public:
  Group(const Mesh &mesh, double limitSeconds)
      : mesh(mesh), limitSeconds(limitSeconds),
        members(static_cast<size_t>(mesh.numRanks())) {}

  Result<std::unique_ptr<Communicator>> join(int64_t rank,
                                             Device &device) override;
  void leave(int64_t rank);

  /// Waits until all ranks have come with such a request, calls `work`, and
  /// returns when all ranks are done with theirs. Until then the requests of
  /// other ranks, and the memory that they name, can be read.
  template <typename Work>
  Status meet(int64_t rank, const Request &request, Work work);

  Status check() {
    std::lock_guard<std::mutex> lock(mutex);
    return failure;
  }

  /// The first failure, which is `status` if there is no earlier one.
  Status fail(Status status) {
    std::lock_guard<std::mutex> lock(mutex);
    return failLocked(std::move(status));
  }

  const Collective &collective(int64_t rank) const {
    return *member(rank).request->collective;
  }
  const Transfer &transfer(int64_t rank) const {
    return *member(rank).request->transfer;
  }

  const Mesh mesh;

private:
  struct Member {
    bool joined = false;
    bool left = false;
    /// What the rank waits for.
    const Request *request = nullptr;
  };

  Member &member(int64_t rank) { return members[static_cast<size_t>(rank)]; }
  const Member &member(int64_t rank) const {
    return members[static_cast<size_t>(rank)];
  }

  /// The ranks for which `test` of the member holds.
  template <typename Test>
  std::vector<int64_t> ranksThat(Test test) const {
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      if (test(member(rank)))
        ranks.push_back(rank);
    return ranks;
  }

  Status failLocked(Status status);
  Status checkOthers(int64_t rank, const Request &request) const;
  Status describeMissing(const Request &request) const;

  const double limitSeconds;
  std::mutex mutex;
  /// One of the things below has changed.
  std::condition_variable changed;
  std::vector<Member> members;
  /// Ranks that wait for others to come.
  size_t numWaiting = 0;
  /// Ranks that are not done with the call in which all have met.
  size_t numWorking = 0;
  /// Calls in which all ranks have met.
  uint64_t numMet = 0;
  /// Success as long as the group is whole.
  Status failure;
};

class LocalCommunicator : public Communicator {
public:
  LocalCommunicator(std::shared_ptr<Group> group, int64_t rank, Device &device)
      : group(std::move(group)), ownRank(rank), device(device) {}
  ~LocalCommunicator() override { group->leave(ownRank); }

  const Mesh &mesh() const override { return group->mesh; }
  int64_t rank() const override { return ownRank; }

  Status agree(const std::string &subject, const std::string &what) override {
    Request request;
    request.subject = &subject;
    request.what = &what;
    return group->meet(ownRank, request, [] {});
  }

  Status run(Stream &stream, const Collective &collective) override;
  Status transfer(Stream &stream, const Transfer &transfer) override;

  /// Collectives are done when run() returns.
  Status synchronize(Stream &stream) override {
    MOERT_CHECK(check());
    return device.synchronize(stream);
  }

  Status check() override { return group->check(); }

  void abort(const std::string &reason) override {
    (void)group->fail(unavailable("rank " + std::to_string(ownRank) +
                                  ": aborted: " + reason));
  }

private:
  void receive(const Collective &collective, size_t part, char *out) const;
  Status copyOut(const Collective &collective,
                 std::vector<CollectivePart> &parts);
  Status copyMessages(const Transfer &own) const;

  const std::shared_ptr<Group> group;
  const int64_t ownRank;
  Device &device;
  /// What is sent and received, part by part, in host memory.
  std::vector<char> staging;
};

} // namespace

Result<std::shared_ptr<LocalGroup>> LocalGroup::create(const Mesh &mesh,
                                                       double limitSeconds) {
  MOERT_CHECK(checkMesh(mesh));
  MOERT_CHECK(checkLimit(limitSeconds));
  return std::shared_ptr<LocalGroup>(
      std::make_shared<Group>(mesh, limitSeconds));
}

//===----------------------------------------------------------------------===//
// Ranks that meet
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<Communicator>> Group::join(int64_t rank,
                                                  Device &device) {
  if (rank < 0 || rank >= mesh.numRanks())
    return outOfRange("rank " + std::to_string(rank) + " joins a group of " +
                      mesh.str() + ", which has the ranks 0 to " +
                      std::to_string(mesh.numRanks() - 1));
  std::lock_guard<std::mutex> lock(mutex);
  MOERT_CHECK(failure);
  if (member(rank).joined)
    return invalidArgument("rank " + std::to_string(rank) +
                           " has joined before; each rank joins once, and a "
                           "rank that has left needs a new group");
  member(rank).joined = true;
  return std::unique_ptr<Communicator>(std::make_unique<LocalCommunicator>(
      std::static_pointer_cast<Group>(shared_from_this()), rank, device));
}

void Group::leave(int64_t rank) {
  std::lock_guard<std::mutex> lock(mutex);
  member(rank).left = true;
  std::vector<int64_t> waiting =
      ranksThat([](const Member &member) { return member.request != nullptr; });
  if (numWaiting > 0 && failure.isOk())
    (void)failLocked(unavailable(
        member(waiting[0]).request->where() + ": rank " + std::to_string(rank) +
        " has left, its communicator is gone, while " + ranksText(waiting) +
        " wait; look for an earlier error of rank " + std::to_string(rank)));
}

Status Group::failLocked(Status status) {
  if (failure.isOk()) {
    failure = std::move(status);
    changed.notify_all();
  }
  return failure;
}

/// Success where nobody is known not to come, and those that wait have come for
/// the same.
Status Group::checkOthers(int64_t rank, const Request &request) const {
  std::vector<int64_t> gone =
      ranksThat([](const Member &member) { return member.left; });
  if (!gone.empty())
    return unavailable(request.where() + ": " + ranksText(gone) +
                       " left before this call, for which rank " +
                       std::to_string(rank) +
                       " has come; all ranks make the same calls");
  for (int64_t other = 0; other < mesh.numRanks(); ++other)
    if (member(other).request) {
      // In the order of ranks, whoever came first.
      const Request &otherRequest = *member(other).request;
      std::string difference =
          rank < other ? describeDifference(rank, request, other, otherRequest)
                       : describeDifference(other, otherRequest, rank, request);
      if (!difference.empty())
        return invalidArgument(request.where() +
                               ": ranks differ: " + difference +
                               "; give all ranks the same package and the "
                               "same number of tokens");
      break;
    }
  return Status::ok();
}

Status Group::describeMissing(const Request &request) const {
  std::vector<int64_t> missing =
      ranksThat([](const Member &member) { return member.request == nullptr; });
  std::vector<int64_t> neverJoined =
      ranksThat([](const Member &member) { return !member.joined; });
  return unavailable(
      request.where() + ": " + ranksText(missing) + " did not come within " +
      secondsText(limitSeconds) +
      (neverJoined.empty() ? ""
                           : " (" + ranksText(neverJoined) + " never joined)") +
      "; look for an earlier error there, or give a longer limit");
}

template <typename Work>
Status Group::meet(int64_t rank, const Request &request, Work work) {
  std::unique_lock<std::mutex> lock(mutex);
  MOERT_CHECK(failure);
  if (Status status = checkOthers(rank, request); !status)
    return failLocked(std::move(status));
  member(rank).request = &request;
  if (numWaiting + 1 == members.size()) {
    numWaiting = 0;
    numWorking = members.size();
    ++numMet;
    changed.notify_all();
  } else {
    ++numWaiting;
    uint64_t metBefore = numMet;
    // What steady_clock can count is far less than a double.
    auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(std::min(limitSeconds, 1e9)));
    bool inTime =
        changed.wait_until(lock, std::chrono::steady_clock::now() + limit, [&] {
          return numMet != metBefore || !failure.isOk();
        });
    if (!inTime)
      (void)failLocked(describeMissing(request));
    if (numMet == metBefore)
      return failure;
  }
  lock.unlock();
  work();
  lock.lock();
  // Whatever has failed, nobody returns while another rank reads its memory:
  // the work of each is to copy and add, which ends by itself.
  if (--numWorking == 0) {
    for (Member &member : members)
      member.request = nullptr;
    changed.notify_all();
  } else {
    changed.wait(lock, [&] { return numWorking == 0; });
  }
  return failure;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Elements that a rank receives, as a multiple of a part's count.
static size_t receivedParts(const Mesh &mesh, const Collective &collective) {
  return collective.kind == CollectiveKind::AllGather
             ? static_cast<size_t>(mesh.size(collective.axis))
             : 1;
}

static size_t sentParts(const Mesh &mesh, const Collective &collective) {
  return collective.kind == CollectiveKind::ReduceScatter
             ? static_cast<size_t>(mesh.size(collective.axis))
             : 1;
}

void LocalCommunicator::receive(const Collective &collective, size_t part,
                                char *out) const {
  size_t bytes = partBytes(collective.parts[part]);
  if (bytes == 0)
    return;
  std::vector<const void *> sources;
  int64_t size = mesh().size(collective.axis);
  for (int64_t i = 0; i < size; ++i) {
    int64_t peer = mesh().peer(collective.axis, ownRank, i);
    auto *source =
        static_cast<const char *>(group->collective(peer).parts[part].send);
    if (collective.kind == CollectiveKind::ReduceScatter)
      source +=
          bytes * static_cast<size_t>(mesh().index(collective.axis, ownRank));
    sources.push_back(source);
  }
  if (collective.kind == CollectiveKind::AllGather) {
    for (size_t i = 0; i < sources.size(); ++i)
      memcpy(out + i * bytes, sources[i], bytes);
    return;
  }
  const CollectivePart &own = collective.parts[part];
  sumRanks(own.dtype, sources, out, static_cast<size_t>(own.count));
}

Status LocalCommunicator::run(Stream &stream, const Collective &collective) {
  MOERT_CHECK(check());
  Status ready = checkCollective(mesh(), collective);
  if (ready)
    ready = device.synchronize(stream).withContext(collective.where);
  if (!ready)
    return group->fail(ready.withContext("rank " + std::to_string(ownRank)));

  std::vector<CollectivePart> parts(collective.parts,
                                    collective.parts + collective.numParts);
  Status copied = copyOut(collective, parts);
  if (!copied)
    return group->fail(copied.withContext("rank " + std::to_string(ownRank)));
  Collective onHost = collective;
  onHost.parts = parts.data();
  Request request;
  request.collective = &onHost;
  MOERT_CHECK(group->meet(ownRank, request, [&] {
    for (size_t i = 0; i < parts.size(); ++i)
      receive(onHost, i, static_cast<char *>(parts[i].receive));
  }));
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t bytes = partBytes(parts[i]) * receivedParts(mesh(), collective);
    if (bytes > 0)
      copied =
          device.copyIn(collective.parts[i].receive, parts[i].receive, bytes);
    if (!copied)
      return group->fail(copied.withContext("rank " + std::to_string(ownRank)));
  }
  return Status::ok();
}

/// What other ranks send to this one, all of it in host memory.
Status LocalCommunicator::copyMessages(const Transfer &own) const {
  auto messagesOf = [](const std::vector<Message> &all, int64_t rank) {
    std::vector<const Message *> found;
    for (const Message &message : all)
      if (message.rank == rank)
        found.push_back(&message);
    return found;
  };
  for (int64_t rank = 0; rank < mesh().numRanks(); ++rank) {
    std::vector<const Message *> sent =
        messagesOf(group->transfer(rank).sends, ownRank);
    std::vector<const Message *> received = messagesOf(own.receives, rank);
    std::string ranks = "rank " + std::to_string(rank) + " sends rank " +
                        std::to_string(ownRank) + " ";
    if (sent.size() != received.size())
      return invalidArgument(own.where + ": " + ranks +
                             std::to_string(sent.size()) + " messages, and " +
                             std::to_string(received.size()) +
                             " are expected there");
    for (size_t i = 0; i < sent.size(); ++i) {
      if (sent[i]->bytes != received[i]->bytes)
        return invalidArgument(
            own.where + ": " + ranks + std::to_string(sent[i]->bytes) +
            " bytes in message " + std::to_string(i) + ", and " +
            std::to_string(received[i]->bytes) + " are expected there");
      if (sent[i]->bytes > 0)
        memcpy(received[i]->data, sent[i]->data,
               static_cast<size_t>(sent[i]->bytes));
    }
  }
  return Status::ok();
}

Status LocalCommunicator::transfer(Stream &stream, const Transfer &transfer) {
  MOERT_CHECK(check());
  auto failed = [&](const Status &status) {
    return group->fail(status.withContext("rank " + std::to_string(ownRank)));
  };
  if (Status status = checkTransfer(mesh(), transfer); !status)
    return failed(status);
  if (Status status = device.synchronize(stream); !status)
    return failed(status.withContext(transfer.where));

  Transfer onHost = transfer;
  size_t total = 0;
  for (auto *messages : {&onHost.sends, &onHost.receives})
    for (const Message &message : *messages)
      total += static_cast<size_t>(message.bytes);
  staging.resize(total);
  char *next = staging.data();
  for (auto *messages : {&onHost.sends, &onHost.receives})
    for (Message &message : *messages) {
      auto bytes = static_cast<size_t>(message.bytes);
      if (messages == &onHost.sends && bytes > 0)
        if (Status status = device.copyOut(next, message.data, bytes); !status)
          return failed(status.withContext(transfer.where));
      message.data = next;
      next += bytes;
    }
  Request request;
  request.transfer = &onHost;
  MOERT_CHECK(group->meet(ownRank, request, [&] {
    if (Status status = copyMessages(onHost); !status)
      (void)group->fail(status);
  }));
  for (size_t i = 0; i < transfer.receives.size(); ++i) {
    const Message &message = transfer.receives[i];
    if (message.bytes == 0)
      continue;
    Status status = device.copyIn(message.data, onHost.receives[i].data,
                                  static_cast<size_t>(message.bytes));
    if (!status)
      return failed(status.withContext(transfer.where));
  }
  return Status::ok();
}

/// What is sent to host memory, where other ranks read it; `parts` are there
/// afterwards.
Status LocalCommunicator::copyOut(const Collective &collective,
                                  std::vector<CollectivePart> &parts) {
  size_t total = 0;
  auto sentBytes = [&](const CollectivePart &part) {
    return partBytes(part) * sentParts(mesh(), collective);
  };
  // Sums read elements as numbers, which have to lie where such may.
  auto roundedUp = [](size_t bytes) {
    constexpr size_t alignment = alignof(std::max_align_t);
    return (bytes + alignment - 1) / alignment * alignment;
  };
  auto receivedBytes = [&](const CollectivePart &part) {
    return partBytes(part) * receivedParts(mesh(), collective);
  };
  for (const CollectivePart &part : parts)
    total += roundedUp(sentBytes(part)) + roundedUp(receivedBytes(part));
  staging.resize(total);
  char *next = staging.data();
  for (CollectivePart &part : parts) {
    if (sentBytes(part) > 0)
      MOERT_CHECK(device.copyOut(next, part.send, sentBytes(part)));
    part.send = next;
    next += roundedUp(sentBytes(part));
    part.receive = next;
    next += roundedUp(receivedBytes(part));
  }
  return Status::ok();
}

} // namespace moert
