//===- RankCheckpointTest.cpp - tests of a rank's tensors -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle is copyShard(), which splits the tensors of the layer on one rank.
//
//===----------------------------------------------------------------------===//

#include "PackedCheckpoint.h"
#include "Tools/Run/ConvertElements.h"
#include "Tools/Run/PartCopier.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>
#include <numeric>

#include <sys/mman.h>
#include <unistd.h>

using namespace moec;
using namespace moec::testing;

namespace {

std::vector<uint8_t> cut(const TensorShard &shard, const HostTensor &whole) {
  int64_t count = 1;
  for (int64_t size : shard.local.shape)
    count *= size;
  std::vector<uint8_t> local(
      size_t(count * getStorageBits(shard.local.type) / 8));
  copyShard(shard, whole.data(), local.data());
  return local;
}

/// Memory of tensors that records the largest request.
class NotingMemory : public TensorMemory {
public:
  moert::Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                                size_t bytes, bool isWhole) override {
    EXPECT_FALSE(isOpen);
    isOpen = true;
    most = std::max(most, bytes);
    all += bytes;
    return TensorMemory::open(tensor, offset, bytes, isWhole);
  }
  moert::Status close() override {
    isOpen = false;
    return moert::Status::ok();
  }

  bool isOpen = false;
  size_t most = 0, all = 0;
};

/// Loads a rank's tensors, and compares them with shards of the whole.
void expectCut(const LayerSpec &spec, const PackedLayer &whole,
               const std::vector<TensorShard> &shards,
               const std::string &weights) {
  std::vector<TensorShape> shapes;
  size_t largest = 0, all = 0;
  for (const TensorShard &shard : shards) {
    const TensorInfo &local = shard.local;
    shapes.push_back(
        {local.name, Role::Weight, getElementType(local.type), local.shape});
  }
  std::vector<HostTensor> tensors = makeTensors(shapes);
  for (const HostTensor &tensor : tensors) {
    std::memset(tensor.data(), 0xA5, tensor.getNumBytes());
    all += tensor.getNumBytes();
    bool isStacked = llvm::StringRef(tensor.name).starts_with("experts.") &&
                     tensor.shape.size() > 1;
    largest = std::max(largest, tensor.getNumBytes() /
                                    size_t(isStacked ? tensor.shape[0] : 1));
  }
  auto file = moert::Checkpoint::open(weights);
  ASSERT_TRUE(file);
  LayerRequest request = makeRequest(spec);
  request.rank.emplace();
  request.rank->shards = shards;
  NotingMemory memory;
  size_t read = 0;
  moert::Status status = loadTensors(tensors, *file, request, memory,
                                     [&](size_t bytes) { read += bytes; });
  ASSERT_TRUE(status) << status.message();
  // At most one expert of one tensor is in memory beside the rank's own.
  EXPECT_EQ(memory.most, largest);
  EXPECT_EQ(memory.all, all);
  EXPECT_EQ(read, all);
  for (auto [shard, tensor] : llvm::zip(shards, tensors)) {
    std::vector<uint8_t> expected = cut(shard, *whole.find(tensor.name));
    ASSERT_EQ(expected.size(), tensor.getNumBytes());
    EXPECT_EQ(std::memcmp(expected.data(), tensor.data(), expected.size()), 0)
        << tensor.name;
  }
}

/// Shards that are all of a layer's weights.
std::vector<TensorShard> getAll(const LayerSpec &spec) {
  std::vector<TensorShard> shards;
  for (const TensorInfo &info : getTensorSignature(spec))
    if (info.role == moec::TensorRole::Weight) {
      TensorShard &shard = shards.emplace_back();
      shard.whole = shard.local = info;
    }
  return shards;
}

class RankCheckpoint : public ::testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    spec = importPacked(GetParam());
    weights = getPackedWeights(GetParam());
    whole.emplace(spec);
    moert::Status status = whole->load(spec, weights);
    ASSERT_TRUE(status) << status.message();
  }

  LayerSpec spec;
  std::string weights;
  std::optional<PackedLayer> whole;
};

} // namespace

TEST_P(RankCheckpoint, HasItsExperts) {
  for (const std::vector<int64_t> &experts :
       {std::vector<int64_t>{0}, {1}, {1, 0}}) {
    SCOPED_TRACE(experts.size() * 10 + size_t(experts[0]));
    std::vector<TensorShard> shards = getAll(spec);
    for (TensorShard &shard : shards)
      if (llvm::StringRef(shard.whole.name).starts_with("experts.") &&
          shard.whole.shape.front() == spec.numExperts) {
        shard.experts = experts;
        shard.local.shape.front() = int64_t(experts.size());
      }
    ASSERT_NO_FATAL_FAILURE(expectCut(spec, *whole, shards, weights));
  }
}

/// Ranges of rows and columns of any tensor, also where a layer would not be
/// split: each range of the words, blocks and groups of a file is a range of
/// bytes.
TEST_P(RankCheckpoint, HasItsRowsAndColumns) {
  for (int64_t dimension : {1, 2})
    for (int64_t numParts : {2, 4, 8})
      for (int64_t part = 0; part < numParts; ++part)
        for (int64_t numRuns : {1, 2}) {
          SCOPED_TRACE(llvm::formatv("dimension {0}, part {1} of {2}, {3} runs",
                                     dimension, part, numParts, numRuns)
                           .str());
          std::vector<TensorShard> shards = getAll(spec);
          for (TensorShard &shard : shards) {
            std::vector<int64_t> &shape = shard.local.shape;
            if (!llvm::StringRef(shard.whole.name).starts_with("experts.") ||
                dimension >= int64_t(shape.size()) ||
                shape[dimension] % (numParts * numRuns) != 0 ||
                (numRuns > 1 && dimension > 1))
              continue;
            shape[dimension] /= numParts;
            shard.dimension = dimension;
            shard.numRuns = numRuns;
            shard.count = shape[dimension] / numRuns;
            shard.first = part * shard.count;
          }
          ASSERT_NO_FATAL_FAILURE(expectCut(spec, *whole, shards, weights));
        }
}

/// The meshes that a spec may have.
TEST_P(RankCheckpoint, HasWhatParallelSays) {
  size_t numMeshes = 0;
  for (const char *parallel :
       {R"({"dp": 2, "experts": "linear"})",
        R"({"tp": 2, "experts": [[1], [0]]})", R"({"dp": 2})", R"({"tp": 2})",
        R"({"tp": 3})", R"({"dp": 2, "tp": 2})"}) {
    std::string messages;
    LayerSpec spec = importPacked(GetParam(), parallel, &messages);
    if (!messages.empty()) {
      EXPECT_TRUE(messages.find("has whole blocks of") != std::string::npos ||
                  messages.find("must be a multiple of 3") != std::string::npos)
          << messages;
      continue;
    }
    ++numMeshes;
    for (int64_t rank = 0; rank < spec.parallel->getNumRanks(); ++rank) {
      LayerRequest request = makeRequest(spec, rank);
      // Tables of local ids, and of destination ranks if there are several
      // groups.
      EXPECT_EQ(request.rank->tables.size(),
                size_t(spec.parallel->hasWholeExperts()) +
                    hasDestinations(spec));
      ASSERT_NO_FATAL_FAILURE(
          expectCut(spec.getWhole(), *whole, request.rank->shards, weights));
    }
  }
  EXPECT_GE(numMeshes, 2u);
}

INSTANTIATE_TEST_SUITE_P(Tools, RankCheckpoint,
                         ::testing::ValuesIn(kPackedCheckpoints));

//===----------------------------------------------------------------------===//
// Names and files
//===----------------------------------------------------------------------===//

namespace {

LayerSpec makeSpec(const std::string &parallel) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diags(os);
  auto spec = importJson(
      SourceText("spec.json",
                 R"({"moec_spec": 1, "dtype": "bf16", "hidden_size": 16,
                     "num_experts": 4, "top_k": 2, "intermediate_size": 32,
                     "expert_bias": true, "activation": {"kind": "silu"},
                     "shared_experts": {"intermediate_size": 8},
                     "parallel": )" +
                     parallel + "}"),
      /*overrides=*/{}, diags);
  EXPECT_TRUE(succeeded(spec)) << messages;
  return succeeded(spec) ? *spec : LayerSpec();
}

/// The tensors of a layer under its own names, in f32 with values of bf16.
std::vector<HostTensor> makeWhole(const LayerSpec &spec) {
  std::vector<TensorShape> shapes;
  for (const TensorInfo &info : getTensorSignature(spec.getWhole()))
    if (info.role == moec::TensorRole::Weight)
      shapes.push_back({info.name, Role::Weight, ElementType::F32, info.shape});
  std::vector<HostTensor> tensors = makeTensors(shapes);
  float next = 1;
  for (const HostTensor &tensor : tensors)
    for (int64_t i = 0; i < tensor.getNumElements(); ++i, next += 1)
      reinterpret_cast<float *>(tensor.data())[i] = float(int64_t(next) % 256);
  return tensors;
}

} // namespace

TEST(RankCheckpointTest, TakesTheLayersOwnNamesOfAnotherType) {
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("moec", "safetensors", path));
  for (const char *parallel :
       {R"({"dp": 2, "experts": "round_robin"})", R"({"dp": 2, "tp": 2})",
        R"({"dp": 3, "experts": "linear"})",
        R"({"tp": 2, "experts": [[3, 0, 2], [1]]})"}) {
    LayerSpec spec = makeSpec(parallel);
    std::vector<HostTensor> whole = makeWhole(spec);
    std::vector<moert::SafetensorsTensor> entries;
    for (const HostTensor &tensor : whole)
      entries.push_back(tensor.getEntry());
    ASSERT_TRUE(moert::writeSafetensors(path.str().str(), entries));
    for (int64_t rank = 0; rank < spec.parallel->getNumRanks(); ++rank) {
      std::vector<TensorShape> shapes;
      for (const TensorInfo &info : getTensorSignature(spec))
        if (info.role == moec::TensorRole::Weight)
          shapes.push_back(
              {info.name, Role::Weight, getElementType(info.type), info.shape});
      std::vector<HostTensor> tensors = makeTensors(shapes);
      auto file = moert::Checkpoint::open(path.str().str());
      ASSERT_TRUE(file);
      LayerRequest request = makeRequest(spec, rank);
      moert::Status status = loadTensors(tensors, *file, request);
      ASSERT_TRUE(status) << status.message();
      for (const HostTensor &tensor : tensors) {
        EXPECT_TRUE(tensor.isGiven) << tensor.name;
        // Tables follow from the spec, and are in no file.
        const std::vector<int32_t> *table = nullptr;
        std::vector<int32_t> ids = getLocalIds(spec, rank), destinations;
        if (tensor.name == "placement.local_ids")
          table = &ids;
        if (tensor.name == "placement.destinations") {
          destinations = getDestinations(spec, rank);
          table = &destinations;
        }
        if (table) {
          ASSERT_EQ(tensor.getNumBytes(), table->size() * 4) << tensor.name;
          EXPECT_EQ(
              std::memcmp(table->data(), tensor.data(), tensor.getNumBytes()),
              0)
              << tensor.name;
          continue;
        }
        const HostTensor *from = nullptr;
        for (const HostTensor &each : whole)
          if (each.name == tensor.name)
            from = &each;
        TensorShard shard = *request.findShard(tensor.name);
        shard.whole.type = shard.local.type = TensorType::F32;
        std::vector<uint8_t> expected = cut(shard, *from);
        for (int64_t i = 0; i < tensor.getNumElements(); ++i) {
          float wanted, found = 0;
          std::memcpy(&wanted, expected.data() + i * 4, 4);
          if (tensor.dtype == ElementType::F32)
            std::memcpy(&found, tensor.data() + i * 4, 4);
          else
            ASSERT_TRUE(convertElement(tensor.data() + i * 2, tensor.dtype,
                                       reinterpret_cast<uint8_t *>(&found),
                                       ElementType::F32));
          ASSERT_EQ(found, wanted) << tensor.name << ", element " << i;
        }
      }
    }
  }
  (void)llvm::sys::fs::remove(path);
}

/// In a folder with an index, files that have only other ranks' experts may be
/// missing.
TEST(RankCheckpointTest, OpensNoFileOfOtherExperts) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("moec", folder));
  auto file = moert::Checkpoint::open(getPackedWeights("gptq-int4-zeros"));
  ASSERT_TRUE(file);
  std::string index;
  std::vector<moert::SafetensorsTensor> tensors;
  for (const auto &entry : file->tensors()) {
    bool isElsewhere = llvm::StringRef(entry.first).contains(".experts.0.");
    index += (index.empty() ? "" : ",") + ("\"" + entry.first + "\": \"") +
             (isElsewhere ? "none" : "own") + ".safetensors\"";
    const moert::SafetensorsEntry &from = **file->find(entry.first);
    if (!isElsewhere)
      tensors.push_back(
          {from.name, from.dtype, from.shape, from.data, from.bytes});
  }
  std::string name = folder.str().str() + "/model.safetensors.index.json";
  {
    std::error_code error;
    llvm::raw_fd_ostream os(name, error);
    os << "{\"weight_map\": {" << index << "}}";
  }
  ASSERT_TRUE(moert::writeSafetensors(folder.str().str() + "/own.safetensors",
                                      tensors));
  LayerSpec spec =
      importPacked("gptq-int4-zeros", R"({"dp": 2, "experts": "linear"})");
  PackedLayer whole(spec.getWhole());
  ASSERT_TRUE(whole.load(spec.getWhole(), getPackedWeights("gptq-int4-zeros")));
  ASSERT_NO_FATAL_FAILURE(expectCut(spec.getWhole(), whole,
                                    makeRequest(spec, 1).rank->shards,
                                    folder.str().str()));
  moert::Status status =
      PackedLayer(spec.getWhole()).load(spec.getWhole(), folder.str().str());
  EXPECT_NE(status.message().find("none.safetensors: is missing"),
            std::string::npos);
  (void)llvm::sys::fs::remove_directories(folder);
}

/// Rows of other ranks are not accessed: here they cannot be read.
TEST(RankCheckpointTest, ReadsNoRowsOfOthers) {
  auto page = size_t(sysconf(_SC_PAGESIZE));
  constexpr int64_t numExperts = 2, parts = 4;
  auto columns = int64_t(page / 4);
  // A row is a page.
  std::vector<int64_t> shape = {numExperts, 2 * parts, columns};
  size_t bytes = page * size_t(numExperts * 2 * parts);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto *rows = static_cast<uint8_t *>(memory);
  TensorShard shard;
  shard.whole.shape = shard.local.shape = shape;
  shard.local.shape[1] = 2;
  shard.dimension = 1;
  shard.first = 2;
  shard.count = 1;
  shard.numRuns = 2;
  for (int64_t row = 0; row < numExperts * 2 * parts; ++row) {
    std::memset(rows + size_t(row) * page, int(row), page);
    if (row % parts != shard.first)
      ASSERT_EQ(mprotect(rows + size_t(row) * page, page, PROT_NONE), 0);
  }
  moert::SafetensorsEntry entry = {"w", ElementType::F32, shape, rows, bytes,
                                   ""};
  CopyTarget target = {"w", ElementType::F32, shape, /*isStacked=*/true,
                       &shard};
  ASSERT_EQ(target.getMatrixBytes(), 2 * page);
  CheckpointPart gate, all;
  gate.numRows = parts;
  all.numRows = 2 * parts;
  std::string file = "f";
  for (int64_t expert = 0; expert < numExperts; ++expert) {
    std::vector<uint8_t> matrix(2 * page);
    ASSERT_TRUE(
        PartCopier(file, entry, target).copyPart(all, expert, matrix.data()));
    for (size_t i = 0; i < matrix.size(); ++i)
      ASSERT_EQ(matrix[i],
                expert * 2 * parts + int64_t(i / page) * parts + shard.first);
  }
  munmap(memory, bytes);
}
