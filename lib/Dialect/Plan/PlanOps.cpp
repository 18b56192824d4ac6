//===- PlanOps.cpp - tensors, launches and kernels of a plan ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/KernelSyntax.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Dialect/RowQuantization.h"
#include "moec/Dialect/SlotSums.h"

using namespace mlir;
using namespace moec;
using namespace moec::plan;

//===----------------------------------------------------------------------===//
// Sizes, tensors, buffers
//===----------------------------------------------------------------------===//

LogicalResult ExprAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               StringRef text) {
  moert::Result<moert::Expr> expr =
      moert::Expr::parse(std::string_view(text.data(), text.size()));
  if (!expr)
    return emitError() << expr.status().message();
  if (std::string canonical = expr->str(); canonical != text)
    return emitError() << "expression '" << text
                       << "' is not in canonical form; write '" << canonical
                       << "'";
  return success();
}

moert::Expr ExprAttr::getExpr() const {
  StringRef text = getText();
  moert::Result<moert::Expr> expr =
      moert::Expr::parse(std::string_view(text.data(), text.size()));
  return expr ? *expr : moert::Expr();
}

MemRefType moec::plan::getStridedMemRef(ShapedType type) {
  SmallVector<int64_t> strides(type.getRank(), ShapedType::kDynamic);
  strides.back() = 1;
  return MemRefType::get(type.getShape(), type.getElementType(),
                         StridedLayoutAttr::get(type.getContext(), 0, strides));
}

bool moec::plan::isStridedMemRef(MemRefType type) {
  return type.getRank() > 1 && type.hasStaticShape() &&
         type == getStridedMemRef(type);
}

LogicalResult moec::plan::verifyPackedMemRef(Operation *op, const Twine &name,
                                             MemRefType type) {
  if (!type.getLayout().isIdentity() && !isStridedMemRef(type))
    return op->emitOpError(name)
           << " must be row-major without gaps; remove the layout of " << type
           << ", or write strided<[?, ..., 1]> for a weight that has gaps "
              "between its rows";
  for (auto [index, size] : llvm::enumerate(type.getShape()))
    if (index > 0 && ShapedType::isDynamic(size))
      return op->emitOpError(name)
             << " has the dynamic dimension " << index << " in " << type
             << "; only the first one may be '?'";
  return success();
}

/// Rules shared by tensors and buffers.
static LogicalResult verifyMemory(Operation *op, StringRef name, Value value,
                                  std::optional<ExprAttr> rows) {
  if (name.empty())
    return op->emitOpError("needs a name that is not empty");
  auto type = dyn_cast<MemRefType>(value.getType());
  if (!type)
    return op->emitOpError("'") << name << "' must be a ranked memref";
  if (failed(verifyPackedMemRef(op, "'" + name + "'", type)))
    return failure();
  bool isDynamic = type.getRank() > 0 && type.isDynamicDim(0);
  if (isDynamic && !rows)
    return op->emitOpError("'")
           << name << "' has a dynamic first dimension; say how large it is: "
           << "'rows <\"tokens\">'";
  if (!isDynamic && rows)
    return op->emitOpError("'")
           << name << "' takes no 'rows': its shape " << type << " is static";
  return success();
}

void TensorOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getTensor(), getName());
}
void BufferOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getBuffer(), getName());
}

LogicalResult TensorOp::verify() {
  if (failed(verifyMemory(*this, getName(), getTensor(), getRows())))
    return failure();
  if (getRole() != Role::Weight &&
      !cast<MemRefType>(getTensor().getType()).getLayout().isIdentity())
    return emitOpError("'") << getName()
                            << "' has gaps between its rows, which only "
                               "weights may have; remove the layout";
  if (getRole() == Role::Weight && getRows())
    return emitOpError("'") << getName()
                            << "' is a weight, whose shape must be static; "
                               "make it an 'input'";
  if (getRole() == Role::Prepared && getRows())
    return emitOpError("'") << getName()
                            << "' is prepared before any run, so its shape "
                               "must be static; make it a 'plan.buffer'";
  if (getRole() != Role::Prepared && getInPlace())
    return emitOpError("'") << getName()
                            << "' takes no 'in_place': only prepared tensors "
                               "take the memory of a weight";
  return success();
}

LogicalResult BufferOp::verify() {
  if (IntegerAttr slot = getSlotAttr(); slot && slot.getInt() < 0)
    return emitOpError("'")
           << getName() << "' has slot " << slot.getInt()
           << "; slots are numbered from 0 and assigned by plan-assign-slots";
  if (failed(verifyMemory(*this, getName(), getBuffer(), getRows())))
    return failure();
  if (!cast<MemRefType>(getBuffer().getType()).getLayout().isIdentity())
    return emitOpError("'") << getName()
                            << "' has gaps between its rows, which only "
                               "weights may have; remove the layout";
  return success();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static bool isStrided(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && isStridedMemRef(memref);
}

/// Whether a kernel takes the strides of an argument; `index` may be that of a
/// result, after the arguments.
static bool takesStrides(FunctionOpInterface kernel, size_t index) {
  if (index >= kernel.getNumArguments())
    return false;
  return kernel.getArgAttr(index, kStridedAttr) ||
         isStrided(kernel.getArgumentTypes()[index]);
}

/// Verifies that operands of a launch match its kernel's arguments, from
/// argument `first` on.
static LogicalResult verifyOperandTypes(LaunchOp launch,
                                        FunctionOpInterface kernel,
                                        ArrayRef<Type> expected, size_t first,
                                        OperandRange operands, StringRef list) {
  StringRef name = SymbolTable::getSymbolName(kernel).getValue();
  if (expected.size() != operands.size())
    return launch.emitOpError("gives ")
           << operands.size() << " " << list << ", but " << name << " takes "
           << expected.size();
  for (auto [index, pair] : llvm::enumerate(llvm::zip(expected, operands))) {
    auto [wanted, operand] = pair;
    auto type = cast<ShapedType>(operand.getType());
    auto shaped = dyn_cast<ShapedType>(wanted);
    bool agrees = shaped && shaped.hasRank() && type.hasRank() &&
                  shaped.getShape() == type.getShape() &&
                  shaped.getElementType() == type.getElementType() &&
                  takesStrides(kernel, first + index) == isStrided(type);
    if (!agrees)
      return launch.emitOpError() << list << "[" << index << "] is " << type
                                  << ", but " << name << " takes " << wanted
                                  << (takesStrides(kernel, first + index)
                                          ? " with gaps between the rows"
                                          : "");
  }
  return success();
}

/// Verifies `columns` (the first column and their number) of a launch or a
/// collective.
template <typename StepOp>
static LogicalResult verifyColumns(StepOp step) {
  std::optional<ArrayRef<int64_t>> columns = step.getColumns();
  if (!columns ||
      (columns->size() == 2 && columns->front() >= 0 && columns->back() > 0 &&
       columns->front() % columns->back() == 0))
    return success();
  return step.emitOpError("has columns [")
         << *columns << "]; give the first column, a multiple of the number of "
         << "columns, and that number";
}

LogicalResult LaunchOp::verify() {
  if (getStreamAttr() && getStreamAttr().getInt() < 0)
    return emitOpError("stream ")
           << getStreamAttr().getInt()
           << " is not a stream; they are numbered from 0";
  if (failed(verifyColumns(*this)))
    return failure();
  for (Value out : getOuts())
    if (llvm::is_contained(getIns(), out))
      return emitOpError("reads and writes the same tensor; a kernel's 'outs' "
                         "must not be among its 'ins'");
  return success();
}

LogicalResult CollectiveOp::verify() {
  if (getStreamAttr() && getStreamAttr().getInt() < 0)
    return emitOpError("stream ")
           << getStreamAttr().getInt()
           << " is not a stream; they are numbered from 0";
  if (getIns().empty() || getIns().size() != getOuts().size())
    return emitOpError("has ")
           << getIns().size() << " 'ins' and " << getOuts().size()
           << " 'outs'; give at least one pair";
  for (auto [i, in, out] : llvm::enumerate(getIns(), getOuts())) {
    auto from = cast<MemRefType>(in.getType());
    auto to = cast<MemRefType>(out.getType());
    if (from.getRank() < 1 || from.getRank() != to.getRank() ||
        from.getElementType() != to.getElementType() ||
        from.getShape().drop_front() != to.getShape().drop_front())
      return emitOpError("ins[")
             << i << "] is " << from << " and outs[" << i << "] is " << to
             << "; they may differ only in the first dimension";
    if (llvm::is_contained(getIns(), out))
      return emitOpError("reads and writes the same tensor; 'outs' must not be "
                         "among 'ins'");
  }
  if (failed(verifySlotSums(
          *this, {getRows(), getPosition(), getAddend(), getNumValidTokens()},
          getIns(), getKind() != CollectiveKind::AllGather)) ||
      failed(verifyRowQuantization(
          *this,
          {getUnquantized(), getQuantized().value_or(ArrayRef<int64_t>())},
          getIns(), getRouted().value_or(ArrayRef<int64_t>()),
          getKind() == CollectiveKind::AllGather)) ||
      failed(verifyColumns(*this)))
    return failure();
  if (getToResults() &&
      (getKind() != CollectiveKind::AllGather ||
       !llvm::all_of(getOuts(), [](Value out) {
         return isa_and_nonnull<BufferOp>(out.getDefiningOp());
       })))
    return emitOpError("is 'to_results', which only an all_gather of buffers "
                       "may be; remove it");
  if (getColumns() && !getRows())
    return emitOpError("has 'columns' without 'sums_of'; give 'sums_of' too, "
                       "or remove 'columns'");
  if (getColumns() &&
      cast<MemRefType>(getIns().front().getType()).getDimSize(1) %
              getColumns()->back() !=
          0)
    return emitOpError("has ")
           << getColumns()->back() << " columns of "
           << cast<MemRefType>(getIns().front().getType()).getDimSize(1)
           << "; give a number that divides them";
  return verifyRowDestinations(*this,
                               {getDestinations(), getIds(),
                                getRouted().value_or(ArrayRef<int64_t>()),
                                getExpertsPerRank()},
                               getIns(), getNumIds(getKind()));
}

size_t CollectiveOp::getNumIds(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllGather:
    return 1;
  case CollectiveKind::ReduceScatter:
    return 2;
  case CollectiveKind::AllReduce:
    return 0;
  }
  llvm_unreachable("every kind is listed");
}

SmallVector<Value> CollectiveOp::getRead() {
  SmallVector<Value> read(getIns());
  llvm::append_range(read, getIds());
  if (getDestinations())
    read.push_back(getDestinations());
  llvm::append_range(
      read, SlotSums{getRows(), getPosition(), getAddend(), getNumValidTokens()}
                .getValues());
  if (getUnquantized())
    read.push_back(getUnquantized());
  return read;
}

bool CollectiveOp::isFollowed() {
  std::optional<ArrayRef<int64_t>> columns = getColumns();
  return columns &&
         columns->front() + columns->back() <
             cast<MemRefType>(getIns().front().getType()).getDimSize(1);
}

LaunchOp CollectiveOp::getReplacedLaunch() {
  if ((!getRows() && !getUnquantized()) || isFollowed())
    return nullptr;
  Value made =
      getIns()[getUnquantized() ? size_t(getQuantized()->front()) : size_t(0)];
  for (Operation *op = (*this)->getPrevNode(); op; op = op->getPrevNode())
    if (auto launch = dyn_cast<LaunchOp>(op);
        launch && llvm::is_contained(launch.getOuts(), made))
      return launch;
  return nullptr;
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getKernelAttr());
  if (!kernel)
    return emitOpError("launches '")
           << getKernel() << "', which is not a kernel of the module";
  if (isa<KernelOp>(*kernel))
    return failure(
        failed(verifyOperandTypes(*this, kernel, kernel.getArgumentTypes(), 0,
                                  getIns(), "ins")) ||
        failed(verifyOperandTypes(*this, kernel, kernel.getResultTypes(),
                                  getIns().size(), getOuts(), "outs")));
  // Below level tile a kernel is a function with another argument list.
  if (kernel->getName().getStringRef() != "tile.kernel")
    return success();
  ArrayRef<Type> arguments = kernel.getArgumentTypes();
  size_t numOperands = getIns().size() + getOuts().size();
  size_t numScalars = 1;
  if (arguments.size() > 1 && arguments.drop_back().back().isInteger(64))
    ++numScalars;
  if (arguments.size() != numOperands + numScalars)
    return emitOpError("gives ")
           << numOperands << " tensors, but " << getKernel() << " takes "
           << arguments.size() - numScalars << " and the token count";
  if (getColumns().has_value() != (numScalars > 1))
    return emitOpError(getColumns() ? "has 'columns', but "
                                    : "has no 'columns', but ")
           << getKernel()
           << (getColumns() ? " computes all columns; remove 'columns'"
                            : " takes the first column; give 'columns'");
  return failure(
      failed(verifyOperandTypes(*this, kernel,
                                arguments.take_front(getIns().size()), 0,
                                getIns(), "ins")) ||
      failed(verifyOperandTypes(
          *this, kernel,
          arguments.drop_front(getIns().size()).take_front(getOuts().size()),
          getIns().size(), getOuts(), "outs")));
}

/// Verifies the event and stream of a `plan.record` or `plan.wait`.
template <typename OpTy>
static LogicalResult verifyEvent(OpTy op) {
  for (auto [name, value] : {std::pair("event", op.getEventAttr().getInt()),
                             std::pair("stream", op.getStreamAttr().getInt())})
    if (value < 0)
      return op.emitOpError("has ")
             << name << " " << value << "; " << name << "s are numbered from 0";
  return success();
}

LogicalResult RecordOp::verify() { return verifyEvent(*this); }
LogicalResult WaitOp::verify() { return verifyEvent(*this); }

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     FunctionType type) {
  buildKernel<KernelOp>(builder, state, name, type);
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  return parseKernel<KernelOp>(parser, result);
}

void KernelOp::print(OpAsmPrinter &printer) { printKernel(printer, *this); }

LogicalResult KernelOp::verify() {
  auto verifyTensors = [&](ArrayRef<Type> types,
                           StringRef list) -> LogicalResult {
    for (auto [index, type] : llvm::enumerate(types))
      if (!isa<RankedTensorType>(type))
        return emitOpError()
               << list << " " << index << " is " << type
               << "; a kernel's arguments and results are ranked tensors";
    return success();
  };
  if (failed(verifyTensors(getArgumentTypes(), "argument")) ||
      failed(verifyTensors(getResultTypes(), "result")))
    return failure();
  if (!getBody().hasOneBlock())
    return emitOpError("must have one block: moe ops and a 'plan.return'");
  for (Operation &op : getBody().front())
    if (!isa<ReturnOp>(op) && op.getName().getDialectNamespace() != "moe")
      return op.emitOpError("is not allowed in a 'plan.kernel'; its body holds "
                            "moe ops and a 'plan.return'");
  return success();
}

LogicalResult ReturnOp::verify() {
  auto kernel = cast<KernelOp>((*this)->getParentOp());
  if (TypeRange(kernel.getResultTypes()) == getValues().getTypes())
    return success();
  return emitOpError("returns (")
         << getValues().getTypes() << "), but " << kernel.getSymName()
         << " has the results (" << kernel.getResultTypes() << ")";
}
