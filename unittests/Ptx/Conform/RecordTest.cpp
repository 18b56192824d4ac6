//===- RecordTest.cpp - records of answers ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Record.h"

#include <gtest/gtest.h>
#include <set>

using namespace moec::conform;

namespace {

const Form &formNamed(const std::string &name) {
  for (const Form &form : allForms())
    if (form.name == name)
      return form;
  ADD_FAILURE() << "no form " << name;
  return allForms().front();
}

/// An outcome whose outputs are all `value`.
Outcome outcomeOf(const Form &form, uint8_t value) {
  Outcome outcome;
  outcome.before = form.fill(1);
  outcome.after.resize(form.buffers.size());
  for (size_t i = 0; i < form.buffers.size(); ++i)
    if (form.buffers[i].isOutput)
      outcome.after[i].assign(form.buffers[i].bytes, value);
  return outcome;
}

Answer answerOf(const Form &form, const Outcome &outcome) {
  Answer answer;
  moert::Status status = addOutcome(answer, form, outcome);
  EXPECT_TRUE(status) << status.message();
  return answer;
}

} // namespace

TEST(FormsTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const Form &form : allForms())
    EXPECT_TRUE(names.insert(form.name).second) << form.name;
  EXPECT_GT(names.size(), 1000u);
}

TEST(FormsTest, FillsTheirBuffersAlikeEveryTime) {
  std::set<std::string> families;
  for (const Form &form : allForms()) {
    // One form of each family is enough.
    if (!families.insert(form.family).second)
      continue;
    Buffers buffers = form.fill(2);
    ASSERT_EQ(buffers.size(), form.buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i)
      EXPECT_EQ(buffers[i].size(), form.buffers[i].bytes) << form.name;
    EXPECT_EQ(buffers, form.fill(2)) << form.name;
    EXPECT_NE(buffers, form.fill(3)) << form.name;
  }
}

TEST(RecordTest, ComesBackFromText) {
  Record record;
  record.about["device"] = "a: b";
  const Form &form = formNamed("add.s32");
  Answer answer = answerOf(form, outcomeOf(form, 3));
  answer.error = 0.25;
  record.answers[form.name] = answer;
  moert::Result<Record> back = Record::parse(record.print());
  ASSERT_TRUE(back) << back.status().message();
  EXPECT_EQ(back->about["device"], "a: b");
  EXPECT_EQ(back->print(), record.print());
}

TEST(RecordTest, RefusesAnythingElse) {
  moert::Result<Record> record = Record::parse("add.s32\t0\t0z\t\t\n");
  ASSERT_FALSE(record);
  EXPECT_NE(record.status().message().find("line 1 of the record"),
            std::string::npos);
  EXPECT_FALSE(Record::parse("add.s32\n"));
}

TEST(RecordTest, SaysWhereAnAnswerDiffers) {
  const Form &form = formNamed("add.s32");
  Outcome outcome = outcomeOf(form, 3);
  Answer recorded = answerOf(form, outcome);
  EXPECT_EQ(difference(form, recorded, recorded), "");
  outcome.after[2][1] = 4;
  EXPECT_EQ(difference(form, recorded, answerOf(form, outcome)),
            "byte 1 of the sample is 0x4, 0x3 recorded");
  outcome.after[2][1] = 3;
  outcome.after[2].back() = 4;
  EXPECT_EQ(difference(form, recorded, answerOf(form, outcome)),
            "elements from 3840 to 4096 differ");
}

TEST(RecordTest, AnyNanIsAsGoodAsAnother) {
  const Form &form = formNamed("neg.f32");
  ASSERT_EQ(form.rule, Rule::AnyNan);
  Answer recorded = answerOf(form, outcomeOf(form, 0xff));
  Outcome outcome = outcomeOf(form, 0x7f);
  // 0x7f7f7f7f is a number.
  EXPECT_NE(difference(form, recorded, answerOf(form, outcome)), "");
  for (size_t i = 2; i < outcome.after[1].size(); i += 4)
    outcome.after[1][i] = 0x80;
  EXPECT_EQ(difference(form, recorded, answerOf(form, outcome)), "");
}

TEST(RecordTest, ABoundIsKeptOrNot) {
  const Form &form = formNamed("rcp.approx.f32");
  Answer found;
  found.error = 0.75;
  EXPECT_EQ(difference(form, {}, found), "");
  found.error = 1.5;
  EXPECT_NE(difference(form, {}, found), "");
  Answer wrong;
  EXPECT_FALSE(addOutcome(wrong, form, outcomeOf(form, 0)));
}

TEST(RecordTest, TablesCountTheForms) {
  Record record;
  record.about["device"] = "some GPU";
  for (const char *name : {"setp.lt.s32", "setp.gt.s32", "rcp.approx.f32"})
    record.answers[name].error = 0.5;
  std::string tables = printTables(record);
  EXPECT_NE(tables.find("| compare | `setp` | 2 | 24576 | bits |"),
            std::string::npos)
      << tables;
  EXPECT_NE(tables.find("| `rcp.approx.f32` | ulp | 1 | 0.5 |"),
            std::string::npos)
      << tables;
}
