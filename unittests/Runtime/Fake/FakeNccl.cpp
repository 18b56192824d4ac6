//===- FakeNccl.cpp - an emulation of NCCL on the host --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FakeNccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

using namespace moert::nccl;
using moert::test::FakeNccl;

namespace {

FakeNccl state;
std::mutex mutex;

/// The thread's rank, set by fakeNcclSetRank().
thread_local int threadRank = 0;

enum class Kind {
  AllGather,
  ReduceScatter,
  AllReduce,
  Send,
  Receive,
  Messages
};

/// Memory of one send or receive.
struct Block {
  void *memory;
  size_t bytes;
};

struct Op {
  Kind kind;
  const void *send;
  void *receive;
  size_t count;
  ncclDataType_t type;
  ncclStream_t stream;
  /// For Send and Receive.
  int peer = 0;
  /// For Messages: the blocks that a group's calls send to and receive from
  /// each rank.
  std::map<int, std::vector<Block>> sends = {}, receives = {};
};

struct Clique;

struct Comm {
  std::shared_ptr<Clique> clique;
  /// Rank in this communicator, and in the first one.
  int rank = 0, worldRank = 0;
  /// The result of ncclCommGetAsyncError while nothing is in progress.
  ncclResult_t asyncError = ncclSuccess;
  int pollsLeft = 0;
  bool isFinalized = false;
  std::vector<Op> given;
  size_t numDone = 0;
  /// A split in progress: the destination of the new communicator.
  ncclComm_t *splitOut = nullptr;
  Comm *splitMade = nullptr;
  size_t numSplits = 0;
};

/// The ranks of a communicator.
struct Clique {
  size_t numRanks = 0;
  std::map<int, Comm *> members;
  size_t numFinalized = 0;
  /// Whether all ranks have joined; some may have left since.
  bool hasMet = false;
  /// Per split so far: the callers, by color and key.
  struct Split {
    size_t numCalled = 0;
    std::map<int, std::map<int, Comm *>> groups;
  };
  std::map<size_t, Split> splits;

  void add(int rank, Comm *comm) {
    members[rank] = comm;
    hasMet = members.size() == numRanks;
  }
};

std::set<Comm *> alive;
std::map<int, std::shared_ptr<Clique>> cliques;
int numIds = 0;
std::map<ncclStream_t, int> pending;

thread_local int groupDepth = 0;
/// Whether a call of the group has failed.
thread_local bool groupHasFailed = false;
thread_local std::vector<std::pair<Comm *, Op>> group;

Comm *commOf(ncclComm_t handle) { return reinterpret_cast<Comm *>(handle); }

ncclResult_t misuse(const std::string &text) {
  state.misuse.push_back(text);
  return ncclInvalidUsage;
}

ncclResult_t enter(const char *call, int rank) {
  std::vector<std::string> &calls = state.calls[rank];
  calls.emplace_back(call);
  if (rank != state.failRank || call != state.failCall ||
      std::count(calls.begin(), calls.end(), call) != state.failAt)
    return ncclSuccess;
  state.hasFailed = true;
  groupHasFailed = groupDepth > 0;
  return state.failCode;
}

bool isReady(const Comm &comm) {
  const Clique &clique = *comm.clique;
  if (!clique.hasMet || comm.pollsLeft > 0)
    return false;
  if (comm.isFinalized && clique.numFinalized < clique.numRanks)
    return false;
  if (!comm.splitMade)
    return true;
  return clique.splits.at(comm.numSplits - 1).numCalled == clique.numRanks;
}

/// Success if `call` may use `comm`.
ncclResult_t checkUse(const char *call, Comm *comm) {
  if (!alive.count(comm))
    return misuse(std::string(call) + " of a communicator that is gone");
  if (comm->asyncError != ncclSuccess)
    return misuse(std::string(call) + " after a failure");
  if (!isReady(*comm))
    return misuse(std::string(call) + " while a call is in progress");
  return ncclSuccess;
}

size_t bytesOf(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 2;
}

/// Sums element `i` of every rank's `send`; does nothing for types other than
/// f32.
void sum(const std::vector<Op> &ops, size_t first, const Op &own) {
  if (own.type != ncclFloat32)
    return;
  for (size_t i = 0; i < own.count; ++i) {
    float total = 0;
    for (const Op &op : ops)
      total += static_cast<const float *>(op.send)[first + i];
    static_cast<float *>(own.receive)[i] = total;
  }
}

/// The next operation of a rank, or null.
const Op *next(const Comm *comm) {
  return comm && comm->numDone < comm->given.size()
             ? &comm->given[comm->numDone]
             : nullptr;
}

void finish(Comm *comm) { --pending[comm->given[comm->numDone++].stream]; }

/// Does a collective if all ranks have enqueued it.
bool advanceCollective(Clique &clique) {
  std::vector<Op> ops;
  for (auto &[rank, member] : clique.members)
    if (const Op *op = next(member); op && op->kind != Kind::Messages)
      ops.push_back(*op);
  if (ops.size() != clique.numRanks)
    return false;
  for (auto &[rank, member] : clique.members)
    finish(member);
  for (size_t rank = 0; rank < ops.size(); ++rank) {
    const Op &op = ops[rank];
    if (op.kind != ops[0].kind || op.count != ops[0].count ||
        op.type != ops[0].type)
      misuse("ranks give different collectives");
    size_t bytes = op.count * bytesOf(op.type);
    if (op.kind == Kind::AllGather)
      for (size_t i = 0; i < ops.size(); ++i)
        memmove(static_cast<char *>(op.receive) + i * bytes, ops[i].send,
                bytes);
    else
      sum(ops, op.kind == Kind::ReduceScatter ? rank * op.count : 0, op);
  }
  return true;
}

/// The ranks connected to a rank by messages, if all of them have reached these
/// messages; the next message between two may be queued behind others.
bool findTied(Clique &clique, int rank, std::map<int, Comm *> &tied) {
  auto found = clique.members.find(rank);
  Comm *comm = found == clique.members.end() ? nullptr : found->second;
  const Op *op = next(comm);
  if (!op || op->kind != Kind::Messages)
    return false;
  if (!tied.emplace(rank, comm).second)
    return true;
  auto isMet = [&](const std::map<int, std::vector<Block>> &blocks,
                   std::map<int, std::vector<Block>> Op::*others) {
    return std::all_of(blocks.begin(), blocks.end(), [&](const auto &block) {
      return findTied(clique, block.first, tied) &&
             (next(tied.at(block.first))->*others).count(rank) > 0;
    });
  };
  return isMet(op->sends, &Op::receives) && isMet(op->receives, &Op::sends);
}

/// Copies messages between ranks.
void deliver(const std::map<int, Comm *> &tied) {
  for (const auto &[rank, comm] : tied) {
    for (const auto &[peer, blocks] : next(comm)->receives) {
      const std::vector<Block> &sent = next(tied.at(peer))->sends.at(rank);
      if (sent.size() != blocks.size())
        misuse("a rank receives other messages than it is sent");
      for (size_t i = 0; i < std::min(sent.size(), blocks.size()); ++i) {
        if (sent[i].bytes != blocks[i].bytes)
          misuse("a message has other sizes on both sides");
        memmove(blocks[i].memory, sent[i].memory,
                std::min(blocks[i].bytes, sent[i].bytes));
      }
    }
  }
}

bool advanceMessages(Clique &clique) {
  for (auto &[rank, member] : clique.members) {
    std::map<int, Comm *> tied;
    if (!findTied(clique, rank, tied))
      continue;
    deliver(tied);
    for (auto &[peer, comm] : tied)
      finish(comm);
    return true;
  }
  return false;
}

/// Does the enqueued work of the ranks.
void advance(Clique &clique) {
  while (advanceCollective(clique) || advanceMessages(clique))
    ;
}

/// Merges the sends and receives of a group on one communicator into one
/// operation.
void joinBlocks(std::vector<std::pair<Comm *, Op>> &ops) {
  std::vector<std::pair<Comm *, Op>> joined;
  std::map<Comm *, size_t> places;
  for (auto &[comm, op] : ops) {
    if (op.kind != Kind::Send && op.kind != Kind::Receive) {
      joined.emplace_back(comm, op);
      continue;
    }
    auto [place, isNew] = places.try_emplace(comm, joined.size());
    if (isNew)
      joined.emplace_back(
          comm, Op{Kind::Messages, nullptr, nullptr, 0, op.type, op.stream});
    Op &all = joined[place->second].second;
    size_t bytes = op.count * bytesOf(op.type);
    if (op.kind == Kind::Send)
      all.sends[op.peer].push_back({const_cast<void *>(op.send), bytes});
    else
      all.receives[op.peer].push_back({op.receive, bytes});
  }
  ops = std::move(joined);
}

void end(Comm *comm) {
  for (size_t i = comm->numDone; i < comm->given.size(); ++i)
    --pending[comm->given[i].stream];
  if (comm->clique->members[comm->rank] == comm)
    comm->clique->members.erase(comm->rank);
  // A new communicator that was never handed out ends with its parent.
  if (comm->splitMade && comm->splitOut) {
    --state.numAlive;
    alive.erase(comm->splitMade);
    delete comm->splitMade;
  }
  --state.numAlive;
  alive.erase(comm);
  delete comm;
}

ncclResult_t give(const char *call, Comm *comm, const Op &op,
                  const std::string &text) {
  if (ncclResult_t failed = enter(call, threadRank))
    return failed;
  if (ncclResult_t failed = checkUse(call, comm))
    return failed;
  if (comm->worldRank == 0)
    state.collectives.push_back(std::string(call) + " " + text + " " +
                                std::to_string(op.count));
  if (groupDepth > 0) {
    group.emplace_back(comm, op);
    return ncclSuccess;
  }
  comm->given.push_back(op);
  ++pending[op.stream];
  comm->pollsLeft = state.numPolls;
  advance(*comm->clique);
  return comm->pollsLeft > 0 ? ncclInProgress : ncclSuccess;
}

/// Enqueues a send or a receive.
ncclResult_t giveBlock(const char *call, ncclComm_t comm, const Op &op) {
  std::lock_guard<std::mutex> alone(mutex);
  if (groupDepth == 0)
    return misuse(std::string(call) + " outside of a group");
  return give(call, commOf(comm), op,
              std::to_string(op.type) + " rank " + std::to_string(op.peer));
}

void checkConfig(const char *call, const ncclConfig_t &config) {
  if (config.blocking != 0)
    misuse(std::string(call) + " of a blocking communicator");
  if (config.size != 48 || config.magic != 0xcafebeef)
    misuse(std::string(call) + " with a wrong configuration");
}

} // namespace

#define ENTER(rank)                                                            \
  if (state.delay > 0)                                                         \
    std::this_thread::sleep_for(std::chrono::milliseconds(state.delay));       \
  std::lock_guard<std::mutex> alone(mutex);                                    \
  ncclResult_t entered = enter(__func__, rank);

#define ENTER_OR_FAIL                                                          \
  ENTER(threadRank)                                                            \
  if (entered)                                                                 \
  return entered

extern "C" {

FakeNccl *fakeNcclState() { return &state; }

void fakeNcclReset() {
  std::lock_guard<std::mutex> alone(mutex);
  state = FakeNccl();
  cliques.clear();
  pending.clear();
}

void fakeNcclSetRank(int rank) { threadRank = rank; }

bool fakeNcclIsBusy(ncclStream_t stream) {
  std::lock_guard<std::mutex> alone(mutex);
  auto found = pending.find(stream);
  return found != pending.end() && found->second > 0;
}

bool fakeNcclIsEmpty() {
  std::lock_guard<std::mutex> alone(mutex);
  return state.numAlive == 0;
}

void fakeNcclLetAbortEnd() {
  std::lock_guard<std::mutex> alone(mutex);
  state.abortHangs = false;
}

const char *ncclGetErrorString(ncclResult_t) { return "what NCCL says"; }

const char *ncclGetLastError(ncclComm_t) { return "the last error"; }

ncclResult_t ncclGetVersion(int *version) {
  *version = state.version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ENTER_OR_FAIL;
  int number = ++numIds;
  memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int numRanks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ENTER_OR_FAIL;
  checkConfig("ncclCommInitRankConfig", *config);
  int number = 0;
  memcpy(&number, id.internal, sizeof(number));
  std::shared_ptr<Clique> &clique = cliques[number];
  if (!clique)
    clique = std::make_shared<Clique>();
  clique->numRanks = static_cast<size_t>(numRanks);
  auto *comm = new Comm();
  comm->clique = clique;
  comm->rank = comm->worldRank = rank;
  comm->pollsLeft = state.numPolls;
  clique->add(rank, comm);
  alive.insert(comm);
  ++state.numAlive;
  *made = reinterpret_cast<ncclComm_t>(comm);
  return isReady(*comm) ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key,
                           ncclComm_t *made, ncclConfig_t *config) {
  ENTER_OR_FAIL;
  checkConfig("ncclCommSplit", *config);
  Comm *comm = commOf(handle);
  if (ncclResult_t failed = checkUse("ncclCommSplit", comm))
    return failed;
  auto *child = new Comm();
  child->clique = std::make_shared<Clique>();
  child->worldRank = comm->worldRank;
  child->pollsLeft = state.numPolls;
  alive.insert(child);
  ++state.numAlive;
  comm->splitOut = made;
  comm->splitMade = child;
  comm->pollsLeft = state.numPolls;
  Clique::Split &split = comm->clique->splits[comm->numSplits++];
  split.groups[color][key] = child;
  if (++split.numCalled == comm->clique->numRanks)
    for (auto &[color, members] : split.groups) {
      auto clique = std::make_shared<Clique>();
      clique->numRanks = members.size();
      for (auto &[key, member] : members) {
        member->rank = static_cast<int>(clique->members.size());
        member->clique = clique;
        clique->add(member->rank, member);
      }
    }
  // NCCL makes the new communicator in the background.
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ENTER(threadRank);
  Comm *comm = commOf(handle);
  if (ncclResult_t failed = checkUse("ncclCommFinalize", comm))
    return failed;
  if (entered) {
    comm->asyncError = entered;
    return entered;
  }
  comm->isFinalized = true;
  ++comm->clique->numFinalized;
  comm->pollsLeft = state.numPolls;
  return isReady(*comm) ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  ENTER(threadRank);
  Comm *comm = commOf(handle);
  if (!alive.count(comm))
    return misuse("ncclCommDestroy of a communicator that is gone");
  if (comm->asyncError != ncclSuccess || !comm->isFinalized)
    misuse("ncclCommDestroy after a failure, or of what is not finalized");
  end(comm);
  return entered;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  while (true) {
    {
      std::lock_guard<std::mutex> alone(mutex);
      if (!state.abortHangs)
        break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::lock_guard<std::mutex> alone(mutex);
  Comm *comm = commOf(handle);
  if (!alive.count(comm))
    return misuse("ncclCommAbort of a communicator that is gone");
  ncclResult_t entered = enter("ncclCommAbort", comm->worldRank);
  end(comm);
  return entered;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error) {
  ENTER(threadRank);
  Comm *comm = commOf(handle);
  if (!alive.count(comm))
    return misuse("ncclCommGetAsyncError of a communicator that is gone");
  if (entered && !state.failsLater)
    return entered;
  if (entered)
    comm->asyncError = entered;
  else if (state.failureSpreads && state.hasFailed &&
           threadRank != state.failRank)
    comm->asyncError = ncclRemoteError;
  if (comm->asyncError != ncclSuccess || isReady(*comm)) {
    if (comm->splitOut) {
      *comm->splitOut = reinterpret_cast<ncclComm_t>(comm->splitMade);
      comm->splitOut = nullptr;
      comm->splitMade = nullptr;
    }
    *error = comm->asyncError;
    return ncclSuccess;
  }
  if (comm->pollsLeft > 0)
    --comm->pollsLeft;
  *error = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t handle, int *count) {
  ENTER_OR_FAIL;
  *count = static_cast<int>(commOf(handle)->clique->numRanks);
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t handle, int *rank) {
  ENTER_OR_FAIL;
  *rank = commOf(handle)->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t handle, int *device) {
  ENTER_OR_FAIL;
  // In tests a rank's GPU has its number.
  *device = commOf(handle)->worldRank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ENTER_OR_FAIL;
  ++groupDepth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  ENTER(threadRank);
  if (groupDepth == 0)
    return misuse("ncclGroupEnd without ncclGroupStart");
  --groupDepth;
  std::vector<std::pair<Comm *, Op>> ops;
  ops.swap(group);
  bool hasFailed = std::exchange(groupHasFailed, false);
  if (entered)
    return entered;
  // In this case none of the group is begun.
  if (hasFailed)
    return state.failCode;
  joinBlocks(ops);
  bool isDone = true;
  for (auto &[comm, op] : ops) {
    comm->given.push_back(op);
    ++pending[op.stream];
    comm->pollsLeft = state.numPolls;
    isDone = comm->pollsLeft == 0;
  }
  for (auto &[comm, op] : ops)
    advance(*comm->clique);
  return isDone ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           ncclStream_t stream) {
  std::lock_guard<std::mutex> alone(mutex);
  return give("ncclAllGather", commOf(comm),
              {Kind::AllGather, send, receive, count, type, stream},
              std::to_string(type));
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, ncclStream_t stream) {
  std::lock_guard<std::mutex> alone(mutex);
  return give("ncclReduceScatter", commOf(comm),
              {Kind::ReduceScatter, send, receive, count, type, stream},
              std::to_string(type) + " " + std::to_string(operation));
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, ncclStream_t stream) {
  return giveBlock("ncclSend", comm,
                   {Kind::Send, send, nullptr, count, type, stream, peer});
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, ncclStream_t stream) {
  return giveBlock(
      "ncclRecv", comm,
      {Kind::Receive, nullptr, receive, count, type, stream, peer});
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, ncclStream_t stream) {
  std::lock_guard<std::mutex> alone(mutex);
  return give("ncclAllReduce", commOf(comm),
              {Kind::AllReduce, send, receive, count, type, stream},
              std::to_string(type) + " " + std::to_string(operation));
}

} // extern "C"
