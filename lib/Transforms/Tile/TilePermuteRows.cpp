//===- TilePermuteRows.cpp - rows in order before a product -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The kernel with rows in order is made beside the one without, with launches
// of its own, for its schedule looks at what is passed; then one of the two
// goes.

#include "LaunchShape.h"
#include "Launches.h"
#include "PassInputs.h"
#include "moec/Analysis/Rewrites/PermuteRows.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace moec {
#define GEN_PASS_DEF_TILEPERMUTEROWSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class RowPermuter {
public:
  RowPermuter(plan::ProgramOp program, SymbolTable &symbols,
              const Target &target, ArrayRef<ForcedConfig> forced, bool always)
      : program(program), symbols(symbols), target(target), forced(forced),
        always(always) {}

  /// Whether something has changed.
  bool run();

private:
  using Launches = SmallVector<plan::LaunchOp>;

  bool permute(tile::KernelOp kernel, ArrayRef<plan::LaunchOp> launches);
  tile::KernelOp makeProduct(tile::KernelOp kernel);
  /// A launch of `permuted` instead of `product`, and before it one that copies
  /// its rows.
  plan::LaunchOp launch(plan::LaunchOp product, tile::KernelOp permuted);
  /// The launch before `before` that copies rows: of `inputs`, to buffers.
  plan::LaunchOp makeGather(plan::LaunchOp before, ArrayRef<Value> inputs,
                            tile::ContractOp contract);
  tile::KernelOp getGatherKernel(ArrayRef<Type> types, int64_t topK,
                                 Location loc);
  /// The buffer for `topK` rows of `input` per token, of all variants.
  Value getBuffer(Value input, int64_t topK);
  /// One that nothing else in the program has.
  std::string makeBufferName(Value input);
  bool wantsMaps(tile::KernelOp kernel);
  tile::ConfigAttr chooseConfig(tile::ContractOp product, plan::LaunchOp gather,
                                tile::KernelOp permuted);
  void eraseUnused();

  plan::ProgramOp program;
  SymbolTable &symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  bool always;
  llvm::MapVector<std::pair<Value, int64_t>, Value> buffers;
  SmallVector<tile::KernelOp> gathers;
};

tile::ContractOp getProduct(tile::KernelOp kernel) {
  return cast<tile::ContractOp>(kernel.getBody().front().front());
}

/// What a product reads of each row.
SmallVector<Value> getRows(tile::ContractOp product) {
  SmallVector<Value> rows{product.getInput()};
  if (Value scale = product.getInputScale())
    rows.push_back(scale);
  return rows;
}

tile::KernelOp RowPermuter::makeProduct(tile::KernelOp kernel) {
  tile::KernelOp permuted = kernel.clone();
  symbols.insert(permuted, std::next(kernel->getIterator()));
  tile::ContractOp product = getProduct(permuted);
  unsigned source = cast<BlockArgument>(product.getSource()).getArgNumber();
  product.getSourceMutable().clear();
  // No other operand of a product is of its type.
  (void)permuted.eraseArgument(source);
  return permuted;
}

std::string RowPermuter::makeBufferName(Value input) {
  auto getName = [](Operation *op) {
    return op->getAttrOfType<StringAttr>("name").getValue();
  };
  llvm::StringSet<> names;
  for (auto buffer : program.getBody().getOps<plan::BufferOp>())
    names.insert(getName(buffer));
  for (auto tensor : program.getBody().getOps<plan::TensorOp>())
    names.insert(getName(tensor));
  std::string first = (getName(input.getDefiningOp()) + "_in_order").str();
  std::string name = first;
  for (int64_t number = 2; names.contains(name); ++number)
    name = first + "_" + std::to_string(number);
  return name;
}

Value RowPermuter::getBuffer(Value input, int64_t topK) {
  Value &buffer = buffers[{input, topK}];
  if (buffer)
    return buffer;
  // Behind the other buffers, or the tensors.
  Operation *last = input.getDefiningOp();
  for (auto other : program.getBody().getOps<plan::BufferOp>())
    last = last->isBeforeInBlock(other) ? other : last;
  for (auto tensor : program.getBody().getOps<plan::TensorOp>())
    last = last->isBeforeInBlock(tensor) ? tensor : last;
  OpBuilder builder(program.getContext());
  builder.setInsertionPointAfter(last);
  moert::Expr size = moert::Expr::tokens() * moert::Expr(topK);
  auto rows = plan::ExprAttr::get(program.getContext(), size.str());
  buffer = plan::BufferOp::create(builder, input.getLoc(), input.getType(),
                                  makeBufferName(input), rows, IntegerAttr());
  return buffer;
}

tile::KernelOp RowPermuter::getGatherKernel(ArrayRef<Type> types, int64_t topK,
                                            Location loc) {
  // Its grid has a place for each row that there can be.
  for (tile::KernelOp kernel : gathers)
    if (kernel.getFunctionType().getInputs() == types &&
        cast<tile::GatherRowsOp>(kernel.getBody().front().front()).getTopK() ==
            static_cast<uint64_t>(topK))
      return kernel;
  OpBuilder builder(program.getContext());
  builder.setInsertionPointToEnd(
      program->getParentOfType<ModuleOp>().getBody());
  auto kernel = tile::KernelOp::create(builder, loc, "gather_rows",
                                       builder.getFunctionType(types, {}));
  symbols.insert(kernel);
  auto arguments = kernel.getBody().getArguments().drop_back();
  size_t numRows = (arguments.size() - 2) / 2;
  SmallVector<Value> values(arguments.begin(), arguments.end());
  ArrayRef<Value> all(values);
  builder.setInsertionPointToStart(&kernel.getBody().front());
  auto op = tile::GatherRowsOp::create(
      builder, loc, kernel.getTokens(), all.take_front(numRows), all[numRows],
      all[numRows + 1], all.take_back(numRows), builder.getI64IntegerAttr(topK),
      tile::ConfigAttr());
  tile::ReturnOp::create(builder, loc);
  const Schedule *schedule = getSchedulesFor(target, op).front();
  op.setConfigAttr(schedule->choose(op, target));
  setLaunchShape(kernel, target);
  gathers.push_back(kernel);
  return kernel;
}

plan::LaunchOp RowPermuter::makeGather(plan::LaunchOp before,
                                       ArrayRef<Value> inputs,
                                       tile::ContractOp contract) {
  auto kernel = cast<tile::KernelOp>(contract->getParentOp());
  int64_t topK = kernel.getLoadAttr().getTopK();
  SmallVector<Value> ins(inputs), outs;
  ins.push_back(getPassed(before, contract.getOffsets()));
  ins.push_back(getPassed(before, contract.getSource()));
  for (Value input : inputs)
    outs.push_back(getBuffer(input, topK));
  SmallVector<Type> types(ValueRange(ins).getTypes());
  llvm::append_range(types, ValueRange(outs).getTypes());
  OpBuilder builder(before);
  types.push_back(builder.getI64Type());
  tile::KernelOp gather = getGatherKernel(types, topK, before.getLoc());
  return plan::LaunchOp::create(builder, before.getLoc(), gather.getSymName(),
                                before.getStream(), ins, outs,
                                /*dependent=*/false);
}

plan::LaunchOp RowPermuter::launch(plan::LaunchOp product,
                                   tile::KernelOp permuted) {
  tile::ContractOp contract = getPhase<tile::ContractOp>(product, symbols);
  SmallVector<Value> rows = getRows(contract), inputs;
  for (Value row : rows)
    inputs.push_back(getPassed(product, row));
  plan::LaunchOp gather = makeGather(product, inputs, contract);
  SmallVector<Value> ins;
  for (auto [argument, value] :
       llvm::zip(contract->getBlock()->getArguments(), product.getIns())) {
    if (argument == contract.getSource())
      continue;
    auto *row = llvm::find(rows, Value(argument));
    ins.push_back(row == rows.end()
                      ? Value(value)
                      : gather.getOuts()[std::distance(rows.begin(), row)]);
  }
  OpBuilder builder(product);
  plan::LaunchOp::create(builder, product.getLoc(), permuted.getSymName(),
                         product.getStream(), ins, product.getOuts(),
                         product.getDependent());
  return gather;
}

tile::ConfigAttr RowPermuter::chooseConfig(tile::ContractOp product,
                                           plan::LaunchOp gather,
                                           tile::KernelOp permuted) {
  const Schedule &schedule =
      *findSchedule(target, product.getConfigAttr().getSchedule());
  auto kernel = cast<tile::KernelOp>(product->getParentOp());
  return schedule.as<PermutesRows>()->permuteRows(
      product, getPhase<tile::GatherRowsOp>(gather, symbols),
      getProduct(permuted), kernel.getLoadAttr(), isForced(kernel, forced),
      always || wantsMaps(kernel), target);
}

/// Whether the config that is forced for a kernel is one by tensor maps.
bool RowPermuter::wantsMaps(tile::KernelOp kernel) {
  bool wants = false;
  for (const ForcedConfig &config : forced)
    if (config.isFor(kernel)) {
      llvm::Expected<tile::ConfigAttr> whole =
          config.apply(getProduct(kernel).getConfigAttr());
      wants = whole && whole->getMapRows();
      llvm::consumeError(whole.takeError());
    }
  return wants;
}

bool RowPermuter::permute(tile::KernelOp kernel,
                          ArrayRef<plan::LaunchOp> launches) {
  tile::KernelOp permuted = makeProduct(kernel);
  SmallVector<plan::LaunchOp> added;
  for (plan::LaunchOp product : launches) {
    added.push_back(launch(product, permuted));
    added.push_back(cast<plan::LaunchOp>(product->getPrevNode()));
  }
  tile::ConfigAttr config =
      chooseConfig(getProduct(kernel), added.front(), permuted);
  if (!config) {
    for (plan::LaunchOp launch : added)
      launch->erase();
    symbols.erase(permuted);
    eraseUnused();
    return false;
  }
  getProduct(permuted).setConfigAttr(config);
  setLaunchShape(permuted, target);
  for (plan::LaunchOp product : launches)
    product->erase();
  StringAttr name = kernel.getSymNameAttr();
  symbols.erase(kernel);
  symbols.remove(permuted);
  permuted.setSymNameAttr(name);
  symbols.insert(permuted, permuted->getIterator());
  for (plan::LaunchOp launch : added)
    if (getPhase<tile::GatherRowsOp>(launch, symbols) == nullptr)
      launch.setKernel(name);
  return true;
}

/// What was made for products that keep their rows.
void RowPermuter::eraseUnused() {
  llvm::StringSet<> launched;
  program.walk(
      [&](plan::LaunchOp launch) { launched.insert(launch.getKernel()); });
  llvm::erase_if(gathers, [&](tile::KernelOp kernel) {
    if (launched.contains(kernel.getSymName()))
      return false;
    symbols.erase(kernel);
    return true;
  });
  buffers.remove_if([](const auto &entry) {
    if (!entry.second.use_empty())
      return false;
    entry.second.getDefiningOp()->erase();
    return true;
  });
}

bool RowPermuter::run() {
  llvm::MapVector<tile::KernelOp, Launches> products;
  program.walk([&](plan::LaunchOp launch) {
    auto product = getPhase<tile::ContractOp>(launch, symbols);
    if (!product || !product.getConfig() || !product.getSource())
      return;
    const Schedule *schedule =
        findSchedule(target, product.getConfigAttr().getSchedule());
    tile::KernelOp kernel = getKernel(launch, symbols);
    if (schedule && schedule->as<PermutesRows>() && kernel.getLoadAttr())
      products[kernel].push_back(launch);
  });
  bool hasChanged = false;
  for (auto &[kernel, launches] : products)
    hasChanged |= permute(kernel, launches);
  return hasChanged;
}

struct TilePermuteRows : moec::impl::TilePermuteRowsPassBase<TilePermuteRows> {
  using TilePermuteRowsPassBase::TilePermuteRowsPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-permute-rows", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    auto change = [&](plan::ProgramOp program) {
      return RowPermuter(program, symbols, inputs->target, inputs->forced,
                         always)
          .run();
    };
    auto assignSlots = [&](OpPassManager &pipeline, Operation *op) {
      return runPipeline(pipeline, op);
    };
    // The new buffers have no slots.
    if (failed(changePrograms(getOperation(), change, assignSlots)))
      signalPassFailure();
  }
};

} // namespace
