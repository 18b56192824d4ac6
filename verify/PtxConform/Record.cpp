//===- Record.cpp - recorded results of a device ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Record.h"
#include "moec/PtxConform/Number.h"
#include "moec/PtxConform/Random.h"

#include <cstdlib>
#include <sstream>

namespace moec::conform {

using namespace moert;

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

static std::vector<Bytes> comparedOutputs(const Form &form,
                                          const Outcome &outcome) {
  std::vector<Bytes> outputs;
  for (size_t i = 0; i < form.buffers.size(); ++i)
    if (form.buffers[i].isOutput)
      outputs.push_back(
          form.rule == Rule::AnyNan
              ? withOneNan(form.buffers[i].format, outcome.after[i])
              : outcome.after[i]);
  return outputs;
}

static uint32_t hashOfBlock(const std::vector<Bytes> &outputs, size_t block) {
  uint64_t hash = 0;
  for (const Bytes &bytes : outputs) {
    size_t begin = bytes.size() * block / Answer::kBlocks;
    size_t end = bytes.size() * (block + 1) / Answer::kBlocks;
    hash = hash * 31 + hashOf(bytes.data() + begin, end - begin);
  }
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

Status addOutcome(Answer &answer, const Form &form, const Outcome &outcome) {
  std::vector<Bytes> outputs = comparedOutputs(form, outcome);
  if (answer.hashes.empty()) {
    for (const Bytes &bytes : outputs)
      answer.sample.insert(
          answer.sample.end(), bytes.begin(),
          bytes.begin() +
              std::min(bytes.size(), Answer::kSampleBytes / outputs.size()));
    for (size_t block = 0; block < Answer::kBlocks; ++block)
      answer.blocks.push_back(hashOfBlock(outputs, block));
  }
  uint64_t hash = 0;
  for (const Bytes &bytes : outputs)
    hash = hash * 31 + hashOf(bytes.data(), bytes.size());
  answer.hashes.push_back(hash);
  if (form.rule != Rule::Bound)
    return Status::ok();
  Verdict verdict = form.judge(outcome.before, outcome.after);
  answer.error = std::max(answer.error, verdict.error);
  if (!verdict.failure.empty())
    return internalError(form.name + ": " + verdict.failure);
  return Status::ok();
}

static std::string hexNumber(uint64_t value) {
  char text[24];
  snprintf(text, sizeof(text), "0x%llx",
           static_cast<unsigned long long>(value));
  return text;
}

static std::string firstDifference(const Form &form, const Answer &recorded,
                                   const Answer &found) {
  for (size_t i = 0; i < recorded.sample.size(); ++i)
    if (recorded.sample[i] != found.sample[i])
      return "byte " + std::to_string(i) + " of the sample is " +
             hexNumber(found.sample[i]) + ", " + hexNumber(recorded.sample[i]) +
             " recorded";
  for (size_t block = 0; block < recorded.blocks.size(); ++block)
    if (recorded.blocks[block] != found.blocks[block])
      return "elements from " +
             std::to_string(form.elements * block / Answer::kBlocks) + " to " +
             std::to_string(form.elements * (block + 1) / Answer::kBlocks) +
             " differ";
  return "seed 1 agrees, a later one differs";
}

std::string difference(const Form &form, const Answer &recorded,
                       const Answer &found) {
  if (form.rule == Rule::Bound) {
    if (found.error <= form.bound)
      return "";
    return "an error of " + std::to_string(found.error) + " " + form.unit +
           ", " + std::to_string(form.bound) + " accepted";
  }
  if (recorded.sample.size() != found.sample.size() ||
      recorded.blocks.size() != found.blocks.size())
    return "the record is of another version of the form; record it again";
  size_t seeds = std::min(recorded.hashes.size(), found.hashes.size());
  for (size_t seed = 0; seed < seeds; ++seed)
    if (recorded.hashes[seed] != found.hashes[seed])
      return firstDifference(form, recorded, found);
  return "";
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::string Record::print() const {
  std::string text;
  for (const auto &[key, value] : about)
    text += "# " + key + ": " + value + "\n";
  text += "# form\terror\tsample\tblocks\thashes\n";
  char part[32];
  for (const auto &[name, answer] : answers) {
    snprintf(part, sizeof(part), "\t%.9g\t", answer.error);
    text += name + part;
    for (uint8_t byte : answer.sample) {
      snprintf(part, sizeof(part), "%02x", byte);
      text += part;
    }
    text += "\t";
    for (uint32_t block : answer.blocks) {
      snprintf(part, sizeof(part), "%08x", block);
      text += part;
    }
    text += "\t";
    for (uint64_t hash : answer.hashes) {
      snprintf(part, sizeof(part), "%016llx",
               static_cast<unsigned long long>(hash));
      text += part;
    }
    text += "\n";
  }
  return text;
}

/// Parses numbers of `digits` hexadecimal digits each.
template <typename T>
static bool parseHex(const std::string &text, size_t digits,
                     std::vector<T> &numbers) {
  if (text.size() % digits != 0 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (size_t i = 0; i < text.size(); i += digits)
    numbers.push_back(static_cast<T>(
        std::strtoull(text.substr(i, digits).c_str(), nullptr, 16)));
  return true;
}

Result<Record> Record::parse(const std::string &text) {
  Record record;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.rfind("# ", 0) == 0) {
      size_t colon = line.find(": ");
      if (colon != std::string::npos)
        record.about[line.substr(2, colon - 2)] = line.substr(colon + 2);
      continue;
    }
    std::istringstream fields(line);
    std::string name, error, sample, blocks, hashes;
    for (std::string *field : {&name, &error, &sample, &blocks, &hashes})
      std::getline(fields, *field, '\t');
    Answer answer;
    char *end = nullptr;
    answer.error = std::strtod(error.c_str(), &end);
    if (name.empty() || error.empty() || *end ||
        !parseHex(sample, 2, answer.sample) ||
        !parseHex(blocks, 8, answer.blocks) ||
        !parseHex(hashes, 16, answer.hashes))
      return invalidArgument(
          "line " + std::to_string(number) +
          " of the record is not a form with its error, sample, blocks and "
          "hashes; record it again");
    record.answers[name] = std::move(answer);
  }
  return record;
}

} // namespace moec::conform
