//===- Tool.cpp - the ptx-conform tool --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Tool.h"
#include "../../runtime/src/support/AtomicFile.h"
#include "moec/PtxCommandLine/CommandLine.h"
#include "moec/PtxConform/Record.h"
#include "moec/PtxSim/SimDevice.h"
#include "moert/CudaDevice.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>

namespace moec::conform {

using namespace moert;

namespace {

constexpr const char *kUsage =
    R"(ptx-conform: compare instruction forms of PTX between a GPU and the
simulator, one kernel per form

  ptx-conform --list                              list the forms
  ptx-conform --emit=FORM                         print the kernel of a form
  ptx-conform --kernels=FOLDER                    write all kernels, one file per form
  ptx-conform --device=cuda --record=FILE         record the results of a GPU
  ptx-conform --device=sim --compare=FILE         compare the simulator with a record
  ptx-conform --table=FILE                        print a record as a table for docs/

  --family=NAME    only forms of this family
  --forms=TEXT     only forms whose name contains TEXT
  --cubins=FOLDER  cubins that ptxas made of the files of --kernels, with equal names
  --seeds=N        inputs of the first N seeds (default: 3)
  --dump=FOLDER    the outputs of the first seed, a file per form
  --about=KEY=TEXT a header line of the record, such as driver=580.159
  --help
)";

struct Options {
  std::string device, record, compare, table, emit, kernels, cubins, forms,
      family, dump;
  std::map<std::string, std::string> about;
  size_t seeds = kNumSeeds;
  bool isList = false;
};

/// Declares the options; they are set when the line is run.
ptx::CommandLine makeCommandLine(Options &options) {
  ptx::CommandLine line("ptx-conform", kUsage, /*failure=*/2);
  line.addFlag("list", options.isList);
  line.addText("device", options.device);
  line.addText("record", options.record);
  line.addText("compare", options.compare);
  line.addText("table", options.table);
  line.addText("emit", options.emit);
  line.addText("forms", options.forms);
  line.addText("family", options.family);
  line.addText("kernels", options.kernels);
  line.addText("cubins", options.cubins);
  line.addText("dump", options.dump);
  line.addNumber("seeds", options.seeds, 1, kNumSeeds);
  line.addValue("about", [&options](const std::string &value) {
    size_t equals = value.find('=');
    if (equals == std::string::npos)
      return "KEY=TEXT";
    options.about[value.substr(0, equals)] = value.substr(equals + 1);
    return "";
  });
  return line;
}

int fail(const Status &status) {
  fprintf(stderr, "ptx-conform: error: %s\n", status.message().c_str());
  return 2;
}

Result<std::string> readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return notFound(path + ": cannot be read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status writeFile(const std::string &path, const void *data, size_t size) {
  return writeFileWhole(path, {{data, size}});
}

Result<std::unique_ptr<Device>> openDevice(const std::string &name) {
  if (name == "cuda")
    return createCudaDevice(0);
  if (name == "sim")
    return ptx::createSimDevice();
  return invalidArgument("--device=" + name + ": cuda or sim is accepted");
}

/// The file of form number `index`, such as "/0007.ptx".
std::string numbered(size_t index, const char *suffix) {
  char name[16];
  snprintf(name, sizeof(name), "/%04zu", index);
  return name + std::string(suffix);
}

std::string today() {
  std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

class Session {
public:
  Session(const Options &options, Device &device)
      : options(options), device(device) {}

  /// Returns 1 if a form failed or differs, else 0.
  int run() {
    Record recorded;
    if (!options.compare.empty()) {
      Result<std::string> text = readFile(options.compare);
      Result<Record> parsed =
          text ? Record::parse(*text) : Result<Record>(text.status());
      if (!parsed)
        return fail(parsed.status());
      recorded = std::move(*parsed);
    }
    size_t index = 0, done = 0, bad = 0;
    for (const Form &form : allForms()) {
      ++index;
      if (form.name.find(options.forms) == std::string::npos ||
          (!options.family.empty() && form.family != options.family))
        continue;
      ++done;
      std::string trouble = runOne(form, index, recorded);
      if (trouble.empty())
        continue;
      ++bad;
      printf("%s\t%s\n", form.name.c_str(), trouble.c_str());
      fflush(stdout);
    }
    printf("%zu forms on %s, %zu failed\n", done, device.name().c_str(), bad);
    if (!options.record.empty()) {
      answers.about = options.about;
      answers.about["device"] = device.name();
      answers.about["date"] = today();
      std::string text = answers.print();
      if (Status status = writeFile(options.record, text.data(), text.size());
          !status)
        return fail(status);
    }
    return bad == 0 ? 0 : 1;
  }

private:
  std::string runOne(const Form &form, size_t index, const Record &recorded) {
    Answer answer;
    std::string trouble;
    Bytes cubin;
    if (!options.cubins.empty()) {
      Result<std::string> file =
          readFile(options.cubins + numbered(index, ".cubin"));
      if (!file)
        return file.status().message();
      cubin.assign(file->begin(), file->end());
    }
    Result<std::vector<Outcome>> outcomes =
        runForm(device, form, {kSeeds, kSeeds + options.seeds}, cubin);
    if (!outcomes)
      return outcomes.status().message();
    for (const Outcome &outcome : *outcomes)
      if (Status status = addOutcome(answer, form, outcome); !status)
        trouble = status.message();
    if (!options.dump.empty())
      dump(form, index, outcomes->front());
    answers.answers[form.name] = answer;
    if (!trouble.empty() || options.compare.empty())
      return trouble;
    auto found = recorded.answers.find(form.name);
    if (found == recorded.answers.end())
      return "is not in the record; record it on a GPU";
    return difference(form, found->second, answer);
  }

  void dump(const Form &form, size_t index, const Outcome &outcome) {
    Bytes all;
    for (size_t i = 0; i < form.buffers.size(); ++i)
      if (form.buffers[i].isOutput)
        all.insert(all.end(), outcome.after[i].begin(), outcome.after[i].end());
    std::string path = options.dump + numbered(index, ".bin");
    if (Status status = writeFile(path, all.data(), all.size()); !status)
      fail(status);
  }

  const Options &options;
  Device &device;
  Record answers;
};

int printTable(const std::string &path) {
  Result<std::string> text = readFile(path);
  Result<Record> record =
      text ? Record::parse(*text) : Result<Record>(text.status());
  if (!record)
    return fail(record.status());
  fputs(printTables(*record).c_str(), stdout);
  return 0;
}

int printForms(const Options &options) {
  bool isFound = false;
  for (const Form &form : allForms())
    if (options.isList) {
      printf("%s\t%s\n", form.family.c_str(), form.name.c_str());
    } else if (form.name == options.emit) {
      fputs(form.ptx.c_str(), stdout);
      isFound = true;
    }
  if (options.isList || isFound)
    return 0;
  return fail(
      notFound("--emit=" + options.emit + ": no such form; see --list"));
}

int writeKernels(const std::string &folder) {
  size_t index = 0;
  for (const Form &form : allForms()) {
    std::string path = folder + numbered(++index, ".ptx");
    std::string text = "// " + form.name + "\n" + form.ptx;
    if (Status status = writeFile(path, text.data(), text.size()); !status)
      return fail(status);
  }
  return 0;
}

} // namespace

int ptxConformMain(int argc, char **argv) {
  Options options;
  ptx::CommandLine line = makeCommandLine(options);
  if (std::optional<int> code = line.run(argc, argv))
    return *code;
  int ways = options.isList + !options.emit.empty() + !options.kernels.empty() +
             !options.table.empty() + !options.device.empty();
  if (ways != 1)
    return line.fail(line.complain(
        "one of --list, --emit, --kernels, --table and --device is needed"));
  if (options.isList || !options.emit.empty())
    return printForms(options);
  if (!options.kernels.empty())
    return writeKernels(options.kernels);
  if (!options.table.empty())
    return printTable(options.table);
  Result<std::unique_ptr<Device>> device = openDevice(options.device);
  if (!device)
    return fail(device.status());
  return Session(options, **device).run();
}

} // namespace moec::conform
