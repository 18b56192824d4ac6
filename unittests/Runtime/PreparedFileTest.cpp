//===- PreparedFileTest.cpp - tests of files of prepared weights *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/plan/PlanDigest.h"
#include "../../runtime/src/support/ChunkDigest.h"
#include "CudaTesting.h"
#include "TestPlan.h"
#include "moert/CudaDevice.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/Safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include <dirent.h>

using namespace moert;
using namespace moert::test;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void writeFile(const std::string &path, const std::string &contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

size_t countFiles(const std::string &folder) {
  size_t count = 0;
  DIR *opened = opendir(folder.c_str());
  while (dirent *entry = readdir(opened))
    count += entry->d_name[0] != '.';
  closedir(opened);
  return count;
}

void doubleInPlace(const uint64_t *args, int64_t) {
  auto *twice = reinterpret_cast<float *>(static_cast<uintptr_t>(args[0]));
  for (int64_t i = 0; i < kWidth; ++i)
    twice[i] *= 2;
}

class PreparedFileTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::string made = ::testing::TempDir() + "moert-prepared-XXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder = made;
    path = folder + "/layer.safetensors";
    Result<std::unique_ptr<Device>> host = createHostDevice(2);
    ASSERT_TRUE(host);
    device = std::move(*host);
  }

  void TearDown() override {
    std::remove(path.c_str());
    rmdir(folder.c_str());
  }

  std::unique_ptr<Executor> create(const Plan &plan = makePlan(),
                                   const std::string &description = "") {
    ExecutorOptions options;
    options.description = description;
    auto created = Executor::create(plan, *device, makeImage(), options);
    EXPECT_TRUE(created) << created.status().toString();
    return std::move(*created);
  }

  /// Makes an executor with the weight and writes its file.
  std::unique_ptr<Executor> write(const Plan &plan = makePlan()) {
    std::unique_ptr<Executor> executor = create(plan);
    EXPECT_TRUE(executor->bind("scale", {scale.data(), DType::F32, {kWidth}}));
    Result<PreparedFileReport> report = executor->writePrepared(path);
    EXPECT_TRUE(report) << report.status().toString();
    return executor;
  }

  void expectRuns(Executor &executor) {
    std::vector<float> x(20 * kWidth, 1.5f), y(20 * kWidth);
    int32_t offset = 3;
    ASSERT_TRUE(executor.bind("x", {x.data(), DType::F32, {20, kWidth}}));
    ASSERT_TRUE(executor.bind("y", {y.data(), DType::F32, {20, kWidth}}));
    ASSERT_TRUE(executor.bind("offset", {&offset, DType::I32, {1}}));
    Status status = executor.run(20);
    ASSERT_TRUE(status) << status.toString();
    for (int64_t i = 0; i < 20 * kWidth; ++i)
      ASSERT_EQ(y[i], expectedY(x, scale, offset, i / kWidth, i % kWidth, 20));
  }

  /// The message about the file, without its path and the remedy.
  std::string refuse(Executor &executor, PreparedFileOptions options = {}) {
    Status status = executor.bindPrepared(path, options).status();
    EXPECT_FALSE(status);
    std::string message = status.message();
    if (size_t at = message.find(path + ": "); at != std::string::npos)
      message.erase(at, path.size() + 2);
    std::string remedy =
        "; read the checkpoint instead, and write the file again";
    if (size_t at = message.rfind(remedy); at != std::string::npos)
      message.erase(at);
    return message;
  }

  /// Rewrites the file's tensors with other contents or metadata.
  using Change = std::function<void(std::vector<SafetensorsTensor> &,
                                    std::map<std::string, std::string> &)>;
  std::string refuseChanged(const Change &change) {
    write();
    std::string contents = readFile(path);
    auto file =
        SafetensorsFile::fromMemory(contents.data(), contents.size(), path);
    EXPECT_TRUE(file);
    std::vector<SafetensorsTensor> tensors;
    for (const SafetensorsEntry &entry : file->entries())
      tensors.push_back(
          {entry.name, entry.dtype, entry.shape, entry.data, entry.bytes});
    std::map<std::string, std::string> metadata = file->metadata();
    change(tensors, metadata);
    EXPECT_TRUE(writeSafetensors(path, tensors, metadata));
    return refuse(*create());
  }

  std::string folder, path;
  std::unique_ptr<Device> device;
  std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f};
};

} // namespace

TEST_F(PreparedFileTest, HasWhatRunsRead) {
  std::unique_ptr<Executor> first = write();
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.status().message();
  // Only the prepare step reads the weight.
  ASSERT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(file->entries()[0].name, "twice");
  EXPECT_EQ(file->entries()[1].name, "sha256");
  EXPECT_EQ(file->entries()[1].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(file->metadata().at("format"), "moec prepared weights");
  EXPECT_EQ(file->metadata().at("version"), "2");
  EXPECT_EQ(file->metadata().at("target"), "cpu");
  EXPECT_EQ(file->metadata().at("layer").size(), 64u);
  EXPECT_EQ(countFiles(folder), 1u);

  std::unique_ptr<Executor> second = create();
  uint64_t last = 0, all = 0;
  PreparedFileOptions options;
  options.step = [&](uint64_t done, uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    all = of;
  };
  Result<PreparedFileReport> report = second->bindPrepared(path, options);
  ASSERT_TRUE(report) << report.status().toString();
  EXPECT_EQ(report->bytes, kWidth * 4);
  // Digests, then copies.
  EXPECT_EQ(last, 2u * kWidth * 4);
  EXPECT_EQ(all, last);
  ASSERT_NO_FATAL_FAILURE(expectRuns(*second));
  // Weights must be bound anew as after prepareWeights().
  Result<PrepareReport> prepared = second->prepareWeights();
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->bytes, 0);
  auto clone = second->clone();
  ASSERT_TRUE(clone);
  second.reset();
  ASSERT_NO_FATAL_FAILURE(expectRuns(**clone));
  // The clone writes an identical file.
  std::string contents = readFile(path);
  ASSERT_TRUE((*clone)->writePrepared(path));
  EXPECT_EQ(readFile(path), contents);
}

TEST_F(PreparedFileTest, WeightsMayBeBoundAfterwards) {
  write();
  std::unique_ptr<Executor> executor = create();
  ASSERT_TRUE(executor->bindPrepared(path));
  scale = {4, 3, 2, 1};
  ASSERT_TRUE(executor->bind("scale", {scale.data(), DType::F32, {kWidth}}));
  EXPECT_NE(executor->run(1).message().find("the weights are not prepared"),
            std::string::npos);
  Result<PrepareReport> report = executor->prepareWeights();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bytes, kWidth * 4);
  ASSERT_NO_FATAL_FAILURE(expectRuns(*executor));
}

/// Tensors prepared in the weight's memory get memory of their own.
TEST_F(PreparedFileTest, ReadsWhatWasPreparedInPlace) {
  Plan plan = makePlan();
  plan.tensors[Twice].inPlaceOf = Scale;
  plan.kernels[0].name = "double_in_place";
  plan.prepare = {Step::launch(0, {Argument::ofTensor(Twice)})};
  ModuleImage image;
  image.lookup =
      [inner = makeImage()](const std::string &name) -> Result<HostKernelFn> {
    if (name != "double_in_place")
      return inner.lookup(name);
    return &doubleInPlace;
  };
  auto bind = [&](Executor &executor, std::vector<float> &values) {
    values = scale;
    return executor.bind("scale", {values.data(), DType::F32, {kWidth}});
  };
  std::vector<float> one, other;
  auto first = Executor::create(plan, *device, image);
  ASSERT_TRUE(first);
  ASSERT_TRUE(bind(**first, one));
  ASSERT_TRUE((*first)->writePrepared(path));
  auto second = Executor::create(plan, *device, image);
  ASSERT_TRUE(second);
  ASSERT_TRUE((*second)->bindPrepared(path));
  ASSERT_NO_FATAL_FAILURE(expectRuns(**second));
  // Now in the weight's memory again.
  ASSERT_TRUE(bind(**second, other));
  Result<PrepareReport> report = (*second)->prepareWeights();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->inPlaceBytes, kWidth * 4);
  EXPECT_EQ(other[0], 2 * scale[0]);
  ASSERT_NO_FATAL_FAILURE(expectRuns(**second));
}

TEST_F(PreparedFileTest, RowsThatAreApartAreWrittenWithoutGaps) {
  Plan plan;
  plan.target = "cpu";
  plan.maxTokens = 1;
  TensorDecl w{"w", DType::F32, {2, 3, 4}, TensorRole::Weight};
  w.strided = true;
  plan.tensors = {w, {"y", DType::F32, {1}, TensorRole::Output}};
  plan.kernels = {{"spread", 1}};
  plan.variants = {
      {0,
       1,
       {Step::launch(0, {Argument::ofTensor(0), Argument::ofTensor(1)})}}};
  std::unique_ptr<Executor> executor = create(plan);
  std::vector<float> values(100);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  for (std::vector<int64_t> strides :
       {std::vector<int64_t>{40, 10, 1}, {40, 4, 1}, {12, 4, 1}}) {
    ASSERT_TRUE(
        executor->bind("w", {values.data(), DType::F32, {2, 3, 4}, strides}));
    ASSERT_TRUE(executor->writePrepared(path));
    auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file);
    for (int64_t i = 0; i < 24; ++i) {
      float found;
      memcpy(&found, file->find("w")->data + i * 4, 4);
      EXPECT_EQ(found, static_cast<float>(i / 12 * strides[0] +
                                          i / 4 % 3 * strides[1] + i % 4));
    }
  }
}

TEST_F(PreparedFileTest, WhatIsNoFileOfTheLayerIsRefused) {
  std::unique_ptr<Executor> executor = create();
  EXPECT_EQ(executor->bindPrepared(path).status().code(), StatusCode::NotFound);
  EXPECT_EQ(refuseChanged([](auto &, auto &metadata) { metadata.clear(); }),
            "has no prepared weights (their files say \"moec prepared "
            "weights\" for \"format\" in their metadata)");
  EXPECT_EQ(
      refuseChanged([](auto &, auto &metadata) { metadata["version"] = "9"; }),
      "is of version 9 of its format, and version 2 is read");
  // Files of version 1 do not describe their layer.
  EXPECT_EQ(
      refuseChanged([](auto &, auto &metadata) { metadata["version"] = "1"; }),
      "is of version 1 of its format, and version 2 is read");
  EXPECT_EQ(refuseChanged(
                [](auto &, auto &metadata) { metadata["target"] = "sm_80"; }),
            "was written for sm_80, but the layer is for cpu");
  EXPECT_EQ(refuseChanged([](auto &, auto &metadata) {
              metadata["mesh"] = "dp 2 x tp 1";
            }),
            "was written for the ranks of dp 2 x tp 1, but the layer is for "
            "one rank");
  EXPECT_EQ(
      refuseChanged([](auto &, auto &metadata) { metadata["layer"][0] ^= 1; }),
      "was written by another layer, or by another compiler from the same "
      "description");
  // A digest also covers the metadata.
  EXPECT_EQ(
      refuseChanged([](auto &, auto &metadata) { metadata["rank"] = "7"; }),
      "the header differs from the written one (SHA-256)");
  Plan other = makePlan();
  other.maxTokens = other.variants.back().maxTokens = 50;
  write();
  EXPECT_EQ(refuse(*create(other)),
            "was written by another layer, or by another compiler from the "
            "same description");
}

TEST_F(PreparedFileTest, IsOfOneDescription) {
  // Layers with equal plans but different kernels.
  std::unique_ptr<Executor> writer =
      create(makePlan(), R"({"name": "a", "top_k": 2, "routing": {"scale": 2.5},
                             "ids": [1, [2, 3], 4], "empty": {}})");
  ASSERT_TRUE(writer->bind("scale", {scale.data(), DType::F32, {kWidth}}));
  ASSERT_TRUE(writer->writePrepared(path));
  auto refuseFor = [&](const std::string &description) {
    return refuse(*create(makePlan(), description));
  };
  const std::string prefix = "was written for a layer whose ";
  EXPECT_EQ(refuseFor(R"({"top_k": 3, "routing": {"scale": 2.5},
                          "ids": [1, [2, 3], 4]})"),
            prefix + "'top_k' is 2, and this layer's is 3");
  EXPECT_EQ(refuseFor(R"({"top_k": 2, "routing": {"scale": 1.0},
                          "ids": [1, [2, 3], 4]})"),
            prefix + "'routing.scale' is 2.5, and this layer's is 1.0");
  EXPECT_EQ(refuseFor(R"({"top_k": 2, "ids": [1, [2, 3], 4]})"),
            prefix + "'routing.scale' is 2.5, and this layer's is not given");
  EXPECT_EQ(refuseFor(R"({"top_k": 2, "routing": {"scale": 2.5},
                          "ids": [1, [2, 3], 4], "gate_up_order": "up_gate"})"),
            prefix + "'gate_up_order' is not given, and this layer's is "
                     "\"up_gate\"");
  EXPECT_EQ(refuseFor(R"({"top_k": 2, "routing": {"scale": 2.5},
                          "ids": [1, [2, 4], 4]})"),
            prefix + "'ids.1.1' is 3, and this layer's is 4");
  EXPECT_EQ(refuseFor(R"({"top_k": 2, "routing": {"scale": 2.5},
                          "ids": [1, [2, 3]]})"),
            prefix + "'ids.2' is 4, and this layer's is not given");
  EXPECT_EQ(
      refuseFor(""),
      "was written by a layer with a description, but this layer has none");
  // Results depend on neither the name nor the formatting of the text.
  EXPECT_TRUE(create(makePlan(), R"({"ids":[1,[2,3],4],"name":"b","top_k":2,
                                     "routing":{"scale":2.5}})")
                  ->bindPrepared(path));
}

/// Messages show texts of a file shortened and without control characters.
TEST_F(PreparedFileTest, DescriptionsOfFilesAreText) {
  auto refuseDescription = [&](const std::string &description) {
    std::unique_ptr<Executor> writer = create(makePlan(), "{}");
    EXPECT_TRUE(writer->bind("scale", {scale.data(), DType::F32, {kWidth}}));
    EXPECT_TRUE(writer->writePrepared(path));
    std::string contents = readFile(path);
    auto file =
        SafetensorsFile::fromMemory(contents.data(), contents.size(), path);
    EXPECT_TRUE(file);
    std::vector<SafetensorsTensor> tensors;
    for (const SafetensorsEntry &entry : file->entries())
      tensors.push_back(
          {entry.name, entry.dtype, entry.shape, entry.data, entry.bytes});
    std::map<std::string, std::string> metadata = file->metadata();
    metadata["description"] = description;
    EXPECT_TRUE(writeSafetensors(path, tensors, metadata));
    return refuse(*create(makePlan(), "{}"));
  };
  EXPECT_EQ(refuseDescription(""), "was written by a layer without a "
                                   "description");
  EXPECT_EQ(refuseDescription("{\"a\": "),
            "the description of the layer cannot be read at byte 6");
  EXPECT_EQ(refuseDescription("{\"a\\u001b\": \"\\u001b[2J\\u202e\"}"),
            "was written for a layer whose 'a?' is \"\\u001B[2J\\u202E\", and "
            "this layer's is not given");
  EXPECT_EQ(refuseDescription("{\"a\": \"" + std::string(1000, 'x') + "\"}"),
            "was written for a layer whose 'a' is \"" + std::string(79, 'x') +
                "..., and this layer's is not given");
  std::string nested(100000, '[');
  EXPECT_EQ(refuseDescription(nested),
            "the description of the layer cannot be read at byte 16");
}

TEST_F(PreparedFileTest, TensorsAreThoseOfTheLayer) {
  EXPECT_EQ(
      refuseChanged([](auto &tensors, auto &) { tensors[0].name = "thrice"; }),
      "has no tensor 'twice'");
  EXPECT_EQ(
      refuseChanged([](auto &tensors, auto &) { tensors[0].shape = {2, 2}; }),
      "tensor 'twice' is f32 of shape [2, 2], expected f32 of shape "
      "[4]");
  EXPECT_EQ(refuseChanged(
                [](auto &tensors, auto &) { tensors[0].dtype = DType::I32; }),
            "tensor 'twice' is i32 of shape [4], expected f32 of shape [4]");
  EXPECT_EQ(refuseChanged([](auto &tensors, auto &) {
              tensors.push_back({"more", DType::F32, {0}, nullptr, 0});
            }),
            "tensor 'more' is not a tensor of the layer");
  EXPECT_EQ(refuseChanged([](auto &tensors, auto &) { tensors.pop_back(); }),
            "does not end in a tensor 'sha256' of [2, 32] bytes");
}

TEST_F(PreparedFileTest, DamageIsFound) {
  std::unique_ptr<Executor> executor = create();
  write();
  std::string contents = readFile(path);
  auto file =
      SafetensorsFile::fromMemory(contents.data(), contents.size(), path);
  ASSERT_TRUE(file);
  size_t data =
      file->entries()[0].data - reinterpret_cast<uint8_t *>(contents.data());
  // Each byte of the tensor and of its digest.
  for (size_t at = data; at < contents.size(); ++at) {
    std::string changed = contents;
    changed[at] ^= 16;
    writeFile(path, changed);
    bool isOfHeader = at >= data + kWidth * 4 && at < data + kWidth * 4 + 32;
    EXPECT_EQ(refuse(*executor),
              isOfHeader
                  ? "the header differs from the written one (SHA-256)"
                  : "tensor 'twice' differs from the written bytes (SHA-256)");
  }
  // For each byte of the header an error is reported.
  for (size_t at = 0; at < data; ++at) {
    std::string changed = contents;
    changed[at] ^= 1;
    writeFile(path, changed);
    EXPECT_NE(refuse(*executor), "");
  }
  for (size_t size = 0; size < contents.size(); ++size) {
    writeFile(path, contents.substr(0, size));
    refuse(*executor);
  }
  // Nothing was bound; without verification the change is not found.
  EXPECT_FALSE(executor->run(1));
  std::string changed = contents;
  changed[data] ^= 16;
  writeFile(path, changed);
  PreparedFileOptions careless;
  careless.verify = false;
  EXPECT_TRUE(executor->bindPrepared(path, careless));
  // A refused file leaves the bound one in use.
  writeFile(path, contents);
  ASSERT_TRUE(executor->bindPrepared(path));
  writeFile(path, changed);
  refuse(*executor);
  ASSERT_NO_FATAL_FAILURE(expectRuns(*executor));
}

TEST_F(PreparedFileTest, AFailureLeavesNoFile) {
  std::unique_ptr<Executor> executor = create();
  EXPECT_EQ(executor->writePrepared(path).status().message(),
            "prepareWeights: weight 'scale' is not bound; bind it first");
  EXPECT_EQ(countFiles(folder), 0u);
  EXPECT_EQ(executor->writePrepared(folder).status().code(),
            StatusCode::InvalidArgument);
  write();
  std::string contents = readFile(path);
  EXPECT_FALSE(executor->writePrepared(path));
  EXPECT_EQ(readFile(path), contents);
}

TEST_F(PreparedFileTest, RanksHaveFilesOfTheirOwn) {
  Plan plan = makePlan();
  plan.mesh = {2, 1};
  std::unique_ptr<Executor> executor = create(plan);
  ASSERT_TRUE(executor->bind("scale", {scale.data(), DType::F32, {kWidth}}));
  EXPECT_EQ(executor->writePrepared(path).status().message(),
            "writePrepared: the layer has the ranks of dp 2 x tp 1; give the "
            "rank of these weights, or set a communicator first");
  EXPECT_EQ(executor->setRank(2).message(),
            "rank is 2; 0 to 1 are those of dp 2 x tp 1");
  ASSERT_TRUE(executor->setRank(1));
  ASSERT_TRUE(executor->writePrepared(path));

  std::unique_ptr<Executor> other = create(plan);
  ASSERT_TRUE(other->setRank(0));
  EXPECT_EQ(refuse(*other), "has the weights of rank 1, but this is rank 0; "
                            "give the file of this rank");
  EXPECT_EQ(refuse(*create()), "was written for the ranks of dp 2 x tp 1, but "
                               "the layer is for one rank");
  // A given rank must agree with the file.
  PreparedFileOptions options;
  options.rank = 0;
  EXPECT_EQ(refuse(*other, options), "has the weights of rank 1, but this is "
                                     "rank 0; give the file of this rank");
  options.rank = 1;
  EXPECT_EQ(executor->rank(), 1);
  ASSERT_TRUE(other->bindPrepared(path, options));
  EXPECT_EQ(other->rank(), 1);
  options.rank = 0;
  EXPECT_EQ(other->writePrepared(path, options).status().message(),
            "writePrepared: rank is 0, but the weights are those of rank 1; "
            "leave it out");
  options.rank = 2;
  EXPECT_EQ(other->bindPrepared(path, options).status().message(),
            "bindPrepared: rank is 2; 0 to 1 are those of dp 2 x tp 1");
  // The file states its rank.
  std::unique_ptr<Executor> again = create(plan);
  ASSERT_TRUE(again->bindPrepared(path));
  EXPECT_EQ(again->rank(), 1);
  auto group = LocalGroup::create(plan.mesh, /*limitSeconds=*/5);
  ASSERT_TRUE(group);
  auto joined = (*group)->join(0, *device);
  ASSERT_TRUE(joined);
  EXPECT_EQ(again->useCommunicator(std::move(*joined)).message(),
            "useCommunicator: the communicator is of rank 0, but the weights "
            "are those of rank 1; give the communicator of that rank");
}

/// Code that prepares nothing identifies a layer only if no description does.
TEST(PlanDigestTest, CodeDescribesALayerWithoutADescription) {
  Plan plan = makeGpuPlan();
  ModuleImage image = makePtxImage(), other = image;
  other.modules.back().push_back(' ');
  EXPECT_NE(digestLayer(plan, image, /*isDescribed=*/true),
            digestLayer(plan, other, /*isDescribed=*/true));
  plan.prepare.clear();
  EXPECT_EQ(digestLayer(plan, image, /*isDescribed=*/true),
            digestLayer(plan, other, /*isDescribed=*/true));
  EXPECT_NE(digestLayer(plan, image, /*isDescribed=*/false),
            digestLayer(plan, other, /*isDescribed=*/false));
}

TEST(PreparedFileOnGpuTest, GoesThroughTheDevice) {
  FakeCuda &fake = resetFakeCuda();
  setenv("MOERT_CUDA_LIBRARY", kFakeDriver, 1);
  std::string path = ::testing::TempDir() + "moert_prepared_gpu.safetensors";
  {
    auto device = createCudaDevice(0);
    ASSERT_TRUE(device) << device.status().toString();
    auto create = [&] {
      auto executor = Executor::create(makeGpuPlan(), **device, makePtxImage());
      EXPECT_TRUE(executor) << executor.status().toString();
      return std::move(*executor);
    };
    std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f}, twice(kWidth);
    auto memory = (*device)->allocate(kWidth * 4, 256);
    ASSERT_TRUE(memory);
    ASSERT_TRUE((*device)->copyIn((*memory)->data(), scale.data(), kWidth * 4));
    std::unique_ptr<Executor> first = create();
    ASSERT_TRUE(
        first->bind("scale", {(*memory)->data(), DType::F32, {kWidth}}));
    Result<PreparedFileReport> report = first->writePrepared(path);
    ASSERT_TRUE(report) << report.status().toString();
    auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file);
    memcpy(twice.data(), file->find("twice")->data, kWidth * 4);
    for (int64_t i = 0; i < kWidth; ++i)
      EXPECT_EQ(twice[i], 2 * scale[i]);
    EXPECT_EQ(file->find("scale"), nullptr);

    // Each byte of code that prepares weights matters.
    ModuleImage image = makePtxImage();
    image.modules.back().insert(image.modules.back().end() - 1, ' ');
    auto other = Executor::create(makeGpuPlan(), **device, image);
    ASSERT_TRUE(other) << other.status().toString();
    EXPECT_NE((*other)->bindPrepared(path).status().message().find(
                  "was written by another layer"),
              std::string::npos);

    std::unique_ptr<Executor> second = create();
    report = second->bindPrepared(path);
    ASSERT_TRUE(report) << report.status().toString();
    // The bytes survive a round trip through the device.
    std::string again = path + ".again";
    ASSERT_TRUE(second->writePrepared(again));
    EXPECT_EQ(readFile(again), readFile(path));
    std::remove(again.c_str());
  }
  std::remove(path.c_str());
  EXPECT_EQ(fake.leaks(), "");
  unsetenv("MOERT_CUDA_LIBRARY");
}

TEST(ChunkDigestTest, IsThatOfTheDigestsOfChunks) {
  std::vector<uint8_t> bytes(2 * kDigestChunkBytes + 5);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 7 + i / 1000);
  std::vector<Sha256Digest> chunks = {
      sha256(bytes.data(), kDigestChunkBytes),
      sha256(bytes.data() + kDigestChunkBytes, kDigestChunkBytes),
      sha256(bytes.data() + 2 * kDigestChunkBytes, 5)};
  uint64_t last = 0;
  std::vector<Sha256Digest> found = digestInChunks(
      {{bytes.data(), bytes.size()}, {nullptr, 0}, {bytes.data(), 1}},
      [&](uint64_t done) { last = std::max(last, done); });
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], digestChunks(chunks));
  EXPECT_EQ(found[0], sha256(chunks.data(), 96));
  EXPECT_EQ(found[1], sha256(nullptr, 0));
  EXPECT_EQ(found[2], digestChunks({sha256(bytes.data(), 1)}));
  EXPECT_LE(last, bytes.size() + 1);
}
