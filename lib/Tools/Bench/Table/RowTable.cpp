//===- RowTable.cpp - measures the rows of the benchmark --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowTable.h"

#include "../../Run/PlanRun.h"
#include "../Fit/Fit.h"
#include "../Loads/Loads.h"
#include "../Run/Profile.h"
#include "../TryStatus.h"
#include "../Tune/Tune.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

int64_t RowTable::getNumSets(const Row &row) {
  return row.tokens <= 1024 ? 8 : row.tokens <= 4096 ? 4 : 2;
}

RowTable::RowTable(Session &session, const Options &options, const Table &table,
                   const Peers &peers, const std::string &commit,
                   const std::string &target)
    : session(session), options(options), table(table), peers(peers),
      record(commit, session.device, target), ceilings(peers.ceilings),
      begin(getSeconds()), watchdog([this] { endHanging(); }) {
  for (const Row &row : table.rows)
    names.push_back(row.getName());
}

bool RowTable::isOver() const {
  return isLost || getSeconds() - begin > options.timeLimit;
}

llvm::StringRef RowTable::getField() const {
  if (options.profile)
    return "launches";
  if (!options.fit.empty())
    return kTimedField;
  if (options.loads > 0)
    return kLoadsField;
  return options.tune.empty() ? "floor_us" : kTunedField;
}

void RowTable::save() {
  if (options.json.empty())
    return;
  if (Status status = record.write(options.json, names); !status)
    options.complain(status.message());
}

int RowTable::run() {
  if (options.resume)
    if (Status status = record.resume(options.json, getField()); !status)
      return options.complain(status.message()), 1;
  auto numLeft = llvm::count_if(
      names, [&](const std::string &name) { return !record.isMeasured(name); });
  tuneSeconds =
      options.seconds / static_cast<double>(std::max<int64_t>(numLeft, 1));
  startYardstick();
  if (!options.fit.empty() && !yardstick)
    return options.complain("--fit: the device's ceilings were not measured; "
                            "--yardstick has to name a Python with PyTorch"),
           1;
  record.setCeilings(ceilings);
  llvm::outs() << llvm::formatv(
      "{0}: reads {1:F2} TB/s, bf16 {2:F0} TFLOP/s, fp8 {3:F0} TFLOP/s ({4}); "
      "{5} rows, at most {6:F1} s each\n",
      session.device.name(), ceilings.bandwidth / 1e12, ceilings.bf16 / 1e12,
      ceilings.fp8 / 1e12, ceilings.source, names.size(),
      options.timeLimit / static_cast<double>(names.size()));
  if (makesTable())
    printHeader(llvm::outs());
  llvm::ArrayRef<Row> rows(table.rows);
  while (!rows.empty()) {
    size_t count = llvm::find_if(rows,
                                 [&](const Row &row) {
                                   return row.layer != rows.front().layer;
                                 }) -
                   rows.begin();
    runLayer(rows.front().layer, rows.take_front(count));
    rows = rows.drop_front(count);
  }
  if (!options.tune.empty())
    return finishTuning();
  if (!options.fit.empty())
    return finishFit();
  if (options.loads > 0)
    return finishLoads();
  if (options.profile)
    return numFailed > 0 ? 1 : numDone < (int64_t)names.size() ? 2 : 0;
  std::vector<const llvm::json::Object *> measured;
  for (const std::string &name : names)
    if (record.isMeasured(name))
      measured.push_back(record.find(name));
  printSummary(measured, llvm::outs());
  llvm::outs() << llvm::formatv("{0} of {1} rows measured, in {2:F0} s\n",
                                measured.size(), names.size(),
                                getSeconds() - begin);
  return numFailed > 0 ? 1 : measured.size() < names.size() ? 2 : 0;
}

void RowTable::give(const Row &row, llvm::json::Object result) {
  result["row"] = row.getName();
  if (result.getString("status") == llvm::StringRef("failed"))
    ++numFailed;
  if (makesTable())
    printRow(result, llvm::outs());
  else if (result.getString("status") != llvm::StringRef("measured"))
    llvm::outs() << row.getName() << ": "
                 << result.getString("reason").value_or("") << "\n";
  llvm::outs().flush();
  record.setRow(row.getName(), std::move(result));
  save();
}

void RowTable::runLayer(size_t index, llvm::ArrayRef<Row> rows) {
  std::vector<Row> left;
  for (const Row &row : rows) {
    if (!record.isMeasured(row.getName()))
      left.push_back(row);
    else if (makesTable())
      printRow(*record.find(row.getName()), llvm::outs());
  }
  if (left.empty() || isOver())
    return;
  const BenchLayer &layer = table.layers[index];
  routerReason.clear();
  auto fail = [&](bool withRouter, llvm::StringRef status,
                  const std::string &reason) {
    if (withRouter) {
      routerReason = (status + ": " + reason).str();
      llvm::errs() << "moe-bench: warning: " << layer.name << " with router "
                   << routerReason << "\n";
      return;
    }
    for (const Row &row : left)
      give(row, llvm::json::Object{{"status", status}, {"reason", reason}});
  };
  auto load = [&](Session &session, bool withRouter,
                  std::unique_ptr<LayerOnDevice> &to) {
    Result<ReadyLayer> compiled = compileLayer(session, layer, withRouter);
    if (!compiled) {
      fail(withRouter, "not compiled", compiled.status().message());
      return;
    }
    Result<std::unique_ptr<LayerOnDevice>> placed =
        LayerOnDevice::create(session, layer, std::move(*compiled));
    if (!placed) {
      fail(withRouter, "failed", placed.status().message());
      return;
    }
    to = std::move(*placed);
    llvm::outs() << llvm::formatv(
        "# {0}{1}: {2} in {3:F2} s, {4} kernels, weights made in {5:F2} s, "
        "prepared in {6:F2} s ({7:F1} MB more)\n",
        layer.name, withRouter ? " with router" : "",
        to->isFromCache() ? "from the cache" : "compiled",
        to->getCompileSeconds(), to->getPlan().kernels.size(),
        to->getFillSeconds(), to->getPrepareReport().seconds,
        static_cast<double>(to->getPrepareReport().bytes) / 1e6);
  };
  std::unique_ptr<LayerOnDevice> plain, routed;
  load(session, /*withRouter=*/false, plain);
  if (!plain)
    return;
  if (options.router)
    load(session, /*withRouter=*/true, routed);
  Session other = session;
  llvm::append_range(other.jit.compile.set, options.beside);
  if (!options.beside.empty())
    load(other, /*withRouter=*/false, beside);
  if (beside && routed)
    load(other, /*withRouter=*/true, besideRouted);
  prepareYardstick(layer);
  for (const Row &row : left)
    if (!isOver())
      runRow(*plain, routed.get(), row);
  beside.reset();
  besideRouted.reset();
}

void RowTable::runRow(LayerOnDevice &layer, LayerOnDevice *routed,
                      const Row &row) {
  double started = getSeconds();
  llvm::json::Object result{{"status", "measured"}};
  running = &row;
  // The simulator itself ends kernels that hang.
  if (session.hasClock)
    watchdog.arm(options.rowLimit + (makesTable() ? 0 : tuneSeconds));
  Status status = options.profile ? profileRow(layer, routed, row, result)
                  : !options.tune.empty() ? tuneRow(layer, row, result)
                  : !options.fit.empty()  ? fitRow(layer, row, result)
                  : options.loads > 0 ? measureLoads(layer, row, result)
                                      : measureRow(layer, routed, row, result);
  watchdog.disarm();
  if (!status) {
    result["status"] = "failed";
    result["reason"] = status.message();
    // After a fault the driver fails every call.
    isLost = !session.device.allocate(256, 256).status();
    if (isLost)
      result["reason"] =
          status.message() + "; the device is lost, --resume goes on";
  }
  ++numDone;
  result["seconds"] = getSeconds() - started;
  give(row, std::move(result));
}

void RowTable::endHanging() {
  give(*running,
       llvm::json::Object{
           {"status", "failed"},
           {"reason", llvm::formatv("still running after {0:F0} s; --resume "
                                    "goes on",
                                    options.rowLimit.getValue())
                          .str()}});
  std::_Exit(1);
}

Status RowTable::profileRow(LayerOnDevice &layer, LayerOnDevice *routed,
                            const Row &row, llvm::json::Object &result) {
  int64_t sets = getNumSets(row);
  std::vector<Routing> routings =
      drawRoutings(layer.getLayer(), row, sets, peers.find(row));
  Work work = getWork(layer.getLayer(), row, routings);
  auto profile = [&](LayerOnDevice &placed, std::vector<Routing> given,
                     llvm::StringRef title) -> Result<RowProfile> {
    std::unique_ptr<RowRun> run;
    MOEC_TRY_ASSIGN(
        run, RowRun::create(session, placed, row, sets, std::move(given)));
    MOEC_TRY(run->runAll());
    MOEC_TRY(run->check().status());
    RowProfile profile;
    MOEC_TRY_ASSIGN(profile,
                    bench::profileRow(session, placed, *run, row,
                                      options.untimed ? 0 : kProfileSamples));
    printProfile(profile, title, placed.getLayer(), work, ceilings,
                 llvm::outs());
    return profile;
  };
  std::string name = row.getName();
  RowProfile plain;
  MOEC_TRY_ASSIGN(plain, profile(layer, std::move(routings), name));
  result["layer"] = layer.getLayer().name;
  result["tokens"] = row.tokens;
  result["sets"] = sets;
  result["floor_us"] = work.getSeconds(layer.getLayer(), ceilings) * 1e6;
  result["launches"] = describeLaunches(plain);
  if (plain.graphSeconds > 0)
    result["graph_us"] = plain.graphSeconds * 1e6;
  if (!routed || row.exponent != 0)
    return Status::ok();
  RowProfile withRouter;
  MOEC_TRY_ASSIGN(withRouter, profile(*routed, {}, name + " with router"));
  result["router_launches"] = describeLaunches(withRouter);
  return Status::ok();
}

Result<RowTable::OtherRuns> RowTable::checkRouter(LayerOnDevice &plain,
                                                  LayerOnDevice &routed,
                                                  const Row &row, int64_t sets,
                                                  llvm::json::Object &result) {
  OtherRuns runs;
  MOEC_TRY_ASSIGN(runs.routed, RowRun::create(session, routed, row, sets, {}));
  MOEC_TRY(runs.routed->runAll());
  RowCheck check;
  MOEC_TRY_ASSIGN(check, runs.routed->check());
  result["router_error"] = check.error;
  result["router_rows_compared"] = check.rows;
  std::vector<Routing> chosen = runs.routed->chooseRoutings();
  Work work = getWork(plain.getLayer(), row, chosen);
  result["router_experts_touched"] = work.experts;
  result["router_rows"] = work.rows;
  MOEC_TRY_ASSIGN(runs.chosen,
                  RowRun::create(session, plain, row, sets, std::move(chosen)));
  MOEC_TRY(runs.chosen->runAll());
  MOEC_TRY(runs.chosen->check().status());
  return runs;
}

Status RowTable::checkBeside(const RowRun &run, const Row &row,
                             OtherRuns &others) {
  int64_t sets = run.getNumSets();
  auto start = [&](LayerOnDevice *layer, std::vector<Routing> routings,
                   std::unique_ptr<RowRun> &to) -> Status {
    if (!layer)
      return Status::ok();
    MOEC_TRY_ASSIGN(
        to, RowRun::create(session, *layer, row, sets, std::move(routings)));
    MOEC_TRY(to->runAll());
    return to->check().status();
  };
  MOEC_TRY(start(beside.get(), run.getRoutings(), others.beside));
  return others.routed ? start(besideRouted.get(), {}, others.besideRouted)
                       : Status::ok();
}

Result<std::unique_ptr<RowRun>> RowTable::createRun(LayerOnDevice &layer,
                                                    const Row &row) {
  int64_t sets = getNumSets(row);
  return RowRun::create(
      session, layer, row, sets,
      drawRoutings(layer.getLayer(), row, sets, peers.find(row)));
}

Status RowTable::measureRow(LayerOnDevice &layer, LayerOnDevice *routed,
                            const Row &row, llvm::json::Object &result) {
  int64_t sets = getNumSets(row);
  const Peer *peer = peers.find(row);
  std::vector<Routing> routings =
      drawRoutings(layer.getLayer(), row, sets, peer);
  Work work = getWork(layer.getLayer(), row, routings);
  double cold = work.experts * layer.getLayer().getExpertBytes() *
                static_cast<double>(sets);
  const moert::Plan &plan = layer.getPlan();
  const moert::Variant &variant = plan.variants[plan.findVariant(row.tokens)];
  result["layer"] = layer.getLayer().name;
  result["tokens"] = row.tokens;
  result["routing"] = row.getRouting();
  result["sets"] = sets;
  result["experts_touched"] = work.experts;
  result["rows"] = work.rows;
  result["operations"] = work.operations;
  result["bytes"] = work.bytes;
  // Bytes of weights read before a run reads its own again.
  result["cold_bytes"] = cold;
  result["cold"] = cold >= kColdBytes;
  result["variant"] = std::to_string(variant.minTokens) + ".." +
                      std::to_string(variant.maxTokens);
  llvm::json::Array kernels;
  for (const moert::Step &step : variant.steps)
    if (step.kind == moert::Step::Kind::Launch)
      kernels.push_back(plan.kernels[step.kernel].name);
  result["kernels"] = std::move(kernels);
  std::vector<TunableKernel> products;
  MOEC_TRY_ASSIGN(products,
                  findTunableKernels(session, layer.getLayer(), row, 0));
  llvm::json::Object configs;
  for (const TunableKernel &product : products)
    configs[product.name] = product.chosen;
  result["configs"] = std::move(configs);
  result["kernels_of_layer"] = static_cast<int64_t>(plan.kernels.size());
  result["compile_seconds"] = layer.getCompileSeconds();
  result["from_cache"] = layer.isFromCache();
  // Not included in the times.
  result["prepare_seconds"] = layer.getPrepareReport().seconds;
  result["prepared_bytes"] = layer.getPrepareReport().bytes;

  std::unique_ptr<RowRun> run;
  MOEC_TRY_ASSIGN(
      run, RowRun::create(session, layer, row, sets, std::move(routings)));
  MOEC_TRY(run->runAll());
  RowCheck check;
  MOEC_TRY_ASSIGN(check, run->check());
  result["error"] = check.error;
  result["worst_row_error"] = check.worstRowError;
  result["rows_compared"] = check.rows;
  if (!routerReason.empty())
    result["router_reason"] = routerReason;
  // With the router experts are uniform, so only such rows have this column.
  OtherRuns others;
  if (routed && row.isUniform())
    MOEC_TRY_ASSIGN(others, checkRouter(layer, *routed, row, sets, result));
  MOEC_TRY(checkBeside(*run, row, others));
  double floor = work.getSeconds(layer.getLayer(), ceilings) * 1e6;
  result["floor_us"] = floor;
  if (peer) {
    result["peer"] = peer->best;
    result["peer_us"] = peer->bestUs;
    result["peer_fraction"] = peer->floorUs / peer->bestUs;
  }
  if (!session.hasClock)
    return Status::ok();
  prepareYardstick(layer.getLayer(), row, work, result);
  MOEC_TRY(timeRow(layer, *run, others, row, work, result));
  if (peer)
    result["speedup"] =
        *result.getNumber("fraction") * peer->bestUs / peer->floorUs;
  MOEC_TRY(run->checkAgain());
  for (RowRun *other : {others.routed.get(), others.chosen.get(),
                        others.beside.get(), others.besideRouted.get()})
    if (other)
      MOEC_TRY(other->checkAgain());
  return Status::ok();
}
