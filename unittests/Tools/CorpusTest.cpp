//===- CorpusTest.cpp - inputs found by fuzzers -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The committed corpus holds seeds, inputs that reach rare code, and every
// input that once broke a reader. Every build reads all of them, with and
// without sanitizers.
//
//===----------------------------------------------------------------------===//

#include "../../fuzz/Readers.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include "gtest/gtest.h"

using namespace moec::testing;

/// Requires that some inputs are accepted, because a reader that refuses all
/// seeds never gets past a first check; `acceptsSome` is false for readers that
/// must refuse foreign input.
static void readCorpus(llvm::ArrayRef<const char *> folders,
                       llvm::function_ref<Reading(llvm::StringRef)> read,
                       bool acceptsSome = true) {
  int numAccepted = 0, numRefused = 0;
  for (const char *folder : folders) {
    std::error_code error;
    llvm::sys::fs::directory_iterator file(folder, error), end;
    for (; !error && file != end; file.increment(error)) {
      auto buffer = llvm::MemoryBuffer::getFile(file->path());
      ASSERT_TRUE(buffer) << file->path();
      Reading reading = read((*buffer)->getBuffer());
      EXPECT_EQ(reading.broken, "") << file->path();
      ++(reading.accepted ? numAccepted : numRefused);
    }
    ASSERT_FALSE(error) << folder << ": " << error.message();
  }
  EXPECT_EQ(numAccepted > 0, acceptsSome);
  EXPECT_GT(numRefused, 0);
}

TEST(Corpus, Description) {
  DescriptionReader reader;
  readCorpus(FUZZ_CORPUS "/description",
             [&](llvm::StringRef text) { return reader.read(text); });
}

TEST(Corpus, IR) {
  IRReader reader;
  readCorpus(FUZZ_CORPUS "/ir",
             [&](llvm::StringRef text) { return reader.read(text); });
}

TEST(Corpus, Package) {
  readCorpus({FUZZ_CORPUS "/package", PACKAGE_FIXTURES}, readPackage);
}

TEST(Corpus, Tensors) { readCorpus(FUZZ_CORPUS "/tensors", readTensors); }

TEST(Corpus, Tuned) { readCorpus(FUZZ_CORPUS "/tuned", readTuned); }

TEST(Corpus, Index) { readCorpus(FUZZ_CORPUS "/index", readIndex); }

TEST(Corpus, RankMessage) {
  readCorpus(FUZZ_CORPUS "/rank-message", readRankMessage);
}

TEST(Corpus, Bootstrap) {
  readCorpus(FUZZ_CORPUS "/bootstrap", readBootstrap, /*acceptsSome=*/false);
}
