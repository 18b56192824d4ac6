//===- Tool.cpp - the command ptx-mutate ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxMutate/Tool.h"

#include "Rules/Rules.h"
#include "Runner.h"

#include "../../runtime/src/support/AtomicFile.h"
#include "moec/PtxCommandLine/CommandLine.h"

#include <cinttypes>
#include <cstdio>

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using moert::Result;
using moert::Status;

static const char kHelp[] =
    R"(ptx-mutate: check that the simulator detects missing synchronization in kernels

  ptx-mutate LAYER.moepkg --case=INPUTS.safetensors:TOKENS ... [options]
  ptx-mutate --rules                            list the rules for equivalent mutants

Deletes or weakens one synchronization, index or mask at a time in the kernels of a
layer compiled for a GPU, and runs each mutant in the simulator on the memory that
the original launch starts with. docs/reference/ptx-mutations.md has the
results for the compiler's kernels.

  --case=FILE:TOKENS[:CTAS[:MORE]]
                       inputs of the layer; number of CTAs of persistent
                       kernels (default: 3); number of CTAs beyond those that
                       the plan launches, for kernels whose idle CTAs return
                       (default: 0). More cases detect more mutants
  --kernel=NAME        only this kernel; may be repeated
  --kind=TEXT          only mutants of kinds that contain TEXT
  --sum-orders         swap two products of a sum at a time instead; for kernels
                       whose results are sums in f32, since rounding hides bits
  --seeds=N            schedules per mutant of a synchronization
                       (default: 8)
  --index-seeds=N      schedules per mutant of an index or mask, whose result
                       hardly depends on the schedule (default: 2)
  --sample=N           N mutants per kernel, chosen by --sample-seed=S
  --index-sample=N     at most N mutants of indices and masks per kernel
  --threads=N          threads (default: 1)
  --json=FILE          every mutant and its outcome
  --label=TEXT         label in the JSON

Prints the missed mutants. The exit code is 0 only if the originals run and no more
mutants are missed than docs/reference/ptx-mutations.md allows.
)";

namespace {

struct Case {
  std::string file;
  int64_t tokens = 0, maxGrid = 3, moreCtas = 0;
};

struct Options {
  std::string package, json, label;
  std::vector<Case> cases;
  std::vector<std::string> kernels;
  bool listsRules = false;
  RunnerOptions runner;
};

/// Takes the number after the last colon of `text`, if there is one.
bool takeNumber(std::string &text, uint64_t &number) {
  size_t colon = text.rfind(':');
  if (colon == std::string::npos ||
      !parseNumber(text.substr(colon + 1), number))
    return false;
  text.resize(colon);
  return true;
}

std::string parseCase(const std::string &value, Case &input) {
  constexpr const char *form = "FILE:TOKENS[:CTAS[:MORE]]";
  input.file = value;
  std::vector<int64_t> numbers;
  for (uint64_t number = 0;
       numbers.size() < 3 && takeNumber(input.file, number);)
    numbers.insert(numbers.begin(), int64_t(number));
  if (numbers.empty())
    return form;
  input.tokens = numbers[0];
  if (numbers.size() > 1)
    input.maxGrid = numbers[1];
  if (numbers.size() > 2)
    input.moreCtas = numbers[2];
  return input.maxGrid > 0 ? "" : std::string(form) + " with CTAS from 1 on";
}

/// Declares the options; they are set when the line is run.
CommandLine makeCommandLine(Options &options) {
  RunnerOptions &runner = options.runner;
  runner.showsProgress = true;
  CommandLine line("ptx-mutate", kHelp, /*failure=*/1);
  line.addFile(options.package);
  line.addFlag("rules", options.listsRules);
  line.addValue("case", [&options](const std::string &value) {
    return parseCase(value, options.cases.emplace_back());
  });
  line.addTexts("kernel", options.kernels);
  line.addText("kind", runner.kind);
  line.addFlag("sum-orders", runner.swapsProducts);
  line.addText("json", options.json);
  line.addText("label", options.label);
  line.addNumber("seeds", runner.seeds, 1);
  line.addNumber("index-seeds", runner.indexSeeds, 1);
  line.addNumber("sample", runner.sample);
  line.addNumber("index-sample", runner.indexSample);
  line.addNumber("sample-seed", runner.sampleSeed);
  line.addNumber("threads", runner.threads, 1);
  return line;
}

std::string quote(const std::string &text) {
  std::string quoted = "\"";
  for (char c : text)
    if (c == '"' || c == '\\')
      quoted += std::string("\\") + c;
    else
      quoted += c == '\n' || c == '\t' ? ' ' : c;
  return quoted + "\"";
}

std::string lineOf(const RawModule &module, unsigned line) {
  std::string text = line > 0 && line <= module.lines.size()
                         ? module.lines[line - 1]
                         : std::string();
  for (char &c : text)
    if (c == '\t')
      c = ' ';
  size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, 100);
}

/// Counts of one group.
struct Tally {
  size_t all = 0, missed = 0;
};

/// Whether the missed mutants of a full run, not of a sample, are within the
/// group's limit.
bool isWithin(Group group, const Tally &tally) {
  constexpr size_t kHundred = 100;
  size_t percent = group == Group::Sync ? 5 : group == Group::Index ? 2 : 0;
  return tally.missed * kHundred <= tally.all * percent;
}

class Session {
public:
  explicit Session(const Options &options) : options(options) {}

  Status run(bool &isGood);

private:
  void add(const std::string &kernel, const Verdict &verdict);
  Status writeJson() const;

  const Options &options;
  Recording recording;
  Tally tallies[4];
  std::string entries;
};

void Session::add(const std::string &kernel, const Verdict &verdict) {
  const Mutant &mutant = verdict.mutant;
  const RawModule &module = *recording.modules.at(kernel);
  Tally &tally = tallies[size_t(mutant.group)];
  ++tally.all;
  std::string text = lineOf(module, mutant.line);
  if (verdict.outcome == Outcome::Missed) {
    ++tally.missed;
    std::printf("missed: %s:%u: %s: %s: %s\n", kernel.c_str(), mutant.line,
                mutant.kind.c_str(), mutant.change.c_str(), text.c_str());
  }
  entries += (entries.empty() ? "" : ",\n") + std::string("  {\"kernel\": ") +
             quote(kernel) + ", \"line\": " + std::to_string(mutant.line) +
             ", \"group\": " + quote(groupName(mutant.group)) +
             ", \"kind\": " + quote(mutant.kind) +
             ", \"change\": " + quote(mutant.change) +
             ", \"text\": " + quote(text) +
             ", \"outcome\": " + quote(outcomeName(verdict.outcome)) +
             ", \"by\": " + quote(verdict.by) +
             ", \"seed\": " + std::to_string(verdict.seed) +
             ", \"inputs\": " + quote(verdict.inputs) +
             ", \"message\": " + quote(verdict.message.substr(0, 300)) + "}";
}

Status Session::writeJson() const {
  std::string text = "{\"label\": " + quote(options.label) +
                     ", \"mutants\": [\n" + entries + "\n]}\n";
  return moert::writeFileWhole(options.json, {{text.data(), text.size()}},
                               moert::AtomicFile::Devices::WriteInPlace);
}

Status Session::run(bool &isGood) {
  Result<moert::Package> package = moert::Package::open(options.package);
  if (!package)
    return package.status();
  for (const Case &input : options.cases)
    if (Status status = record(*package, input.file, input.tokens,
                               {input.maxGrid, input.moreCtas}, recording);
        !status)
      return status;
  std::vector<std::string> kernels = options.kernels;
  if (kernels.empty())
    for (const auto &entry : recording.modules)
      kernels.push_back(entry.first);
  for (const std::string &kernel : kernels) {
    Result<std::vector<Verdict>> verdicts =
        runMutants(recording, kernel, options.runner);
    if (!verdicts)
      return verdicts.status().withContext("kernel '" + kernel + "'");
    for (const Verdict &verdict : *verdicts)
      add(kernel, verdict);
  }
  for (Group group : {Group::Strict, Group::Sync, Group::Index, Group::Order}) {
    const Tally &tally = tallies[size_t(group)];
    std::printf("%-6s %6zu mutants, %zu missed\n", groupName(group), tally.all,
                tally.missed);
    isGood &= isWithin(group, tally);
  }
  return options.json.empty() ? Status::ok() : writeJson();
}

} // namespace

int mutate::ptxMutateMain(int argc, char **argv) {
  Options options;
  CommandLine line = makeCommandLine(options);
  if (std::optional<int> code = line.run(argc, argv))
    return *code;
  if (options.listsRules) {
    for (const Rule &rule : allRules())
      std::printf("%s\n    %s\n", rule.name, rule.text);
    return 0;
  }
  if (options.package.empty() || options.cases.empty())
    return line.fail(
        line.complain("a package and --case=FILE:TOKENS are needed"));
  bool isGood = true;
  Status status = Session(options).run(isGood);
  return !status ? line.fail(status) : isGood ? 0 : 1;
}
