//===- Rows.h - the rows of the table ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_ROWS_ROWS_H
#define MOEC_LIB_TOOLS_BENCH_ROWS_ROWS_H

#include "moert/Status.h"
#include "llvm/Support/JSON.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moec::bench {

/// What weights of a layer may be, as rows.json calls it.
struct WeightFormat {
  llvm::StringLiteral name;
  /// What specs have as `quantization`, JSON; empty for weights that are not
  /// quantized.
  llvm::StringLiteral quantization;
  /// Bytes of an element, with its share of the scales; without it where whole
  /// rows share one.
  double bytes;
  /// Products are of 8 bits.
  bool isFp8;
  /// What the layer has where nothing is quantized.
  llvm::StringLiteral dtype = "bf16";
};

inline constexpr WeightFormat kPlainWeights{"bf16", "", 2, false};

/// A layer of rows.json.
struct BenchLayer {
  std::string name;
  int64_t numExperts = 0, topK = 0, hiddenSize = 0, intermediateSize = 0;
  /// Experts 0 .. localExperts-1 are held here; routing goes to all of them.
  int64_t localExperts = 0;
  const WeightFormat *format = &kPlainWeights;
  /// The `routing` object of the spec, for the layer with its router.
  llvm::json::Object routing;

  /// Multiplications of a token's row in an expert.
  double getExpertElements() const;
  /// The weights of one expert, with their scales.
  double getExpertBytes() const;
  /// The spec (docs/layers.md) of the layer from ids and weights, or with its
  /// router.
  std::string printSpec(int64_t maxTokens, bool withRouter) const;
};

/// A layer at one token count, with one kind of routing.
struct Row {
  /// The layer's number in Table::layers.
  size_t layer = 0;
  int64_t tokens = 0;
  /// The popularity of experts is rank^-exponent; 0: all are alike.
  double exponent = 0;
  /// "qwen3_30b", "dsv3@zipf", "llama4_maverick@one".
  std::string group;
  /// One expert takes all tokens; of layers whose top_k is 1.
  bool toOne = false;
  /// Measured only where --rows says its routing.
  bool isOnDemand = false;

  bool isUniform() const { return exponent == 0 && !toOne; }
  std::string getRouting() const {
    return toOne ? "one" : exponent > 0 ? "zipf" : "uniform";
  }
  std::string getName() const { return group + ":" + std::to_string(tokens); }
};

struct Table {
  std::vector<BenchLayer> layers;
  /// Rows of a layer follow one another.
  std::vector<Row> rows;

  const BenchLayer &getLayer(const Row &row) const { return layers[row.layer]; }
  int64_t getMaxTokens() const;
  /// Keeps the rows that one of the patterns names, NAME or NAME:TOKENS,...
  /// with * and ? in the name. All if there is none, but those on demand: these
  /// a pattern has to name with their routing, as in NAME@one.
  moert::Status select(const std::vector<std::string> &patterns);
};

moert::Result<Table> loadTable(const std::string &path);

/// Rates that the floor is made of, per second.
struct Ceilings {
  double bandwidth = 0, bf16 = 0, fp8 = 0;
  /// Where they are from.
  std::string source;

  bool isComplete() const { return bandwidth > 0 && bf16 > 0 && fp8 > 0; }
  double getRate(const BenchLayer &layer) const {
    return layer.format->isFp8 ? fp8 : bf16;
  }
};

/// What a call has to do at least.
struct Work {
  /// Experts that have rows, and their rows; means over several routings.
  double experts = 0, rows = 0;
  double operations = 0, bytes = 0;

  /// Weights of the touched experts, input and output once each; from ids and
  /// weights.
  static Work of(const BenchLayer &layer, int64_t tokens, double experts,
                 double rows);
  double getSeconds(const BenchLayer &layer, const Ceilings &ceilings) const;
};

/// A recorded row of the best kernels of others.
struct Peer {
  double expertsTouched = 0, floorUs = 0, operations = 0, bytes = 0;
  double bestUs = 0;
  std::string best;
  /// What torch._grouped_mm takes, and the dense product of the same
  /// operations; 0 where there is none.
  double torchUs = 0, denseUs = 0;
};

struct Peers {
  Ceilings ceilings;
  /// By Row::getName().
  std::map<std::string, Peer> rows;

  /// Null where nothing is recorded.
  const Peer *find(const Row &row) const;
};

moert::Result<Peers> loadPeers(const std::string &path);

/// Reads and parses a file; the failure says which.
moert::Result<llvm::json::Value> readJson(const std::string &path);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_ROWS_H
