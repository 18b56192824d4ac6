//===- PlanProgram.cpp - the structure of a program -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifies what needs no device: order, names, ranges, writes before reads. The
// runtime verifies on the plan as data that steps on several streams are
// ordered and joined (`moert::verifyPlan`).
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Plan/Plan.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

#include <limits>

using namespace mlir;
using namespace moec::plan;

namespace {

/// Sections of a program, in order.
enum class Section { Memory, Prepare, Variants };

class ProgramVerifier {
public:
  explicit ProgramVerifier(ProgramOp program)
      : program(program), maxTokens(program.getMaxTokens()) {}

  LogicalResult verify() {
    if (maxTokens < 1 || maxTokens > std::numeric_limits<int32_t>::max())
      return program.emitOpError("'max_tokens' is ")
             << maxTokens << "; 1 to " << std::numeric_limits<int32_t>::max()
             << " is accepted";
    for (Operation &op : program.getBody().front())
      if (failed(verifyOp(op)))
        return failure();
    if (nextTokens == 0)
      return program.emitOpError("has no 'plan.variant'; write 'plan.variant "
                                 "tokens 0 to ")
             << maxTokens << "'";
    if (nextTokens != maxTokens + 1)
      return program.emitOpError("has variants for 0 to ")
             << nextTokens - 1 << " tokens only; the last variant must reach "
             << "'max_tokens' = " << maxTokens;
    return success();
  }

private:
  LogicalResult verifyOp(Operation &op);
  LogicalResult verifyMemory(Operation *op, StringRef name,
                             std::optional<ExprAttr> rows);
  LogicalResult verifyPrepare(PrepareOp prepare);
  LogicalResult verifyVariant(VariantOp variant);
  LogicalResult verifyInPlace(TensorOp tensor);
  LogicalResult verifyCollective(CollectiveOp op,
                                 llvm::DenseSet<Value> &written);
  LogicalResult verifyChunk(CollectiveOp op);
  /// A launch or a collective.
  template <typename StepOp>
  LogicalResult verifyStep(StepOp step, llvm::DenseSet<Value> &written,
                           bool prepares);

  LogicalResult enter(Operation &op, Section next) {
    if (next < section)
      return op.emitOpError("is out of order; a 'plan.program' holds tensors "
                            "and buffers, then at most one 'plan.prepare', "
                            "then variants");
    section = next;
    return success();
  }

  ProgramOp program;
  int64_t maxTokens;
  Section section = Section::Memory;
  bool hasPrepare = false;
  /// First token count without a variant so far.
  int64_t nextTokens = 0;
  llvm::StringMap<Operation *> names;
  SmallVector<TensorOp> outputs;
  /// Memory that is readable when a variant starts.
  llvm::DenseSet<Value> ready;
  /// Weights whose memory a prepared tensor takes, with that tensor.
  llvm::DenseMap<Value, TensorOp> overwritten;
};

LogicalResult ProgramVerifier::verifyOp(Operation &op) {
  if (auto tensor = dyn_cast<TensorOp>(op)) {
    if (tensor.getRole() == Role::Output)
      outputs.push_back(tensor);
    else if (tensor.getRole() != Role::Prepared)
      ready.insert(tensor.getTensor());
    return failure(
        failed(enter(op, Section::Memory)) ||
        failed(verifyMemory(tensor, tensor.getName(), tensor.getRows())) ||
        failed(verifyInPlace(tensor)));
  }
  if (auto buffer = dyn_cast<BufferOp>(op))
    return failure(
        failed(enter(op, Section::Memory)) ||
        failed(verifyMemory(buffer, buffer.getName(), buffer.getRows())));
  if (auto prepare = dyn_cast<PrepareOp>(op))
    return failure(failed(enter(op, Section::Prepare)) ||
                   failed(verifyPrepare(prepare)));
  if (auto variant = dyn_cast<VariantOp>(op))
    return failure(failed(enter(op, Section::Variants)) ||
                   failed(verifyVariant(variant)));
  return op.emitOpError("is not allowed in a 'plan.program'; it holds "
                        "'plan.tensor', 'plan.buffer', 'plan.prepare' and "
                        "'plan.variant'");
}

LogicalResult ProgramVerifier::verifyMemory(Operation *op, StringRef name,
                                            std::optional<ExprAttr> rows) {
  auto [entry, isNew] = names.try_emplace(name, op);
  if (!isNew) {
    InFlightDiagnostic diag =
        op->emitOpError("'")
        << name << "' also names another tensor or buffer; use distinct names";
    diag.attachNote(entry->second->getLoc()) << "the other one is here";
    return diag;
  }
  if (!rows)
    return success();
  moert::Result<int64_t> least = rows->getExpr().minOver(0, maxTokens);
  if (!least)
    return op->emitOpError("rows of '")
           << name << "': " << least.status().message();
  if (*least < 0)
    return op->emitOpError("rows of '")
           << name << "' are '" << rows->getText() << "', which is " << *least
           << " for some token count up to " << maxTokens
           << "; a size of at least 0 is accepted";
  return success();
}

/// Verifies that the weight precedes the tensor and has equal size.
LogicalResult ProgramVerifier::verifyInPlace(TensorOp tensor) {
  if (!tensor.getInPlace())
    return success();
  auto weight = dyn_cast_or_null<TensorOp>(names.lookup(*tensor.getInPlace()));
  if (!weight || weight.getRole() != Role::Weight)
    return tensor.emitOpError("'")
           << tensor.getName() << "' has 'in_place' '" << *tensor.getInPlace()
           << "', which is not a weight above it";
  if (!overwritten.try_emplace(weight.getTensor(), tensor).second)
    return tensor.emitOpError("'")
           << tensor.getName() << "' is the second tensor in the memory of '"
           << weight.getName() << "'; remove 'in_place'";
  auto getBits = [](TensorOp op) {
    auto type = cast<MemRefType>(op.getTensor().getType());
    return type.getNumElements() * type.getElementTypeBitWidth();
  };
  auto type = cast<MemRefType>(weight.getTensor().getType());
  if (getBits(tensor) != getBits(weight) || !type.getLayout().isIdentity())
    return tensor.emitOpError("'")
           << tensor.getName() << "' of type " << tensor.getTensor().getType()
           << " does not fill '" << weight.getName() << "' of type " << type
           << "; remove 'in_place'";
  return success();
}

static LogicalResult verifyRead(Operation *step, Value memory,
                                const llvm::DenseSet<Value> &written) {
  if (written.contains(memory))
    return success();
  InFlightDiagnostic diag =
      step->emitOpError("reads memory that no step has written yet");
  diag.attachNote(memory.getLoc()) << "the memory is here";
  return diag;
}

/// Verifies that the ins of a launch have been written; marks its outs as
/// written.
template <typename StepOp>
LogicalResult ProgramVerifier::verifyStep(StepOp launch,
                                          llvm::DenseSet<Value> &written,
                                          bool prepares) {
  for (Value operand : launch.getOperands()) {
    TensorOp by = overwritten.lookup(operand);
    if (by && (!prepares || written.contains(by.getTensor()) ||
               llvm::is_contained(launch.getOuts(), by.getTensor())))
      return launch.emitOpError("reads a weight that '")
             << by.getName() << "' overwrites; read '" << by.getName() << "'";
  }
  bool readsIns = true;
  if constexpr (std::is_same_v<StepOp, CollectiveOp>)
    readsIns = !launch.isFollowed();
  for (Value in : launch.getIns())
    if (readsIns && failed(verifyRead(launch, in, written)))
      return failure();
  for (Value out : launch.getOuts()) {
    auto tensor = out.getDefiningOp<TensorOp>();
    if (tensor && tensor.getRole() == Role::Prepared && !prepares)
      return launch.emitOpError("writes '")
             << tensor.getName()
             << "', which is prepared once for all runs; write to a buffer";
    if (tensor && tensor.getRole() != Role::Output &&
        tensor.getRole() != Role::Prepared)
      return launch.emitOpError("writes '")
             << tensor.getName() << "', the caller's "
             << stringifyRole(tensor.getRole())
             << "; write to a buffer or an output";
    written.insert(out);
  }
  return success();
}

LogicalResult ProgramVerifier::verifyPrepare(PrepareOp prepare) {
  if (hasPrepare)
    return prepare.emitOpError(
        "is the second 'plan.prepare'; put all launches into one");
  hasPrepare = true;
  for (Operation &op : prepare.getBody().front()) {
    auto launch = cast<LaunchOp>(op);
    for (Value operand : launch.getOperands()) {
      auto tensor = operand.getDefiningOp<TensorOp>();
      if (!tensor || (tensor.getRole() != Role::Weight &&
                      tensor.getRole() != Role::Prepared))
        return launch.emitOpError(
                   "prepares weights before any run, so it reads only weights "
                   "and prepared tensors, not the ")
               << (tensor ? stringifyRole(tensor.getRole()) : "buffer") << " '"
               << (tensor ? tensor.getName()
                          : operand.getDefiningOp<BufferOp>().getName())
               << "'";
    }
    if (failed(verifyStep(launch, ready, /*prepares=*/true)))
      return failure();
  }
  return success();
}

LogicalResult ProgramVerifier::verifyVariant(VariantOp variant) {
  int64_t min = variant.getMinTokens(), max = variant.getMaxTokens();
  if (min != nextTokens)
    return variant.emitOpError("starts at ")
           << min << " tokens, but must start at " << nextTokens
           << ": variants follow each other without gap or overlap";
  if (max > maxTokens)
    return variant.emitOpError("reaches ")
           << max << " tokens; 'max_tokens' of the program is " << maxTokens;
  nextTokens = max + 1;
  llvm::DenseSet<Value> written = ready;
  for (Operation &op : variant.getBody().front()) {
    if (auto launch = dyn_cast<LaunchOp>(op))
      if (failed(verifyStep(launch, written, /*prepares=*/false)))
        return failure();
    if (auto collective = dyn_cast<CollectiveOp>(op))
      if (failed(verifyCollective(collective, written)))
        return failure();
  }
  for (TensorOp output : outputs)
    if (!written.contains(output.getTensor()))
      return variant.emitOpError("never writes the output '")
             << output.getName() << "'; launch a kernel with it in 'outs'";
  return success();
}

/// Verifies that rows of ins and outs agree with the mesh, at each token count
/// of a group.
LogicalResult
ProgramVerifier::verifyCollective(CollectiveOp op,
                                  llvm::DenseSet<Value> &written) {
  MeshAttr mesh = program.getMeshAttr();
  int64_t ranks = !mesh                      ? 1
                  : op.getAxis() == Axis::Dp ? mesh.getDp()
                                             : mesh.getTp();
  if (ranks < 2)
    return op.emitOpError("is over axis '")
           << stringifyAxis(op.getAxis())
           << "', which has one rank; give the program a 'mesh' with more "
              "ranks, or remove the collective";
  int64_t toOne = op.getKind() == CollectiveKind::ReduceScatter ? ranks : 1;
  int64_t toAll = op.getKind() == CollectiveKind::AllGather ? ranks : 1;
  for (auto [i, in, out] : llvm::enumerate(op.getIns(), op.getOuts()))
    for (int64_t tokens : {mesh.getTokenRanks(), 2 * mesh.getTokenRanks()}) {
      moert::Result<int64_t> from = getRows(in).evaluate(tokens);
      moert::Result<int64_t> to = getRows(out).evaluate(tokens);
      if (from && to && *from * toAll == *to * toOne)
        continue;
      return op.emitOpError("ins[")
             << i << "] has " << getRows(in).str() << " rows and outs[" << i
             << "] " << getRows(out).str() << "; " << ranks
             << " ranks turn that into " << (toOne > 1 ? "one of " : "")
             << (toOne > 1 ? toOne : toAll)
             << (toOne > 1 ? "" : " times as many");
    }
  // The rows of one rank, then those of all ranks.
  size_t first = op.getRouted() ? size_t(op.getRouted()->front()) : 0;
  SmallVector<Value> moved{op.getIns()[first]};
  if (toOne > 1)
    moved.insert(moved.begin(), op.getOuts()[first]);
  for (auto [ids, like] : llvm::zip(op.getIds(), moved))
    if (!(getRows(ids) == getRows(like)))
      return op.emitOpError("has 'ids' of ")
             << getRows(ids).str() << " rows for " << getRows(like).str()
             << " moved rows; give the ids of the moved rows";
  for (Value ofRow : {op.getPosition(), op.getAddend()})
    if (ofRow && !(getRows(ofRow) == getRows(op.getIns().front())))
      return op.emitOpError("has a 'position' or 'addend' of ")
             << getRows(ofRow).str() << " rows for sums of "
             << getRows(op.getIns().front()).str() << "; give one row for each";
  if (Value unquantized = op.getUnquantized()) {
    Value values = op.getIns()[size_t(op.getQuantized()->front())];
    if (!(getRows(unquantized) == getRows(values)))
      return op.emitOpError("has 'unquantized' with ")
             << getRows(unquantized).str() << " rows for "
             << getRows(values).str()
             << " rows of quantized values; give the rows that these come from";
  }
  // For a chunk that others follow, the sums are not in memory yet.
  size_t numIns = op.isFollowed() ? op.getIns().size() : 0;
  SmallVector<Value> allRead = op.getRead();
  for (Value read : ArrayRef(allRead).drop_front(numIns))
    if (failed(verifyRead(op, read, written)))
      return failure();
  if (failed(verifyChunk(op)))
    return failure();
  if (op.getRows() && !op.isFollowed() && !op.getReplacedLaunch())
    return op.emitOpError("has 'sums_of', but no earlier launch makes the "
                          "sums; remove 'sums_of'");
  if (op.getUnquantized() && !op.getReplacedLaunch())
    return op.emitOpError("has 'unquantized', but no earlier launch makes the "
                          "quantized values; remove 'unquantized'");
  return verifyStep(op, written, /*prepares=*/false);
}

/// Verifies that the chunks of a collective are consecutive among the
/// collectives of their variant.
LogicalResult ProgramVerifier::verifyChunk(CollectiveOp op) {
  auto getNext = [](CollectiveOp op, bool isForward) {
    Operation *next = op;
    do
      next = isForward ? next->getNextNode() : next->getPrevNode();
    while (next && !isa<CollectiveOp>(next));
    return cast_or_null<CollectiveOp>(next);
  };
  if (!op.getColumns())
    return success();
  ArrayRef<int64_t> columns = *op.getColumns();
  auto isOther = [&](CollectiveOp other, int64_t first) {
    return !other || other->getOperands() != op->getOperands() ||
           other.getKind() != op.getKind() || other.getAxis() != op.getAxis() ||
           other.getRoutedAttr() != op.getRoutedAttr() ||
           other.getExpertsPerRankAttr() != op.getExpertsPerRankAttr() ||
           !other.getColumns() ||
           *other.getColumns() != ArrayRef<int64_t>{first, columns.back()};
  };
  int64_t before = columns.front() - columns.back();
  int64_t behind = columns.front() + columns.back();
  if (columns.front() > 0 && isOther(getNext(op, /*isForward=*/false), before))
    return op.emitOpError("moves columns from ")
           << columns.front()
           << " on, but the collective before it does not move the "
           << "previous " << columns.back()
           << " columns of the same rows; move all "
           << "columns, in order";
  if (op.isFollowed() && isOther(getNext(op, /*isForward=*/true), behind))
    return op.emitOpError("moves columns up to ")
           << behind << ", but the collective after it does not move the next "
           << columns.back()
           << " columns of the same rows; move all columns, in order";
  return success();
}

} // namespace

moert::Expr moec::plan::getRows(Value memory) {
  auto type = cast<MemRefType>(memory.getType());
  if (!type.isDynamicDim(0))
    return moert::Expr(type.getDimSize(0));
  ExprAttr rows;
  if (auto tensor = memory.getDefiningOp<TensorOp>())
    rows = tensor.getRowsAttr();
  else if (auto buffer = memory.getDefiningOp<BufferOp>())
    rows = buffer.getRowsAttr();
  return rows ? rows.getExpr() : moert::Expr(0);
}

LogicalResult ProgramOp::verifyRegions() {
  return ProgramVerifier(*this).verify();
}

static LogicalResult emitNotAfterLaunch(LaunchOp launch) {
  return launch.emitOpError("is dependent, but the step before it on stream ")
         << launch.getStream() << " is not a launch; remove 'dependent'";
}

LogicalResult PrepareOp::verifyRegions() {
  for (Operation &op : getBody().front()) {
    auto launch = dyn_cast<LaunchOp>(op);
    if (!launch)
      return op.emitOpError(
          "is not allowed in a 'plan.prepare'; it holds launches only");
    if (launch.getStream() != 0)
      return launch.emitOpError("is on stream ")
             << launch.getStream() << "; a 'plan.prepare' has stream 0 only";
    if (launch.getDependent() && !isa_and_nonnull<LaunchOp>(op.getPrevNode()))
      return emitNotAfterLaunch(launch);
  }
  return success();
}

LogicalResult VariantOp::verify() {
  int64_t min = getMinTokens(), max = getMaxTokens();
  if (min < 0 || max < min)
    return emitOpError("serves ")
           << min << " to " << max
           << " tokens; write an ascending range, as in '0 to 16384'";
  return success();
}

LogicalResult VariantOp::verifyRegions() {
  llvm::DenseSet<int64_t> recorded, started{0};
  // Streams whose latest step is a launch.
  llvm::DenseSet<int64_t> launching;
  for (Operation &op : getBody().front()) {
    int64_t stream;
    if (auto wait = dyn_cast<WaitOp>(op)) {
      if (!recorded.contains(wait.getEvent()))
        return wait.emitOpError("waits for event ")
               << wait.getEvent()
               << ", which no earlier 'plan.record' of the variant records";
      started.insert(wait.getStream());
      launching.erase(wait.getStream());
      continue;
    }
    if (auto record = dyn_cast<RecordOp>(op)) {
      recorded.insert(record.getEvent());
      stream = record.getStream();
      launching.erase(stream);
    } else if (auto launch = dyn_cast<LaunchOp>(op)) {
      stream = launch.getStream();
      if (!launching.insert(stream).second)
        continue;
      if (launch.getDependent())
        return emitNotAfterLaunch(launch);
    } else if (auto collective = dyn_cast<CollectiveOp>(op)) {
      stream = collective.getStream();
      launching.erase(stream);
    } else {
      return op.emitOpError("is not allowed in a 'plan.variant'; it holds "
                            "'plan.launch', 'plan.collective', 'plan.record' "
                            "and 'plan.wait'");
    }
    // Only stream 0, the caller's, starts without a wait.
    if (!started.contains(stream))
      return op.emitOpError("is the first step of stream ")
             << stream << "; put a 'plan.wait' on that stream first";
  }
  return success();
}
