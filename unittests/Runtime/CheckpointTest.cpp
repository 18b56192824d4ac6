//===- CheckpointTest.cpp - tests of reading checkpoints --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

using namespace moert;

static constexpr char kIndex[] = "model.safetensors.index.json";

namespace {

/// A temporary folder.
class CheckpointTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = ::testing::TempDir() + "moert_checkpoint";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string at(const std::string &name) const { return folder + "/" + name; }

  void write(const std::string &name, const std::string &text) const {
    std::filesystem::create_directories(
        std::filesystem::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary) << text;
  }

  /// Writes a file of tensors with one element each: 1, 2, ...
  void writeShard(const std::string &name,
                  const std::vector<std::string> &tensors) const {
    std::vector<float> values(tensors.size());
    std::vector<SafetensorsTensor> entries;
    for (size_t i = 0; i < tensors.size(); ++i) {
      values[i] = float(i + 1);
      entries.push_back({tensors[i], DType::F32, {1}, &values[i], 4});
    }
    std::filesystem::create_directories(
        std::filesystem::path(at(name)).parent_path());
    ASSERT_TRUE(writeSafetensors(at(name), entries));
  }

  /// The error of `open`, or of finding `tensor` in the checkpoint.
  std::string errorOf(const std::string &tensor = "") const {
    Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    if (!checkpoint)
      return checkpoint.status().message();
    if (tensor.empty())
      return "";
    return checkpoint->find(tensor).status().message();
  }

  std::string folder;
};

float valueOf(Checkpoint &checkpoint, const std::string &name) {
  Result<const SafetensorsEntry *> entry = checkpoint.find(name);
  EXPECT_TRUE(entry) << entry.status().message();
  float value = 0;
  if (entry)
    memcpy(&value, (*entry)->data, sizeof(value));
  return value;
}

std::string indexError(const std::string &text) {
  Result<CheckpointIndex> index =
      parseCheckpointIndex(text.data(), text.size());
  EXPECT_FALSE(index) << text;
  return index ? "" : index.status().message();
}

} // namespace

// field-bug: sglang#32279
TEST_F(CheckpointTest, ReadsTheFilesOfAnIndexWhenTheyAreAskedFor) {
  writeShard("model-1.safetensors", {"a", "b"});
  writeShard("more/model-3.safetensors", {"e"});
  write("model-2.safetensors", "garbage");
  write(kIndex, R"({"metadata": {"total_size": 12, "x": [{"weight_map": 1}]},
    "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors",
                   "c": "model-2.safetensors", "d": "model-4.safetensors",
                   "e": "more/model-3.safetensors"}})");
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->path(), folder);
  EXPECT_EQ(checkpoint->tensors().size(), 5u);
  EXPECT_TRUE(checkpoint->contains("d"));
  EXPECT_FALSE(checkpoint->contains("f"));
  EXPECT_EQ(valueOf(*checkpoint, "b"), 2);
  EXPECT_EQ(valueOf(*checkpoint, "e"), 1);
  EXPECT_EQ(valueOf(*checkpoint, "a"), 1);
  EXPECT_EQ(checkpoint->fileOf("d"), at("model-4.safetensors"));
  EXPECT_EQ(checkpoint->files(),
            (std::vector<std::string>{at(kIndex), at("model-1.safetensors"),
                                      at("model-2.safetensors"),
                                      at("model-4.safetensors"),
                                      at("more/model-3.safetensors")}));
  EXPECT_EQ(checkpoint->find("c").status().message(),
            "tensor 'c': " + at("model-2.safetensors") +
                ": the file has 7 bytes; a safetensors file begins with 8 "
                "bytes of header length");
  EXPECT_EQ(checkpoint->find("d").status().message(),
            "tensor 'd': " + at("model-4.safetensors") + ": is missing, and " +
                at(kIndex) + " names it");
  EXPECT_EQ(checkpoint->find("f").status().message(),
            folder + ": no tensor 'f'");
}

// field-bug: mlx-vlm#1827, CoSER#3, huggingface_hub#4728, vmlx-swift#388
TEST_F(CheckpointTest, AnIndexThatIsOfOtherFilesIsFound) {
  writeShard("model-1.safetensors", {"a"});
  write(kIndex, R"({"weight_map": {"b": "model-1.safetensors"}})");
  EXPECT_EQ(errorOf("b"),
            at("model-1.safetensors") + ": no tensor 'b', though " +
                at(kIndex) +
                " lists it there; one of the two belongs to another model");
}

/// A tensor may be in two shards, and a file of another model may be beside the
/// index.
// field-bug: colibri#1479, vllm#54230, 1Cat-vLLM#407, mlx-vlm#1464
TEST_F(CheckpointTest, TheIndexDecidesWhichFileHasATensor) {
  writeShard("a.safetensors", {"t", "u"});
  writeShard("b.safetensors", {"u", "t"});
  writeShard("model.safetensors", {"x", "y", "t"});
  for (auto [file, value] :
       {std::pair("a.safetensors", 1.0F), {"b.safetensors", 2.0F}}) {
    write(kIndex, std::string(R"({"weight_map": {"t": ")") + file + "\"}}");
    Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint) << checkpoint.status().message();
    EXPECT_EQ(valueOf(*checkpoint, "t"), value);
    EXPECT_EQ(checkpoint->tensors().size(), 1U);
  }
}

TEST_F(CheckpointTest, WithoutAnIndexModelComesFirst) {
  writeShard("model.safetensors", {"a", "b"});
  writeShard("layer.safetensors", {"a"});
  Result<Checkpoint> checkpoint = Checkpoint::open(folder + "/");
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->files(),
            std::vector<std::string>{at("model.safetensors")});
  EXPECT_EQ(valueOf(*checkpoint, "b"), 2);
}

TEST_F(CheckpointTest, WithoutAnIndexAllFilesCount) {
  writeShard("x.safetensors", {"a"});
  writeShard("y.safetensors", {"c", "b"});
  writeShard(".hidden.safetensors", {"a"});
  write("notes.txt", "");
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(valueOf(*checkpoint, "b"), 2);
  writeShard("z.safetensors", {"b"});
  EXPECT_EQ(errorOf(), folder + ": tensor 'b' is in '" + at("y.safetensors") +
                           "' and in '" + at("z.safetensors") +
                           "'; without a model.safetensors.index.json each "
                           "name may occur once in the folder's files");
}

TEST_F(CheckpointTest, AFileIsACheckpointToo) {
  writeShard("x.safetensors", {"a"});
  Result<Checkpoint> checkpoint = Checkpoint::open(at("x.safetensors"));
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(valueOf(*checkpoint, "a"), 1);
}

TEST_F(CheckpointTest, SaysWhatAFolderLacks) {
  std::string nothing =
      folder + ": holds no weights in a supported format: "
               "model.safetensors.index.json and its files, or *.safetensors";
  EXPECT_EQ(errorOf(), nothing);
  write("pytorch_model.bin", "");
  EXPECT_EQ(errorOf(), nothing + "; convert 'pytorch_model.bin' and its like "
                                 "to safetensors");
  write("model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_EQ(errorOf(), at("model.safetensors") +
                           ": is a pointer of Git LFS, not the file itself; "
                           "fetch it with 'git lfs pull'");
  // Containers that engines make of a GGUF file, for reading single experts.
  for (const char *magic : {"SGLANG-EXPERTPACK-v1", "GGMLMOEPACKv1"}) {
    write("model.safetensors", std::string(magic) + std::string(64, '\0'));
    EXPECT_NE(errorOf().find("is a container of experts ("), std::string::npos);
  }
}

TEST_F(CheckpointTest, AnIndexNamesItsPlace) {
  write(kIndex, "{\n  \"weight_map\": {\"a\": 1}}");
  EXPECT_EQ(errorOf(), at(kIndex) + ":2:23: weight_map: tensor 'a': the name "
                                    "of a file expected, a number found");
  write(kIndex, "\xEF\xBB\xBF{\"weight_map\": {}}");
  EXPECT_EQ(errorOf(), at(kIndex) + ": not JSON: the file starts with a byte "
                                    "order mark; save it as UTF-8 without one");
  write(kIndex, std::string("\xFF\xFE{\0}\0", 6));
  EXPECT_EQ(errorOf(), at(kIndex) + ": not JSON: the text is UTF-16; save it "
                                    "as UTF-8 without a byte order mark");
  write(kIndex, "{}");
  EXPECT_EQ(
      errorOf(),
      at(kIndex) +
          ": 'weight_map' is missing, which maps each tensor to its file");
}

TEST(CheckpointIndexTest, RefusesWhatIsNoIndex) {
  for (const char *text : {"", "{", "{\"weight_map\": {\"a\"", "x", "{}}"})
    EXPECT_NE(indexError(text).find(": not JSON: "), std::string::npos) << text;
  EXPECT_EQ(indexError(std::string("{\"weight_map\": {}}\0", 19)),
            "1:19: not JSON: a zero byte");
  EXPECT_NE(indexError(std::string(100'000, '[')), "");
  EXPECT_EQ(indexError("[]").substr(4),
            " an object with 'weight_map' expected, an array found");
  EXPECT_EQ(indexError("1").substr(4),
            " an object with 'weight_map' expected, a number found");
  EXPECT_NE(indexError("{\"weight_map\": []}").find("an array found"),
            std::string::npos);
  EXPECT_NE(indexError("{\"weight_map\": {\"a\": {}}}").find("an object found"),
            std::string::npos);
  EXPECT_NE(indexError("{\"weight_map\": {}, \"weight_map\": {}}")
                .find("'weight_map' occurs twice"),
            std::string::npos);
  EXPECT_NE(indexError("{\"weight_map\": {\"a\": \"f\", \"a\": \"f\"}}")
                .find("tensor 'a' occurs twice"),
            std::string::npos);
}

TEST(CheckpointIndexTest, StaysInTheFolder) {
  for (const char *file : {"/etc/passwd", "../f", "a/../f", "a//f", "a/", "",
                           ".", "./f", "a\\u0000b"})
    EXPECT_NE(
        indexError(std::string("{\"weight_map\": {\"a\": \"") + file + "\"}}")
            .find("is not a file of this folder"),
        std::string::npos)
        << file;
  std::string text = "{\"weight_map\": {\"a\": \"x..y/.z\"}}";
  EXPECT_TRUE(parseCheckpointIndex(text.data(), text.size()));
}
