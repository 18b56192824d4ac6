//===- Tool.cpp - the ptx-conform tool --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Ptx/Conform/Tool.h"
#include "moec/Ptx/Conform/Record.h"
#include "moec/Ptx/Sim/SimDevice.h"
#include "moert/CudaDevice.h"
#include "runtime/src/support/AtomicFile.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>

namespace moec::conform {

using namespace moert;

namespace {

constexpr const char *kUsage =
    R"(ptx-conform: instruction forms of PTX, each in a kernel of its own

  ptx-conform --list                              the forms
  ptx-conform --emit=FORM                         the kernel of a form
  ptx-conform --kernels=FOLDER                    all of them, a file each
  ptx-conform --device=cuda --record=FILE         what a GPU answers
  ptx-conform --device=sim --compare=FILE         whether the simulator agrees
  ptx-conform --table=FILE                        a record for docs/

  --family=NAME    only forms of that family
  --forms=TEXT     only forms whose name contains TEXT
  --cubins=FOLDER  what ptxas made of the files of --kernels, under their names
  --seeds=N        inputs of the first N seeds (default: 3)
  --dump=FOLDER    the outputs of the first seed, a file per form
  --about=KEY=TEXT a line for the head of a record, such as driver=580.159
  --help
)";

struct Options {
  std::string device, record, compare, table, emit, kernels, cubins, forms,
      family, dump;
  std::map<std::string, std::string> about;
  size_t seeds = kNumSeeds;
  bool isList = false, isHelp = false;
};

Status parseOptions(int argc, char **argv, Options &options) {
  const std::pair<const char *, std::string *> texts[] = {
      {"--device=", &options.device},   {"--record=", &options.record},
      {"--compare=", &options.compare}, {"--table=", &options.table},
      {"--emit=", &options.emit},       {"--forms=", &options.forms},
      {"--family=", &options.family},   {"--kernels=", &options.kernels},
      {"--dump=", &options.dump}};
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    bool isKnown = false;
    for (const auto &[prefix, target] : texts)
      if (arg.rfind(prefix, 0) == 0) {
        *target = arg.substr(std::string(prefix).size());
        isKnown = true;
      }
    if (arg == "--list" || arg == "--help") {
      (arg == "--list" ? options.isList : options.isHelp) = true;
    } else if (arg.rfind("--seeds=", 0) == 0) {
      options.seeds = std::strtoul(arg.c_str() + 8, nullptr, 10);
      if (options.seeds < 1 || options.seeds > kNumSeeds)
        return invalidArgument(arg + ": from 1 to " +
                               std::to_string(kNumSeeds) + " is accepted");
    } else if (arg.rfind("--about=", 0) == 0 &&
               arg.find('=', 8) != std::string::npos) {
      size_t equals = arg.find('=', 8);
      options.about[arg.substr(8, equals - 8)] = arg.substr(equals + 1);
    } else if (!isKnown) {
      return invalidArgument("'" + arg + "' is no option; see --help");
    }
  }
  return Status::ok();
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
    printf("%zu forms on %s, %zu in trouble\n", done, device.name().c_str(),
           bad);
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
  static int fail(const Status &status) {
    fprintf(stderr, "ptx-conform: %s\n", status.message().c_str());
    return 2;
  }

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
      fprintf(stderr, "ptx-conform: %s\n", status.message().c_str());
  }

  const Options &options;
  Device &device;
  Record answers;
};

int printTable(const std::string &path) {
  Result<std::string> text = readFile(path);
  Result<Record> record =
      text ? Record::parse(*text) : Result<Record>(text.status());
  if (!record) {
    fprintf(stderr, "ptx-conform: %s\n", record.status().message().c_str());
    return 2;
  }
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
  fprintf(stderr, "ptx-conform: --emit=%s: no such form; see --list\n",
          options.emit.c_str());
  return 2;
}

int writeKernels(const std::string &folder) {
  size_t index = 0;
  for (const Form &form : allForms()) {
    std::string path = folder + numbered(++index, ".ptx");
    std::string text = "// " + form.name + "\n" + form.ptx;
    if (Status status = writeFile(path, text.data(), text.size()); !status) {
      fprintf(stderr, "ptx-conform: %s\n", status.message().c_str());
      return 2;
    }
  }
  return 0;
}

} // namespace

int ptxConformMain(int argc, char **argv) {
  Options options;
  Status status = parseOptions(argc, argv, options);
  if (options.isHelp) {
    fputs(kUsage, stdout);
    return 0;
  }
  int ways = options.isList + !options.emit.empty() + !options.kernels.empty() +
             !options.table.empty() + !options.device.empty();
  if (status && ways != 1)
    status = invalidArgument("one of --list, --emit, --kernels, --table and "
                             "--device is needed; see --help");
  if (!status) {
    fprintf(stderr, "ptx-conform: %s\n", status.message().c_str());
    return 2;
  }
  if (options.isList || !options.emit.empty())
    return printForms(options);
  if (!options.kernels.empty())
    return writeKernels(options.kernels);
  if (!options.table.empty())
    return printTable(options.table);
  Result<std::unique_ptr<Device>> device = openDevice(options.device);
  if (!device) {
    fprintf(stderr, "ptx-conform: %s\n", device.status().message().c_str());
    return 2;
  }
  return Session(options, **device).run();
}

} // namespace moec::conform
