//===- Rows.h - rows of the benchmark ---------------------------*- C++ -*-===//
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

/// A format of weights, by its name in rows.json.
struct WeightFormat {
  llvm::StringLiteral name;
  /// The `quantization` object of specs as JSON; empty for unquantized weights.
  llvm::StringLiteral quantization;
  /// Bytes per element including its share of the scales, unless a scale is
  /// shared by whole rows.
  double bytes;
  /// Whether gemms have 8-bit operands.
  bool isFp8;
  /// The layer's dtype, which is that of unquantized weights.
  llvm::StringLiteral dtype = "bf16";
};

inline constexpr WeightFormat kPlainWeights{"bf16", "", 2, false};

/// A layer of rows.json.
struct BenchLayer {
  std::string name;
  int64_t numExperts = 0, topK = 0, hiddenSize = 0, intermediateSize = 0;
  /// Experts 0 to localExperts - 1 are local; routing chooses among all.
  int64_t localExperts = 0;
  const WeightFormat *format = &kPlainWeights;
  /// The `routing` object of the spec, for the layer with its router.
  llvm::json::Object routing;

  /// Multiplications per row of an expert.
  double getExpertElements() const;
  /// Bytes of an expert's weights and scales.
  double getExpertBytes() const;
  /// The spec (docs/use/layers.md) of the layer: with ids and weights as
  /// inputs, or with its router.
  std::string printSpec(int64_t maxTokens, bool withRouter) const;
};

/// A layer at one token count, with one kind of routing.
struct Row {
  /// Index in Table::layers.
  size_t layer = 0;
  int64_t tokens = 0;
  /// The popularity of experts is rank^-exponent; 0 is uniform.
  double exponent = 0;
  /// "qwen3_30b", "dsv3@zipf", "llama4_maverick@one".
  std::string group;
  /// One expert takes all tokens; only for layers whose top_k is 1.
  bool toOne = false;
  /// Measured only if --rows names its routing.
  bool isOnDemand = false;

  bool isUniform() const { return exponent == 0 && !toOne; }
  std::string getRouting() const {
    return toOne ? "one" : exponent > 0 ? "zipf" : "uniform";
  }
  std::string getName() const { return group + ":" + std::to_string(tokens); }
};

struct Table {
  std::vector<BenchLayer> layers;
  /// Rows of a layer are adjacent.
  std::vector<Row> rows;

  const BenchLayer &getLayer(const Row &row) const { return layers[row.layer]; }
  int64_t getMaxTokens() const;
  /// Keeps the rows that match a pattern, NAME or NAME:TOKENS,... with * and ?
  /// in the name. Without patterns keeps all rows except those on demand, which
  /// a pattern must name with their routing, as in NAME@one.
  moert::Status select(const std::vector<std::string> &patterns);
};

moert::Result<Table> loadTable(const std::string &path);

/// Rates per second that define the floor.
struct Ceilings {
  double bandwidth = 0, bf16 = 0, fp8 = 0;
  /// The source of the rates.
  std::string source;

  bool isComplete() const { return bandwidth > 0 && bf16 > 0 && fp8 > 0; }
  double getRate(const BenchLayer &layer) const {
    return layer.format->isFp8 ? fp8 : bf16;
  }
};

/// The least work of a call.
struct Work {
  /// Experts that have rows, and the number of rows; means over several
  /// routings.
  double experts = 0, rows = 0;
  double operations = 0, bytes = 0;

  /// Weights of the touched experts, input and output, each moved once; for the
  /// layer with ids and weights as inputs.
  static Work of(const BenchLayer &layer, int64_t tokens, double experts,
                 double rows);
  double getSeconds(const BenchLayer &layer, const Ceilings &ceilings) const;
};

/// A recorded row of the best public kernels.
struct Peer {
  double expertsTouched = 0, floorUs = 0, operations = 0, bytes = 0;
  double bestUs = 0;
  std::string best;
  /// The times of torch._grouped_mm and of the dense gemm with the same
  /// operations; 0 if unknown.
  double torchUs = 0, denseUs = 0;
};

struct Peers {
  Ceilings ceilings;
  /// By Row::getName().
  std::map<std::string, Peer> rows;

  /// Null if nothing is recorded for the row.
  const Peer *find(const Row &row) const;
};

moert::Result<Peers> loadPeers(const std::string &path);

/// Reads and parses a file; a failure names it.
moert::Result<llvm::json::Value> readJson(const std::string &path);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_ROWS_H
