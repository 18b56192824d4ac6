//===- NcclTesting.cpp - ranks connected by an emulated NCCL --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclTesting.h"
#include "CommunicatorTesting.h"
#include "CudaTesting.h"
#include "moert/CudaDevice.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <dlfcn.h>

using namespace moert;
using namespace moert::test;

const char *const moert::test::kFakeNccl = FAKE_NCCL_LIBRARY;
const char *const moert::test::kPartialNccl = PARTIAL_NCCL_LIBRARY;

template <typename Function>
static Function findInFake(const char *name) {
  // Never closed, like NCCL.
  static void *library = dlopen(kFakeNccl, RTLD_NOW);
  void *found = library ? dlsym(library, name) : nullptr;
  if (!found) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  return reinterpret_cast<Function>(found);
}

static FakeNccl &fakeNccl() {
  return *findInFake<FakeNccl *(*)()>("fakeNcclState")();
}

static FakeCuda *fakeCuda = nullptr;

FakeCuda &moert::test::fakeCudaOfNccl() { return *fakeCuda; }

FakeNccl &moert::test::resetFakeNccl() {
  findInFake<void (*)()>("fakeNcclReset")();
  fakeCuda = &resetFakeCuda();
  fakeCuda->numDevices = 16;
  fakeCuda->isBusy = findInFake<bool (*)(cuda::CUstream)>("fakeNcclIsBusy");
  return fakeNccl();
}

void moert::test::letAbortEnd() {
  findInFake<void (*)()>("fakeNcclLetAbortEnd")();
}

bool moert::test::ncclIsEmpty() {
  return findInFake<bool (*)()>("fakeNcclIsEmpty")();
}

void moert::test::setNcclRank(int64_t rank) {
  findInFake<void (*)(int)>("fakeNcclSetRank")(static_cast<int>(rank));
}

Status NcclRankOfTest::run(CollectiveKind kind, MeshAxis axis,
                           const std::vector<CollectivePart> &parts,
                           const std::string &where) const {
  return RankOfTest{communicator, stream, index}.run(kind, axis, parts, where);
}

Status NcclRankOfTest::step(const std::string &where) const {
  // After a failure the communicator may use these until it is destroyed, which
  // is before its thread ends.
  static thread_local float value, sum;
  value = 1;
  Status status = run(CollectiveKind::AllReduce, MeshAxis::Data,
                      {{&value, &sum, DType::F32, 1}}, where);
  return status ? communicator.synchronize(stream) : status;
}

NcclOptions moert::test::ncclOptions(const Mesh &mesh, int64_t rank,
                                     double limitSeconds) {
  NcclOptions options;
  options.mesh = mesh;
  options.rank = rank;
  options.ordinal = static_cast<int>(rank);
  options.limitSeconds = limitSeconds;
  options.ncclLibrary = kFakeNccl;
  options.cudaLibrary = kFakeDriver;
  return options;
}

static Status
runRank(const NcclOptions &options, const NcclUniqueId &id,
        const std::function<Status(const NcclRankOfTest &)> &body) {
  setNcclRank(options.rank);
  Result<std::unique_ptr<Device>> device =
      createCudaDevice(options.ordinal, kFakeDriver);
  if (!device)
    return device.status();
  Result<std::unique_ptr<Stream>> stream = (*device)->createStream();
  if (!stream)
    return stream.status();
  Result<std::unique_ptr<NcclCommunicator>> communicator =
      NcclCommunicator::create(options, id);
  if (!communicator)
    return communicator.status();
  return body({**communicator, **device, **stream, options.rank});
}

std::vector<Status> moert::test::runNcclRanks(
    const Mesh &mesh, double limitSeconds,
    const std::function<Status(const NcclRankOfTest &)> &body,
    const std::vector<int64_t> &absent) {
  std::vector<Status> statuses(static_cast<size_t>(mesh.numRanks()));
  setNcclRank(0);
  Result<NcclUniqueId> id = makeNcclUniqueId(kFakeNccl);
  if (!id) {
    statuses[0] = id.status();
    return statuses;
  }
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
    if (std::find(absent.begin(), absent.end(), rank) == absent.end())
      threads.emplace_back([&, rank] {
        statuses[static_cast<size_t>(rank)] =
            runRank(ncclOptions(mesh, rank, limitSeconds), *id, body);
      });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

std::string moert::test::ncclLeaks() {
  std::string text = fakeCuda->leaks();
  FakeNccl &fake = fakeNccl();
  if (fake.numAlive != 0)
    text += std::to_string(fake.numAlive) + " communicators; ";
  for (const std::string &misuse : fake.misuse)
    text += misuse + "; ";
  return text;
}
