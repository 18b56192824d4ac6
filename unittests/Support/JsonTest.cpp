//===- JsonTest.cpp - the JSON reader ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Json.h"

#include "gtest/gtest.h"

using namespace moec;
using json::Value;

namespace {

struct Parsed {
  SourceText text;
  std::string messages;
  llvm::FailureOr<Value> value;

  explicit Parsed(std::string input)
      : text("t.json", std::move(input)), value(llvm::failure()) {
    llvm::raw_string_ostream os(messages);
    Diagnostics diags(os);
    value = json::parse(text, diags);
    EXPECT_EQ(succeeded(value), diags.getNumErrors() == 0);
  }
};

/// The first line of the report for a text.
std::string errorOf(std::string input) {
  Parsed parsed(std::move(input));
  EXPECT_TRUE(failed(parsed.value));
  return llvm::StringRef(parsed.messages).split('\n').first.str();
}

TEST(Json, ReadsEveryKind) {
  Parsed parsed(R"({"n": null, "t": true, "f": false, "i": -12, "d": 1.5e3,
                    "s": "a", "a": [1, [], {}], "o": {"x": 1}})");
  ASSERT_TRUE(succeeded(parsed.value));
  const Value &root = *parsed.value;
  EXPECT_TRUE(root.isObject());
  EXPECT_TRUE(root.find("n")->value.isNull());
  EXPECT_TRUE(root.find("t")->value.boolean);
  EXPECT_FALSE(root.find("f")->value.boolean);
  EXPECT_EQ(root.find("i")->value.getInteger(), -12);
  EXPECT_EQ(root.find("d")->value.getDouble(), 1500.0);
  EXPECT_EQ(root.find("s")->value.text, "a");
  EXPECT_EQ(root.find("a")->value.elements.size(), 3u);
  EXPECT_EQ(root.find("o")->value.find("x")->value.getInteger(), 1);
  EXPECT_EQ(root.find("missing"), nullptr);
}

TEST(Json, KeepsTheRangeOfValuesAndNames) {
  Parsed parsed("{ \"a\" :1 ,\n\"b\": [ 2.5 , {\"c\\n\":\"x\\\"y\"} ,[ ] ],"
                "\"d\":true,\"e\" :{ } }");
  ASSERT_TRUE(succeeded(parsed.value));
  auto show = [&](SourceRange range) { return parsed.text.getText(range); };
  const auto &members = parsed.value->members;
  ASSERT_EQ(members.size(), 4u);
  EXPECT_EQ(show(members[0].nameRange), "\"a\"");
  EXPECT_EQ(show(members[0].value.range), "1");
  EXPECT_EQ(show(members[1].nameRange), "\"b\"");
  EXPECT_EQ(show(members[1].value.range),
            "[ 2.5 , {\"c\\n\":\"x\\\"y\"} ,[ ] ]");
  const auto &elements = members[1].value.elements;
  EXPECT_EQ(show(elements[0].range), "2.5");
  EXPECT_EQ(show(elements[1].range), "{\"c\\n\":\"x\\\"y\"}");
  EXPECT_EQ(elements[1].members[0].name, "c\n");
  EXPECT_EQ(show(elements[1].members[0].nameRange), "\"c\\n\"");
  EXPECT_EQ(show(elements[1].members[0].value.range), "\"x\\\"y\"");
  EXPECT_EQ(show(elements[2].range), "[ ]");
  EXPECT_EQ(show(members[2].value.range), "true");
  EXPECT_EQ(show(members[3].value.range), "{ }");
  EXPECT_EQ(show(parsed.value->range), parsed.text.getText());
}

TEST(Json, RootMayBeAScalar) {
  Parsed parsed(" 7 ");
  ASSERT_TRUE(succeeded(parsed.value));
  EXPECT_EQ(parsed.text.getText(parsed.value->range), "7");
}

TEST(Json, DecodesStrings) {
  Parsed parsed(R"(["\u00e9\ud83d\ude00", "é", "\u0000"])");
  ASSERT_TRUE(succeeded(parsed.value));
  EXPECT_EQ(parsed.value->elements[0].text, "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(parsed.value->elements[1].text, "\xC3\xA9");
  EXPECT_EQ(parsed.value->elements[2].text, std::string(1, '\0'));
}

TEST(Json, NumbersKeepTheirDigits) {
  Parsed parsed("[9223372036854775807, 9223372036854775808, -0, 1.0, 1e2, "
                "123456789012345678901234567890, 1e-400, 0.1]");
  ASSERT_TRUE(succeeded(parsed.value));
  const auto &numbers = parsed.value->elements;
  EXPECT_EQ(numbers[0].getInteger(), INT64_MAX);
  EXPECT_EQ(numbers[1].getInteger(), std::nullopt);
  EXPECT_TRUE(numbers[1].isIntegerLiteral());
  EXPECT_EQ(numbers[2].getInteger(), 0);
  EXPECT_EQ(numbers[3].getInteger(), std::nullopt);
  EXPECT_FALSE(numbers[3].isIntegerLiteral());
  EXPECT_EQ(numbers[4].getInteger(), std::nullopt);
  EXPECT_EQ(numbers[5].text, "123456789012345678901234567890");
  EXPECT_NEAR(*numbers[5].getDouble(), 1.2345678901234568e29, 1e14);
  EXPECT_EQ(numbers[6].getDouble(), 0.0);
  EXPECT_EQ(numbers[7].getDouble(), 0.1);
}

TEST(Json, NumbersOfOtherKindsAreNone) {
  Parsed parsed(R"(["1", true, null])");
  for (const Value &value : parsed.value->elements) {
    EXPECT_EQ(value.getInteger(), std::nullopt);
    EXPECT_EQ(value.getDouble(), std::nullopt);
  }
}

TEST(Json, RefusesWhatIsNotJson) {
  EXPECT_EQ(errorOf(""), "t.json:1:1: error: not JSON: The document is empty");
  EXPECT_EQ(errorOf("  \n "),
            "t.json:2:2: error: not JSON: The document is empty");
  EXPECT_EQ(errorOf("{\"a\": 1,\n}"),
            "t.json:2:1: error: not JSON: Missing a name for object member");
  EXPECT_EQ(errorOf("[1 2]"), "t.json:1:4: error: not JSON: Missing a comma "
                              "or ']' after an array element");
  EXPECT_EQ(errorOf("{} {}"), "t.json:1:4: error: not JSON: The document root "
                              "must not be followed by other values");
  for (const char *text :
       {"{",       "[",        "\"a",     "{\"a\"", "{\"a\":",     "[1,",
        "[1,]",    "{a: 1}",   "'a'",     "01",     "+1",          ".5",
        "1.",      "1e",       "-",       "0x10",   "True",        "nul",
        "// c\n1", "[1] // c", "\"\\x\"", "\"\t\"", "\"\\ud800\"", "]",
        "}",       ",",        ":",       "[}",     "{]"})
    EXPECT_NE(errorOf(text), "") << text;
}

TEST(Json, TakesNumbersThatPythonWrites) {
  // Configurations hold them in fields of other modules (time_step_limit).
  SourceText text("t.json", "[NaN, Infinity, -Infinity]");
  Diagnostics diagnostics(llvm::errs());
  llvm::FailureOr<Value> value = json::parse(text, diagnostics);
  ASSERT_TRUE(succeeded(value));
  for (const Value &element : value->elements) {
    EXPECT_EQ(element.kind, Value::Kind::Number);
    EXPECT_FALSE(element.getDouble());
    EXPECT_FALSE(element.getInteger());
  }
}

TEST(Json, RefusesNumbersBeyondDouble) {
  std::string message = "t.json:1:2: error: not JSON: Number too big to be "
                        "stored in double";
  EXPECT_EQ(errorOf("[1e309]"), message);
  EXPECT_EQ(errorOf("[1e999999999999999999999]"), message);
  EXPECT_EQ(errorOf("[" + std::string(5000, '9') + "]"), message);
}

TEST(Json, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(errorOf("[\"a\xFF\"]"),
            "t.json:1:4: error: not JSON: Invalid encoding in string");
  // A truncated character, and an overlong encoding.
  errorOf("[\"\xC3\"]");
  errorOf("[\"\xC0\xAF\"]");
  errorOf("[\xC3\xA9]");
  EXPECT_EQ(errorOf("\xEF\xBB\xBF{}"),
            "t.json: error: not JSON: the file starts with a byte order mark; "
            "save it as UTF-8 without one");
  for (auto [encoding, text] :
       {std::pair("UTF-16", std::string("\xFF\xFE{\0}\0", 6)),
        {"UTF-16", std::string("\xFE\xFF\0{\0}", 6)},
        {"UTF-16", std::string("{\0}\0", 4)},
        {"UTF-16", std::string("\0{\0}", 4)},
        {"UTF-32", std::string("\xFF\xFE\0\0{\0\0\0", 8)},
        {"UTF-32", std::string("\0\0\xFE\xFF\0\0\0{", 8)},
        {"UTF-32", std::string("{\0\0\0}\0\0\0", 8)},
        {"UTF-32", std::string("\0\0\0{\0\0\0}", 8)}}) {
    Parsed parsed(text);
    EXPECT_EQ(parsed.messages, std::string("t.json: error: not JSON: the text "
                                           "is ") +
                                   encoding +
                                   "; save it as UTF-8 without a byte order "
                                   "mark\n");
  }
  EXPECT_EQ(errorOf(std::string("{}\0{}", 5)),
            "t.json:1:3: error: not JSON: there is a null character");
}

TEST(Json, RefusesAMemberGivenTwice) {
  Parsed parsed("{\"a\": 1,\n \"b\": {\"a\": 2},\n \"\\u0061\": 3}");
  EXPECT_EQ(parsed.messages,
            "t.json:3:2: error: member 'a' is given twice, first in line 1\n"
            "   \"\\u0061\": 3}\n"
            "   ^~~~~~~~\n");
}

TEST(Json, BoundsNesting) {
  auto nested = [](unsigned depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(succeeded(Parsed(nested(json::kMaxDepth)).value));
  EXPECT_EQ(errorOf(nested(json::kMaxDepth + 1)),
            "t.json:1:65: error: brackets nest deeper than the 64 levels that "
            "are read");
  errorOf(std::string(100000, '['));
  std::string objects;
  for (int i = 0; i < 100000; ++i)
    objects += "{\"a\":";
  errorOf(objects);
}

TEST(Json, BoundsTheSize) {
  EXPECT_EQ(errorOf(std::string(json::kMaxBytes + 1, ' ')),
            "t.json: error: has 4194305 bytes; JSON of at most 4194304 bytes "
            "is read");
}

TEST(Json, ManyMembersAreReadInTime) {
  std::string text = "{";
  for (int i = 0; i < 100000; ++i)
    text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text += "\"end\":0}";
  Parsed parsed(text);
  ASSERT_TRUE(succeeded(parsed.value));
  EXPECT_EQ(parsed.value->members.size(), 100001u);
}

} // namespace
