//===- Table.cpp - a record as tables ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Record.h"

#include <cmath>

namespace moec::conform {

namespace {

/// Table group of a form: "setp" of "setp.lt.s32 [near]", with more words where
/// one says little.
std::string group(const Form &form) {
  std::string name = form.name.substr(0, form.name.find_first_of(" ["));
  std::string first = name.substr(0, name.find_first_of(".,"));
  size_t dot = name.find('.');
  bool isLong = first == "cp" || first == "mbarrier" || first == "ld" ||
                first == "st" || first == "fence" || first == "wgmma";
  if (!isLong || dot == std::string::npos)
    return first;
  size_t second = name.find_first_of(".,:", dot + 1);
  if (first == "cp")
    for (const char *word : {".bulk.tensor", ".bulk", ".mbarrier"})
      if (name.find(word) != std::string::npos)
        return (name.find("reduce") != std::string::npos ? "cp.reduce.async"
                                                         : "cp.async") +
               std::string(word);
  return name.substr(0, second);
}

std::string power(double value) {
  if (value == 0)
    return "0";
  char text[32];
  snprintf(text, sizeof(text), "2^%.2f", std::log2(value));
  return text;
}

std::string number(double value, const std::string &unit) {
  if (unit != "ulp")
    return power(value);
  char text[32];
  snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

struct Sum {
  std::string family, name;
  size_t forms = 0;
  int64_t elements = 0;
  bool hasBits = false, hasAnyNan = false, hasExact = false, hasBound = false;
};

std::string summary(const Record &record) {
  std::vector<Sum> sums;
  for (const Form &form : allForms()) {
    if (!record.answers.count(form.name))
      continue;
    std::string name = group(form);
    size_t i = 0;
    while (i < sums.size() &&
           (sums[i].family != form.family || sums[i].name != name))
      ++i;
    if (i == sums.size()) {
      sums.emplace_back();
      sums[i].family = form.family;
      sums[i].name = name;
    }
    ++sums[i].forms;
    sums[i].elements += form.elements * static_cast<int64_t>(kNumSeeds);
    sums[i].hasBits |= form.rule == Rule::Bits;
    sums[i].hasAnyNan |= form.rule == Rule::AnyNan;
    bool hasBound = form.rule == Rule::Bound;
    sums[i].hasExact |= hasBound && form.bound == 0;
    sums[i].hasBound |= hasBound && form.bound != 0;
  }
  std::string text = "| family | instruction | forms | results | rule |\n"
                     "|---|---|---|---|---|\n";
  for (const Sum &sum : sums) {
    std::string rule;
    auto add = [&](bool has, const char *name) {
      if (has)
        rule += (rule.empty() ? "" : ", ") + std::string(name);
    };
    add(sum.hasBits, "bits");
    add(sum.hasAnyNan, "bits, any NaN");
    add(sum.hasExact, "exact");
    add(sum.hasBound, "bound");
    text += "| " + sum.family + " | `" + sum.name + "` | " +
            std::to_string(sum.forms) + " | " + std::to_string(sum.elements) +
            " | " + rule + " |\n";
  }
  return text;
}

std::string bounds(const Record &record, const char *family) {
  std::string text = "| form | unit | accepted | measured |\n"
                     "|---|---|---|---|\n";
  for (const Form &form : allForms()) {
    auto found = record.answers.find(form.name);
    if (form.family != family || form.bound == 0 ||
        found == record.answers.end())
      continue;
    text += "| `" + form.name + "` | " + form.unit + " | " +
            number(form.bound, form.unit) + " | " +
            number(found->second.error, form.unit) + " |\n";
  }
  return text;
}

} // namespace

std::string printTables(const Record &record) {
  size_t forms = 0;
  int64_t elements = 0;
  for (const Form &form : allForms())
    if (record.answers.count(form.name)) {
      ++forms;
      elements += form.elements * static_cast<int64_t>(kNumSeeds);
    }
  std::string text = std::to_string(forms) + " forms, " +
                     std::to_string(elements) + " results. ";
  for (const auto &[key, value] : record.about)
    if (key != "form")
      text += key + ": " + value + "; ";
  text.resize(text.size() - 2);
  return text + ".\n\n### Forms\n\n" + summary(record) +
         "\n### Approximations\n\n" + bounds(record, "approx") +
         "\n### mma.sync\n\n" + bounds(record, "mma") + "\n### wgmma\n\n" +
         bounds(record, "wgmma");
}

} // namespace moec::conform
