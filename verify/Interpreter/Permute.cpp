//===- Permute.cpp - positions of slots, and the way back -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace moert;

namespace moec::interpreter {

bool isPaddingRow(const OptionalRef &isPadding, int64_t token) {
  return isPadding && isPadding->as<int8_t>()[token] != 0;
}

int64_t validTokens(const OptionalRef &numValidTokens, int64_t tokens) {
  if (!numValidTokens)
    return tokens;
  return std::clamp<int64_t>(numValidTokens->as<int32_t>()[0], 0, tokens);
}

Status checkRows(const char *name, const TensorRef &tensor, int64_t rows) {
  if (!tensor.shape.empty() && tensor.shape[0] >= rows)
    return Status::ok();
  return invalidArgument(std::string(name) + " is " + describe(tensor) +
                         ", but must have " + std::to_string(rows) + " rows");
}

/// The local expert of each global id, -1 for experts of other ranks.
static Result<std::vector<int64_t>>
findLocalExperts(int64_t numExperts,
                 std::optional<llvm::ArrayRef<int64_t>> localExperts) {
  std::vector<int64_t> localOf(numExperts, -1);
  int64_t numLocal = localExperts ? localExperts->size() : numExperts;
  for (int64_t g = 0; g < numLocal; ++g) {
    int64_t expert = localExperts ? (*localExperts)[g] : g;
    if (expert < 0 || expert >= numExperts)
      return invalidArgument("local_experts[" + std::to_string(g) + "] is " +
                             std::to_string(expert) +
                             ", ids are 0 to num_experts - 1");
    localOf[expert] = g;
  }
  return localOf;
}

Status countSlots(const CountSlotsArguments &arguments) {
  int64_t tokens = arguments.tokens, topK = arguments.ids.shape[1];
  if (Status status = checkRows("ids", arguments.ids, tokens); !status)
    return status;
  Result<std::vector<int64_t>> localOf =
      findLocalExperts(arguments.numExperts, arguments.localExperts);
  if (!localOf)
    return localOf.status();
  int64_t rows = arguments.counts.shape[0], columns = arguments.counts.shape[1];
  int64_t chunk = std::max((tokens + rows - 1) / rows, arguments.chunkTokens);
  int32_t *counts = arguments.counts.as<int32_t>();
  for (int64_t row = 0; row * chunk < tokens; ++row)
    std::fill_n(counts + row * columns, columns, 0);
  int64_t valid = validTokens(arguments.numValidTokens, tokens);
  const int32_t *ids = arguments.ids.as<int32_t>();
  for (int64_t slot = 0; slot < valid * topK; ++slot) {
    int64_t id = ids[slot];
    if (id >= 0 && id < arguments.numExperts && (*localOf)[id] >= 0)
      ++counts[slot / topK / chunk * columns + (*localOf)[id]];
  }
  return Status::ok();
}

/// Checks the counts of an earlier launch.
static Status checkCounts(const PermuteArguments &arguments) {
  if (!arguments.counts)
    return Status::ok();
  const TensorRef &found = *arguments.counts;
  Tensor expected = Tensor::undefined(found.dtype, found.shape);
  // Undefined rows compare equal.
  memcpy(expected.ref().data, found.data, expected.size());
  CountSlotsArguments count;
  count.tokens = arguments.tokens;
  count.ids = arguments.ids;
  count.numValidTokens = arguments.numValidTokens;
  count.counts = expected.ref();
  count.numExperts = arguments.numExperts;
  count.chunkTokens = arguments.chunkTokens;
  count.localExperts = arguments.localExperts;
  if (Status status = countSlots(count); !status)
    return status;
  if (memcmp(expected.ref().data, found.data, expected.size()) != 0)
    return invalidArgument(
        "counts differ from those that tile.count_slots computes from ids");
  return Status::ok();
}

Status permute(const PermuteArguments &arguments) {
  if (Status status = checkCounts(arguments); !status)
    return status;
  int64_t tokens = arguments.tokens;
  int64_t topK = arguments.ids.shape[1];
  int64_t numExperts = arguments.numExperts;
  for (const auto &[name, tensor, rows] :
       {std::tuple<const char *, TensorRef, int64_t>("ids", arguments.ids,
                                                     tokens),
        {"weights", arguments.weights, tokens},
        {"position", arguments.position, tokens},
        {"source", arguments.source, tokens * topK},
        {"row_weight", arguments.rowWeight, tokens * topK}})
    if (Status status = checkRows(name, tensor, rows); !status)
      return status;

  Result<std::vector<int64_t>> found =
      findLocalExperts(numExperts, arguments.localExperts);
  if (!found)
    return found.status();
  const std::vector<int64_t> &localOf = *found;
  int64_t numLocal =
      arguments.localExperts ? arguments.localExperts->size() : numExperts;
  if (Status status = checkRows("offsets", arguments.offsets, numLocal + 1);
      !status)
    return status;

  // Slots of each local expert in the order of (t, j).
  std::vector<std::vector<int64_t>> slots(numLocal);
  int64_t valid = validTokens(arguments.numValidTokens, tokens);
  const int32_t *ids = arguments.ids.as<int32_t>();
  int32_t *position = arguments.position.as<int32_t>();
  for (int64_t slot = 0; slot < tokens * topK; ++slot) {
    int64_t id = slot < valid * topK ? ids[slot] : -1;
    position[slot] = -1;
    if (id >= 0 && id < numExperts && localOf[id] >= 0)
      slots[localOf[id]].push_back(slot);
    else if (id >= numExperts && id < numExperts + arguments.numZeroExperts)
      position[slot] = -2;
  }

  int32_t *offsets = arguments.offsets.as<int32_t>();
  int32_t next = 0;
  for (int64_t g = 0; g < numLocal; ++g) {
    offsets[g] = next;
    for (int64_t slot : slots[g]) {
      position[slot] = next;
      arguments.source.as<int32_t>()[next] = slot / topK;
      arguments.rowWeight.as<float>()[next] =
          arguments.weights.as<float>()[slot];
      ++next;
    }
  }
  offsets[numLocal] = next;
  return Status::ok();
}

Status gatherRows(const GatherRowsArguments &arguments) {
  const TensorRef &input = arguments.input, &result = arguments.result;
  const OptionalRef &offsets = arguments.offsets, &source = arguments.source;
  int64_t rows = arguments.positions;
  if (offsets)
    rows = offsets->as<int32_t>()[offsets->numElements() - 1];
  if (rows < 0 || rows > arguments.positions)
    return invalidArgument("the last of offsets is " + std::to_string(rows) +
                           ", but there are " +
                           std::to_string(arguments.positions) + " positions");
  if (source)
    if (Status status = checkRows("source", *source, rows); !status)
      return status;
  if (Status status = checkRows("result", result, rows); !status)
    return status;
  int64_t width = input.rowSize();
  std::vector<float> row(width), ordered(width);
  int64_t group = 0;
  for (int64_t p = 0; p < rows; ++p) {
    while (offsets && p >= offsets->as<int32_t>()[group + 1])
      ++group;
    int64_t from = source ? source->as<int32_t>()[p] : p;
    if (from < 0 || from >= input.shape[0])
      return invalidArgument((source ? "source[" + std::to_string(p) + "]"
                                     : std::string("the row")) +
                             " is " + std::to_string(from) +
                             ", but there are " +
                             std::to_string(input.shape[0]) + " rows");
    load(input, from * width, llvm::MutableArrayRef<float>(row));
    if (arguments.columns) {
      const int32_t *columns = arguments.columns->as<int32_t>() + group * width;
      for (int64_t c = 0; c < width; ++c)
        ordered[c] = row[std::min<int64_t>(static_cast<uint32_t>(columns[c]),
                                           width - 1)];
      row.swap(ordered);
    }
    store(result, p * width, row);
  }
  return Status::ok();
}

/// The local index of an expert, or of the replica that the token takes.
static int64_t findPlace(const PlaceIdsArguments &arguments, int64_t token,
                         int64_t id) {
  const TensorRef &table = *arguments.table;
  if (id < 0 || id >= table.shape[0])
    return -1;
  if (!arguments.replicaCounts)
    return table.as<int32_t>()[id];
  int64_t most = table.shape[1];
  int64_t count = arguments.replicaCounts->as<int32_t>()[id];
  if (count < 1 || count > most)
    return -1;
  uint32_t hash = static_cast<uint32_t>(token) * 2654435769U;
  return table.as<int32_t>()[id * most + hash % count];
}

Status placeIds(const PlaceIdsArguments &arguments) {
  int64_t tokens = arguments.tokens;
  for (auto [name, tensor] :
       {std::pair<const char *, TensorRef>("ids", arguments.ids),
        {"result", arguments.result}})
    if (Status status = checkRows(name, tensor, tokens); !status)
      return status;
  if (arguments.isPadding)
    if (Status status = checkRows("is_padding", *arguments.isPadding, tokens);
        !status)
      return status;
  int64_t topK = arguments.ids.shape[1];
  int64_t runs =
      arguments.numValidTokens ? arguments.numValidTokens->shape[0] : 1;
  if (tokens % runs != 0)
    return invalidArgument(std::to_string(tokens) +
                           " tokens are not a multiple of the " +
                           std::to_string(runs) + " in num_valid_tokens");
  for (int64_t slot = 0; slot < tokens * topK; ++slot) {
    int64_t token = slot / topK, length = tokens / runs;
    int64_t id = arguments.ids.as<int32_t>()[slot];
    auto zeroExperts = arguments.zeroExperts;
    if (zeroExperts && id >= zeroExperts->front() &&
        id - zeroExperts->front() < (*zeroExperts)[1])
      id = arguments.table ? id - zeroExperts->front() + zeroExperts->back()
                           : -2;
    else if (arguments.table)
      id = findPlace(arguments, token, id);
    else if (zeroExperts)
      id = -1;
    if (isPaddingRow(arguments.isPadding, token))
      id = -1;
    if (arguments.numValidTokens &&
        token % length >=
            arguments.numValidTokens->as<int32_t>()[token / length])
      id = -1;
    arguments.result.as<int32_t>()[slot] = static_cast<int32_t>(id);
  }
  return Status::ok();
}

static Status checkUnpermute(const UnpermuteArguments &arguments) {
  int64_t width = arguments.result.rowSize();
  int64_t given = width;
  if (arguments.unreduced)
    given /= arguments.position.shape[1];
  else if (arguments.fromUnreduced)
    given *= arguments.position.shape[1];
  for (auto [name, tensor] :
       {std::pair<const char *, OptionalRef>("identity", arguments.identity),
        {"addend", arguments.hasBias() ? OptionalRef() : arguments.addend},
        {"result", arguments.result},
        {"position", arguments.position},
        {"identity_weights", arguments.identityWeights}})
    if (tensor)
      if (Status status = checkRows(name, *tensor, arguments.tokens); !status)
        return status;
  for (auto [tensor, size] : {std::pair(OptionalRef(arguments.rows), given),
                              {arguments.identity, width},
                              {arguments.addend, width}})
    if (tensor && (tensor->shape.size() == 1 ? tensor->shape[0]
                                             : tensor->rowSize()) != size)
      return invalidArgument("rows of " + describe(*tensor) +
                             " do not fit the result " +
                             describe(arguments.result));
  return Status::ok();
}

/// Row t of the result holds the rows of its slots one after another.
static Status copySlots(const UnpermuteArguments &arguments) {
  int64_t topK = arguments.position.shape[1];
  int64_t width = arguments.rows.rowSize();
  int64_t valid = validTokens(arguments.numValidTokens, arguments.tokens);
  std::vector<float> row(width);
  for (int64_t slot = 0; slot < arguments.tokens * topK; ++slot) {
    int32_t position = arguments.position.as<int32_t>()[slot];
    if (position >= arguments.rows.shape[0])
      return invalidArgument("position " + std::to_string(position) +
                             " is not one of the " +
                             std::to_string(arguments.rows.shape[0]) + " rows");
    llvm::fill(row, 0.0f);
    if (position >= 0 && slot / topK < valid)
      load(arguments.rows, position * width, llvm::MutableArrayRef<float>(row));
    store(arguments.result, slot * width, row);
  }
  return Status::ok();
}

Status unpermute(const UnpermuteArguments &arguments) {
  if (Status status = checkUnpermute(arguments); !status)
    return status;
  if (arguments.unreduced)
    return copySlots(arguments);
  int64_t topK = arguments.position.shape[1];
  int64_t width = arguments.result.rowSize();
  int64_t valid = validTokens(arguments.numValidTokens, arguments.tokens);
  std::vector<float> sum(width), row(width);
  for (int64_t t = 0; t < arguments.tokens; ++t) {
    llvm::fill(sum, 0.0f);
    for (int64_t j = 0; t < valid && j < topK; ++j) {
      int32_t position = arguments.position.as<int32_t>()[t * topK + j];
      float factor = 1;
      if (position >= 0 && arguments.fromUnreduced)
        position = int32_t(t * topK + j);
      else if (position >= arguments.rows.shape[0])
        return invalidArgument(
            "position[" + std::to_string(t) + ", " + std::to_string(j) +
            "] is " + std::to_string(position) + ", but there are " +
            std::to_string(arguments.rows.shape[0]) + " rows");
      if (position >= 0) {
        load(arguments.rows, position * width,
             llvm::MutableArrayRef<float>(row));
      } else if (position == -2 && arguments.identity &&
                 arguments.identityWeights) {
        load(*arguments.identity, t * width, llvm::MutableArrayRef<float>(row));
        factor = loadAt(*arguments.identityWeights, t * topK + j);
      } else {
        continue;
      }
      for (int64_t c = 0; c < width; ++c)
        sum[c] += factor * row[c];
    }
    if (t < valid && arguments.addend) {
      load(*arguments.addend, arguments.hasBias() ? 0 : t * width,
           llvm::MutableArrayRef<float>(row));
      for (int64_t c = 0; c < width; ++c)
        sum[c] += row[c];
    }
    store(arguments.result, t * width, sum);
  }
  return Status::ok();
}

} // namespace moec::interpreter
