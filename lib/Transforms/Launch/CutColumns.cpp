//===- CutColumns.cpp - the combine beside the last product -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Rewrites/CutColumns.h"
#include "../Tile/CollectiveSums.h"
#include "LaunchRewrite.h"
#include "moec/Analysis/Device.h"
#include "moec/Analysis/ExchangeTime.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kMostPieces = 4;

/// What a variant has at its end: products that write the rows of experts, one
/// behind the other, and a collective that may sum them.
struct Combine {
  SmallVector<plan::LaunchOp, 2> products;
  /// Makes the sums for those who do not run the collective's kernel.
  plan::LaunchOp sum;
  plan::CollectiveOp collective;
  SlotSums sums;
};

/// A place has the products of one combine.
class CutColumns final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  bool movesBuffers() const override { return true; }

private:
  std::optional<Combine> findCombine(plan::CollectiveOp collective);
  std::optional<Combine> findCombine(plan::VariantOp variant);
  Combine getCombine(const RewriteSite::Place &place) {
    return *findCombine(cast<plan::VariantOp>(place.front()->getParentOp()));
  }
  bool isCut(const RewriteSite &site, int64_t pieces);
  PointTimes getTimes(const RewriteSite &site, int64_t pieces);
  /// Whether the chosen places are not all.
  bool areSome(const RewriteSite &site) {
    return chosen.places.size() < site.places.size();
  }
  void copyKernels();
  void cutPlace(const Combine &combine);

  /// Of the site at hand: how many pieces are best, and the places where they
  /// are better than none.
  int64_t numPieces = 0;
  RewriteSite chosen;
};

} // namespace

static int64_t getColumns(plan::CollectiveOp collective) {
  return cast<MemRefType>(collective.getIns().front().getType()).getDimSize(1);
}

std::optional<Combine> CutColumns::findCombine(plan::CollectiveOp collective) {
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
    auto product = getPhase<tile::ContractOp>(launch);
    const Schedule *schedule = product ? getSchedule(product) : nullptr;
    bool isNext = combine.products.empty() ||
                  combine.products.back()->getNextNode() == launch;
    if (!isNext || !schedule || !schedule->as<CutsColumns>() ||
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
  // Nobody else reads the rows.
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

std::optional<Combine> CutColumns::findCombine(plan::VariantOp variant) {
  for (auto collective : variant.getBody().getOps<plan::CollectiveOp>())
    if (std::optional<Combine> combine = findCombine(collective))
      return combine;
  return std::nullopt;
}

std::vector<RewriteSite> CutColumns::match() {
  // By the kernels of the products.
  llvm::MapVector<Attribute, RewriteSite> sites;
  context.module.walk([&](plan::VariantOp variant) {
    std::optional<Combine> combine = findCombine(variant);
    if (!combine)
      return;
    SmallVector<Attribute> kernels;
    for (plan::LaunchOp product : combine->products)
      kernels.push_back(product.getKernelAttr());
    sites[ArrayAttr::get(variant.getContext(), kernels)].places.push_back(
        combine->products);
  });
  std::vector<RewriteSite> all;
  for (auto &[kernels, site] : sites)
    all.push_back(std::move(site));
  return all;
}

/// Whether that many pieces have whole tiles.
bool CutColumns::isCut(const RewriteSite &site, int64_t pieces) {
  const RewriteSite::Place &place = site.places.front();
  int64_t columns = getColumns(getCombine(place).collective);
  return columns % pieces == 0 &&
         llvm::all_of(place, [&](plan::LaunchOp launch) {
           auto product = getPhase<tile::ContractOp>(launch);
           int64_t multiple =
               getSchedule(product)->as<CutsColumns>()->getColumnMultiple(
                   product.getConfigAttr());
           return columns / pieces % multiple == 0;
         });
}

std::string CutColumns::whyIllegal(const RewriteSite &site) {
  for (plan::LaunchOp launch : site.places.front()) {
    if (!getPhase<tile::ContractOp>(launch).getTickets())
      return "the product's tiles have a fixed order, and an exchange beside "
             "it takes multiprocessors first";
    bool isElsewhere = false;
    context.module.walk([&](plan::LaunchOp other) {
      isElsewhere |= other.getKernel() == launch.getKernel() &&
                     llvm::none_of(site.places, [&](const auto &place) {
                       return llvm::is_contained(place, other);
                     });
    });
    if (isElsewhere)
      return "a launch that no combine follows has the same kernel";
  }
  if (std::optional<int64_t> given = getParameter("pieces"))
    return *given > 1 && isCut(site, *given)
               ? ""
               : "there are no " + std::to_string(*given) +
                     " pieces of whole tiles";
  for (int64_t pieces = 2; pieces <= kMostPieces; ++pieces)
    if (isCut(site, pieces))
      return {};
  return "no number of pieces has whole tiles";
}

/// Of the products and the collective of places in so many pieces.
PointTimes CutColumns::getTimes(const RewriteSite &site, int64_t pieces) {
  // What a kernel of ranks that write to each other's memory takes to start.
  constexpr double startUs = 10;
  // Beside each other they take less than one after the other by so much of the
  // exchange: both read memory, the exchange's CTAs have multiprocessors to
  // themselves, and power bounds the clock.
  constexpr double hiddenShare = 0.2;
  PointTimes times;
  for (const RewriteSite::Place &place : site.places) {
    plan::CollectiveOp collective = getCombine(place).collective;
    SmallVector<PhaseForm> forms;
    for (plan::LaunchOp launch : place) {
      forms.push_back(getForm(launch));
      if (pieces > 1)
        getPhase<tile::ContractOp>(launch).setNumColumns(
            getColumns(collective) / pieces);
    }
    SmallVector<TokenPoint> points = getPoints(RewriteSite(place));
    PointTimes products = context.objective.predict(forms, points);
    for (plan::LaunchOp launch : place)
      getPhase<tile::ContractOp>(launch).removeNumColumnsAttr();
    const double *product = products.begin();
    for (const TokenPoint &point : points) {
      double all = predictExchange(collective, point.tokens,
                                   context.objective.getDevice())
                       .us;
      double exchange = (all + double(pieces - 1) * startUs) / double(pieces);
      for (size_t i = 0; i < getWeightedRoutings().size(); ++i, ++product) {
        double both =
            std::max(exchange, *product + (1 - hiddenShare) * exchange);
        times.push_back(*product + double(pieces - 1) * both + exchange);
      }
    }
  }
  return times;
}

FailureOr<std::string> CutColumns::build(const RewriteSite &site) {
  if (std::optional<int64_t> given = getParameter("pieces")) {
    numPieces = *given;
    chosen = site;
    return std::string();
  }
  if (!context.objective.hasTimes())
    return std::string("nothing is known of times");
  // Ranks whose rows NCCL moves have a launch more and nothing beside it.
  constexpr double leastShare = 0.01;
  double most = 0;
  for (int64_t pieces = 2; pieces <= kMostPieces; ++pieces) {
    if (!isCut(site, pieces))
      continue;
    RewriteSite paying;
    double all = 0;
    for (const RewriteSite::Place &place : site.places) {
      RewriteSite one(place);
      double saved = context.objective.getSaved(
          getTimes(one, 1), getTimes(one, pieces), getPoints(one));
      if (saved <= leastShare * double(getPoints(one).size()))
        continue;
      paying.places.push_back(place);
      all += saved;
    }
    if (all <= most)
      continue;
    most = all;
    numPieces = pieces;
    chosen = std::move(paying);
  }
  return std::string(most > 0 ? "" : "pieces would save too little");
}

std::optional<PredictedChange> CutColumns::predict(const RewriteSite &site) {
  if (getParameter("pieces"))
    return std::nullopt;
  PredictedChange change{getPoints(chosen)};
  change.before = getTimes(chosen, 1);
  change.after = getTimes(chosen, numPieces);
  // That of another kernel for the exchange.
  change.price = getKernelPrice(getKernel(getCombine(site.places.front()).sum));
  if (areSome(site))
    for (plan::LaunchOp launch : site.places.front())
      change.price += getKernelPrice(getKernel(launch));
  return change;
}

/// The first launches stay where they are, with the first piece behind them on
/// their stream, so that its CTAs come first; the others are on another stream,
/// and each piece again waits for its launches. The last piece is the
/// collective as it stands, behind all that stood ahead of it.
void CutColumns::cutPlace(const Combine &combine) {
  plan::CollectiveOp collective = combine.collective;
  auto variant = cast<plan::VariantOp>(collective->getParentOp());
  int64_t own = collective.getStream(), other = own + 1, event = 0;
  for (Operation &op : variant.getBody().front()) {
    if (auto record = dyn_cast<plan::RecordOp>(op))
      event = std::max<int64_t>(event, record.getEvent() + 1);
    if (auto wait = dyn_cast<plan::WaitOp>(op))
      other = std::max<int64_t>(other, wait.getStream() + 1);
  }
  int64_t count = getColumns(collective) / numPieces;
  OpBuilder builder(combine.products.back());
  builder.setInsertionPointAfter(combine.products.back());
  Location loc = collective.getLoc();
  auto getPiece = [&](int64_t piece) {
    return builder.getDenseI64ArrayAttr({piece * count, count});
  };
  setSums(collective, combine.sums);
  // Lets a stream wait for all that another one has.
  auto join = [&](int64_t from, int64_t to, function_ref<void()> between) {
    plan::RecordOp::create(builder, loc, event, from);
    between();
    plan::WaitOp::create(builder, loc, event, to);
    ++event;
  };
  auto cloneCollective = [&](int64_t piece) {
    auto clone =
        cast<plan::CollectiveOp>(builder.clone(*collective.getOperation()));
    clone.setColumnsAttr(getPiece(piece));
  };
  for (int64_t piece = 1; piece < numPieces; ++piece) {
    join(own, other, [&] { cloneCollective(piece - 1); });
    for (plan::LaunchOp product : combine.products) {
      auto launch =
          cast<plan::LaunchOp>(builder.clone(*product.getOperation()));
      launch.setColumnsAttr(getPiece(piece));
      launch.setStream(other);
    }
    join(other, own, [] {});
  }
  for (plan::LaunchOp product : combine.products)
    product.setColumnsAttr(getPiece(0));
  collective.setColumnsAttr(getPiece(numPieces - 1));
}

/// Where not all launches are cut, those that are get a kernel of their own.
void CutColumns::copyKernels() {
  for (size_t i = 0; i < chosen.places.front().size(); ++i) {
    tile::KernelOp kernel = getKernel(chosen.getLaunch(i));
    tile::KernelOp copy = kernel.clone();
    copy.setSymName((kernel.getSymName() + "_columns").str());
    StringAttr name = symbols.insert(copy, std::next(kernel->getIterator()));
    for (RewriteSite::Place &place : chosen.places)
      place[i].setKernel(name);
  }
}

LogicalResult CutColumns::commit(const RewriteSite &site) {
  int64_t columns = getColumns(getCombine(site.places.front()).collective);
  if (areSome(site))
    copyKernels();
  for (const RewriteSite::Place &place : chosen.places)
    cutPlace(getCombine(place));
  for (plan::LaunchOp launch : chosen.places.front()) {
    tile::KernelOp kernel = getKernel(launch);
    tile::ContractOp product = getProduct(kernel);
    Type type = IntegerType::get(kernel.getContext(), 64);
    unsigned number = kernel.getBody().getNumArguments() - 1;
    if (failed(kernel.insertArgument(number, type, DictionaryAttr(),
                                     product.getLoc())))
      return kernel.emitOpError("cannot take the first column");
    product.getFirstColumnMutable().assign(kernel.getArgument(number));
    product.setNumColumns(columns / numPieces);
    setLaunchShape(kernel, context.target);
  }
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeCutColumns(RewriteContext &context) {
  return std::make_unique<CutColumns>("cut-columns", context);
}
