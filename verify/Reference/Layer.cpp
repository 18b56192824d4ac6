//===- Layer.cpp - a layer in float64 ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Layer.h"

#include "Activation.h"
#include "Product.h"
#include "Quantize.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace moec;
using namespace moec::reference;

namespace {

/// Most elements of all first gemms in memory at a time.
constexpr int64_t kMaxNumbers = int64_t(1) << 26;

/// A valid slot whose expert has weights on this rank.
struct Slot {
  /// Index among the evaluated rows.
  int64_t row;
  double weight;
  /// First column of its part of a row of the output.
  int64_t column;
};

Matrix readRows(const Call &call, const std::string &name,
                llvm::ArrayRef<int64_t> rows, int64_t columns) {
  Matrix matrix(static_cast<int64_t>(rows.size()), columns);
  const Source &source = call.get(name);
  parallelFor(call.threads, matrix.getNumRows(), [&](int64_t i) {
    source.read(rows[i] * columns, columns, matrix.row(i));
  });
  return matrix;
}

void roundRows(Matrix &matrix, DType dtype, int threads) {
  parallelFor(threads, matrix.getNumRows(), [&](int64_t i) {
    for (int64_t j = 0; j < matrix.getNumColumns(); ++j)
      matrix.row(i)[j] = roundTo(matrix.row(i)[j], dtype);
  });
}

/// Whether the gemm with this weight has a dynamic activation scale shared by
/// all rows of a call.
bool sharesScales(const LayerSpec &spec, llvm::StringRef weight) {
  const auto &quantization = spec.getQuantization(weight);
  return quantization && quantization->activation &&
         quantization->activation->granularity == Granularity::Tensor &&
         !quantization->activation->isStatic;
}

/// Where the gate and up values of a row of `size` pairs stand.
struct GatedColumns {
  GatedColumns(const LayerSpec &spec, int64_t size)
      : step(spec.isGated() && spec.gateUpOrder == GateUpOrder::Interleaved
                 ? 2
                 : 1),
        gate(spec.isGated() && spec.gateUpOrder == GateUpOrder::UpGate ? size
                                                                       : 0),
        up(step == 2 ? 1 : size - gate) {}

  int64_t step, gate, up;
};

class Evaluation {
public:
  Evaluation(const Call &call, const Decision &decision,
             llvm::ArrayRef<int64_t> tokens)
      : call(call), spec(call.spec), decision(decision), tokens(tokens) {}

  Matrix run() {
    hidden = readRows(call, "hidden_states", tokens, spec.hiddenSize);
    if (spec.quantizedInput)
      applyInputScales();
    if (spec.sharedExperts)
      readSharedGate();
    Matrix total = route();
    if (spec.sharedExperts)
      addShared(total);
    if (spec.outputBias)
      addBias(total);
    roundRows(total, spec.dtype, call.threads);
    return total;
  }

private:
  /// The values of rows that the caller has quantized.
  void applyInputScales() {
    const OperandQuantization &rows =
        *spec.getQuantization("experts.w13")->activation;
    bool isShared = rows.granularity == Granularity::Tensor;
    const char *name =
        rows.isStatic ? "experts.w13_input_scale" : "hidden_states_scale";
    int64_t count = rows.getScaleGroup().countColumns(spec.hiddenSize);
    int64_t group = rows.granularity == Granularity::Group ? rows.blockColumns
                                                           : spec.hiddenSize;
    for (auto [i, token] : llvm::enumerate(tokens)) {
      std::vector<double> scales = isShared
                                       ? call.read(name, 0, 1)
                                       : call.read(name, token * count, count);
      for (int64_t j = 0; j < spec.hiddenSize; ++j)
        hidden.row(static_cast<int64_t>(i))[j] *= scales[j / group];
    }
  }

  /// Formulas 7 to 9.
  Matrix route() {
    if (!spec.latentSize)
      return sumExperts(hidden);
    Matrix x = computeProduct(hidden, call.get("latent.down"), *spec.latentSize,
                              call.threads);
    roundRows(x, spec.dtype, call.threads);
    normalize(spec.norms.latentIn, "norms.latent_in", x);
    Matrix sum = sumExperts(x);
    roundRows(sum, spec.dtype, call.threads);
    normalize(spec.norms.latentOut, "norms.latent_out", sum);
    return computeProduct(sum, call.get("latent.up"), spec.hiddenSize,
                          call.threads);
  }

  /// Rows of D, normalized and rounded.
  void normalize(const std::optional<NormSpec> &norm, const std::string &weight,
                 Matrix &rows) const {
    if (!norm)
      return;
    int64_t width = rows.getNumColumns();
    std::vector<double> weights = call.read(weight, 0, width);
    parallelFor(call.threads, rows.getNumRows(), [&](int64_t i) {
      normalizeRow(*norm, weights, rows.row(i));
      for (int64_t j = 0; j < width; ++j)
        rows.row(i)[j] = roundTo(rows.row(i)[j], spec.dtype);
    });
  }

  /// Normalizes one row; the result is not rounded.
  void normalizeRow(const NormSpec &norm, llvm::ArrayRef<double> weights,
                    double *row) const {
    double sum = 0;
    for (auto [j, weight] : llvm::enumerate(weights)) {
      if (norm.weightFirst)
        row[j] = roundTo(row[j] * (norm.offset + weight), spec.dtype);
      sum += row[j] * row[j];
    }
    double scale =
        1 / std::sqrt(sum / static_cast<double>(weights.size()) + norm.epsilon);
    for (auto [j, weight] : llvm::enumerate(weights))
      row[j] *= norm.weightFirst ? scale : scale * (norm.offset + weight);
  }

  Matrix sumExperts(const Matrix &x) {
    bool isSum = spec.output == OutputRows::Sum;
    int64_t width = x.getNumColumns();
    Matrix sum(x.getNumRows(), isSum ? width : spec.topK * width);
    inputScale =
        findScale(spec.routing.weightOnInput ? weighRows(x) : x, "experts.w13");
    std::vector<std::vector<Slot>> slots(spec.getNumLocalExperts());
    ExpertIndices indices(call);
    int64_t numValid = call.getNumValid();
    for (auto [row, token] : llvm::enumerate(tokens))
      for (int64_t j = token * spec.topK; j < (token + 1) * spec.topK; ++j) {
        int64_t id = decision.ids[j];
        if (!isValidSlot(spec, numValid, token, id))
          continue;
        Slot slot = {static_cast<int64_t>(row),
                     decision.weights[j] * getRoutedShare(row),
                     isSum ? 0 : (j - token * spec.topK) * width};
        if (id >= spec.numExperts)
          addZeroExpert(x, slot, sum);
        else if (int64_t place = indices.find(token, id); place >= 0)
          slots[place].push_back(slot);
      }
    // As many experts at a time as fit in memory.
    int64_t numbers = spec.getFirstProductRows(spec.intermediateSize) +
                      spec.intermediateSize + 2 * x.getNumColumns();
    std::vector<int64_t> experts;
    int64_t rows = 0;
    for (int64_t e = 0; e < static_cast<int64_t>(slots.size()); ++e) {
      if (!slots[e].empty())
        experts.push_back(e);
      rows += static_cast<int64_t>(slots[e].size());
      if (e + 1 == static_cast<int64_t>(slots.size()) ||
          (rows * numbers >= kMaxNumbers &&
           !sharesScales(spec, "experts.w2"))) {
        addExperts(x, experts, slots, sum);
        experts.clear();
        rows = 0;
      }
    }
    return sum;
  }

  /// The dynamic scale shared by all rows of a gemm's input x.
  float findScale(const Matrix &x, llvm::StringRef weight) const {
    return sharesScales(spec, weight) ? makeScale(findLargest(x), weight) : 0;
  }

  float makeScale(float largest, llvm::StringRef weight) const {
    return sharesScales(spec, weight)
               ? makeTensorScale(
                     largest, spec.getQuantization(weight)->activation->storage)
               : 0;
  }

  /// The input of every token's expert, with the weight on the input.
  Matrix weighRows(const Matrix &x) const {
    Matrix weighed(x.getNumRows(), x.getNumColumns());
    for (auto [row, token] : llvm::enumerate(tokens)) {
      auto at = static_cast<int64_t>(row);
      for (int64_t j = 0; j < x.getNumColumns(); ++j)
        weighed.row(at)[j] = roundTo(
            x.row(at)[j] * decision.weights[token * spec.topK], spec.dtype);
    }
    return weighed;
  }

  static void addZeroExpert(const Matrix &x, const Slot &slot, Matrix &sum) {
    for (int64_t i = 0; i < x.getNumColumns(); ++i)
      sum.row(slot.row)[i] += x.row(slot.row)[i] * slot.weight;
  }

  /// The rows of x for an expert, in the order of its columns.
  Matrix gather(const Matrix &x, int64_t expert,
                const std::vector<Slot> &slots) const {
    int64_t width = x.getNumColumns();
    Matrix rows(static_cast<int64_t>(slots.size()), width);
    std::vector<double> columns;
    if (spec.expertColumns)
      columns = call.read("experts.w13_columns", expert * width, width);
    for (auto [i, slot] : llvm::enumerate(slots))
      for (int64_t j = 0; j < width; ++j) {
        int64_t from = columns.empty() ? j : static_cast<int64_t>(columns[j]);
        double value = x.row(slot.row)[from];
        rows.row(static_cast<int64_t>(i))[j] =
            spec.routing.weightOnInput
                ? roundTo(value * slot.weight, spec.dtype)
                : value;
      }
    return rows;
  }

  /// D(activation(u + bias)).
  Matrix activateRows(const Matrix &u, int64_t size,
                      llvm::ArrayRef<double> bias,
                      const ActivationSpec &activation) const {
    Matrix a(u.getNumRows(), size);
    bool isGated = spec.isGated();
    GatedColumns columns(spec, size);
    parallelFor(call.threads, u.getNumRows(), [&](int64_t i) {
      auto get = [&](int64_t column) {
        return u.row(i)[column] + (bias.empty() ? 0 : bias[column]);
      };
      for (int64_t j = 0; j < size; ++j)
        a.row(i)[j] =
            roundTo(activate(activation, get(columns.gate + j * columns.step),
                             isGated ? get(columns.up + j * columns.step) : 0),
                    spec.dtype);
    });
    return a;
  }

  void addExperts(const Matrix &x, const std::vector<int64_t> &experts,
                  const std::vector<std::vector<Slot>> &slots, Matrix &sum) {
    int64_t width = x.getNumColumns(), size = spec.intermediateSize;
    int64_t rows = spec.getFirstProductRows(size);
    size_t count = experts.size();
    std::vector<Matrix> in(count), u(count), a(count), y(count);
    std::vector<Product> first, second;
    parallelFor(call.threads, static_cast<int64_t>(count), [&](int64_t i) {
      in[i] = gather(x, experts[i], slots[experts[i]]);
    });
    for (size_t i = 0; i < count; ++i) {
      u[i] = Matrix(in[i].getNumRows(), rows);
      first.push_back(makeProduct(in[i], "experts.w13", experts[i] * rows, u[i],
                                  inputScale));
    }
    computeProducts(first, call.threads);
    float largest = 0;
    for (size_t i = 0; i < count; ++i) {
      addFirstAdapters(x, experts[i], slots[experts[i]], u[i]);
      a[i] = activateRows(u[i], size, getBias("w13", experts[i], rows),
                          spec.activation);
      if (sharesScales(spec, "experts.w2"))
        largest = std::max(largest, findLargest(a[i]));
    }
    // Before a gemm quantizes its rows.
    std::vector<Matrix> adapted(count);
    for (size_t i = 0; i < count && spec.lora; ++i) {
      adapted[i] = Matrix(in[i].getNumRows(), width);
      addAdapters("down", experts[i], slots[experts[i]], a[i], adapted[i], 0,
                  1);
    }
    for (size_t i = 0; i < count; ++i) {
      y[i] = Matrix(in[i].getNumRows(), width);
      second.push_back(makeProduct(a[i], "experts.w2", experts[i] * width, y[i],
                                   makeScale(largest, "experts.w2")));
    }
    computeProducts(second, call.threads);
    std::vector<double> norm;
    if (spec.norms.expert)
      norm = call.read("norms.expert", 0, width);
    for (size_t i = 0; i < count; ++i) {
      std::vector<double> bias = getBias("w2", experts[i], width);
      for (auto [position, slot] : llvm::enumerate(slots[experts[i]])) {
        double *from = y[i].row(static_cast<int64_t>(position));
        double *to = sum.row(slot.row) + slot.column;
        bool isWeighed =
            !spec.routing.weightOnInput && spec.output == OutputRows::Sum;
        double weight = isWeighed ? slot.weight : 1;
        for (int64_t j = 0; j < width; ++j)
          from[j] += bias.empty() ? 0 : bias[j];
        for (int64_t j = 0; j < width && spec.lora; ++j)
          from[j] += adapted[i].row(static_cast<int64_t>(position))[j];
        if (spec.norms.expert) {
          for (int64_t j = 0; j < width; ++j)
            from[j] = roundTo(from[j], spec.dtype);
          normalizeRow(*spec.norms.expert, norm, from);
        }
        for (int64_t j = 0; j < width; ++j)
          to[j] += roundTo(from[j] * weight, spec.dtype);
      }
    }
  }

  /// Adds B (A x) of the adapter of each slot to the columns `first`,
  /// `first + step`, ... of `out`. x has a row for each slot.
  void addAdapters(const std::string &name, int64_t expert,
                   const std::vector<Slot> &slots, const Matrix &x, Matrix &out,
                   int64_t first, int64_t step) const {
    int64_t experts = spec.getNumLocalExperts(), rank = spec.lora->rank;
    int64_t width = x.getNumColumns();
    int64_t columns =
        name == "down" ? spec.getExpertWidth() : spec.intermediateSize;
    for (auto [i, slot] : llvm::enumerate(slots)) {
      auto adapter = static_cast<int64_t>(
          call.read("adapter_ids", tokens[slot.row], 1)[0]);
      if (adapter < 0 || adapter >= spec.lora->adapters)
        continue;
      int64_t matrix = adapter * experts + expert;
      std::vector<double> a =
          call.read("lora." + name + "_a", matrix * rank * width, rank * width);
      std::vector<double> b = call.read(
          "lora." + name + "_b", matrix * columns * rank, columns * rank);
      const double *from = x.row(static_cast<int64_t>(i));
      double *to = out.row(static_cast<int64_t>(i));
      for (int64_t j = 0; j < rank; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k)
          sum += from[k] * a[j * width + k];
        for (int64_t n = 0; n < columns; ++n)
          to[first + n * step] += sum * b[n * rank + j];
      }
    }
  }

  /// Adds the adapters' gate and up values to the rows of an expert's first
  /// gemm.
  void addFirstAdapters(const Matrix &x, int64_t expert,
                        const std::vector<Slot> &slots, Matrix &u) const {
    if (!spec.lora)
      return;
    // The order of the expert's columns is that of its weights only.
    Matrix rows(u.getNumRows(), x.getNumColumns());
    for (auto [i, slot] : llvm::enumerate(slots))
      for (int64_t j = 0; j < x.getNumColumns(); ++j) {
        double value = x.row(slot.row)[j];
        rows.row(static_cast<int64_t>(i))[j] =
            spec.routing.weightOnInput
                ? roundTo(value * slot.weight, spec.dtype)
                : value;
      }
    GatedColumns columns(spec, spec.intermediateSize);
    if (spec.isGated())
      addAdapters("gate", expert, slots, rows, u, columns.gate, columns.step);
    addAdapters("up", expert, slots, rows, u, spec.isGated() ? columns.up : 0,
                columns.step);
  }

  /// A gemm of formula 8 or 10. Quantizes its rows x first if activations are
  /// quantized; `foundScale` is the dynamic scale shared by all rows of the
  /// call.
  Product makeProduct(Matrix &x, const std::string &weight, int64_t firstRow,
                      Matrix &out, float foundScale) const {
    Product product = {&x, &call.get(weight), firstRow, &out};
    const auto &quantization = spec.getQuantization(weight);
    if (!quantization)
      return product;
    if (const auto &activation = quantization->activation) {
      float scale = foundScale;
      if (activation->isStatic)
        scale = static_cast<float>(call.read(weight + "_input_scale", 0, 1)[0]);
      if (!spec.quantizedInput || weight != "experts.w13")
        x = quantizeRows(x, *activation, scale, call.threads);
    }
    product.scales = &call.get(weight + "_scale");
    if (call.has(weight + "_zero_point"))
      product.zeroPoints = &call.get(weight + "_zero_point");
    if (call.has(weight + "_minimum"))
      product.minima = &call.get(weight + "_minimum");
    if (call.has(weight + "_global_scale"))
      product.globalScales = &call.get(weight + "_global_scale");
    product.quantization = &quantization->weight;
    product.hasHalves = llvm::StringRef(weight).ends_with("w13") &&
                        spec.isGated() &&
                        spec.gateUpOrder != GateUpOrder::Interleaved;
    return product;
  }

  std::vector<double> getSharedBias(const char *matrix, int64_t rows) const {
    if (!spec.sharedExperts->bias)
      return {};
    return call.read(std::string("shared_experts.") + matrix + "_bias", 0,
                     rows);
  }

  std::vector<double> getBias(const char *matrix, int64_t expert,
                              int64_t rows) const {
    if (!spec.expertBias)
      return {};
    return call.read(std::string("experts.") + matrix + "_bias", expert * rows,
                     rows);
  }

  /// The hidden states in the order of the shared expert's columns.
  Matrix orderHidden() const {
    int64_t width = hidden.getNumColumns();
    std::vector<double> columns =
        call.read("shared_experts.w13_columns", 0, width);
    Matrix x(hidden.getNumRows(), width);
    for (int64_t i = 0; i < x.getNumRows(); ++i)
      for (int64_t j = 0; j < width; ++j)
        x.row(i)[j] = hidden.row(i)[static_cast<int64_t>(columns[j])];
    return x;
  }

  /// Sets the logit of the shared expert's factor for each row.
  void readSharedGate() {
    SharedGate kind = spec.sharedExperts->gate;
    if (kind == SharedGate::None)
      return;
    int64_t count = kind == SharedGate::Softmax ? 2 : 1;
    Matrix gate = computeProduct(hidden, call.get("shared_experts.gate"), count,
                                 call.threads);
    std::vector<double> bias(size_t(count), 0.0);
    if (spec.sharedExperts->gateBias)
      bias = call.read("shared_experts.gate_bias", 0, count);
    for (int64_t i = 0; i < gate.getNumRows(); ++i) {
      double own = gate.row(i)[count - 1] + bias[count - 1];
      sharedGate.push_back(count == 1 ? own : own - gate.row(i)[0] - bias[0]);
    }
  }

  /// The share of the experts' sum in a softmax with the shared expert.
  double getRoutedShare(size_t row) const {
    bool isShared =
        spec.sharedExperts && spec.sharedExperts->gate == SharedGate::Softmax;
    return isShared ? sigmoid(-sharedGate[row]) : 1;
  }

  void addBias(Matrix &total) const {
    std::vector<double> bias = call.read("output_bias", 0, spec.hiddenSize);
    int64_t numValid = call.getNumValid();
    for (auto [i, token] : llvm::enumerate(tokens))
      for (int64_t j = 0; token < numValid && j < spec.hiddenSize; ++j)
        total.row(static_cast<int64_t>(i))[j] += bias[j];
  }

  /// Formula 10.
  void addShared(Matrix &total) {
    int64_t size = spec.sharedExperts->intermediateSize;
    Matrix x = spec.sharedExperts->columns ? orderHidden() : hidden;
    Matrix u(x.getNumRows(), spec.getFirstProductRows(size));
    float scale = findScale(x, "shared_experts.w13");
    computeProducts({makeProduct(x, "shared_experts.w13", 0, u, scale)},
                    call.threads);
    Matrix a =
        activateRows(u, size, getSharedBias("w13", u.getNumColumns()),
                     spec.sharedExperts->activation.value_or(spec.activation));
    Matrix s(x.getNumRows(), spec.hiddenSize);
    scale = findScale(a, "shared_experts.w2");
    computeProducts({makeProduct(a, "shared_experts.w2", 0, s, scale)},
                    call.threads);
    std::vector<double> bias = getSharedBias("w2", spec.hiddenSize);
    bias.resize(spec.hiddenSize);
    parallelFor(call.threads, total.getNumRows(), [&](int64_t i) {
      double factor = sharedGate.empty() ? 1 : sigmoid(sharedGate[i]);
      factor *= spec.sharedExperts->scale;
      for (int64_t j = 0; j < total.getNumColumns(); ++j)
        total.row(i)[j] +=
            roundTo((s.row(i)[j] + bias[j]) * factor, spec.dtype);
    });
  }

  const Call &call;
  const LayerSpec &spec;
  const Decision &decision;
  llvm::ArrayRef<int64_t> tokens;
  Matrix hidden;
  std::vector<double> sharedGate;
  /// The dynamic input scale of the experts' first gemm.
  float inputScale = 0;
};

} // namespace

Matrix moec::reference::computeLogits(const Call &call,
                                      llvm::ArrayRef<int64_t> tokens) {
  const LayerSpec &spec = call.spec;
  int64_t routes = spec.getNumRouted();
  Matrix hidden = readRows(call, "hidden_states", tokens, spec.hiddenSize);
  bool isSplit = spec.routing.splitGate;
  if (spec.routing.gateHiddenSize) {
    hidden = computeProduct(hidden, call.get("gate.hidden"),
                            *spec.routing.gateHiddenSize, call.threads);
    for (int64_t i = 0; i < hidden.getNumRows(); ++i)
      for (int64_t j = 0; j < hidden.getNumColumns(); ++j)
        hidden.row(i)[j] = roundTo(std::tanh(hidden.row(i)[j]), spec.dtype);
  }
  Matrix sums = computeProduct(hidden, call.get("gate.weight"),
                               isSplit ? 2 * routes : routes, call.threads);
  Matrix logits = isSplit ? Matrix(sums.getNumRows(), routes) : std::move(sums);
  if (isSplit)
    for (int64_t i = 0; i < logits.getNumRows(); ++i)
      for (int64_t j = 0; j < routes; ++j)
        logits.row(i)[j] = sums.row(i)[j] + sums.row(i)[routes + j];
  if (!spec.routing.gateBias)
    return logits;
  std::vector<double> bias = call.read("gate.bias", 0, routes);
  for (int64_t i = 0; i < logits.getNumRows(); ++i)
    for (int64_t j = 0; j < routes; ++j)
      logits.row(i)[j] += bias[j];
  return logits;
}

Matrix moec::reference::getLogits(const Call &call) {
  std::vector<int64_t> tokens(call.tokens);
  for (int64_t i = 0; i < call.tokens; ++i)
    tokens[i] = i;
  if (call.spec.entry == Entry::Gate)
    return computeLogits(call, tokens);
  return readRows(call, "router_logits", tokens, call.spec.getNumRouted());
}

void moec::reference::forEachRoutedRow(
    const Call &call, const Matrix &logits,
    llvm::function_ref<void(int64_t, const RoutedRow &)> body) {
  Router router(call);
  std::vector<double> inputIds(call.tokens);
  if (router.isHash())
    inputIds = call.read("input_ids", 0, call.tokens);
  std::vector<double> given;
  size_t topK = call.spec.topK;
  if (call.spec.replayIds)
    given = call.read("topk_ids", 0, call.tokens * call.spec.topK);
  if (call.spec.replayIds == IdType::UInt8)
    for (double &id : given)
      id = static_cast<uint8_t>(static_cast<int>(id));
  parallelFor(call.threads, call.tokens, [&](int64_t token) {
    llvm::ArrayRef<double> row(logits.row(token), logits.getNumColumns());
    llvm::ArrayRef<double> ids(given);
    if (!ids.empty())
      ids = ids.slice(token * topK, topK);
    body(token,
         RoutedRow(router, row, static_cast<int64_t>(inputIds[token]), ids));
  });
}

Decision moec::reference::decide(const Call &call, const Matrix &logits) {
  int64_t topK = call.spec.topK, slots = call.tokens * topK;
  Decision decision;
  if (call.spec.entry == Entry::Ids) {
    std::vector<double> ids = call.read("topk_ids", 0, slots);
    decision.ids.assign(ids.begin(), ids.end());
    decision.weights = call.read("topk_weights", 0, slots);
  } else {
    decision.ids.resize(slots);
    decision.weights.resize(slots);
    forEachRoutedRow(call, logits, [&](int64_t token, const RoutedRow &row) {
      llvm::copy(row.getIds(), decision.ids.begin() + token * topK);
      row.weigh(row.getIds(), {decision.weights.data() + token * topK,
                               static_cast<size_t>(topK)});
    });
  }
  if (call.spec.paddingMask)
    for (auto [token, isPresent] : llvm::enumerate(call.getPresent()))
      if (!isPresent)
        std::fill_n(decision.ids.begin() + static_cast<int64_t>(token) * topK,
                    topK, -1);
  return decision;
}

std::vector<int64_t> moec::reference::getLocalIndex(const LayerSpec &spec) {
  std::vector<int64_t> index(spec.getNumRouted(), -1);
  if (spec.placement && spec.placement->localExperts) {
    for (auto [i, id] : llvm::enumerate(*spec.placement->localExperts))
      index[id] = static_cast<int64_t>(i);
    return index;
  }
  for (int64_t e = 0; e < spec.numExperts; ++e)
    index[e] = e;
  return index;
}

ExpertIndices::ExpertIndices(const Call &call)
    : index(getLocalIndex(call.spec)) {
  if (!call.spec.replicas)
    return;
  numPhysical = call.spec.replicas->numPhysicalExperts;
  most = call.spec.replicas->maxReplicas;
  int64_t experts = call.spec.numExperts;
  counts = call.read("replicas.counts", 0, experts);
  physical = call.read("replicas.physical_ids", 0, experts * most);
}

int64_t ExpertIndices::find(int64_t token, int64_t id) const {
  if (most == 0)
    return index[id];
  auto count = static_cast<int64_t>(counts[id]);
  if (count < 1 || count > most)
    return -1;
  constexpr int64_t factor = 2654435769, range = int64_t(1) << 32;
  int64_t replica = token * factor % range % count;
  auto place = static_cast<int64_t>(physical[id * most + replica]);
  return place >= 0 && place < numPhysical ? place : -1;
}

bool moec::reference::isValidSlot(const LayerSpec &spec, int64_t numValid,
                                  int64_t token, int64_t id) {
  return id >= 0 && id < spec.getNumRouted() && token < numValid;
}

Matrix moec::reference::evaluate(const Call &call, const Decision &decision,
                                 llvm::ArrayRef<int64_t> tokens) {
  // Invalid rows are left out, not multiplied by zero.
  std::vector<bool> counts = call.getPresent();
  // All rows that share a scale are evaluated, whichever are requested.
  bool needsAll =
      llvm::any_of(call.spec.getExpertWeights(), [&](llvm::StringRef weight) {
        return sharesScales(call.spec, weight);
      });
  std::vector<int64_t> present;
  for (int64_t token : tokens)
    if (counts[token] && !needsAll)
      present.push_back(token);
  std::vector<int64_t> rowOf(call.tokens);
  for (int64_t token = 0; token < call.tokens && needsAll; ++token)
    if (counts[token]) {
      rowOf[token] = static_cast<int64_t>(present.size());
      present.push_back(token);
    }
  Matrix rows = Evaluation(call, decision, present).run();
  Matrix out(static_cast<int64_t>(tokens.size()), call.spec.getOutputWidth());
  int64_t next = 0;
  for (auto [i, token] : llvm::enumerate(tokens))
    if (counts[token]) {
      std::copy_n(rows.row(needsAll ? rowOf[token] : next++),
                  out.getNumColumns(), out.row(static_cast<int64_t>(i)));
    }
  return out;
}

double moec::reference::countOperationsPerToken(const LayerSpec &spec) {
  auto expert = [&](int64_t width, int64_t size) {
    return 2.0 * static_cast<double>(width) *
           static_cast<double>(spec.getFirstProductRows(size) + size);
  };
  double count = static_cast<double>(spec.topK) *
                 expert(spec.getExpertWidth(), spec.intermediateSize);
  if (spec.latentSize)
    count += 4.0 * static_cast<double>(spec.hiddenSize * *spec.latentSize);
  if (spec.sharedExperts)
    count += expert(spec.hiddenSize, spec.sharedExperts->intermediateSize);
  return count;
}
