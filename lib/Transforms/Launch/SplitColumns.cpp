//===- SplitColumns.cpp - the combine beside the last product ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/SplitColumns.h"
#include "../Tile/CollectiveSums.h"
#include "LaunchRewrite.h"

using namespace mlir;
using namespace moec;

namespace {

/// The end of a variant: consecutive gemms that write the experts' rows, and a
/// collective that may sum them.
struct Combine {
  SmallVector<plan::LaunchOp, 2> products;
  /// Makes the sums if the collective's kernel does not run.
  plan::LaunchOp sum;
  plan::CollectiveOp collective;
  SlotSums sums;
};

/// An occurrence has the gemms of one combine.
class SplitColumns final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  std::optional<Combine> findCombine(plan::CollectiveOp collective);
  std::optional<Combine> findCombine(plan::VariantOp variant);
  Combine getCombine(const RewriteSite::Occurrence &occurrence) {
    return *findCombine(
        cast<plan::VariantOp>(occurrence.front()->getParentOp()));
  }
  bool isSplit(const RewriteSite &site, int64_t chunks);
  void splitOccurrence(const Combine &combine, int64_t numChunks);
};

} // namespace

static int64_t getColumns(plan::CollectiveOp collective) {
  return cast<MemRefType>(collective.getIns().front().getType()).getDimSize(1);
}

std::optional<Combine>
SplitColumns::findCombine(plan::CollectiveOp collective) {
  if (collective.getColumns() || !hasExchange(collective))
    return std::nullopt;
  Combine combine;
  combine.collective = collective;
  combine.sums =
      collective.getRows()
          ? SlotSums{collective.getRows(), collective.getPosition(),
                     collective.getAddend(), collective.getNumValidTokens()}
          : findSums(collective, symbols);
  if (!combine.sums.rows)
    return std::nullopt;
  for (auto launch : collective->getBlock()->getOps<plan::LaunchOp>()) {
    if (!llvm::is_contained(launch.getOuts(), combine.sums.rows))
      continue;
    auto product = getPhase<tile::GemmOp>(launch);
    const Schedule *schedule = product ? getSchedule(product) : nullptr;
    bool isNext = combine.products.empty() ||
                  combine.products.back()->getNextNode() == launch;
    if (!isNext || !schedule || !schedule->as<SplitsColumns>() ||
        launch.getStream() != collective.getStream() ||
        launch.getTokensAttr() || !product.getOffsets() ||
        product.getNumColumns() ||
        getPassed(launch, product.getResult()) != combine.sums.rows ||
        !launch->isBeforeInBlock(collective))
      return std::nullopt;
    combine.products.push_back(launch);
  }
  if (combine.products.empty())
    return std::nullopt;
  // No other op reads the rows.
  for (Operation *user : combine.sums.rows.getUsers()) {
    if (user->getBlock() != collective->getBlock() || user == collective ||
        llvm::is_contained(combine.products, user))
      continue;
    auto reader = dyn_cast<plan::LaunchOp>(user);
    if (combine.sum || !reader)
      return std::nullopt;
    combine.sum = reader;
  }
  return combine;
}

std::optional<Combine> SplitColumns::findCombine(plan::VariantOp variant) {
  for (auto collective : variant.getBody().getOps<plan::CollectiveOp>())
    if (std::optional<Combine> combine = findCombine(collective))
      return combine;
  return std::nullopt;
}

std::vector<RewriteSite> SplitColumns::match() {
  // Grouped by the kernels of the gemms.
  llvm::MapVector<Attribute, RewriteSite> sites;
  context.module.walk([&](plan::VariantOp variant) {
    std::optional<Combine> combine = findCombine(variant);
    if (!combine)
      return;
    SmallVector<Attribute> kernels;
    for (plan::LaunchOp product : combine->products)
      kernels.push_back(product.getKernelAttr());
    sites[ArrayAttr::get(variant.getContext(), kernels)].occurrences.push_back(
        combine->products);
  });
  std::vector<RewriteSite> all;
  for (auto &[kernels, site] : sites)
    all.push_back(std::move(site));
  return all;
}

/// Whether a split into that many chunks has whole tiles.
bool SplitColumns::isSplit(const RewriteSite &site, int64_t chunks) {
  const RewriteSite::Occurrence &occurrence = site.occurrences.front();
  int64_t columns = getColumns(getCombine(occurrence).collective);
  return columns % chunks == 0 &&
         llvm::all_of(occurrence, [&](plan::LaunchOp launch) {
           auto product = getPhase<tile::GemmOp>(launch);
           int64_t multiple =
               getSchedule(product)->as<SplitsColumns>()->getColumnMultiple(
                   product.getConfigAttr());
           return columns / chunks % multiple == 0;
         });
}

std::string SplitColumns::whyIllegal(const RewriteSite &site) {
  for (plan::LaunchOp launch : site.occurrences.front()) {
    if (!getPhase<tile::GemmOp>(launch).getTileCounter())
      return "the gemm's tiles have a fixed order, but an exchange beside it "
             "occupies some multiprocessors first";
    bool isElsewhere = false;
    context.module.walk([&](plan::LaunchOp other) {
      isElsewhere |=
          other.getKernel() == launch.getKernel() &&
          llvm::none_of(site.occurrences, [&](const auto &occurrence) {
            return llvm::is_contained(occurrence, other);
          });
    });
    if (isElsewhere)
      return "another launch of the kernel has no combine after it";
  }
  std::optional<int64_t> given = getParameter("chunks");
  if (!given)
    return "splitting needs the parameter 'chunks': on two GPUs it saves next "
           "to nothing";
  return *given > 1 && isSplit(site, *given)
             ? ""
             : "the columns cannot be split into " + std::to_string(*given) +
                   " chunks of whole tiles";
}

FailureOr<std::string> SplitColumns::build(const RewriteSite &) {
  return std::string();
}

/// Applied regardless of time, since it was requested.
std::optional<PredictedChange> SplitColumns::predict(const RewriteSite &) {
  return std::nullopt;
}

/// The first launches keep their stream, and the first chunk follows on it, so
/// that its CTAs come first. Other launches are on another stream, and each
/// chunk waits for its launches. The last chunk is the existing collective,
/// after all steps that preceded it.
void SplitColumns::splitOccurrence(const Combine &combine, int64_t numChunks) {
  plan::CollectiveOp collective = combine.collective;
  auto variant = cast<plan::VariantOp>(collective->getParentOp());
  int64_t own = collective.getStream(), other = own + 1, event = 0;
  for (Operation &op : variant.getBody().front()) {
    if (auto record = dyn_cast<plan::RecordOp>(op))
      event = std::max<int64_t>(event, record.getEvent() + 1);
    if (auto wait = dyn_cast<plan::WaitOp>(op))
      other = std::max<int64_t>(other, wait.getStream() + 1);
  }
  int64_t count = getColumns(collective) / numChunks;
  OpBuilder builder(combine.products.back());
  builder.setInsertionPointAfter(combine.products.back());
  Location loc = collective.getLoc();
  auto getChunk = [&](int64_t chunk) {
    return builder.getDenseI64ArrayAttr({chunk * count, count});
  };
  setSums(collective, combine.sums);
  // Makes a stream wait for all steps of another one.
  auto join = [&](int64_t from, int64_t to, function_ref<void()> between) {
    plan::RecordOp::create(builder, loc, event, from);
    between();
    plan::WaitOp::create(builder, loc, event, to);
    ++event;
  };
  auto cloneCollective = [&](int64_t chunk) {
    auto clone =
        cast<plan::CollectiveOp>(builder.clone(*collective.getOperation()));
    clone.setColumnsAttr(getChunk(chunk));
  };
  for (int64_t chunk = 1; chunk < numChunks; ++chunk) {
    join(own, other, [&] { cloneCollective(chunk - 1); });
    for (plan::LaunchOp product : combine.products) {
      auto launch =
          cast<plan::LaunchOp>(builder.clone(*product.getOperation()));
      launch.setColumnsAttr(getChunk(chunk));
      launch.setStream(other);
    }
    join(other, own, [] {});
  }
  for (plan::LaunchOp product : combine.products)
    product.setColumnsAttr(getChunk(0));
  collective.setColumnsAttr(getChunk(numChunks - 1));
}

LogicalResult SplitColumns::commit(const RewriteSite &site) {
  int64_t columns = getColumns(getCombine(site.occurrences.front()).collective);
  int64_t numChunks = *getParameter("chunks");
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    splitOccurrence(getCombine(occurrence), numChunks);
  for (plan::LaunchOp launch : site.occurrences.front()) {
    tile::KernelOp kernel = getKernel(launch);
    tile::GemmOp product = getProduct(kernel);
    Type type = IntegerType::get(kernel.getContext(), 64);
    unsigned number = kernel.getBody().getNumArguments() - 1;
    if (failed(kernel.insertArgument(number, type, DictionaryAttr(),
                                     product.getLoc())))
      return kernel.emitOpError("cannot take the first column as an argument");
    product.getFirstColumnMutable().assign(kernel.getArgument(number));
    product.setNumColumns(columns / numChunks);
    setLaunchShape(kernel, context.target);
  }
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeSplitColumns(RewriteContext &context) {
  return std::make_unique<SplitColumns>("split-columns", context);
}
