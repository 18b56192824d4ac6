//===- ThreadEmitter.cpp - emission of what one thread does -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ThreadEmitter.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "moec/Support/GpuInstructions.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace moec;

static constexpr unsigned kGlobalSpace = 1;
static constexpr unsigned kSharedSpace = 3;
/// Name of the extern array for dynamic shared memory.
static constexpr llvm::StringLiteral kDynamicShared = "moec_shared";
/// Alignment of a tile with the widest swizzle.
static constexpr int64_t kDynamicAlignment = 1024;

ThreadEmitter::ThreadEmitter(func::FuncOp func, tile::KernelOp kernel,
                             int64_t threads)
    : KernelEmitter(func, kernel, /*cta=*/{}), threads(threads),
      isIndependent(kernel.getIndependent()), converter(func.getContext()) {
  Type i32 = b.getI32Type();
  ctaIndex = ownCta();
  threadNumber = {b, NVVM::ThreadIdXOp::create(b, i32)};
  warpNumber = threadNumber / kWarp;
  laneNumber = threadNumber % kWarp;
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

int64_t ThreadEmitter::getNumWarps() const { return threads / kWarp; }

Operation *ThreadEmitter::barrier() { return NVVM::Barrier0Op::create(b); }

void ThreadEmitter::waitForLaunchBefore() {
  if (isIndependent)
    return;
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

Operation *ThreadEmitter::warpBarrier() {
  return NVVM::SyncWarpOp::create(b, i32(-1));
}

Operation *ThreadEmitter::barrierOf(Value number, int64_t threads) {
  return NVVM::BarrierOp::create(b, /*res=*/Type(), number, i32(threads),
                                 NVVM::BarrierReductionAttr(), Value());
}

Index ThreadEmitter::ownCta() {
  return toIndex(NVVM::BlockIdXOp::create(b, b.getI32Type()));
}

I32 ThreadEmitter::numCtas() {
  return {b, NVVM::GridDimXOp::create(b, b.getI32Type())};
}

I64 ThreadEmitter::clock() {
  return {b, NVVM::GlobalTimerOp::create(b, b.getI64Type())};
}

void ThreadEmitter::forThreads(Value begin, Value end,
                               function_ref<void(Index)> body) {
  loop(Index(b, begin) + toIndex(threadNumber), Index(b, end), threads, body);
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

I64 ThreadEmitter::i64(int64_t value) {
  return {b, arith::ConstantOp::create(b, b.getI64IntegerAttr(value))};
}
I64 ThreadEmitter::toI64(Index x) {
  return {b, arith::IndexCastOp::create(b, b.getI64Type(), x)};
}
I32 ThreadEmitter::lowestBit(I32 mask) {
  // No branch for a zero operand.
  return {b, LLVM::CountTrailingZerosOp::create(b, b.getI32Type(), mask,
                                                /*is_zero_poison=*/true)};
}
Index ThreadEmitter::toIndex(Value x) {
  return {b, arith::IndexCastUIOp::create(b, b.getIndexType(), x)};
}
I32 ThreadEmitter::toI32(Value x) {
  return {b, arith::IndexCastOp::create(b, b.getI32Type(), x)};
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

/// Bits that bound the lanes of a shuffle.
static constexpr int64_t kAllLanes = kWarp - 1, kNoLanes = 0;

static Value shuffle(NVVM::ShflKind kind, ThreadEmitter &emitter, Value value,
                     Value lane, int64_t bound = kAllLanes) {
  return NVVM::ShflOp::create(emitter.b, value.getType(), emitter.i32(-1),
                              value, lane, emitter.i32(bound), kind,
                              UnitAttr());
}

Value ThreadEmitter::shuffleXor(Value value, int64_t mask) {
  return shuffle(NVVM::ShflKind::bfly, *this, value, i32(mask));
}

Value ThreadEmitter::shuffleUp(Value value, int64_t distance) {
  return shuffle(NVVM::ShflKind::up, *this, value, i32(distance), kNoLanes);
}

Value ThreadEmitter::broadcast(Value value, int64_t lane) {
  return getFromLane(value, i32(lane));
}

Value ThreadEmitter::getFromLane(Value value, Value lane) {
  return shuffle(NVVM::ShflKind::idx, *this, value, lane);
}

static I32 reduceWarp(NVVM::ReduxKind kind, ThreadEmitter &emitter,
                      Value value) {
  return {emitter.b, NVVM::ReduxOp::create(emitter.b, value.getType(), value,
                                           kind, emitter.i32(-1))};
}

I32 ThreadEmitter::warpMax(Value value) {
  return reduceWarp(NVVM::ReduxKind::MAX, *this, value);
}

I32 ThreadEmitter::warpMin(Value value) {
  return reduceWarp(NVVM::ReduxKind::MIN, *this, value);
}

I32 ThreadEmitter::warpOr(Value value) {
  return reduceWarp(NVVM::ReduxKind::OR, *this, value);
}

I32 ThreadEmitter::ballot(Value flag) {
  return {b, NVVM::VoteSyncOp::create(b, b.getI32Type(), i32(-1), flag,
                                      NVVM::VoteSyncKind::ballot)};
}

I32 ThreadEmitter::matchAny(Value value) {
  return {b, NVVM::MatchSyncOp::create(b, b.getI32Type(), i32(-1), value,
                                       NVVM::MatchSyncKind::any)};
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

bool ThreadEmitter::isShared(Value memref) {
  auto space = dyn_cast_or_null<IntegerAttr>(
      cast<MemRefType>(memref.getType()).getMemorySpace());
  return space && space.getInt() == kSharedSpace;
}

llvm::MaybeAlign ThreadEmitter::alignmentOf(VectorType type) const {
  uint64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
  return llvm::Align(std::gcd<uint64_t>(bytes, 16));
}

Value ThreadEmitter::makeGlobal(MemRefType type, Attribute value,
                                int64_t alignment) {
  auto func = getFunction();
  // Unique, because each phase of a kernel has an emitter.
  std::string name;
  do
    name = (func.getName() + "_" + Twine(numGlobals++)).str();
  while (SymbolTable::lookupSymbolIn(func->getParentOp(), name));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(func);
    memref::GlobalOp::create(b, name, b.getStringAttr("private"), type, value,
                             /*constant=*/isa<ElementsAttr>(value),
                             b.getI64IntegerAttr(alignment));
  }
  return memref::GetGlobalOp::create(b, type, name);
}

static MemRefType inSpace(ArrayRef<int64_t> shape, Type element,
                          unsigned space) {
  Builder builder(element.getContext());
  return MemRefType::get(shape, element, MemRefLayoutAttrInterface(),
                         builder.getI32IntegerAttr(space));
}

Value ThreadEmitter::scratch(ArrayRef<int64_t> shape, Type elementType) {
  MemRefType type = inSpace(shape, elementType, kSharedSpace);
  int64_t bytes =
      type.getNumElements() * elementType.getIntOrFloatBitWidth() / 8;
  // LLVM widens neighbouring loads to as many bytes as the alignment promises,
  // also past the last element.
  return makeGlobal(type, b.getUnitAttr(), std::gcd<int64_t>(bytes, 16));
}

Value ThreadEmitter::constantTable(ArrayRef<int32_t> values) {
  int64_t size = values.size();
  auto tensor = RankedTensorType::get(size, b.getI32Type());
  return makeGlobal(inSpace(size, b.getI32Type(), kGlobalSpace),
                    DenseElementsAttr::get(tensor, values), 16);
}

Value ThreadEmitter::dynamicShared() {
  auto module = getFunction()->getParentOfType<ModuleOp>();
  auto global = module.lookupSymbol<LLVM::GlobalOp>(kDynamicShared);
  if (!global) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    global = LLVM::GlobalOp::create(
        b, LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false,
        LLVM::Linkage::External, kDynamicShared, Attribute(), kDynamicAlignment,
        kSharedSpace);
  }
  return LLVM::AddressOfOp::create(b, global);
}

Value ThreadEmitter::address(Value memref, ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  Value descriptor =
      UnrealizedConversionCastOp::create(b, converter.convertType(type), memref)
          .getResult(0);
  I64 linear;
  if (type.getLayout().isIdentity()) {
    Index element(b, indices.front());
    for (auto [i, at] : llvm::enumerate(indices.drop_front()))
      element = element * type.getDimSize(i + 1) + Index(b, at);
    linear = toI64(element);
  } else {
    MemRefDescriptor strides(descriptor);
    linear = toI64({b, indices.back()});
    for (auto [i, at] : llvm::enumerate(indices.drop_back())) {
      I64 row = toI64({b, at});
      I64 stride(b, strides.stride(b, b.getLoc(), static_cast<unsigned>(i)));
      linear = linear + row * stride;
    }
  }
  Value generic = LLVM::ExtractValueOp::create(b, descriptor, 1);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), kGlobalSpace);
  Value base = LLVM::AddrSpaceCastOp::create(b, pointer, generic);
  return LLVM::GEPOp::create(b, pointer,
                             converter.convertType(type.getElementType()), base,
                             ArrayRef<LLVM::GEPArg>{Value(linear)});
}

Value ThreadEmitter::baseAddress(Value memref) {
  auto rank = cast<MemRefType>(memref.getType()).getRank();
  return address(memref, SmallVector<Value>(rank, index(0)));
}

Value ThreadEmitter::advance(Value pointer, Value bytes) {
  return LLVM::GEPOp::create(b, pointer.getType(), b.getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{bytes});
}

Value ThreadEmitter::advance(Value pointer, int64_t bytes) {
  return bytes ? advance(pointer, i32(bytes)) : pointer;
}

Value ThreadEmitter::load(Type type, Value pointer, int64_t alignment) {
  return LLVM::LoadOp::create(b, type, pointer, alignment);
}

static Type vectorOf(Type element, int64_t lanes) {
  return lanes == 1 ? element : VectorType::get(lanes, element);
}

I32 ThreadEmitter::loadWord(Value pointer) { return loadWords(pointer, 1); }
F32 ThreadEmitter::loadSingle(Value pointer) { return loadSingles(pointer, 1); }
I32 ThreadEmitter::loadWords(Value pointer, int64_t lanes) {
  return {b, load(vectorOf(b.getI32Type(), lanes), pointer, 4 * lanes)};
}
F32 ThreadEmitter::loadSingles(Value pointer, int64_t lanes) {
  return {b, load(vectorOf(b.getF32Type(), lanes), pointer, 4 * lanes)};
}
I32 ThreadEmitter::loadBytes(Value pointer, int64_t bytes) {
  IntegerValue<uint8_t> narrow(
      b, load(b.getIntegerType(8 * bytes), pointer, bytes));
  return narrow.widened();
}

void ThreadEmitter::store(Value value, Value pointer, int64_t alignment) {
  LLVM::StoreOp::create(b, value, pointer, alignment);
}

Value ThreadEmitter::loadScale(Type type, Value pointer) {
  if (!isa<Float8E8M0FNUType>(type))
    return castFloat(b, load(type, pointer, type.getIntOrFloatBitWidth() / 8),
                     b.getF32Type());
  // e8m0 is the exponent of an f32, except for the subnormal one and NaN.
  constexpr int64_t least = 0x00400000, infinite = 0x7F800000, nan = 0x7FC00000;
  I32 bits = loadBytes(pointer, 1) << 23;
  I32 normal = select(bits >= infinite, bits.like(nan), bits);
  return F32::fromBits(select(bits > 0, normal, least));
}

Value ThreadEmitter::loadScale(Value memref, ValueRange indices) {
  Type type = getElementType(memref);
  return isa<Float8E8M0FNUType>(type)
             ? loadScale(type, address(memref, indices))
             : loadF32(memref, indices);
}

void ThreadEmitter::addAtomically(Value value, Value memref, Value index) {
  assert(isShared(memref) && "not shared memory");
  auto type = cast<MemRefType>(memref.getType());
  Value descriptor =
      UnrealizedConversionCastOp::create(b, converter.convertType(type), memref)
          .getResult(0);
  Value base = LLVM::ExtractValueOp::create(b, descriptor, 1);
  Value at = toI64({b, index});
  Value element = LLVM::GEPOp::create(b, base.getType(), type.getElementType(),
                                      base, ArrayRef<LLVM::GEPArg>{at});
  addAtomically(value, element);
}

void ThreadEmitter::addAtomically(Value value, Value pointer) {
  // memref.atomic_rmw would order all other accesses around it.
  LLVM::AtomicRMWOp::create(b, LLVM::AtomicBinOp::add, pointer, value,
                            LLVM::AtomicOrdering::monotonic, "block");
}

constexpr llvm::StringLiteral kDeviceScope = "device";

void ThreadEmitter::addReleasing(Value value, Value pointer) {
  // A separate fence, because LLVM's backend drops the order of the addition
  // itself.
  fence(/*acquires=*/false);
  getAndAdd(value, pointer);
}

void ThreadEmitter::prefetchWeights(Value pointer) {
  markConstant(
      prefetch(pointer, NVVM::PrefetchCacheLevelAttr::get(
                            b.getContext(), NVVM::PrefetchCacheLevel::L2)));
}

Operation *ThreadEmitter::prefetch(Value pointer, Attribute level) {
  return NVVM::PrefetchOp::create(
      b, cast_or_null<NVVM::PrefetchCacheLevelAttr>(level),
      NVVM::CacheEvictionPriorityAttr(), pointer, /*predicate=*/Value(),
      level ? UnitAttr() : b.getUnitAttr());
}

void ThreadEmitter::setHighestBitReleasing(Value pointer) {
  fence(/*acquires=*/false);
  combine(/*adds=*/false, i32(std::numeric_limits<int32_t>::min()), pointer);
}

void ThreadEmitter::fenceAcquiring() { fence(/*acquires=*/true); }

void ThreadEmitter::fence(bool acquires) {
  LLVM::FenceOp::create(b,
                        acquires ? LLVM::AtomicOrdering::acquire
                                 : LLVM::AtomicOrdering::release,
                        kDeviceScope);
}

I32 ThreadEmitter::combine(bool adds, Value value, Value pointer) {
  return {b,
          LLVM::AtomicRMWOp::create(
              b, adds ? LLVM::AtomicBinOp::add : LLVM::AtomicBinOp::_or,
              pointer, value, LLVM::AtomicOrdering::monotonic, kDeviceScope)};
}

I32 ThreadEmitter::getAndAdd(Value value, Value pointer) {
  return combine(/*adds=*/true, value, pointer);
}

Operation *ThreadEmitter::poll(Value pointer, function_ref<Flag(I32)> goesOn) {
  auto loop = scf::WhileOp::create(b, TypeRange(), ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&loop.getBefore());
  constexpr unsigned alignment = 4;
  I32 found(b, LLVM::LoadOp::create(
                   b, b.getI32Type(), pointer, alignment, /*isVolatile=*/false,
                   /*isNonTemporal=*/false, /*isInvariant=*/false,
                   /*isInvariantGroup=*/false, LLVM::AtomicOrdering::acquire,
                   kDeviceScope));
  scf::ConditionOp::create(b, goesOn(found), ValueRange());
  b.createBlock(&loop.getAfter());
  scf::YieldOp::create(b);
  return found.getDefiningOp();
}

void ThreadEmitter::awaitAtLeast(Value least, Value pointer, int64_t modulus) {
  poll(pointer, [&](I32 found) {
    if (modulus)
      found = found % modulus;
    return found < I32(b, least);
  });
}

void ThreadEmitter::awaitHighestBit(Value pointer) {
  poll(pointer, [&](I32 found) {
    return found >= 0;
  })->setAttr("moec.signal", b.getUnitAttr());
}

I32 ThreadEmitter::loadConstantI32(Value memref, ValueRange indices) {
  I32 value = loadWord(address(memref, indices));
  markConstant(value.getDefiningOp());
  return value;
}

F32 ThreadEmitter::loadConstantF32(Value memref, ValueRange indices) {
  Type element = getElementType(memref);
  Value value = load(element, address(memref, indices),
                     element.getIntOrFloatBitWidth() / 8);
  markConstant(value.getDefiningOp());
  return {b, castFloat(b, value, b.getF32Type())};
}

void ThreadEmitter::markConstant(Operation *op) {
  op->setAttr("moec.weights", b.getUnitAttr());
}

void ThreadEmitter::copyAsync(Value shared, Value global, Value bytes) {
  constexpr int64_t chunk = 16;
  NVVM::CpAsyncOp::create(b, shared, global, chunk,
                          NVVM::LoadCacheModifierKind::CG, bytes);
}

void ThreadEmitter::copyWordAsync(Value shared, Value global, int64_t bytes) {
  NVVM::CpAsyncOp::create(b, shared, global, static_cast<uint32_t>(bytes),
                          NVVM::LoadCacheModifierKind::CA, /*cpSize=*/Value());
}

void ThreadEmitter::commitCopies() { NVVM::CpAsyncCommitGroupOp::create(b); }

void ThreadEmitter::waitCopies(int64_t groups) {
  NVVM::CpAsyncWaitGroupOp::create(b, groups);
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

SmallVector<I32> ThreadEmitter::pairs(Value vector) {
  int64_t count = cast<VectorType>(vector.getType()).getNumElements() / 2;
  auto type = VectorType::get(count, b.getI32Type());
  return elements<I32>(vector::BitCastOp::create(b, type, vector));
}
I32 ThreadEmitter::permuteBytes(I32 low, I32 high, I32 selector) {
  return {b, NVVM::PermuteOp::create(b, b.getI32Type(), low, high, selector,
                                     NVVM::PermuteMode::DEFAULT)};
}
I32 ThreadEmitter::rotateLeft(I32 x, int64_t bits) {
  return {b, LLVM::FshlOp::create(b, x, x, i32(bits))};
}
I32 ThreadEmitter::rotateRight(I32 x, int64_t bits) {
  return {b, LLVM::FshrOp::create(b, x, x, i32(bits))};
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

/// Extracts the members of a struct.
static SmallVector<Value> unpack(ImplicitLocOpBuilder &b, Value value) {
  SmallVector<Value> members;
  int64_t size = cast<LLVM::LLVMStructType>(value.getType()).getBody().size();
  for (int64_t i = 0; i < size; ++i)
    members.push_back(LLVM::ExtractValueOp::create(b, value, i));
  return members;
}

SmallVector<Value> ThreadEmitter::loadMatrices(Value shared) {
  SmallVector<Type> types(4, b.getI32Type());
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), types);
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  return unpack(b, NVVM::LdMatrixOp::create(b, type, shared, types.size(),
                                            NVVM::MMALayout::row, shape,
                                            NVVM::LdStMatrixEltType::B16));
}

SmallVector<Value> ThreadEmitter::multiply(Type element, ValueRange a,
                                           ValueRange w, ValueRange c) {
  bool isBF16 = element.isBF16();
  auto pairs = VectorType::get(2, b.getF16Type());
  auto convert = [&](ValueRange values) {
    return llvm::map_to_vector(values, [&](Value value) -> Value {
      return isBF16 ? value : LLVM::BitcastOp::create(b, pairs, value);
    });
  };
  SmallVector<Type> types(4, b.getF32Type());
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), types);
  auto kind = isBF16 ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  return unpack(
      b, NVVM::MmaOp::create(b, type, convert(a), convert(w), c,
                             /*shape=*/ArrayRef<int64_t>{16, 8, 16},
                             /*b1Op=*/std::nullopt,
                             /*intOverflow=*/std::nullopt,
                             std::array<NVVM::MMATypes, 2>{kind, kind},
                             std::array<NVVM::MMALayout, 2>{
                                 NVVM::MMALayout::row, NVVM::MMALayout::col}));
}
