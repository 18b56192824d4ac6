//===- Record.cpp - the record of gpu-test ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Record.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

llvm::StringRef moec::gputest::getGroup(llvm::StringRef name) {
  return name.split('/').first;
}

Result<std::vector<std::string>> Record::resume(const std::string &path) {
  Result<llvm::json::Object> object = read(path, "cases");
  if (!object)
    return object.status();
  secondsBefore = object->getNumber("seconds").value_or(0);
  std::vector<std::string> failed;
  for (const llvm::json::Value &entry : *object->getArray("cases")) {
    const llvm::json::Object *fields = entry.getAsObject();
    if (!fields)
      continue;
    std::string name = fields->getString("name").value_or("").str();
    llvm::StringRef status = fields->getString("status").value_or("");
    if (status == "fail")
      failed.push_back(name);
    if (status != "pass")
      continue;
    Outcome outcome;
    outcome.note = fields->getString("note").value_or("").str();
    outcome.seconds = fields->getNumber("seconds").value_or(0);
    if (const llvm::json::Object *figures = fields->getObject("figures"))
      for (const auto &[key, value] : *figures)
        if (std::optional<double> number = value.getAsNumber())
          outcome.figures[key.str()] = *number;
    outcomes[name] = std::move(outcome);
  }
  return failed;
}

void Record::addCase(const std::string &name) { names.push_back(name); }

void Record::set(const std::string &name, Outcome outcome) {
  outcomes[name] = std::move(outcome);
}

std::optional<Outcome> Record::find(const std::string &name) const {
  auto it = outcomes.find(name);
  return it == outcomes.end() ? std::nullopt
                              : std::optional<Outcome>(it->second);
}

int64_t Record::countPassed() const {
  return llvm::count_if(names, [&](const std::string &name) {
    std::optional<Outcome> outcome = find(name);
    return outcome && outcome->hasPassed();
  });
}

int64_t Record::countLeft() const {
  return llvm::count_if(names,
                        [&](const std::string &name) { return !has(name); });
}

int64_t Record::countFailed() const {
  return static_cast<int64_t>(names.size()) - countPassed() - countLeft();
}

/// Writes four digits for readability. JSON has no infinities.
static void writeNumber(llvm::json::OStream &json, llvm::StringRef key,
                        double value) {
  json.attributeBegin(key);
  json.rawValue(std::isfinite(value) ? llvm::formatv("{0:e3}", value).str()
                                     : "null");
  json.attributeEnd();
}

static void writeCase(llvm::json::OStream &json, const std::string &name,
                      const std::optional<Outcome> &outcome) {
  json.attribute("name", name);
  json.attribute("status", !outcome               ? "not run"
                           : outcome->hasPassed() ? "pass"
                                                  : "fail");
  if (!outcome)
    return;
  writeNumber(json, "seconds", outcome->seconds);
  if (!outcome->note.empty())
    json.attribute("note", outcome->note);
  if (!outcome->failures.empty())
    json.attributeArray("failures", [&] {
      for (const std::string &failure : outcome->failures)
        json.value(llvm::json::fixUTF8(failure));
    });
  if (!outcome->figures.empty())
    json.attributeObject("figures", [&] {
      for (const auto &[key, value] : outcome->figures)
        writeNumber(json, key, value);
    });
}

Status Record::write(const std::string &path, double seconds) const {
  return DeviceRecord::write(path, "gpu_suite", [&](llvm::json::OStream &json) {
    writeNumber(json, "seconds", secondsBefore + seconds);
    json.attribute("passed", countPassed());
    json.attribute("failed", countFailed());
    json.attribute("not_run", countLeft());
    json.attributeArray("cases", [&] {
      for (const std::string &name : names)
        writeLine(json, [&](llvm::json::OStream &line) {
          line.object([&] { writeCase(line, name, find(name)); });
        });
    });
  });
}

void Record::print(double seconds) const {
  struct Group {
    int64_t passed = 0, failed = 0, left = 0;
    double worst = 0, seconds = 0;
  };
  std::map<std::string, Group> groups;
  for (const std::string &name : names) {
    Group &group = groups[getGroup(name).str()];
    std::optional<Outcome> outcome = find(name);
    if (!outcome) {
      ++group.left;
      continue;
    }
    ++(outcome->hasPassed() ? group.passed : group.failed);
    group.seconds += outcome->seconds;
    auto error = outcome->figures.find("error");
    auto bound = outcome->figures.find("bound");
    if (error != outcome->figures.end() && bound != outcome->figures.end())
      group.worst = std::max(group.worst, error->second / bound->second);
  }
  printTimes();
  llvm::outs() << llvm::formatv("\n{0}, driver {1}, commit {2}, {3}\n", device,
                                driver.empty() ? "none" : driver, commit, date);
  llvm::outs()
      << "group            passed failed  left  error/bound  seconds\n";
  for (const auto &[name, group] : groups)
    llvm::outs() << llvm::formatv(
        "{0,-16} {1,6} {2,6} {3,5}  {4,11:F3} {5,8:F1}\n", name, group.passed,
        group.failed, group.left, group.worst, group.seconds);
  for (const std::string &name : names) {
    std::optional<Outcome> outcome = find(name);
    if (outcome && !outcome->hasPassed())
      llvm::outs() << "FAILED " << name << ": " << outcome->failures.front()
                   << "\n";
  }
  llvm::outs() << llvm::formatv(
      "{0} passed, {1} failed, {2} not run, in {3:F0} s\n", countPassed(),
      countFailed(), countLeft(), seconds);
}

/// Prints median microseconds and, in brackets, the share of the floor: a line
/// per layer, a column per token count.
void Record::printTimes() const {
  std::map<std::string, std::map<int64_t, std::string>> rows;
  std::map<int64_t, bool> columns;
  for (const std::string &name : names) {
    std::optional<Outcome> outcome = find(name);
    if (!outcome || !outcome->figures.count("median_us"))
      continue;
    auto &figures = outcome->figures;
    auto tokens = static_cast<int64_t>(figures["tokens"]);
    columns[tokens] = true;
    rows[llvm::StringRef(name).rsplit('/').first.str()][tokens] =
        llvm::formatv("{0:F0} ({1:F2})", figures["median_us"],
                      figures["fraction_of_floor"])
            .str();
  }
  if (rows.empty())
    return;
  llvm::outs() << "\nmicroseconds (share of the floor) by tokens\n"
               << llvm::formatv("{0,-34}", "layer");
  for (const auto &[tokens, used] : columns)
    llvm::outs() << llvm::formatv(" {0,13}", tokens);
  llvm::outs() << "\n";
  for (auto &[layer, cells] : rows) {
    llvm::outs() << llvm::formatv("{0,-34}", layer);
    for (const auto &[tokens, used] : columns)
      llvm::outs() << llvm::formatv(" {0,13}", cells[tokens]);
    llvm::outs() << "\n";
  }
}
