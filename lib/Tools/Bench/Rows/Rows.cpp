//===- Rows.cpp - rows of the benchmark -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rows.h"

#include "moec/Support/ReadBytes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/GlobPattern.h"

#include <algorithm>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

Result<llvm::json::Value> moec::bench::readJson(const std::string &path) {
  llvm::Expected<std::string> text = readBytes(path, kMaxRecordBytes);
  if (!text)
    return moert::notFound(path + ": " + llvm::toString(text.takeError()));
  llvm::Expected<llvm::json::Value> document = llvm::json::parse(*text);
  if (!document)
    return moert::invalidArgument(path + ": " +
                                  llvm::toString(document.takeError()));
  return std::move(*document);
}

double BenchLayer::getExpertElements() const {
  return 3.0 * static_cast<double>(hiddenSize * intermediateSize);
}

static constexpr WeightFormat kFormats[] = {
    kPlainWeights,
    {"fp8_block128", R"({"weight": "fp8_block128"})", 1 + 4.0 / (128 * 128),
     true},
    {"fp8_block128_e8m0",
     R"({"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]},
                    "scale_dtype": "e8m0"},
         "activation": {"dtype": "fp8_e4m3", "scale": {"group": 128}}})",
     1 + 1.0 / (128 * 128), true},
    {"fp8_tensor",
     R"({"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
         "activation": {"dtype": "fp8_e4m3", "scale": "tensor",
                        "static": true}})",
     1, true},
    {"fp8_channel",
     R"({"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     1, true},
    {"int8_channel",
     R"({"weight": {"dtype": "int8", "scale": "channel"},
         "activation": {"dtype": "int8", "scale": "token"}})",
     1, true},
    {"int8_weights",
     R"({"weight": {"dtype": "int8", "scale": "channel",
                    "scale_dtype": "bf16"}})",
     1, false},
    {"fp8_weights",
     R"({"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]}}})",
     1 + 4.0 / (128 * 128), false},
    {"mxfp4", R"({"weight": "mxfp4"})", 0.5 + 1.0 / 32, false},
    {"mxfp4_fp8",
     R"({"weight": {"dtype": "fp4_e2m1", "scale": {"group": 32},
                    "scale_dtype": "e8m0"},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     0.5 + 1.0 / 32, true},
    {"nvfp4", R"({"weight": "nvfp4"})", 0.5 + 1.0 / 16, false},
    {"int4_group32",
     R"({"weight": {"dtype": "int4", "scale": {"group": 32},
                    "scale_dtype": "bf16"}})",
     0.5 + 2.0 / 32, false},
    {"int4_group128",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128},
                    "scale_dtype": "bf16"}})",
     0.5 + 2.0 / 128, false},
    {"int4_group128_fp8",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128},
                    "scale_dtype": "bf16"},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     0.5 + 2.0 / 128, true},
    // Quantized rows that tensor cores multiply as bf16.
    {"int4_group32_fp8",
     R"({"weight": {"dtype": "int4", "scale": {"group": 32},
                    "scale_dtype": "bf16"},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     0.5 + 2.0 / 32, false},
    {"nvfp4_fp8",
     R"({"weight": {"dtype": "fp4_e2m1", "scale": {"group": 16},
                    "scale_dtype": "e4m3", "global_scale": true},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     0.5 + 1.0 / 16, false},
    {"int4_points_fp8",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128},
                    "scale_dtype": "bf16", "zero_point": true},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     0.5 + 3.0 / 128, false},
    {"int4_int8",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128},
                    "scale_dtype": "bf16"},
         "activation": {"dtype": "int8", "scale": "token"}})",
     0.5 + 2.0 / 128, false},
    {"mxfp8", R"({"weight": "mxfp8"})", 1 + 1.0 / 32, false},
    {"mxfp8_fp8",
     R"({"weight": {"dtype": "fp8_e4m3", "scale": {"group": 32},
                    "scale_dtype": "e8m0"},
         "activation": {"dtype": "fp8_e4m3", "scale": "token"}})",
     1 + 1.0 / 32, true},
    // Formats that GGUF blocks and bitsandbytes tensors are imported as.
    {"q4_k",
     R"({"weight": {"dtype": "int4", "scale": {"group": 32},
                    "minimum": true}})",
     0.5 + 8.0 / 32, false},
    {"q6_k", R"({"weight": {"dtype": "int8", "scale": {"group": 16}}})",
     1 + 4.0 / 16, false},
    {"nf4", R"({"weight": {"dtype": "nf4", "scale": {"group": 64}}})",
     0.5 + 4.0 / 64, false},
    {"int4_points_f32",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128},
                    "zero_point": true}})",
     0.5 + 5.0 / 128, false},
    {"int8_minima16",
     R"({"weight": {"dtype": "int8", "scale": {"group": 16},
                    "minimum": true}})",
     1 + 8.0 / 16, false},
    {"mxfp4_f16", R"({"weight": "mxfp4"})", 0.5 + 1.0 / 32, false, "f16"},
    {"nvfp4_f16", R"({"weight": "nvfp4"})", 0.5 + 1.0 / 16, false, "f16"},
    {"int4_group128_f16",
     R"({"weight": {"dtype": "int4", "scale": {"group": 128}}})",
     0.5 + 4.0 / 128, false, "f16"},
    {"q4_k_f16",
     R"({"weight": {"dtype": "int4", "scale": {"group": 32},
                    "minimum": true}})",
     0.5 + 8.0 / 32, false, "f16"},
};

double BenchLayer::getExpertBytes() const {
  return getExpertElements() * format->bytes;
}

std::string BenchLayer::printSpec(int64_t maxTokens, bool withRouter) const {
  llvm::json::Object spec{
      {"moec_spec", 1},
      {"name", name},
      {"dtype", format->dtype},
      {"entry", withRouter ? "gate" : "ids"},
      {"hidden_size", hiddenSize},
      {"num_experts", numExperts},
      {"top_k", topK},
      {"intermediate_size", intermediateSize},
      {"max_tokens", maxTokens},
      {"activation", llvm::json::Object{{"kind", "silu"}}},
  };
  if (withRouter)
    spec["routing"] = llvm::json::Object(routing);
  if (!format->quantization.empty())
    spec["quantization"] =
        llvm::cantFail(llvm::json::parse(format->quantization));
  if (localExperts < numExperts) {
    llvm::json::Array local;
    for (int64_t i = 0; i < localExperts; ++i)
      local.push_back(i);
    spec["placement"] = llvm::json::Object{{"local_experts", std::move(local)}};
  }
  return llvm::formatv("{0:2}", llvm::json::Value(std::move(spec)));
}

static bool readLayer(const llvm::json::Value &value, BenchLayer &layer,
                      llvm::json::Path path) {
  llvm::json::ObjectMapper fields(value, path);
  std::string dtype;
  if (!fields || !fields.map("name", layer.name) ||
      !fields.map("num_experts", layer.numExperts) ||
      !fields.map("top_k", layer.topK) ||
      !fields.map("hidden_size", layer.hiddenSize) ||
      !fields.map("intermediate_size", layer.intermediateSize) ||
      !fields.map("dtype", dtype))
    return false;
  layer.localExperts = layer.numExperts;
  if (!fields.mapOptional("local_experts", layer.localExperts))
    return false;
  layer.format = llvm::find_if(kFormats, [&](const WeightFormat &format) {
    return format.name == dtype;
  });
  if (layer.format == std::end(kFormats)) {
    path.field("dtype").report(
        "expected bf16, fp8_block128, fp8_block128_e8m0, fp8_tensor, "
        "fp8_channel, int8_channel, int8_weights, fp8_weights, mxfp4, "
        "mxfp4_fp8, nvfp4, int4_group32, int4_group128, int4_group128_fp8, "
        "int4_group32_fp8, nvfp4_fp8, int4_points_fp8, int4_int8, mxfp8, "
        "mxfp8_fp8, q4_k, q6_k, nf4, int4_points_f32, int8_minima16, "
        "mxfp4_f16, nvfp4_f16, int4_group128_f16 or q4_k_f16");
    return false;
  }
  if (const llvm::json::Object *routing =
          value.getAsObject()->getObject("routing"))
    layer.routing = *routing;
  if (layer.topK < 1 || layer.topK > layer.numExperts ||
      layer.localExperts < 1 || layer.localExperts > layer.numExperts ||
      layer.hiddenSize < 1 || layer.intermediateSize < 1) {
    path.report("expected 1 <= top_k <= num_experts, 1 <= local_experts <= "
                "num_experts and positive sizes");
    return false;
  }
  return true;
}

static bool readRows(const llvm::json::Value &value, Table &table,
                     llvm::json::Path path) {
  llvm::json::ObjectMapper fields(value, path);
  std::string layer;
  std::vector<int64_t> tokens;
  double exponent = 0;
  std::string routing;
  bool isOnDemand = false;
  if (!fields || !fields.map("layer", layer) || !fields.map("tokens", tokens) ||
      !fields.mapOptional("zipf_exponent", exponent) ||
      !fields.mapOptional("routing", routing) ||
      !fields.mapOptional("on_demand", isOnDemand))
    return false;
  auto found = llvm::find_if(
      table.layers, [&](const BenchLayer &one) { return one.name == layer; });
  if (found == table.layers.end()) {
    path.field("layer").report("no layer has this name");
    return false;
  }
  bool toOne = routing == "one";
  if (!routing.empty() && !toOne) {
    path.field("routing").report(
        "expected 'one', or no 'one' but a zipf_exponent");
    return false;
  }
  // With more experts per token other experts would have rows too, so that no
  // dense gemm has the same size.
  if (toOne && (found->topK != 1 || exponent > 0)) {
    path.field("routing").report("'one' needs a layer whose top_k is 1, and no "
                                 "zipf_exponent");
    return false;
  }
  Row row = {static_cast<size_t>(found - table.layers.begin()),
             0,
             exponent,
             layer,
             toOne,
             isOnDemand};
  if (!row.isUniform())
    row.group += "@" + row.getRouting();
  for (int64_t count : tokens) {
    if (count < 1) {
      path.field("tokens").report("expected positive numbers");
      return false;
    }
    row.tokens = count;
    table.rows.push_back(row);
  }
  return true;
}

Result<Table> moec::bench::loadTable(const std::string &path) {
  Result<llvm::json::Value> document = readJson(path);
  if (!document)
    return document.status();
  const llvm::json::Object *object = document->getAsObject();
  const llvm::json::Array *layers =
      object ? object->getArray("layers") : nullptr;
  const llvm::json::Array *rows = object ? object->getArray("rows") : nullptr;
  if (!layers || !rows)
    return moert::invalidArgument(path + ": expected the lists 'layers' and "
                                         "'rows'");
  llvm::json::Path::Root root("table");
  Table table;
  for (const auto &[i, value] : llvm::enumerate(*layers))
    if (!readLayer(value, table.layers.emplace_back(),
                   llvm::json::Path(root).field("layers").index(
                       static_cast<unsigned>(i))))
      return moert::invalidArgument(path + ": " +
                                    llvm::toString(root.getError()));
  for (const auto &[i, value] : llvm::enumerate(*rows))
    if (!readRows(value, table,
                  llvm::json::Path(root).field("rows").index(
                      static_cast<unsigned>(i))))
      return moert::invalidArgument(path + ": " +
                                    llvm::toString(root.getError()));
  // Groups rows by layer, so that a layer's weights are made once.
  std::vector<Row> rowsByLayer;
  for (size_t layer = 0; layer < table.layers.size(); ++layer)
    llvm::copy_if(table.rows, std::back_inserter(rowsByLayer),
                  [&](const Row &row) { return row.layer == layer; });
  table.rows = std::move(rowsByLayer);
  return table;
}

int64_t Table::getMaxTokens() const {
  int64_t most = 1;
  for (const Row &row : rows)
    most = std::max(most, row.tokens);
  return most;
}

Status Table::select(const std::vector<std::string> &patterns) {
  if (patterns.empty()) {
    llvm::erase_if(rows, [](const Row &row) { return row.isOnDemand; });
    return Status::ok();
  }
  std::vector<bool> chosen(rows.size());
  for (const std::string &text : patterns) {
    auto [name, list] = llvm::StringRef(text).split(':');
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(name);
    if (!glob)
      return moert::invalidArgument("--rows: " +
                                    llvm::toString(glob.takeError()));
    llvm::SmallVector<llvm::StringRef> words;
    list.split(words, ',', -1, /*KeepEmpty=*/false);
    std::vector<int64_t> counts;
    for (llvm::StringRef word : words)
      if (word.getAsInteger(10, counts.emplace_back()))
        return moert::invalidArgument("--rows: '" + word.str() +
                                      "' is not a token count");
    bool found = false;
    for (auto [i, row] : llvm::enumerate(rows)) {
      bool isNamed = name == row.group || name.contains('@');
      if (!glob->match(row.group) || (row.isOnDemand && !isNamed) ||
          (!counts.empty() && !llvm::is_contained(counts, row.tokens)))
        continue;
      chosen[i] = found = true;
    }
    if (!found)
      return moert::invalidArgument("--rows: '" + text +
                                    "' names no row; --list prints them");
  }
  std::vector<Row> kept;
  for (auto [i, row] : llvm::enumerate(rows))
    if (chosen[i])
      kept.push_back(row);
  rows = std::move(kept);
  return Status::ok();
}

Work Work::of(const BenchLayer &layer, int64_t tokens, double experts,
              double rows) {
  Work work;
  work.experts = experts;
  work.rows = rows;
  work.operations = 2 * rows * layer.getExpertElements();
  // Hidden states and output are bf16.
  work.bytes = experts * layer.getExpertBytes() +
               4.0 * static_cast<double>(tokens * layer.hiddenSize);
  return work;
}

double Work::getSeconds(const BenchLayer &layer,
                        const Ceilings &ceilings) const {
  return std::max(operations / ceilings.getRate(layer),
                  bytes / ceilings.bandwidth);
}

const Peer *Peers::find(const Row &row) const {
  auto found = rows.find(row.getName());
  return found == rows.end() ? nullptr : &found->second;
}

static bool readPeer(const llvm::json::Value &value, Peers &peers,
                     llvm::json::Path path) {
  llvm::json::ObjectMapper fields(value, path);
  std::string name;
  Peer peer;
  if (!fields || !fields.map("row", name) ||
      !fields.map("experts_touched", peer.expertsTouched) ||
      !fields.map("floor_us", peer.floorUs) ||
      !fields.map("operations", peer.operations) ||
      !fields.map("bytes", peer.bytes) || !fields.map("best", peer.best) ||
      !fields.map("best_us", peer.bestUs) ||
      !fields.mapOptional("torch_us", peer.torchUs) ||
      !fields.mapOptional("dense_us", peer.denseUs))
    return false;
  peers.rows[name] = peer;
  return true;
}

Result<Peers> moec::bench::loadPeers(const std::string &path) {
  Result<llvm::json::Value> document = readJson(path);
  if (!document)
    return document.status();
  const llvm::json::Object *object = document->getAsObject();
  const llvm::json::Object *ceilings =
      object ? object->getObject("ceilings") : nullptr;
  const llvm::json::Array *rows = object ? object->getArray("rows") : nullptr;
  if (!ceilings || !rows)
    return moert::invalidArgument(path + ": expected an object 'ceilings' and "
                                         "a list 'rows'");
  Peers peers;
  peers.ceilings.bandwidth = ceilings->getNumber("bandwidth").value_or(0);
  peers.ceilings.bf16 = ceilings->getNumber("bf16").value_or(0);
  peers.ceilings.fp8 = ceilings->getNumber("fp8").value_or(0);
  peers.ceilings.source = "recorded";
  if (!peers.ceilings.isComplete())
    return moert::invalidArgument(path + ": ceilings: expected positive "
                                         "'bandwidth', 'bf16' and 'fp8'");
  llvm::json::Path::Root root("peers");
  for (const auto &[i, value] : llvm::enumerate(*rows))
    if (!readPeer(value, peers,
                  llvm::json::Path(root).field("rows").index(
                      static_cast<unsigned>(i))))
      return moert::invalidArgument(path + ": " +
                                    llvm::toString(root.getError()));
  return peers;
}
