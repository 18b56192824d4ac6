//===- ExchangePartsTest.cpp - a dispatch or a combine alone --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Functions of one moe.dispatch or moe.combine, compiled for a GPU and run on
// simulated ranks over each communicator.

#include "SimRanks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/Registry.h"
#include "moec/PtxSim/SimDevice.h"
#include "moert/AllToAll.h"
#include "moert/Executor.h"

#include "gtest/gtest.h"

using namespace moec;
using namespace moec::exchanges;
using moert::Result;
using moert::Status;

namespace {

constexpr int64_t kRanks = 2, kOwn = 5, kColumns = 32, kTopK = 2;
constexpr int64_t kAll = kRanks * kOwn;

constexpr llvm::StringLiteral kDispatch = R"(
func.func @prepare(%x: tensor<?x32xf32> {moe.name = "hidden_states", moe.role = "input"},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %more: tensor<?x3xi8> {moe.name = "more", moe.role = "input"},
    %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x32xf32> {moe.name = "all_rows"}, tensor<?x2xi32> {moe.name = "all_ids"},
        tensor<?x3xi8> {moe.name = "all_more"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>, moe.max_tokens = 64 : i64} {
  %0:3 = moe.dispatch <dp> %x, %ids, %more destinations(%d : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [0]
      : tensor<?x32xf32>, tensor<?x2xi32>, tensor<?x3xi8> -> tensor<?x32xf32>, tensor<?x2xi32>, tensor<?x3xi8>
  return %0#0, %0#1, %0#2 : tensor<?x32xf32>, tensor<?x2xi32>, tensor<?x3xi8>
})";

constexpr llvm::StringLiteral kCombine = R"(
func.func @finalize(%x: tensor<?x32xf32>
      {moe.name = "partial", moe.role = "input", moe.rows = "all", moe.partial = ["dp"]},
    %ids: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
    %all: tensor<?x2xi32> {moe.name = "all_ids", moe.role = "input", moe.rows = "all"},
    %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x32xf32> {moe.name = "output"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>, moe.max_tokens = 64 : i64} {
  %0 = moe.combine <dp> %x destinations(%d : tensor<8xi32>) ids(%ids, %all : tensor<?x2xi32>, tensor<?x2xi32>)
      : tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
})";

enum class Exchange { Copies, Peer, AllToAll };

CompiledGpuLayer compile(llvm::StringRef text, const std::string &target) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  CompileOptions options;
  options.target = target;
  auto compiled = compileForGpu(*module, options);
  EXPECT_TRUE(mlir::succeeded(compiled));
  return std::move(*compiled);
}

struct Parts {
  CompiledGpuLayer dispatch, combine;
};

int32_t idOf(int64_t row, int64_t slot) {
  return int32_t((row * 5 + slot * 3 + (row % 3 == 0 ? 4 * slot : 0)) % 8);
}
bool isHere(int64_t row, int64_t rank) {
  return idOf(row, 0) / 4 == rank || idOf(row, 1) / 4 == rank;
}
float rowOf(int64_t row, int64_t column) { return float(row * 64 + column); }
int8_t moreOf(int64_t row, int64_t column) {
  return int8_t(row * 3 + column - 9);
}
/// The summand of a rank for a row; zero where it has none of its experts.
float partOf(int64_t rank, int64_t row, int64_t column) {
  return isHere(row, rank) ? float((rank * 7 + row * 29 + column * 5) % 97) : 0;
}

/// One rank, which prepares and finalizes.
class Rank {
public:
  Rank(const SimRank &rank, const Parts &parts) : rank(rank), parts(parts) {}

  Status run(Exchange exchange, bool &isRight) {
    if (Status status = connectBy(exchange); !status)
      return status;
    Status status = dispatch(isRight);
    if (status)
      status = combine(isRight);
    if (status)
      status = communicator->agree("test", "the end");
    if (!status)
      communicator->abort(status.message());
    return status;
  }

private:
  Status connectBy(Exchange exchange) {
    if (exchange == Exchange::Peer) {
      auto made = connect(rank, ptx::createSimPeerDevice(rank.device), {});
      if (made)
        communicator = std::move(*made);
      return made.status();
    }
    auto joined = rank.group.join(rank.index, rank.device);
    if (!joined)
      return joined.status();
    communicator = std::move(*joined);
    if (exchange == Exchange::Copies)
      return Status::ok();
    std::shared_ptr<moert::Device> device(std::shared_ptr<void>(),
                                          &rank.device);
    auto made = moert::createAllToAll({communicator, device});
    if (made)
      communicator = std::move(*made);
    return made.status();
  }

  Result<std::unique_ptr<moert::Executor>> start(const CompiledGpuLayer &part) {
    std::vector<std::string> texts;
    for (const CompiledKernel &kernel : part.kernels)
      texts.push_back(kernel.ptx);
    auto made =
        moert::Executor::create(part.plan, rank.device, makeImage(texts));
    if (!made)
      return made.status();
    std::vector<int32_t> table{0, 0, 0, 0, 1, 1, 1, 1};
    Status status = bind(**made, "placement.destinations", moert::DType::I32,
                         table, {int64_t(table.size())});
    if (status)
      status = (*made)->useCommunicator(communicator);
    if (status)
      status = (*made)->prepareWeights().status();
    return status ? std::move(made) : status;
  }

  template <typename T>
  Status bind(moert::Executor &executor, const std::string &name,
              moert::DType dtype, const std::vector<T> &values,
              std::vector<int64_t> shape) {
    auto buffer = rank.device.allocate(values.size() * sizeof(T), 256);
    if (!buffer)
      return buffer.status();
    buffers[name] = std::move(*buffer);
    if (Status status = copyIn(rank.device, *buffers[name], values); !status)
      return status;
    return executor.bind(name, {buffers[name]->data(), dtype, shape, {}});
  }

  template <typename T>
  std::vector<T> read(const std::string &name, int64_t count) {
    auto values = copyOut<T>(rank.device, *buffers[name], count);
    EXPECT_TRUE(values);
    return values ? *values : std::vector<T>(size_t(count));
  }

  Status dispatch(bool &isRight) {
    auto made = start(parts.dispatch);
    if (!made)
      return made.status();
    moert::Executor &executor = **made;
    std::vector<float> rows;
    std::vector<int32_t> ids;
    std::vector<int8_t> more;
    for (int64_t t = rank.index * kOwn; t < (rank.index + 1) * kOwn; ++t) {
      for (int64_t i = 0; i < kColumns; ++i)
        rows.push_back(rowOf(t, i));
      for (int64_t i = 0; i < kTopK; ++i)
        ids.push_back(idOf(t, i));
      for (int64_t i = 0; i < 3; ++i)
        more.push_back(moreOf(t, i));
    }
    std::vector<float> noRows(kAll * kColumns, -1);
    std::vector<int32_t> noIds(kAll * kTopK, -2);
    std::vector<int8_t> noMore(kAll * 3, 77);
    Status status = bind(executor, "hidden_states", moert::DType::F32, rows,
                         {kOwn, kColumns});
    if (status)
      status =
          bind(executor, "topk_ids", moert::DType::I32, ids, {kOwn, kTopK});
    if (status)
      status = bind(executor, "more", moert::DType::I8, more, {kOwn, 3});
    if (status)
      status = bind(executor, "all_rows", moert::DType::F32, noRows,
                    {kAll, kColumns});
    if (status)
      status =
          bind(executor, "all_ids", moert::DType::I32, noIds, {kAll, kTopK});
    if (status)
      status = bind(executor, "all_more", moert::DType::I8, noMore, {kAll, 3});
    if (status)
      status = executor.run(kAll);
    if (status)
      status = executor.synchronize();
    if (!status)
      return status;
    auto gotRows = read<float>("all_rows", kAll * kColumns);
    auto gotIds = read<int32_t>("all_ids", kAll * kTopK);
    auto gotMore = read<int8_t>("all_more", kAll * 3);
    for (int64_t t = 0; t < kAll; ++t) {
      for (int64_t i = 0; i < kColumns; ++i)
        isRight &= !isHere(t, rank.index) ||
                   gotRows[size_t(t * kColumns + i)] == rowOf(t, i);
      for (int64_t i = 0; i < kTopK; ++i)
        isRight &= gotIds[size_t(t * kTopK + i)] == idOf(t, i);
      for (int64_t i = 0; i < 3; ++i)
        isRight &= gotMore[size_t(t * 3 + i)] == moreOf(t, i);
    }
    return status;
  }

  Status combine(bool &isRight) {
    auto made = start(parts.combine);
    if (!made)
      return made.status();
    moert::Executor &executor = **made;
    std::vector<float> part;
    for (int64_t t = 0; t < kAll; ++t)
      for (int64_t i = 0; i < kColumns; ++i)
        part.push_back(partOf(rank.index, t, i));
    Status status =
        bind(executor, "partial", moert::DType::F32, part, {kAll, kColumns});
    for (const char *name : {"topk_ids", "all_ids"})
      if (status)
        status = executor.bind(name, {buffers[name]->data(),
                                      moert::DType::I32,
                                      {name[0] == 't' ? kOwn : kAll, kTopK},
                                      {}});
    std::vector<float> none(kOwn * kColumns, -1);
    if (status)
      status =
          bind(executor, "output", moert::DType::F32, none, {kOwn, kColumns});
    if (status)
      status = executor.run(kAll);
    if (status)
      status = executor.synchronize();
    if (!status)
      return status;
    auto sums = read<float>("output", kOwn * kColumns);
    for (int64_t t = 0; t < kOwn; ++t)
      for (int64_t i = 0; i < kColumns; ++i) {
        int64_t row = rank.index * kOwn + t;
        isRight &= sums[size_t(t * kColumns + i)] ==
                   partOf(0, row, i) + partOf(1, row, i);
      }
    return status;
  }

  const SimRank rank;
  const Parts &parts;
  std::shared_ptr<moert::Communicator> communicator;
  std::map<std::string, std::unique_ptr<moert::Buffer>> buffers;
};

void checkTarget(const std::string &target) {
  Parts parts{compile(kDispatch, target), compile(kCombine, target)};
  for (Exchange exchange :
       {Exchange::Copies, Exchange::Peer, Exchange::AllToAll})
    EXPECT_TRUE(areRight(kRanks, /*seed=*/3, 60,
                         [&](const SimRank &rank) {
                           bool isRight = true;
                           Status status =
                               Rank(rank, parts).run(exchange, isRight);
                           EXPECT_TRUE(status) << status.message();
                           return status && isRight;
                         }))
        << "exchange " << int(exchange);
}

} // namespace

TEST(ExchangeParts, RunAloneOnHopper) { checkTarget("sm_90a"); }

TEST(ExchangeParts, RunAloneOnAmpere) { checkTarget("sm_80"); }
