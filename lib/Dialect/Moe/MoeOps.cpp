//===- MoeOps.cpp - verifiers of the pipeline ops ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/PipelineShapes.h"
#include "moec/Dialect/Moe/ScalarRegion.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/RowDestinations.h"

using namespace mlir;
using namespace moec;
using namespace moec::moe;

/// Names the results of a decomposed layer's op after their tensors.
static void setResultNames(Operation *op, OpAsmSetValueNameFn setName) {
  for (OpResult result : op->getResults())
    if (StringRef name = getResultName(op, result.getResultNumber());
        !name.empty())
      setName(result, name);
}

void GroupedMatmulOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void TensorScaleOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void RowMapOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void RmsNormOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void LoraShrinkOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void GatherRowsOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void UnpermuteOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}

void QuantizeOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}

void CombineOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}
void PlaceIdsOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}

void DispatchOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}

void PrepackOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setResultNames(*this, setName);
}

LogicalResult ParamOp::verify() {
  auto layer = dyn_cast_if_present<LayerOp>((*this)->getParentOp());
  Region *parent = (*this)->getParentRegion();
  if (!layer || (parent != &layer.getActivation() &&
                 parent != &layer.getSharedActivation()))
    return emitOpError(
        "is only allowed in the region 'activation' of a 'moe.layer', since it "
        "reads 'activation_params'; write a constant instead");
  DictionaryAttr params = layer.getActivationParamsAttr();
  if (params && params.contains(getName()))
    return success();
  InFlightDiagnostic diag = emitOpError("reads '")
                            << getName()
                            << "', which 'activation_params' of the layer does "
                               "not have";
  if (params && !params.empty()) {
    diag << "; it has ";
    llvm::interleaveComma(params, diag, [&](NamedAttribute entry) {
      diag << "'" << entry.getName().getValue() << "'";
    });
  }
  return diag;
}

LogicalResult RouteOp::verify() {
  return verifyRoute(*this, RouteOperands(*this));
}
LogicalResult RouteOp::verifyRegions() {
  if (failed(verifyScalarBody(*this, getScore(), "score")) ||
      failed(verifyScalarBody(*this, getKey(), "key")))
    return failure();
  return verifyScalarBody(*this, getWeight(), "weight");
}

LogicalResult PermuteOp::verify() {
  return verifyPermute(*this, PermuteOperands(*this));
}

LogicalResult GroupedMatmulOp::verify() {
  return verifyMatmul(*this, MatmulOperands(*this));
}
LogicalResult GroupedMatmulOp::verifyRegions() {
  return verifyScalarBody(*this, getEpilogue(), "epilogue");
}

LogicalResult PrepackOp::verify() {
  return verifyPrepack(*this, PrepackOperands(*this));
}

/// Verifies that the types for one rank and for all ranks agree.
static LogicalResult verifyAlike(Operation *op, Type one, Type all,
                                 size_t index) {
  auto from = dyn_cast<RankedTensorType>(one),
       to = dyn_cast<RankedTensorType>(all);
  if (from && to && from.getRank() > 0 && from.getRank() == to.getRank() &&
      from.getElementType() == to.getElementType() &&
      from.getShape().drop_front() == to.getShape().drop_front() &&
      from.isDynamicDim(0) == to.isDynamicDim(0))
    return success();
  return op->emitOpError("input ")
         << index << " is " << one << " and its result " << all
         << "; give them one type, which may differ only in a static number of "
            "rows";
}

LogicalResult DispatchOp::verify() {
  if (getInputs().empty() || getInputs().size() != getResults().size())
    return emitOpError("has ")
           << getInputs().size() << " inputs and " << getResults().size()
           << " results; give one result for each input, at least one";
  for (auto [i, input, result] :
       llvm::enumerate(getInputs().getTypes(), getResults().getTypes()))
    if (failed(verifyAlike(*this, input, result, i)))
      return failure();
  return verifyRowDestinations(*this,
                               {getDestinations(), getIds(),
                                getRouted().value_or(ArrayRef<int64_t>()),
                                getExpertsPerRank()},
                               getInputs(), /*numIds=*/1);
}

LogicalResult CombineOp::verify() {
  if (getOwnRows() && getAxis() == Axis::Dp)
    return emitOpError(
        "over 'dp' always leaves each rank its own rows; remove 'own_rows'");
  if (!getDestinations() && getIds().empty() && !getExpertsPerRank())
    return success();
  static const int64_t routed = 0;
  return verifyRowDestinations(
      *this, {getDestinations(), getIds(), routed, getExpertsPerRank()},
      getInput(),
      /*numIds=*/getAxis() == Axis::Dp ? 2 : 0);
}

LogicalResult PlaceIdsOp::verify() {
  return verifyPlaceIds(*this, PlaceIdsOperands(*this));
}

LogicalResult GatherRowsOp::verify() {
  return verifyGatherRows(*this, {getInput(), getOffsets(), getSource(),
                                  getColumns(), getResult(), getTopK()});
}

LogicalResult RowMapOp::verify() {
  return verifyRowMap(*this, RowMapOperands(*this));
}
LogicalResult RowMapOp::verifyRegions() {
  return verifyScalarBody(*this, getBody(), "body");
}

LogicalResult RmsNormOp::verify() {
  return verifyRmsNorm(*this, RmsNormOperands(*this));
}

LogicalResult LoraShrinkOp::verify() {
  return verifyLoraShrink(*this, LoraShrinkOperands(*this));
}

LogicalResult TensorScaleOp::verify() {
  return verifyTensorScale(*this, TensorScaleOperands(*this));
}

LogicalResult QuantizeOp::verify() {
  return verifyQuantize(*this, QuantizeOperands(*this));
}

LogicalResult UnpermuteOp::verify() {
  return verifyUnpermute(*this, UnpermuteOperands(*this));
}
