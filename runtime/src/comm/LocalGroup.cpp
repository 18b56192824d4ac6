//===- LocalGroup.cpp - ranks that are threads of a process -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/LocalGroup.h"
#include "../support/Check.h"
#include "Collectives.h"
#include "Request.h"
#include "StagedMessages.h"
#include "Staging.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace moert {

LocalGroup::~LocalGroup() = default;

namespace {

class Group : public LocalGroup {
public:
  Group(const Mesh &mesh, double limitSeconds)
      : mesh(mesh), limitSeconds(limitSeconds),
        members(static_cast<size_t>(mesh.numRanks())) {}

  Result<std::unique_ptr<Communicator>> join(int64_t rank,
                                             Device &device) override;
  void leave(int64_t rank);

  /// Waits until all ranks have made the same request, calls `work`, and
  /// returns when all ranks have finished theirs. Until then other ranks'
  /// requests, and memory that they point to, can be read.
  template <typename Work>
  Status meet(int64_t rank, const Request &request, Work work);

  Status check() {
    std::lock_guard<std::mutex> lock(mutex);
    return failure;
  }

  /// Returns the first failure: `status` unless there is an earlier one.
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
    /// The request that the rank waits with.
    const Request *request = nullptr;
  };

  Member &member(int64_t rank) { return members[static_cast<size_t>(rank)]; }
  const Member &member(int64_t rank) const {
    return members[static_cast<size_t>(rank)];
  }

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
  /// Signals a change of the fields below.
  std::condition_variable changed;
  std::vector<Member> members;
  /// Ranks waiting for others to arrive.
  size_t numWaiting = 0;
  /// Ranks that have not finished the current call.
  size_t numWorking = 0;
  /// Number of calls in which all ranks have met.
  uint64_t numMet = 0;
  /// Success until the first failure of the group.
  Status failure;
};

class LocalCommunicator : public Communicator {
public:
  LocalCommunicator(std::shared_ptr<Group> group, int64_t rank, Device &device)
      : group(std::move(group)), ownRank(rank), device(device),
        staging(this->group->mesh, device),
        messages(this->group->mesh, device) {}
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

  /// Collectives are complete when run() returns.
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
  void receive(size_t part) const;
  /// Fails the group with this rank's error.
  Status ofRank(const Status &status) {
    return group->fail(status.withContext("rank " + std::to_string(ownRank)));
  }

  const std::shared_ptr<Group> group;
  const int64_t ownRank;
  Device &device;
  Staging staging;
  StagedMessages messages;
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
// Meeting of ranks
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
                           " has joined already; each rank joins once, and a "
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
    (void)failLocked(
        describeLeaving(*member(waiting[0]).request, rank, waiting));
}

Status Group::failLocked(Status status) {
  if (failure.isOk()) {
    failure = std::move(status);
    changed.notify_all();
  }
  return failure;
}

/// Success if no rank is known to have left, and waiting ranks have made the
/// same request.
Status Group::checkOthers(int64_t rank, const Request &request) const {
  std::vector<int64_t> gone =
      ranksThat([](const Member &member) { return member.left; });
  if (!gone.empty())
    return describeGone(request, rank, gone);
  for (int64_t other = 0; other < mesh.numRanks(); ++other)
    if (member(other).request)
      return checkSame(rank, request, other, *member(other).request);
  return Status::ok();
}

Status Group::describeMissing(const Request &request) const {
  std::vector<int64_t> missing =
      ranksThat([](const Member &member) { return member.request == nullptr; });
  std::vector<int64_t> neverJoined =
      ranksThat([](const Member &member) { return !member.joined; });
  return moert::describeMissing(
      request, missing, limitSeconds,
      neverJoined.empty() ? ""
                          : " (" + ranksText(neverJoined) + " never joined)");
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
    // The range of steady_clock is far smaller than that of a double.
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
  // Even after a failure no rank may return while another reads its memory. The
  // work of each rank is to copy and add, which always ends.
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

void LocalCommunicator::receive(size_t part) const {
  const Collective &collective = staging.onHost();
  int64_t index = mesh().index(collective.axis, ownRank);
  std::vector<const void *> sources;
  for (int64_t i = 0; i < mesh().size(collective.axis); ++i)
    sources.push_back(
        sentTo(group->collective(mesh().peer(collective.axis, ownRank, i)),
               part, index));
  staging.receive(part, sources);
}

Status LocalCommunicator::run(Stream &stream, const Collective &collective) {
  MOERT_CHECK(check());
  if (Status copied = staging.copyOut(stream, collective); !copied)
    return ofRank(copied);
  Request request;
  request.collective = &staging.onHost();
  MOERT_CHECK(group->meet(ownRank, request, [&] {
    for (size_t i = 0; i < collective.numParts; ++i)
      receive(i);
  }));
  if (Status copied = staging.copyIn(collective); !copied)
    return ofRank(copied);
  return Status::ok();
}

Status LocalCommunicator::transfer(Stream &stream, const Transfer &transfer) {
  MOERT_CHECK(check());
  if (Status copied = messages.copyOut(stream, transfer); !copied)
    return ofRank(copied);
  Request request;
  request.transfer = &messages.onHost();
  MOERT_CHECK(group->meet(ownRank, request, [&] {
    std::vector<const Transfer *> all;
    for (int64_t rank = 0; rank < mesh().numRanks(); ++rank)
      all.push_back(&group->transfer(rank));
    if (Status status = checkMessages(all); !status) {
      (void)group->fail(status);
      return;
    }
    for (int64_t rank = 0; rank < mesh().numRanks(); ++rank)
      messages.receive(ownRank, rank, group->transfer(rank));
  }));
  if (Status copied = messages.copyIn(transfer); !copied)
    return ofRank(copied);
  return Status::ok();
}

} // namespace moert
