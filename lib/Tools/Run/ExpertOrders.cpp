//===- ExpertOrders.cpp - column orders of act-order ------------*- C++ -*-===//
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
#include <optional>

using namespace moec;
using llvm::StringRef;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

/// The group of each column of one module, read from a tensor of a file.
struct Groups {
  const LocatedPart *located = nullptr;
  std::vector<int64_t> ofColumn;
};

/// The columns sorted stably by group; empty if they are sorted already.
std::vector<int32_t> sortColumns(llvm::ArrayRef<int64_t> groups) {
  if (llvm::is_sorted(groups))
    return {};
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(
      order, [&](int32_t a, int32_t b) { return groups[a] < groups[b]; });
  return order;
}

/// Permutes the elements of each row, of 4 or 8 bits.
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

} // namespace

void ExpertOrders::findPlanes(const LocatedTensor &w13) {
  // The planes of all experts are those of the first.
  std::optional<int64_t> slot;
  for (const LocatedPart &located : w13.parts)
    if (const CheckpointPart *part = located.part;
        part && part->use == PartUse::Values &&
        part->isPerExpert() != isShared &&
        located.slot == slot.value_or(located.slot)) {
      slot = located.slot;
      planes.push_back({part->firstRow, part->rowStride, part->numRows});
    }
}

Status ExpertOrders::readProduct(moert::Checkpoint &checkpoint,
                                 const LocatedLayer &layer,
                                 const LayerRequest &request,
                                 const std::string &name) {
  const LocatedTensor *tensor = layer.find(name);
  const TensorInfo *info = findInfo(request, name);
  if (!tensor || !info)
    return Status::ok();
  auto fail = [&](const LocatedPart &located, const std::string &what) {
    return moert::invalidArgument(checkpoint.fileOf(located.name) +
                                  ": tensor '" + located.name + "': " + what);
  };
  bool isFirst = name == first;
  size_t numModules = isFirst ? planes.size() : 1;
  std::string columnsName = first + "_columns";
  // The modules of each expert that have a tensor of groups.
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
  for (auto &[index, groups] : modules) {
    const LocatedPart &module = *groups.front().located;
    std::vector<int32_t> order = sortColumns(groups.front().ofColumn);
    for (const Groups &other : llvm::drop_begin(groups))
      if (other.ofColumn != groups.front().ofColumn)
        return fail(*other.located, "has columns in other groups than '" +
                                        module.name +
                                        "'; gate and up multiply the same "
                                        "input, so both need one column order");
    if (order.empty())
      continue;
    if (groups.size() < numModules)
      return fail(
          module,
          "has columns in another order, but gate or up has no such tensor; "
          "both multiply the same input, so both need one column order");
    const LocatedTensor *columns = layer.find(columnsName);
    if (isFirst && (!columns || !columns->parts.front().part))
      return fail(module, "has columns in another order (act-order) than '" +
                              columnsName +
                              "' in the file; leave one of them out");
    if (!isFirst && planes.empty())
      return fail(module, "has columns in another order (act-order), which "
                          "must also be the row order of '" +
                              first +
                              "'; give both weights under the model's names");
    if (size_t(index) >= orders.size())
      orders.resize(size_t(index) + 1);
    (isFirst ? orders[size_t(index)].w13 : orders[size_t(index)].w2) =
        std::move(order);
  }
  return Status::ok();
}

Result<ExpertOrders> ExpertOrders::read(moert::Checkpoint &checkpoint,
                                        const LocatedLayer &layer,
                                        const LayerRequest &request,
                                        StringRef experts) {
  ExpertOrders orders(experts);
  if (const LocatedTensor *w13 = layer.find(orders.first))
    orders.findPlanes(*w13);
  for (const std::string &name : {orders.first, orders.second})
    if (Status status = orders.readProduct(checkpoint, layer, request, name);
        !status)
      return status;
  return orders;
}

void ExpertOrders::orderRows(const Order &order, size_t rowBytes, size_t bytes,
                             uint8_t *matrix) const {
  std::vector<uint8_t> rows(matrix, matrix + bytes);
  auto count = int64_t(order.size());
  for (const Plane &plane : planes)
    for (int64_t row = 0; row < plane.numRows; ++row) {
      auto getByte = [&](int64_t i) {
        return size_t(plane.firstRow + i * plane.rowStride) * rowBytes;
      };
      int64_t from = row - row % count + order[size_t(row % count)];
      std::memcpy(matrix + getByte(row), rows.data() + getByte(from), rowBytes);
    }
}

void ExpertOrders::apply(const CopyTarget &target, int64_t index,
                         uint8_t *matrix) const {
  // Scales that all rows share have one dimension less.
  if (size_t(index) >= orders.size() || target.shape.size() < 2)
    return;
  const OrdersOfExpert &expert = orders[size_t(index)];
  StringRef name = target.name;
  size_t bytes = target.getMatrixBytes();
  size_t rowBytes = bytes / size_t(target.getLocal().rows);
  const Order &columns = name == first ? expert.w13 : expert.w2;
  if ((name == first || name == second) && !columns.empty())
    orderColumns(columns, elementBits, rowBytes, bytes, matrix);
  if (name.starts_with(first) && !expert.w2.empty())
    orderRows(expert.w2, rowBytes, bytes, matrix);
}

void ExpertOrders::writeColumns(int64_t index,
                                llvm::MutableArrayRef<int32_t> columns) const {
  if (size_t(index) < orders.size() && !orders[size_t(index)].w13.empty())
    llvm::copy(orders[size_t(index)].w13, columns.begin());
  else
    std::iota(columns.begin(), columns.end(), 0);
}
