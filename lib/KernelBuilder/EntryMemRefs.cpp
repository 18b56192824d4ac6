//===- EntryMemRefs.cpp - memrefs of what the runtime passes ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EntryMemRefs.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moec/Dialect/Plan/PackedMemRef.h"

using namespace mlir;
using namespace moec;

/// The entry does not know the extent of a dynamic dimension: kernels get all
/// extents that they need from the token count and from offsets.
static LogicalResult checkNoDynamicExtent(func::FuncOp func) {
  WalkResult result = func.walk([](memref::DimOp dim) {
    dim.emitOpError("reads an extent that a kernel does not have; derive it "
                    "from the token count");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

/// The strides of the memref whose address is argument `index - 1`.
static SmallVector<Value> insertStrideArguments(Block &block, unsigned index,
                                                MemRefType type) {
  SmallVector<Value> strides;
  if (!plan::isStridedMemRef(type))
    return strides;
  Type i64 = IntegerType::get(type.getContext(), 64);
  Location loc = block.getArgument(index - 1).getLoc();
  for (int64_t i = 0; i + 1 < type.getRank(); ++i)
    strides.push_back(block.insertArgument(index + i, i64, loc));
  return strides;
}

/// The extent of a dynamic dimension is 0.
static Value makeMemRef(ImplicitLocOpBuilder &b,
                        const LLVMTypeConverter &converter, MemRefType type,
                        Value pointer, ValueRange strides) {
  auto descriptor =
      MemRefDescriptor::poison(b, b.getLoc(), converter.convertType(type));
  descriptor.setAllocatedPtr(b, b.getLoc(), pointer);
  descriptor.setAlignedPtr(b, b.getLoc(), pointer);
  descriptor.setConstantOffset(b, b.getLoc(), 0);
  int64_t stride = 1;
  for (int64_t i = type.getRank() - 1; i >= 0; --i) {
    int64_t size = type.isDynamicDim(i) ? 0 : type.getDimSize(i);
    descriptor.setConstantSize(b, b.getLoc(), i, size);
    if (i < static_cast<int64_t>(strides.size()))
      descriptor.setStride(b, b.getLoc(), i, strides[i]);
    else
      descriptor.setConstantStride(b, b.getLoc(), i, stride);
    stride *= size;
  }
  return UnrealizedConversionCastOp::create(b, type, Value(descriptor))
      .getResult(0);
}

/// Where only the outermost dimension is dynamic, strides are constants; others
/// come as arguments.
static LogicalResult checkMemRef(func::FuncOp func, MemRefType type) {
  ArrayRef<int64_t> inner = type.getShape().drop_front(type.getRank() ? 1 : 0);
  bool isKnown =
      type.getLayout().isIdentity() && !ShapedType::isDynamicShape(inner);
  if (isKnown || plan::isStridedMemRef(type))
    return success();
  return func.emitOpError("has an argument of type ")
         << type
         << "; a kernel takes row-major memrefs of which at most the first "
            "dimension is dynamic";
}

LogicalResult moec::replaceMemRefArguments(func::FuncOp func,
                                           LLVM::LLVMPointerType pointer) {
  if (failed(checkNoDynamicExtent(func)))
    return failure();
  LLVMTypeConverter converter(func.getContext());
  Block &block = func.getBody().front();
  auto b = ImplicitLocOpBuilder::atBlockBegin(func.getLoc(), &block);
  auto generic = LLVM::LLVMPointerType::get(func.getContext());
  // Strides come in between.
  for (unsigned i = 0; i < block.getNumArguments(); ++i) {
    BlockArgument argument = block.getArgument(i);
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type)
      continue;
    if (failed(checkMemRef(func, type)))
      return failure();
    SmallVector<OpOperand *> uses(llvm::make_pointer_range(argument.getUses()));
    argument.setType(pointer);
    Value address = argument;
    if (pointer != generic)
      address = LLVM::AddrSpaceCastOp::create(b, generic, argument);
    SmallVector<Value> strides = insertStrideArguments(block, i + 1, type);
    Value memref = makeMemRef(b, converter, type, address, strides);
    for (OpOperand *use : uses)
      use->set(memref);
  }
  return success();
}
