//===- Bench.cpp - the command moe-bench ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "Record/Compare.h"
#include "Run/Profile.h"
#include "Table/RowTable.h"
#include "Tune/Tune.h"

#include "../Run/OpenDevice.h"
#include "../Run/PlanRun.h"
#include "moec/Compiler/Registry.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Support/Parts.h"
#include "moec/Support/PooledContext.h"
#include "moec/Tools/Tools.h"
#include "moec/Transforms/LaunchRewrites.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;
using namespace moec::bench;
using moert::Result;

namespace {

JitOptions getJitOptions(const Options &options, const std::string &target) {
  JitOptions jit;
  jit.compile.target = target;
  jit.compile.configs = options.getConfigs();
  options.kernels.apply(jit.compile);
  jit.useCache = !options.noCache;
  jit.cache.directory = options.cacheDir;
  jit.threads = static_cast<unsigned>(options.threads);
  jit.warn = [](const std::string &message) {
    llvm::errs() << "moe-bench: warning: " << message << "\n";
  };
  return jit;
}

/// The commit of the build, which the build writes into the data folder.
std::string getCommit(const Options &options) {
  if (!options.commit.empty())
    return options.commit;
  Result<llvm::json::Value> document =
      readJson(options.getDataFile("cases.json"));
  const llvm::json::Object *object =
      document ? document->getAsObject() : nullptr;
  return object ? object->getString("commit").value_or("").str() : "";
}

/// The part (GPU model) of a device, even if its coefficients were not
/// measured.
std::string findPartName(const std::string &target,
                         const moert::Device &device) {
  const PartFacts *part =
      findPartOfDevice(target, device.multiprocessors(), device.memoryBytes());
  return part && part->isKnown ? part->name.str() : std::string();
}

int list(const Table &table) {
  for (const Row &row : table.rows)
    llvm::outs() << row.getName() << "\n";
  return 0;
}

int measure(const Options &options) {
  auto fail = [&](const moert::Status &status) {
    options.complain(status.message());
    return 1;
  };
  Result<Table> table = loadTable(options.getDataFile(options.table));
  if (!table)
    return fail(table.status());
  int64_t maxTokens = table->getMaxTokens();
  if (moert::Status status = table->select(options.getRows()); !status)
    return fail(status);
  if (options.list)
    return list(*table);
  if (options.loads > 0) {
    llvm::erase_if(table->rows,
                   [](const Row &row) { return !row.isUniform(); });
    if (table->rows.empty())
      return fail(moert::invalidArgument(
          "--rows: --loads draws its own routings; name rows without @"));
  }
  if (options.spec) {
    llvm::outs() << table->getLayer(table->rows.front())
                        .printSpec(maxTokens, options.router)
                 << "\n";
    return 0;
  }
  Result<Peers> peers = loadPeers(options.getDataFile("peers_h200.json"));
  if (!peers)
    return fail(peers.status());
  if (options.device == "host")
    return fail(moert::invalidArgument(
        "--device: moe-bench measures GPUs; benchmarks/cpu_vs_numpy.py "
        "measures the host"));
  Result<std::unique_ptr<moert::Device>> opened =
      openDevice(options.device, options.threads, options.target);
  if (!opened)
    return fail(opened.status());
  std::string target = options.target;
  if (target.empty())
    target = chooseTarget((*opened)->architecture());
  if (std::string why = options.kernels.whyNot(target); !why.empty())
    return fail(moert::invalidArgument(why));
  if (llvm::Error error = parseRewriteParameters(options.beside).takeError())
    return fail(moert::invalidArgument("--beside: " +
                                       llvm::toString(std::move(error))));

  mlir::DialectRegistry registry;
  registerDialects(registry);
  PooledContext context(registry);
  TimedDevice device(**opened);
  Result<DeviceGenerator> generator =
      DeviceGenerator::create(context, device, target);
  if (!generator)
    return fail(generator.status());
  Session session = {device,
                     *generator,
                     getJitOptions(options, target),
                     maxTokens,
                     options.threads,
                     llvm::StringRef(options.device).starts_with("cuda")};
  if (session.jit.compile.part.empty())
    session.jit.compile.part = options.fit.empty()
                                   ? choosePart(target, device)
                                   : findPartName(target, device);
  session.hasBothLayers = options.router;
  if (!options.tuned.empty()) {
    auto tuned = readTuning(options.tuned, *table, target);
    if (!tuned)
      return fail(tuned.status());
    session.tuned = std::move(*tuned);
  }
  return RowTable(session, options, *table, *peers, getCommit(options), target)
      .run();
}

int compare(const Options &options) {
  auto fail = [&](const moert::Status &status) {
    options.complain(status.message());
    return 1;
  };
  Result<llvm::json::Value> before = readJson(options.others[0]);
  if (!before)
    return fail(before.status());
  Result<llvm::json::Value> after = readJson(options.others[1]);
  if (!after)
    return fail(after.status());
  Result<int64_t> numWorse =
      compareRecords(*before, *after, options.tolerance, llvm::outs());
  return numWorse ? *numWorse > 0 : fail(numWorse.status());
}

} // namespace

int moec::moeBenchMain(int argc, char **argv) {
  Options options;
  if (!options.parse(argc, argv))
    return 1;
  return options.compare ? compare(options) : measure(options);
}
