//===- Inputs.cpp - inputs and weights of a case ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"

#include "Tools/OnDevice/RuntimeType.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>
#include <numeric>

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

double moec::gputest::getElement(const HostTensor &tensor, int64_t i) {
  double value;
  reference::makeSource(tensor.data(), tensor.dtype)->read(i, 1, &value);
  return value;
}

static uint16_t encode(double value, const llvm::fltSemantics &semantics) {
  llvm::APFloat rounded(value);
  bool isInexact;
  rounded.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &isInexact);
  return static_cast<uint16_t>(rounded.bitcastToAPInt().getZExtValue());
}

void moec::gputest::setElement(const HostTensor &tensor, int64_t i,
                               double value) {
  switch (tensor.dtype) {
  case moert::DType::F32:
    reinterpret_cast<float *>(tensor.data())[i] = static_cast<float>(value);
    return;
  case moert::DType::I32:
    reinterpret_cast<int32_t *>(tensor.data())[i] = static_cast<int32_t>(value);
    return;
  case moert::DType::I8:
    reinterpret_cast<int8_t *>(tensor.data())[i] = static_cast<int8_t>(value);
    return;
  case moert::DType::BF16:
  case moert::DType::F16:
    reinterpret_cast<uint16_t *>(tensor.data())[i] = encode(
        value, tensor.dtype == moert::DType::BF16 ? llvm::APFloat::BFloat()
                                                  : llvm::APFloat::IEEEhalf());
    return;
  default:
    llvm_unreachable(
        "rules for quantized values and scales of one byte write bits");
  }
}

std::vector<int64_t> moec::gputest::drawIds(Draw &draw, int64_t routes,
                                            int64_t topK) {
  std::vector<int64_t> ids;
  while (static_cast<int64_t>(ids.size()) < topK) {
    int64_t id = draw.below(routes);
    while (llvm::is_contained(ids, id))
      id = (id + 1) % routes;
    ids.push_back(id);
  }
  return ids;
}

Result<Inputs> Inputs::create(const LayerCase &from, const LayerSpec &spec) {
  for (llvm::StringRef weight : spec.getExpertWeights()) {
    const auto &quantization = spec.getQuantization(weight);
    if (quantization && !isCompiled(*quantization))
      return moert::invalidArgument("the layer has weights " +
                                    describe(*quantization) +
                                    "; the suite has plain layers and fp8_e4m3 "
                                    "with f32 scales only");
  }
  Inputs inputs(spec, from.tokens, from.seed);
  for (const TensorInfo &info : getTensorSignature(spec)) {
    if (info.role == TensorRole::Output)
      continue;
    Result<moert::DType> type = getRuntimeType(info);
    if (!type)
      return type.status();
    InputTensor &tensor = inputs.tensors.emplace_back();
    tensor.host.name = info.name;
    tensor.host.role = info.role == TensorRole::Input
                           ? moert::TensorRole::Input
                           : moert::TensorRole::Weight;
    tensor.host.dtype = *type;
    tensor.host.shape = info.shape;
    if (!info.shape.empty() && info.shape[0] == kTokenDimension) {
      tensor.isPerToken = true;
      tensor.host.shape[0] = from.tokens;
    }
  }
  for (InputTensor &tensor : inputs.tensors)
    if (Status status = inputs.fill(tensor, from.deviation); !status)
      return status;
  if (!from.hard.empty())
    if (Status status = applyHardInputs(from.hard, from.share, inputs); !status)
      return status.withContext("hard inputs '" + from.hard + "'");
  return inputs;
}

InputTensor *Inputs::find(llvm::StringRef name) {
  for (InputTensor &tensor : tensors)
    if (tensor.host.name == name)
      return &tensor;
  return nullptr;
}

reference::Call Inputs::makeCall(int threads) const {
  reference::Call call;
  call.spec = spec;
  call.tokens = tokens;
  call.threads = threads;
  for (const InputTensor &tensor : tensors)
    call.tensors[tensor.host.name] =
        tensor.random
            ? reference::makeSource(*tensor.random)
            : reference::makeSource(tensor.host.data(), tensor.host.dtype);
  return call;
}

/// The standard deviation of a float tensor without a rule of its own.
static double getDeviation(const LayerSpec &spec, const HostTensor &tensor,
                           double given) {
  llvm::StringRef name = tensor.name;
  if (name == "router_logits")
    return 1;
  if (name == "gate.selection_bias")
    // Scores of a softmax are of the order 1 / R; so is a bias that matters but
    // does not decide alone.
    return spec.routing.score == Score::Softmax
               ? 0.3 / static_cast<double>(spec.getNumRouted())
               : 0.1;
  if (name.contains("bias"))
    return 0.1;
  if (given > 0 && !name.starts_with("gate."))
    return given;
  if (tensor.role == moert::TensorRole::Input)
    return 1;
  return 1 / std::sqrt(static_cast<double>(tensor.shape.back()));
}

/// Fills the replica tables, with at most `maxReplicas` physical experts per
/// expert: the first experts get the most replicas, at random physical ids.
static void fillReplicas(const LayerSpec &spec, uint64_t seed,
                         const HostTensor &tensor) {
  int64_t most = spec.replicas->maxReplicas;
  Draw draw(seed, "replicas");
  std::vector<int64_t> places = drawIds(draw, spec.replicas->numPhysicalExperts,
                                        spec.replicas->numPhysicalExperts);
  std::vector<std::vector<int64_t>> physical(spec.numExperts);
  size_t next = 0;
  for (int64_t count = 1; count <= most; ++count)
    for (int64_t e = 0; e < spec.numExperts && next < places.size(); e += count)
      physical[e].push_back(places[next++]);
  for (auto [e, own] : llvm::enumerate(physical)) {
    auto expert = static_cast<int64_t>(e);
    auto count = static_cast<int64_t>(own.size());
    if (tensor.name == "replicas.counts") {
      setElement(tensor, expert, static_cast<double>(count));
      continue;
    }
    for (int64_t j = 0; j < most; ++j)
      setElement(tensor, expert * most + j,
                 j < count ? static_cast<double>(own[j]) : -1);
  }
}

Status Inputs::fill(InputTensor &tensor, double deviation) {
  HostTensor &host = tensor.host;
  llvm::StringRef name = host.name;
  if (host.dtype != moert::DType::I32 && name != "topk_weights" &&
      name != "gate.expert_scale" && name != "is_padding") {
    RandomStream stream(seed, name);
    RandomTensor random = {stream, host.dtype,
                           getFactor(getDeviation(spec, host, deviation))};
    auto find = [&](llvm::StringRef other) -> std::optional<TensorForm> {
      if (const InputTensor *found = this->find(other))
        return TensorForm{found->host.dtype, found->host.shape};
      return std::nullopt;
    };
    random = makeQuantized(stream, name, find).value_or(random);
    if (host.role == moert::TensorRole::Weight && host.shape.size() > 1 &&
        !name.starts_with("gate.")) {
      tensor.random = random;
      return Status::ok();
    }
    if (Status status = host.allocate(); !status)
      return status;
    random.write(0, host.getNumElements(), host.data());
    return Status::ok();
  }
  if (Status status = host.allocate(); !status)
    return status;
  Draw draw(seed, name);
  int64_t count = host.getNumElements();
  if (name == "num_valid_tokens") {
    setElement(host, 0, static_cast<double>(tokens - tokens / 4));
  } else if (name == "is_padding") {
    // Any byte but 0 means padding.
    for (int64_t i = 0; i < count; ++i)
      setElement(host, i,
                 draw.uniform() < 0.25
                     ? static_cast<double>(draw.below(128) - 128)
                     : 0);
  } else if (name.starts_with("replicas.")) {
    fillReplicas(spec, seed, host);
  } else if (isColumnOrder(name)) {
    int64_t width = host.shape.back();
    std::vector<int32_t> orders =
        makeOrders(RandomStream(seed, name), count / width, width);
    std::memcpy(host.data(), orders.data(), host.getNumBytes());
  } else if (name == "input_ids") {
    for (int64_t i = 0; i < count; ++i)
      setElement(host, i,
                 static_cast<double>(draw.below(*spec.routing.hashVocabSize)));
  } else if (name == "gate.expert_scale") {
    for (int64_t i = 0; i < count; ++i)
      setElement(host, i, 0.5 + draw.uniform());
  } else if (name == "topk_weights") {
    for (int64_t i = 0; i < count; i += spec.topK) {
      std::vector<double> row(spec.topK);
      for (double &weight : row)
        weight = 0.1 + draw.uniform();
      double total = std::accumulate(row.begin(), row.end(), 0.0);
      for (int64_t j = 0; j < spec.topK; ++j)
        setElement(host, i + j, row[j] / total);
    }
  } else {
    // Ids of the tokens or of a hash table.
    for (int64_t i = 0; i < count; i += spec.topK)
      for (auto [j, id] :
           llvm::enumerate(drawIds(draw, spec.getNumRouted(), spec.topK)))
        setElement(host, i + static_cast<int64_t>(j), static_cast<double>(id));
  }
  return Status::ok();
}
