//===- HostRates.cpp - rates of this CPU, measured once -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostRates.h"

#include "../../../runtime/src/host/NumThreads.h"
#include "../../../runtime/src/support/AtomicFile.h"
#include "MeasureHost.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Jit/Cache.h"
#include "moec/Target/CPU.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace moec;
using llvm::StringRef;
using moert::Result;

/// Changes with what is measured.
static constexpr int64_t kVersion = 1;

/// The members of HostRates that are plain numbers, by their names in the file.
static constexpr std::pair<llvm::StringLiteral, double HostRates::*>
    kNumbers[] = {{"fma", &HostRates::fmas},
                  {"bf16_pairs", &HostRates::pairs},
                  {"bf16_tiles", &HostRates::tiles},
                  {"int8_quads", &HostRates::quads},
                  {"int8_tiles", &HostRates::byteTiles},
                  {"launch_us", &HostRates::launchUs}};

/// "Intel(R) Xeon(R) Processor, 2 threads, amx". Another machine that shares
/// the folder has another name, or measures again.
static std::string describeHost(const Target &target, int threads) {
  std::string model = "CPU";
  if (auto text = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo")) {
    StringRef found = (*text)->getBuffer().split("model name").second;
    found = found.split('\n').first.split(':').second.trim();
    if (!found.empty())
      model = found.str();
  }
  return model + ", " + std::to_string(threads) +
         (threads == 1 ? " thread, " : " threads, ") +
         std::to_string(target.lanes) + " lanes" +
         (target.products == CpuProducts::Fma
              ? std::string()
              : " with " + Target::getName(target.products).str());
}

static std::optional<HostRates> parseRates(StringRef text, StringRef name) {
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
  if (!parsed) {
    consumeError(parsed.takeError());
    return std::nullopt;
  }
  const llvm::json::Object *file = parsed->getAsObject();
  if (!file || file->getInteger("version") != kVersion ||
      file->getString("cpu") != name)
    return std::nullopt;
  HostRates rates;
  rates.name = name.str();
  rates.threads = file->getInteger("threads").value_or(0);
  bool isValid = rates.threads > 0;
  for (auto [key, member] : kNumbers) {
    rates.*member = file->getNumber(key).value_or(-1);
    isValid &= rates.*member >= 0 && std::isfinite(rates.*member);
  }
  double before = 0;
  if (const llvm::json::Array *reads = file->getArray("reads"))
    for (const llvm::json::Value &each : *reads) {
      const llvm::json::Array *pair = each.getAsArray();
      if (!pair || pair->size() != 2)
        return std::nullopt;
      HostRates::Read read{(*pair)[0].getAsNumber().value_or(0),
                           (*pair)[1].getAsNumber().value_or(0)};
      isValid &= read.size > before && read.bytesPerSecond > 0 &&
                 std::isfinite(read.bytesPerSecond);
      before = read.size;
      rates.reads.push_back(read);
    }
  if (!isValid || rates.reads.empty() || rates.fmas == 0)
    return std::nullopt;
  return rates;
}

static std::string printRates(const HostRates &rates) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream out(os, /*IndentSize=*/2);
  out.object([&] {
    out.attribute("version", kVersion);
    out.attribute("cpu", rates.name);
    out.attribute("threads", rates.threads);
    for (auto [key, member] : kNumbers)
      out.attribute(key, rates.*member);
    out.attributeArray("reads", [&] {
      for (const HostRates::Read &read : rates.reads)
        out.array([&] {
          out.value(read.size);
          out.value(read.bytesPerSecond);
        });
    });
  });
  return text + "\n";
}

/// Writes the file; without it, the next process measures again.
static void store(const std::string &path, const HostRates &rates) {
  if (llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path),
                                        /*IgnoreExisting=*/true,
                                        llvm::sys::fs::owner_all))
    return;
  std::string text = printRates(rates);
  Result<moert::AtomicFile> file = moert::AtomicFile::create(path);
  if (file && file->write(text.data(), text.size()))
    (void)file->commit();
}

static std::optional<HostRates> findRates() {
  Target target = Target::hostCpu();
  Result<int> threads = moert::chooseNumThreads();
  if (!threads)
    return std::nullopt;
  std::string name = describeHost(target, *threads);
  std::string folder = getDefaultCacheDirectory(), path;
  if (!folder.empty()) {
    path = folder + "/cpu-rates.json";
    if (auto text = llvm::MemoryBuffer::getFile(path))
      if (auto rates = parseRates((*text)->getBuffer(), name))
        return rates;
  }
  Result<HostRates> rates = measureHost(target);
  if (!rates)
    return std::nullopt;
  rates->name = name;
  if (!path.empty())
    store(path, *rates);
  return std::move(*rates);
}

std::string moec::whyNoRates(const Target &target) {
  return target.isGpu() ? "the rates are unknown for target " + target.name
                        : "rates are those of one rank on an x86-64 CPU at "
                          "hand; give --cpu=host there";
}

static bool hasCollectives(mlir::ModuleOp module) {
  return module
      ->walk([](plan::CollectiveOp) { return mlir::WalkResult::interrupt(); })
      .wasInterrupted();
}

Target moec::getExpectedTarget(const CompileOptions &options,
                               mlir::ModuleOp module) {
  if (options.isGpu())
    return *Target::find(options.target, /*lanes=*/0, options.part);
  Target target = getCpuTarget(options.cpu);
  if (options.cpu.cpu != "host" || hasCollectives(module))
    return target;
  static const std::optional<DeviceRates> rates = [] {
    std::optional<HostRates> found = findRates();
    return found ? std::optional(makeHostRates(std::move(*found)))
                 : std::nullopt;
  }();
  if (rates)
    target.rates = &*rates;
  return target;
}
