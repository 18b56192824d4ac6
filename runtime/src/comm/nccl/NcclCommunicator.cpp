//===- NcclCommunicator.cpp - ranks connected by NCCL -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/NcclCommunicator.h"
#include "../../cuda/Objects.h"
#include "../../support/Check.h"
#include "../../support/Sha256.h"
#include "../Collectives.h"
#include "Abort.h"
#include "moert/CudaDevice.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <thread>

namespace moert {

using namespace nccl;

namespace {

using Clock = std::chrono::steady_clock;

/// Interval of polling NCCL and the driver, after an initial time of polling
/// without pause, so that short operations are not delayed by the interval.
constexpr std::chrono::microseconds kPollInterval(200);
constexpr std::chrono::milliseconds kEagerTime(1);
/// Time that the destructor gives ncclCommAbort, in seconds.
constexpr double kAbortSeconds = 5;

/// A rank's text of agree(), as stored in device memory.
struct Statement {
  Sha256Digest digest = {};
  /// As much of the text as fits, terminated by 0.
  char text[224] = {};
};

class NcclRank : public NcclCommunicator {
public:
  explicit NcclRank(const NcclOptions &options) : options(options) {}
  ~NcclRank() override;

  /// The common part of create() and adopt().
  Status open();
  Status connect(const NcclUniqueId &id);
  Status splitFrom(ncclComm_t given);

  const Mesh &mesh() const override { return options.mesh; }
  int64_t rank() const override { return options.rank; }
  int ordinal() const override { return options.ordinal; }
  const std::string &library() const override { return nccl->name(); }

  Status agree(const std::string &subject, const std::string &what) override;
  Status run(Stream &stream, const Collective &collective) override;
  Status transfer(Stream &stream, const Transfer &transfer) override;
  Status allToAll(Stream &stream, MeshAxis axis, const void *send,
                  void *receive, int64_t bytes,
                  const std::string &where) override;
  Status check() override;
  void abort(const std::string &reason) override;
  Status synchronize(Stream &stream) override;

private:
  using Lock = std::unique_lock<std::mutex>;

  Status checkGiven(ncclComm_t given) const;
  Status split(Lock &lock, ncclComm_t from, int64_t color, int64_t key,
               ncclComm_t &made);
  Status makeAxes(Lock &lock);
  Status gatherStatements(Lock &lock, const std::string &where,
                          std::vector<Statement> &all);
  ncclComm_t commOf(MeshAxis axis) const {
    return axis == MeshAxis::Data ? data : tensor;
  }
  Status enqueue(ncclComm_t comm, ncclResult_t &state,
                 const std::function<Status()> &calls);
  Status checkTaken(ncclResult_t code, const char *call, ncclComm_t comm) const;
  Status runGroup(Lock &lock, ncclComm_t comm, const std::string &where,
                  const std::function<Status()> &calls);
  Status runOnAxis(Lock &lock, MeshAxis axis, const std::string &where,
                   const std::function<Status(ncclComm_t)> &calls);
  ncclResult_t enqueuePart(cuda::CUstream stream, CollectiveKind kind,
                           const CollectivePart &part, ncclComm_t comm,
                           const char *&call) const;

  /// Waits until `call`, which returned `code`, is done on `comm`.
  Status settle(Lock &lock, const std::string &where, const char *call,
                ncclComm_t comm, ncclResult_t code);
  Status finish(Lock &lock, const std::string &where, Stream &stream);
  Status askAll();
  Clock::duration limit() const;
  /// Fails if no time is left since `begin`, or after a failure.
  Status pause(Lock &lock, const std::string &where, const char *call,
               Clock::time_point begin);
  /// Breaks the communicator and returns the first failure.
  Status fail(const Status &status);

  const NcclOptions options;
  std::shared_ptr<const Library> nccl;
  std::shared_ptr<const cuda::Context> context;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> ownStream;
  /// One statement per rank.
  std::unique_ptr<Buffer> statements;

  /// Held during calls of NCCL on any of the communicators.
  std::mutex mutex;
  std::condition_variable broken;
  Status failure;
  /// Communicators made here and not yet ended, in order of creation.
  std::vector<ncclComm_t> comms;
  /// The communicators of all ranks and of the axes. The communicator of an
  /// axis with all ranks is `world`, that of an axis with one rank is null.
  ncclComm_t world = nullptr, data = nullptr, tensor = nullptr;
  std::vector<Abort> aborts;
};

} // namespace

Result<NcclUniqueId> makeNcclUniqueId(const std::string &library) {
  Result<std::shared_ptr<const Library>> opened = Library::open(library);
  if (!opened)
    return opened.status();
  ncclUniqueId made = {};
  MOERT_CHECK((*opened)->check((*opened)->ncclGetUniqueId(&made),
                               "ncclGetUniqueId", nullptr));
  NcclUniqueId id;
  static_assert(sizeof(made.internal) == std::tuple_size<NcclUniqueId>::value);
  memcpy(id.data(), made.internal, id.size());
  return id;
}

Result<std::unique_ptr<NcclCommunicator>>
NcclCommunicator::create(const NcclOptions &options, const NcclUniqueId &id) {
  auto made = std::make_unique<NcclRank>(options);
  MOERT_CHECK(made->open());
  MOERT_CHECK(made->connect(id));
  return std::unique_ptr<NcclCommunicator>(std::move(made));
}

Result<std::unique_ptr<NcclCommunicator>>
NcclCommunicator::adopt(const NcclOptions &options, void *ncclComm) {
  auto made = std::make_unique<NcclRank>(options);
  MOERT_CHECK(made->open());
  MOERT_CHECK(made->splitFrom(static_cast<ncclComm_t>(ncclComm)));
  return std::unique_ptr<NcclCommunicator>(std::move(made));
}

//===----------------------------------------------------------------------===//
// Creation and destruction
//===----------------------------------------------------------------------===//

Status NcclRank::open() {
  MOERT_CHECK(checkMesh(mesh()));
  MOERT_CHECK(checkLimit(options.limitSeconds));
  if (rank() < 0 || rank() >= mesh().numRanks())
    return outOfRange("rank " + std::to_string(rank()) + " of " + mesh().str() +
                      " was requested; 0 to " +
                      std::to_string(mesh().numRanks() - 1) + " exist");
  Result<std::shared_ptr<const Library>> library =
      Library::open(options.ncclLibrary);
  if (!library)
    return library.status();
  nccl = *library;
  Result<std::shared_ptr<cuda::Context>> made =
      cuda::Context::open(options.cudaLibrary, options.ordinal);
  if (!made)
    return made.status();
  context = *made;
  Result<std::unique_ptr<Device>> opened =
      createCudaDevice(options.ordinal, options.cudaLibrary);
  if (!opened)
    return opened.status();
  device = std::move(*opened);
  Result<std::unique_ptr<Stream>> stream = device->createStream();
  if (!stream)
    return stream.status();
  ownStream = std::move(*stream);
  // Allocate now: allocating waits for kernels, including NCCL's.
  Result<std::unique_ptr<Buffer>> buffer = device->allocate(
      sizeof(Statement) * static_cast<size_t>(mesh().numRanks()), 256);
  if (!buffer)
    return buffer.status();
  statements = std::move(*buffer);
  return Status::ok();
}

Status NcclRank::connect(const NcclUniqueId &id) {
  Lock lock(mutex);
  ncclUniqueId given = {};
  memcpy(given.internal, id.data(), id.size());
  ncclConfig_t config;
  config.blocking = 0;
  ncclResult_t code = ncclSuccess;
  Status status = context->within([&] {
    code = nccl->ncclCommInitRankConfig(&world, int(mesh().numRanks()), given,
                                        int(rank()), &config);
    return Status::ok();
  });
  if (world)
    comms.push_back(world);
  if (!status)
    return fail(status);
  MOERT_CHECK(
      settle(lock, "connecting", "ncclCommInitRankConfig", world, code));
  return makeAxes(lock);
}

Status NcclRank::checkGiven(ncclComm_t given) const {
  if (!given)
    return invalidArgument("the given communicator is null");
  int numRanks = 0, ownRank = 0, ordinal = 0;
  MOERT_CHECK(nccl->check(nccl->ncclCommCount(given, &numRanks),
                          "ncclCommCount", given));
  MOERT_CHECK(nccl->check(nccl->ncclCommUserRank(given, &ownRank),
                          "ncclCommUserRank", given));
  MOERT_CHECK(nccl->check(nccl->ncclCommCuDevice(given, &ordinal),
                          "ncclCommCuDevice", given));
  auto text = [](int64_t rank, int64_t numRanks, int64_t ordinal) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(numRanks) +
           " on GPU " + std::to_string(ordinal);
  };
  if (numRanks != mesh().numRanks() || ownRank != rank() ||
      ordinal != options.ordinal)
    return invalidArgument(
        "the given communicator is " + text(ownRank, numRanks, ordinal) +
        ", but the layer's is " +
        text(rank(), mesh().numRanks(), options.ordinal) + " (" + mesh().str() +
        "); give a communicator of the same ranks");
  return Status::ok();
}

Status NcclRank::splitFrom(ncclComm_t given) {
  MOERT_CHECK(checkGiven(given));
  Lock lock(mutex);
  // One color for all ranks: a communicator of the same ranks.
  MOERT_CHECK(split(lock, given, /*color=*/0, rank(), world));
  return makeAxes(lock);
}

Status NcclRank::split(Lock &lock, ncclComm_t from, int64_t color, int64_t key,
                       ncclComm_t &made) {
  ncclConfig_t config;
  config.blocking = 0;
  ncclResult_t code = ncclSuccess;
  Status status = context->within([&] {
    code = nccl->ncclCommSplit(from, int(color), int(key), &made, &config);
    return Status::ok();
  });
  if (!status)
    return fail(status);
  // NCCL sets `made` when the call is done, and then connects it. Until then
  // the state of the parent is in progress, whatever the call returned.
  if (code == ncclSuccess)
    code = ncclInProgress;
  status = settle(lock, "connecting", "ncclCommSplit", from, code);
  if (!status && made)
    aborts.emplace_back(nccl, std::vector<ncclComm_t>{made});
  MOERT_CHECK(status);
  if (made)
    comms.push_back(made);
  else
    return fail(internalError("ncclCommSplit made no communicator; run with "
                              "NCCL_DEBUG=INFO, and report it"));
  return settle(lock, "connecting", "ncclCommSplit", made, ncclInProgress);
}

/// Makes the communicators of the axes, in the same order on all ranks.
Status NcclRank::makeAxes(Lock &lock) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    ncclComm_t &made = axis == MeshAxis::Data ? data : tensor;
    MeshAxis other = axis == MeshAxis::Data ? MeshAxis::Tensor : MeshAxis::Data;
    if (mesh().size(axis) == mesh().numRanks())
      made = world;
    else if (mesh().size(axis) > 1)
      MOERT_CHECK(split(lock, world, mesh().index(other, rank()),
                        mesh().index(axis, rank()), made));
  }
  return Status::ok();
}

/// Leaks objects that cannot be freed safely.
static void keepForever(std::vector<std::shared_ptr<void>> objects) {
  static std::mutex mutex;
  static auto *kept = new std::vector<std::shared_ptr<void>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->insert(kept->end(), objects.begin(), objects.end());
}

NcclRank::~NcclRank() {
  {
    Lock lock(mutex);
    // Finalize the communicators of axes before their parent. All ranks do so,
    // and wait for each other.
    while (failure.isOk() && !comms.empty()) {
      ncclComm_t comm = comms.back();
      Status ended = settle(lock, "ending", "ncclCommFinalize", comm,
                            nccl->ncclCommFinalize(comm));
      if (!ended)
        break;
      comms.pop_back();
      (void)nccl->ncclCommDestroy(comm);
    }
  }
  bool isQuiet = true;
  for (const Abort &abort : aborts)
    isQuiet = abort.waitFor(kAbortSeconds) && isQuiet;
  // NCCL's kernels may still run, and freeing device memory would wait for them
  // forever.
  if (!isQuiet)
    keepForever(
        {std::move(statements), std::move(ownStream), std::move(device)});
}

//===----------------------------------------------------------------------===//
// Waiting and failing
//===----------------------------------------------------------------------===//

Status NcclRank::fail(const Status &status) {
  if (failure.isOk()) {
    failure = status.withContext("rank " + std::to_string(rank()));
    broken.notify_all();
    // Never ncclCommDestroy after a failure, since it may wait for other ranks.
    if (!comms.empty())
      aborts.emplace_back(nccl, std::move(comms));
    comms.clear();
  }
  return failure;
}

Clock::duration NcclRank::limit() const {
  // The range of steady_clock is far smaller than that of a double.
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(std::min(options.limitSeconds, 1e9)));
}

Status NcclRank::pause(Lock &lock, const std::string &where, const char *call,
                       Clock::time_point begin) {
  if (Clock::now() < begin + kEagerTime) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  } else {
    (void)broken.wait_for(lock, kPollInterval, [&] { return !failure.isOk(); });
  }
  MOERT_CHECK(failure);
  if (Clock::now() - begin < limit())
    return Status::ok();
  return fail(unavailable(
      where + ": " + call + " is not done after " +
      secondsText(options.limitSeconds) + ", so not all of the " +
      std::to_string(mesh().numRanks()) +
      " ranks have connected; NCCL does not say which: look for ranks that "
      "have not started or have ended, or give a longer limit"));
}

Status NcclRank::settle(Lock &lock, const std::string &where, const char *call,
                        ncclComm_t comm, ncclResult_t code) {
  Clock::time_point begin = Clock::now();
  while (true) {
    if (code != ncclInProgress) {
      Status status = nccl->check(code, call, comm);
      return status ? status : fail(status.withContext(where));
    }
    ncclResult_t asked = nccl->ncclCommGetAsyncError(comm, &code);
    if (asked != ncclSuccess)
      return fail(
          nccl->check(asked, "ncclCommGetAsyncError", comm).withContext(where));
    if (code == ncclInProgress)
      MOERT_CHECK(pause(lock, where, call, begin));
  }
}

/// Breaks the communicator if NCCL reports an asynchronous failure.
Status NcclRank::askAll() {
  for (ncclComm_t comm : comms) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = nccl->ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess)
      return fail(nccl->check(asked, "ncclCommGetAsyncError", comm));
    if (state != ncclSuccess && state != ncclInProgress)
      return fail(nccl->check(state, "a collective on a stream", comm));
  }
  return Status::ok();
}

Status NcclRank::finish(Lock &lock, const std::string &where, Stream &stream) {
  Clock::time_point begin = Clock::now();
  const cuda::Driver &driver = context->driver();
  while (true) {
    cuda::CUresult code = cuda::CUDA_SUCCESS;
    Status status = context->within([&] {
      code =
          driver.cuStreamQuery(static_cast<cuda::CudaStream &>(stream).handle);
      return Status::ok();
    });
    if (status && code != cuda::CUDA_ERROR_NOT_READY)
      status = driver.check(code, "cuStreamQuery");
    if (!status)
      return fail(status.withContext(where));
    if (code == cuda::CUDA_SUCCESS)
      return Status::ok();
    MOERT_CHECK(askAll());
    MOERT_CHECK(pause(lock, where, "the work of the stream", begin));
  }
}

Status NcclRank::synchronize(Stream &stream) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  return finish(lock, "synchronize", stream);
}

Status NcclRank::check() {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  return askAll();
}

void NcclRank::abort(const std::string &reason) {
  Lock lock(mutex);
  (void)fail(unavailable("aborted: " + reason));
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

static ncclDataType_t summedType(DType dtype) {
  return dtype == DType::F32    ? ncclFloat32
         : dtype == DType::BF16 ? ncclBfloat16
                                : ncclFloat16;
}

/// One call of NCCL; `call` is set to its name.
ncclResult_t NcclRank::enqueuePart(cuda::CUstream stream, CollectiveKind kind,
                                   const CollectivePart &part, ncclComm_t comm,
                                   const char *&call) const {
  auto count = static_cast<size_t>(part.count);
  switch (kind) {
  case CollectiveKind::AllGather:
    call = "ncclAllGather";
    return nccl->ncclAllGather(part.send, part.receive, partBytes(part),
                               ncclUint8, comm, stream);
  case CollectiveKind::ReduceScatter:
    call = "ncclReduceScatter";
    return nccl->ncclReduceScatter(part.send, part.receive, count,
                                   summedType(part.dtype), ncclSum, comm,
                                   stream);
  case CollectiveKind::AllReduce:
    call = "ncclAllReduce";
    return nccl->ncclAllReduce(part.send, part.receive, count,
                               summedType(part.dtype), ncclSum, comm, stream);
  }
  return ncclInvalidArgument;
}

/// Runs `calls` as one NCCL group; `state` is the result of ending it.
Status NcclRank::enqueue(ncclComm_t comm, ncclResult_t &state,
                         const std::function<Status()> &calls) {
  MOERT_CHECK(nccl->check(nccl->ncclGroupStart(), "ncclGroupStart", comm));
  Status status = calls();
  // End every group that was begun; the result includes errors of its calls.
  state = nccl->ncclGroupEnd();
  return status;
}

/// Success if NCCL has accepted a call of a group.
Status NcclRank::checkTaken(ncclResult_t code, const char *call,
                            ncclComm_t comm) const {
  return code == ncclInProgress ? Status::ok() : nccl->check(code, call, comm);
}

/// Runs a group of calls on a communicator.
Status NcclRank::runGroup(Lock &lock, ncclComm_t comm, const std::string &where,
                          const std::function<Status()> &calls) {
  ncclResult_t state = ncclSuccess;
  Status status = context->within([&] { return enqueue(comm, state, calls); });
  if (!status)
    return fail(status.withContext(where));
  return settle(lock, where, "ncclGroupEnd", comm, state);
}

/// Runs a group of calls on the communicator of an axis.
Status NcclRank::runOnAxis(Lock &lock, MeshAxis axis, const std::string &where,
                           const std::function<Status(ncclComm_t)> &calls) {
  ncclComm_t comm = commOf(axis);
  if (!comm)
    return fail(invalidArgument(where + ": the axis has one rank (" +
                                mesh().str() + "); remove the step"));
  return runGroup(lock, comm, where, [&] { return calls(comm); });
}

Status NcclRank::run(Stream &stream, const Collective &collective) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  if (Status status = checkCollective(mesh(), collective); !status)
    return fail(status);
  bool isEmpty =
      std::all_of(collective.parts, collective.parts + collective.numParts,
                  [](const CollectivePart &part) { return part.count == 0; });
  if (isEmpty && commOf(collective.axis))
    return Status::ok();
  cuda::CUstream handle = static_cast<cuda::CudaStream &>(stream).handle;
  std::string where = collective.where + " (" + describe(collective) + ")";
  return runOnAxis(lock, collective.axis, where, [&](ncclComm_t comm) {
    Status status;
    for (size_t i = 0; i < collective.numParts && status; ++i) {
      // A part that is empty on one rank is empty on all.
      if (collective.parts[i].count == 0)
        continue;
      const char *call = "";
      ncclResult_t code =
          enqueuePart(handle, collective.kind, collective.parts[i], comm, call);
      status =
          checkTaken(code, call, comm).withContext("part " + std::to_string(i));
    }
    return status;
  });
}

Status NcclRank::allToAll(Stream &stream, MeshAxis axis, const void *send,
                          void *receive, int64_t bytes,
                          const std::string &where) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  if (bytes < 0 || (bytes > 0 && (!send || !receive)))
    return fail(invalidArgument(where + ": all_to_all of " +
                                std::to_string(bytes) +
                                " bytes, with send and receive expected"));
  if (bytes == 0)
    return Status::ok();
  cuda::CUstream handle = static_cast<cuda::CudaStream &>(stream).handle;
  auto block = static_cast<size_t>(bytes);
  return runOnAxis(lock, axis, where, [&](ncclComm_t comm) {
    Status status;
    for (int peer = 0; peer < mesh().size(axis) && status; ++peer) {
      size_t offset = static_cast<size_t>(peer) * block;
      status =
          checkTaken(nccl->ncclSend(static_cast<const char *>(send) + offset,
                                    block, ncclUint8, peer, comm, handle),
                     "ncclSend", comm);
      if (status)
        status =
            checkTaken(nccl->ncclRecv(static_cast<char *>(receive) + offset,
                                      block, ncclUint8, peer, comm, handle),
                       "ncclRecv", comm);
    }
    return status;
  });
}

Status NcclRank::transfer(Stream &stream, const Transfer &transfer) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  if (Status status = checkTransfer(mesh(), transfer); !status)
    return fail(status);
  cuda::CUstream handle = static_cast<cuda::CudaStream &>(stream).handle;
  return runGroup(lock, world, transfer.where, [&] {
    // A message that is empty on one rank is empty on the other.
    for (const Message &message : transfer.sends)
      if (message.bytes > 0)
        MOERT_CHECK(checkTaken(
            nccl->ncclSend(message.data, static_cast<size_t>(message.bytes),
                           ncclUint8, int(message.rank), world, handle),
            "ncclSend", world));
    for (const Message &message : transfer.receives)
      if (message.bytes > 0)
        MOERT_CHECK(checkTaken(
            nccl->ncclRecv(message.data, static_cast<size_t>(message.bytes),
                           ncclUint8, int(message.rank), world, handle),
            "ncclRecv", world));
    return Status::ok();
  });
}

/// Gathers all ranks' statements; on entry `all` has this rank's own.
Status NcclRank::gatherStatements(Lock &lock, const std::string &where,
                                  std::vector<Statement> &all) {
  auto *board = static_cast<Statement *>(statements->data());
  auto own = static_cast<size_t>(rank());
  if (Status status = device->copyIn(board + own, &all[own], sizeof(Statement));
      !status)
    return fail(status.withContext(where));
  ncclResult_t code = ncclSuccess;
  Status status = context->within([&] {
    code = nccl->ncclAllGather(
        board + own, board, sizeof(Statement), ncclUint8, world,
        static_cast<cuda::CudaStream &>(*ownStream).handle);
    return Status::ok();
  });
  if (!status)
    return fail(status.withContext(where));
  MOERT_CHECK(settle(lock, where, "ncclAllGather", world, code));
  MOERT_CHECK(finish(lock, where, *ownStream));
  status = device->copyOut(all.data(), board, sizeof(Statement) * all.size());
  return status ? status : fail(status.withContext(where));
}

Status NcclRank::agree(const std::string &subject, const std::string &what) {
  Lock lock(mutex);
  MOERT_CHECK(failure);
  std::vector<Statement> all(static_cast<size_t>(mesh().numRanks()));
  std::string text = subject + " '" + what + "'";
  Statement &own = all[static_cast<size_t>(rank())];
  own.digest = sha256(text.data(), text.size());
  memcpy(own.text, text.data(), std::min(text.size(), sizeof(own.text) - 1));
  MOERT_CHECK(gatherStatements(lock, subject, all));
  // Compare with rank 0, so that all ranks report the same error.
  for (size_t other = 1; other < all.size(); ++other)
    if (all[other].digest != all[0].digest) {
      all[other].text[sizeof(all[other].text) - 1] = '\0';
      all[0].text[sizeof(all[0].text) - 1] = '\0';
      return fail(invalidArgument(
          subject + ": ranks differ: rank 0 has " + all[0].text + ", rank " +
          std::to_string(other) + " has " + all[other].text +
          "; give all ranks the same package and the "
          "same mesh"));
    }
  return Status::ok();
}

} // namespace moert
