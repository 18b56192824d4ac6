//===- ExpertOrders.cpp - orders of columns in checkpoints ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertOrders.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <map>
#include <numeric>

using namespace moec;
using llvm::StringRef;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

constexpr llvm::StringLiteral kFirst = "experts.w13", kSecond = "experts.w2";

/// The group of each column of one module, as a tensor of a file says.
struct Groups {
  const LocatedPart *located = nullptr;
  std::vector<int64_t> ofColumn;
};

/// Columns group by group, those of a group as they come; empty where they lie
/// so already.
std::vector<int32_t> sortColumns(llvm::ArrayRef<int64_t> groups) {
  if (llvm::is_sorted(groups))
    return {};
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(
      order, [&](int32_t a, int32_t b) { return groups[a] < groups[b]; });
  return order;
}

/// Puts the elements of each row, of 4 or 8 bits, in an order.
void orderColumns(llvm::ArrayRef<int32_t> order, int64_t bits, size_t rowBytes,
                  size_t bytes, uint8_t *matrix) {
  std::vector<uint8_t> row(rowBytes);
  for (uint8_t *to = matrix; to != matrix + bytes; to += rowBytes) {
    std::memcpy(row.data(), to, rowBytes);
    if (bits == 8) {
      for (auto [column, from] : llvm::enumerate(order))
        to[column] = row[size_t(from)];
      continue;
    }
    auto read = [&](int32_t column) {
      return row[size_t(column) / 2] >> (column % 2 * 4) & 15;
    };
    for (size_t byte = 0; byte < rowBytes; ++byte)
      to[byte] =
          uint8_t(read(order[2 * byte]) | read(order[2 * byte + 1]) << 4);
  }
}

const TensorInfo *findInfo(const LayerRequest &request, StringRef name) {
  auto it = llvm::find_if(request.signature, [&](const TensorInfo &info) {
    return info.name == name;
  });
  return it == request.signature.end() ? nullptr : &*it;
}

/// Ranks have a part of each expert.
bool isSplit(const LayerRequest &request, StringRef name) {
  const TensorShard *shard = request.findShard(name);
  return shard && shard->dimension >= 0;
}

} // namespace

void ExpertOrders::findPlanes(const LocatedTensor &w13) {
  for (const LocatedPart &located : w13.parts)
    if (const CheckpointPart *part = located.part;
        part && part->use == PartUse::Values && part->isPerExpert() &&
        located.slot == 0)
      planes.push_back({part->firstRow, part->rowStride, part->numRows});
}

Status ExpertOrders::readProduct(moert::Checkpoint &checkpoint,
                                 const LocatedLayer &layer,
                                 const LayerRequest &request, StringRef name) {
  const LocatedTensor *tensor = layer.find(name);
  const TensorInfo *info = findInfo(request, name);
  if (!tensor || !info)
    return Status::ok();
  auto fail = [&](const LocatedPart &located, const std::string &what) {
    return moert::invalidArgument(checkpoint.fileOf(located.name) +
                                  ": tensor '" + located.name + "': " + what);
  };
  size_t numModules = name == kFirst ? planes.size() : 1;
  // Of the modules of each expert that say it.
  std::map<int64_t, llvm::SmallVector<Groups, 2>> modules;
  for (const LocatedPart &located : tensor->parts) {
    if (!located.part || located.part->use != PartUse::ColumnOrder)
      continue;
    Result<const SafetensorsEntry *> entry = checkpoint.find(located.name);
    if (!entry)
      return entry.status();
    elementBits = located.part->packing.layerBits;
    Groups groups{&located, {}};
    std::string what = readGroups(**entry, info->shape.back() * 8 / elementBits,
                                  located.part->groupColumns, groups.ofColumn);
    if (!what.empty())
      return fail(located, what);
    modules[located.slot].push_back(std::move(groups));
  }
  for (auto &[place, groups] : modules) {
    const LocatedPart &first = *groups.front().located;
    std::vector<int32_t> order = sortColumns(groups.front().ofColumn);
    for (const Groups &other : llvm::drop_begin(groups))
      if (other.ofColumn != groups.front().ofColumn)
        return fail(*other.located,
                    "has columns in other groups than '" + first.name +
                        "'; gate and up multiply the same input, which has one "
                        "order for both");
    if (order.empty())
      continue;
    if (groups.size() < numModules)
      return fail(first, "has columns in another order, and gate or up has no "
                         "such tensor; both multiply the same input, which has "
                         "one order for both");
    const LocatedTensor *columns = layer.find(kColumnsTensor);
    if (name == kFirst && (!columns || !columns->parts.front().part))
      return fail(first, "has columns in another order (act-order) than '" +
                             kColumnsTensor.str() +
                             "' of the file; leave one of them out");
    if (name == kSecond && isSplit(request, kSecond))
      return fail(first,
                  "has columns in another order (act-order), of which ranks "
                  "that share every expert would have any; give each rank "
                  "whole experts ('parallel.experts')");
    if (name == kSecond && planes.empty())
      return fail(first, "has columns in another order (act-order), in which "
                         "the rows of 'experts.w13' have to be; give both "
                         "products under the model's names");
    if (size_t(place) >= experts.size())
      experts.resize(size_t(place) + 1);
    (name == kFirst ? experts[size_t(place)].w13 : experts[size_t(place)].w2) =
        std::move(order);
  }
  return Status::ok();
}

Result<ExpertOrders> ExpertOrders::read(moert::Checkpoint &checkpoint,
                                        const LocatedLayer &layer,
                                        const LayerRequest &request) {
  ExpertOrders orders;
  if (const LocatedTensor *w13 = layer.find(kFirst))
    orders.findPlanes(*w13);
  for (StringRef name : {kFirst, kSecond})
    if (Status status = orders.readProduct(checkpoint, layer, request, name);
        !status)
      return status;
  return orders;
}

void ExpertOrders::orderRows(const Order &order, size_t rowBytes, size_t bytes,
                             uint8_t *matrix) const {
  std::vector<uint8_t> rows(matrix, matrix + bytes);
  for (const Plane &plane : planes)
    for (auto [row, from] : llvm::enumerate(order)) {
      auto getByte = [&](int64_t i) {
        return size_t(plane.firstRow + i * plane.rowStride) * rowBytes;
      };
      std::memcpy(matrix + getByte(int64_t(row)), rows.data() + getByte(from),
                  rowBytes);
    }
}

void ExpertOrders::apply(const CopyTarget &target, int64_t place,
                         uint8_t *matrix) const {
  if (size_t(place) >= experts.size())
    return;
  const OrdersOfExpert &orders = experts[size_t(place)];
  StringRef name = target.name;
  size_t bytes = target.getMatrixBytes();
  size_t rowBytes = bytes / size_t(target.getLocal().rows);
  const Order &columns = name == kFirst ? orders.w13 : orders.w2;
  if ((name == kFirst || name == kSecond) && !columns.empty())
    orderColumns(columns, elementBits, rowBytes, bytes, matrix);
  if (name.starts_with(kFirst) && !orders.w2.empty())
    orderRows(orders.w2, rowBytes, bytes, matrix);
}

void ExpertOrders::writeColumns(int64_t place,
                                llvm::MutableArrayRef<int32_t> columns) const {
  if (size_t(place) < experts.size() && !experts[size_t(place)].w13.empty())
    llvm::copy(experts[size_t(place)].w13, columns.begin());
  else
    std::iota(columns.begin(), columns.end(), 0);
}
