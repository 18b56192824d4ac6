//===- HostDeviceTest.cpp - tests of the host device ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/HostDevice.h"
#include "../../runtime/src/host/NumThreads.h"
#include "../../runtime/src/host/ThreadPool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace moert;

static std::unique_ptr<Device> makeDevice(int numThreads = 0) {
  Result<std::unique_ptr<Device>> device = createHostDevice(numThreads);
  EXPECT_TRUE(device) << device.status().message();
  return device ? std::move(*device) : nullptr;
}

static std::unique_ptr<ThreadPool> makePool(int numThreads) {
  Result<std::unique_ptr<ThreadPool>> pool = ThreadPool::create(numThreads);
  EXPECT_TRUE(pool) << pool.status().message();
  return pool ? std::move(*pool) : nullptr;
}

/// Adds 1 to element `cta` of args[0].
static void countCta(const uint64_t *args, int64_t cta) {
  reinterpret_cast<int32_t *>(static_cast<uintptr_t>(args[0]))[cta] += 1;
}

TEST(ThreadPoolTest, RunsEveryCtaOnce) {
  for (int numThreads : {1, 2, 5}) {
    auto pool = makePool(numThreads);
    for (int64_t grid : {0, 1, 2, 3, 64, 1000}) {
      std::vector<int32_t> counts(grid + 1);
      uint64_t arg = reinterpret_cast<uintptr_t>(counts.data());
      pool->run(&countCta, &arg, grid);
      for (int64_t i = 0; i < grid; ++i)
        ASSERT_EQ(counts[i], 1);
      EXPECT_EQ(counts[grid], 0);
    }
  }
}

TEST(ThreadPoolTest, IsResizedWhileItRuns) {
  auto pool = makePool(2);
  std::atomic<bool> isDone{false};
  std::thread launcher([&] {
    std::vector<int32_t> counts(64);
    uint64_t arg = reinterpret_cast<uintptr_t>(counts.data());
    for (int32_t i = 1; !isDone; ++i) {
      pool->run(&countCta, &arg, 64);
      for (int32_t count : counts)
        ASSERT_EQ(count, i);
    }
  });
  for (int i = 0; i < 50; ++i)
    for (int numThreads : {1, 4, 2, 3}) {
      ASSERT_TRUE(pool->resize(numThreads));
      EXPECT_EQ(pool->getNumThreads(), numThreads);
    }
  isDone = true;
  launcher.join();
}

namespace {

/// Sets variables for a test; null removes one.
class Variables {
public:
  void set(const char *name, const char *value) {
    const char *before = getenv(name);
    saved.emplace_back(name, before ? std::optional<std::string>(before)
                                    : std::nullopt);
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variables() {
    for (auto it = saved.rbegin(); it != saved.rend(); ++it)
      it->second ? setenv(it->first.c_str(), it->second->c_str(), 1)
                 : unsetenv(it->first.c_str());
  }

private:
  std::vector<std::pair<std::string, std::optional<std::string>>> saved;
};

} // namespace

TEST(NumThreadsTest, VariablesChoose) {
  Variables variables;
  variables.set("MOEC_NUM_THREADS", nullptr);
  variables.set("OMP_NUM_THREADS", "3,1");
  EXPECT_EQ(*chooseNumThreads(), 3);
  variables.set("MOEC_NUM_THREADS", "5");
  EXPECT_EQ(*chooseNumThreads(), 5);
  EXPECT_EQ(makeDevice()->numThreads(), 5);
  EXPECT_EQ(makeDevice(2)->numThreads(), 2);
  for (const char *wrong : {"0", "-1", "two", "2x", "4097", "1,2"}) {
    variables.set("MOEC_NUM_THREADS", wrong);
    Result<int> chosen = chooseNumThreads();
    ASSERT_FALSE(chosen) << wrong;
    EXPECT_EQ(chosen.status().message(),
              std::string("MOEC_NUM_THREADS is '") + wrong +
                  "'; a number of threads from 1 to 4096 is expected");
  }
  variables.set("MOEC_NUM_THREADS", "");
  variables.set("OMP_NUM_THREADS", "many");
  EXPECT_FALSE(chooseNumThreads());
  variables.set("OMP_NUM_THREADS", "");
  EXPECT_GE(*chooseNumThreads(), 1);
}

TEST(NumThreadsTest, TheLeastQuotaOfTheGroupsCounts) {
  std::string root = testing::TempDir() + "/cgroup";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root + "/a/b");
  auto write = [&](const std::string &path, const char *text) {
    std::ofstream(root + path + "/cpu.max") << text;
  };
  const std::string groups = "12:cpu:/old\n0::/a/b\n";
  EXPECT_EQ(readCpuQuota(groups, root), std::nullopt);
  write("/a/b", "max 100000\n");
  EXPECT_EQ(readCpuQuota(groups, root), std::nullopt);
  write("/a", "150000 100000\n");
  EXPECT_EQ(readCpuQuota(groups, root), 2);
  write("/a/b", "50000 100000\n");
  EXPECT_EQ(readCpuQuota(groups, root), 1);
  write("", "400000 100000\n");
  EXPECT_EQ(readCpuQuota("0::/\n", root), 4);
  EXPECT_EQ(readCpuQuota("0::/elsewhere\n", root), 4);
  EXPECT_EQ(readCpuQuota("12:cpu:/old\n", root), std::nullopt);
  EXPECT_EQ(readCpuQuota("", root), std::nullopt);
}

TEST(HostDeviceTest, ThreadsAreChanged) {
  auto device = makeDevice(1);
  ASSERT_TRUE(device->setNumThreads(3));
  EXPECT_EQ(device->numThreads(), 3);
  EXPECT_FALSE(device->setNumThreads(-1));
  EXPECT_FALSE(device->setNumThreads(5000));
  EXPECT_EQ(device->numThreads(), 3);
}

TEST(ThreadPoolTest, LaunchesFromManyThreadsShareIt) {
  auto pool = makePool(3);
  std::vector<std::thread> launchers;
  for (int launcher = 0; launcher < 4; ++launcher)
    launchers.emplace_back([&, launcher] {
      std::vector<int32_t> counts(100);
      uint64_t arg = reinterpret_cast<uintptr_t>(counts.data());
      for (int i = 1; i <= 500; ++i) {
        pool->run(&countCta, &arg, 1 + (launcher * 37 + i) % 100);
        // Written by other threads, read without further synchronization.
        ASSERT_EQ(counts[0], i);
      }
    });
  for (std::thread &thread : launchers)
    thread.join();
}

/// Waits until args[1] CTAs have begun.
static void meet(const uint64_t *args, int64_t) {
  auto &begun =
      *reinterpret_cast<std::atomic<int> *>(static_cast<uintptr_t>(args[0]));
  ++begun;
  while (begun < static_cast<int>(args[1]))
    std::this_thread::yield();
}

TEST(ThreadPoolTest, CtasRunAtTheSameTime) {
  auto pool = makePool(4);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> begun{0};
    uint64_t args[] = {reinterpret_cast<uintptr_t>(&begun), 4};
    pool->run(&meet, args, 4);
    EXPECT_EQ(begun, 4);
    // Let the workers fall asleep now and then.
    if (i % 10 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPoolTest, ComesAndGoes) {
  for (int i = 0; i < 50; ++i)
    makePool(4);
}

TEST(HostDeviceTest, AllocatesCopiesAndFills) {
  auto device = makeDevice();
  EXPECT_EQ(device->name(), "host");
  auto stream = device->createStream();
  ASSERT_TRUE(stream);
  for (size_t alignment : {1, 64, 4096}) {
    auto buffer = device->allocate(1000, alignment);
    ASSERT_TRUE(buffer);
    auto *data = static_cast<uint8_t *>((*buffer)->data());
    EXPECT_EQ((*buffer)->size(), 1000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u);
    EXPECT_TRUE(device->fill(**stream, data, 7, 1000));
    uint8_t byte = 9, back = 0;
    EXPECT_TRUE(device->copyIn(data + 500, &byte, 1));
    EXPECT_TRUE(device->copyOut(&back, data + 500, 1));
    EXPECT_EQ(back, 9);
    EXPECT_EQ(data[499], 7);
  }
  auto nothing = device->allocate(0, 256);
  ASSERT_TRUE(nothing);
  EXPECT_EQ((*nothing)->size(), 0u);
  EXPECT_TRUE(device->copyIn(nullptr, nullptr, 0));
  EXPECT_EQ(device->allocate(8, 3).status().code(),
            StatusCode::InvalidArgument);
  auto tooMuch = device->allocate(size_t(1) << 60, 256);
  ASSERT_FALSE(tooMuch);
  EXPECT_EQ(tooMuch.status().code(), StatusCode::ResourceExhausted);
}

TEST(HostDeviceTest, LoadsModulesOfHostFunctionsOnly) {
  auto device = makeDevice(1);
  ModuleImage image;
  EXPECT_EQ(device->loadModule(image).status().message(),
            "loadModule: the image has no lookup function");
  image.kind = ModuleImage::Kind::Cubin;
  EXPECT_NE(device->loadModule(image).status().message().find("holds cubin"),
            std::string::npos);
  image.kind = ModuleImage::Kind::HostFunctions;
  image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
    return name == "count" ? &countCta : nullptr;
  };
  auto module = device->loadModule(image);
  ASSERT_TRUE(module);
  auto kernel = (*module)->kernel("count");
  ASSERT_TRUE(kernel);
  EXPECT_EQ((*kernel)->name(), "count");
  EXPECT_EQ(*(*module)->kernel("count"), *kernel);
  EXPECT_EQ((*module)->kernel("other").status().code(), StatusCode::NotFound);

  auto stream = device->createStream();
  int32_t count = 0;
  uint64_t arg = reinterpret_cast<uintptr_t>(&count);
  EXPECT_TRUE(device->launch(**stream, **kernel, {1}, {&arg, 1}));
  EXPECT_EQ(count, 1);
  EXPECT_NE(device->launch(**stream, **kernel, {-1}, {&arg, 1})
                .message()
                .find("launch of 'count': grid -1 is negative"),
            std::string::npos);
}

TEST(HostDeviceTest, EventsAreRecordedBeforeTheyAreWaitedFor) {
  auto device = makeDevice(1);
  auto stream = device->createStream();
  auto event = device->createEvent();
  EXPECT_EQ(device->wait(**stream, **event).message(),
            "wait: the event was never recorded");
  EXPECT_TRUE(device->record(**stream, **event));
  EXPECT_TRUE(device->wait(**stream, **event));
  EXPECT_TRUE(device->synchronize(**stream));
}

TEST(HostDeviceTest, SaysWhatItCannotDo) {
  auto device = makeDevice(1);
  auto map = device->encodeTensorMap({});
  ASSERT_FALSE(map);
  EXPECT_EQ(map.status().code(), StatusCode::Unavailable);
  EXPECT_TRUE(device->checkTarget("cpu"));
  EXPECT_FALSE(device->checkTarget("sm_80"));
  EXPECT_FALSE(createHostDevice(-1));
  EXPECT_FALSE(createHostDevice(1 << 20));
}
