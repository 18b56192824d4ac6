//===- SimulatorTest.cpp - the simulator against an H200 --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Record.h"
#include "moec/PtxSim/SimDevice.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <sstream>

using namespace moec::conform;

namespace {

std::string readFile(const char *path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const Record &recorded() {
  static const Record record = [] {
    moert::Result<Record> parsed = Record::parse(readFile(PTX_RECORD));
    EXPECT_TRUE(parsed) << parsed.status().message();
    return parsed ? *parsed : Record();
  }();
  return record;
}

/// The lines of a file without comments.
std::set<std::string> namesIn(const char *path) {
  std::set<std::string> names;
  std::istringstream lines(readFile(path));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("# ", 0) != 0)
      names.insert(line);
  return names;
}

/// Forms that no kernel of the compiler uses and the simulator does not
/// support.
const std::set<std::string> &notModelled() {
  static const std::set<std::string> names = namesIn(PTX_NOT_MODELLED);
  return names;
}

/// Forms that were added after the record was made.
const std::set<std::string> &notRecorded() {
  static const std::set<std::string> names = namesIn(PTX_NOT_RECORDED);
  return names;
}

class SimulatorTest : public testing::TestWithParam<std::string> {};

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const Form &form : allForms())
    if (names.empty() || names.back() != form.family)
      names.push_back(form.family);
  return names;
}

} // namespace

TEST(ExceptionsTest, NameForms) {
  std::set<std::string> all;
  for (const Form &form : allForms())
    all.insert(form.name);
  for (const std::string &name : notModelled())
    EXPECT_TRUE(all.count(name)) << name;
  for (const std::string &name : notRecorded()) {
    EXPECT_TRUE(all.count(name)) << name;
    EXPECT_FALSE(recorded().answers.count(name)) << name << " is recorded";
  }
}

TEST_P(SimulatorTest, AnswersAsRecorded) {
  moert::Result<std::unique_ptr<moert::Device>> device =
      moec::ptx::createSimDevice();
  ASSERT_TRUE(device) << device.status().message();
  for (const Form &form : allForms()) {
    if (form.family != GetParam())
      continue;
    moert::Result<std::vector<Outcome>> outcomes =
        runForm(**device, form, {kSeeds, kSeeds + kNumSeeds});
    if (notModelled().count(form.name)) {
      EXPECT_FALSE(outcomes) << form.name << " is modelled: take it off the "
                             << "list";
      continue;
    }
    ASSERT_TRUE(outcomes) << outcomes.status().message();
    Answer answer;
    for (const Outcome &outcome : *outcomes) {
      moert::Status status = addOutcome(answer, form, outcome);
      EXPECT_TRUE(status) << status.message();
    }
    if (notRecorded().count(form.name))
      continue;
    auto found = recorded().answers.find(form.name);
    ASSERT_NE(found, recorded().answers.end())
        << form.name << " is not in the record";
    EXPECT_EQ(difference(form, found->second, answer), "") << form.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SimulatorTest, testing::ValuesIn(families()),
                         [](const auto &info) {
                           std::string name = info.param;
                           for (char &c : name)
                             c = std::isalnum(c) ? c : '_';
                           return name;
                         });
