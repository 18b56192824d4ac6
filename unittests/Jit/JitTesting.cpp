//===- JitTesting.cpp - what the tests of the JIT share ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JitTesting.h"

#include "llvm/Support/FileSystem.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sys/wait.h>
#include <unistd.h>

using namespace moec;
using namespace moec::test;
using moert::Package;

void FolderTest::SetUp() {
  std::string pattern = testing::TempDir() + "/moec-jit-XXXXXX";
  ASSERT_TRUE(mkdtemp(pattern.data()));
  folder = pattern;
}

void FolderTest::TearDown() { (void)llvm::sys::fs::remove_directories(folder); }

std::set<std::string> FolderTest::list(llvm::StringRef within) const {
  std::set<std::string> names;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator
           it(within.empty() ? folder : getPath(within), error),
       end;
       it != end && !error; it.increment(error))
    names.insert(llvm::StringRef(it->path()).rsplit('/').second.str());
  return names;
}

std::function<void(const std::string &)> FolderTest::collect() {
  return [this](const std::string &text) { warnings.push_back(text); };
}

SourceText moec::test::makeSpec(int maxTokens) {
  return SourceText("layer.json",
                    R"({"moec_spec": 1, "name": "small", "dtype": "bf16",
  "hidden_size": 64, "num_experts": 4, "top_k": 2, "intermediate_size": 32,
  "max_tokens": )" + std::to_string(maxTokens) +
                        R"(, "routing": {"renormalize": true},
  "activation": {"kind": "silu"}})");
}

Package moec::test::makePackage(const std::string &key, int maxTokens) {
  JitOptions options;
  options.compile.target = "sm_80";
  options.useCache = options.usePtxas = false;
  moert::Result<JitLayer> layer = Jit(options).compile(makeSpec(maxTokens));
  if (!layer) {
    ADD_FAILURE() << layer.status().message();
    return {};
  }
  layer->package.cacheKey = key;
  return std::move(layer->package);
}

std::string moec::test::makeKey(char digit) { return std::string(64, digit); }

std::string moec::test::pack(const Package &package) {
  moert::Result<std::vector<uint8_t>> bytes = moert::packPackage(package);
  return bytes ? std::string(bytes->begin(), bytes->end())
               : bytes.status().message();
}

std::string moec::test::readFile(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void moec::test::writeFile(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

int moec::test::countFailedProcesses(int count,
                                     const std::function<bool(int)> &body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    pid_t child = fork();
    if (child == 0)
      _exit(body(i) ? 0 : 1);
    children.push_back(child);
  }
  int failed = 0;
  for (pid_t child : children) {
    int status = 0;
    bool ended = child > 0 && waitpid(child, &status, 0) == child;
    failed += !ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  return failed;
}
