//===- KernelEmitter.h - emission of the body of one kernel -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Emission shared by all targets: one `tile.kernel` becomes one func.func, the
// code of one CTA. A target derives from it where its machine differs.

#ifndef MOEC_LIB_KERNELBUILDER_KERNELEMITTER_H
#define MOEC_LIB_KERNELBUILDER_KERNELEMITTER_H

#include "Values.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "moec/Dialect/Tile/Tile.h"

namespace moec {

/// Half-open range of rows or columns.
struct RowRange {
  Index begin, end;
};

/// Attribute of the op that makes a CTA's own memory for an argument of the
/// kernel (`private_rows`): the argument's number.
inline constexpr llvm::StringLiteral kPrivateAttr = "moec.private";

/// Builder in the body of the new function, and state that emission functions
/// share. Index arithmetic is in `index`; memref elements are converted to f32
/// when loaded and rounded to nearest even when stored.
///
/// A "vector of `lanes`" is a value of `vectorType`, with a form defined by the
/// virtual functions below. Here it is an MLIR vector; on a GPU it may be
/// spread over the threads of a warp, with scalars that all threads hold.
class KernelEmitter {
public:
  /// `cta` is the CTA's index, of type index; a derived class may set it later.
  KernelEmitter(mlir::func::FuncOp func, tile::KernelOp kernel,
                mlir::Value cta);
  virtual ~KernelEmitter() = default;

  /// Inserts at the end of the function's body; loops move it into their
  /// bodies.
  mlir::ImplicitLocOpBuilder b;

  //===--- Kernel arguments ---===//

  /// The function's argument for an argument of the kernel; null for null.
  mlir::Value operand(mlir::Value kernelArgument) const;
  /// The CTA's index.
  Index cta() const { return ctaIndex; }
  Index tokens() const { return tokenCount; }
  /// `num_valid_tokens` clamped to `0 .. tokens`; the token count if null.
  Index validTokens(mlir::Value numValidTokens);
  /// Rows `[cta * rows, min((cta + 1) * rows, tokens))`.
  RowRange rowsOfCta(int64_t rows);

  //===--- Scalars ---===//

  Index index(int64_t value);
  I32 i32(int64_t value);
  F32 f32(double value);
  Flag flag(bool value);

  //===--- Vectors ---===//

  virtual mlir::Type vectorType(mlir::Type element, int64_t lanes);
  /// A vector of `lanes` times a scalar.
  virtual mlir::Value splat(mlir::Value scalar, int64_t lanes);
  F32 splat(F32 scalar, int64_t lanes);
  I32 splat(I32 scalar, int64_t lanes);
  F32 splat(double value, int64_t lanes);
  I32 splatI32(int64_t value, int64_t lanes);
  /// A constant of a scalar type or of a vector of it.
  mlir::Value constant(mlir::Type type, mlir::TypedAttr element);
  /// The i32 values `0 .. lanes - 1`.
  virtual I32 laneNumbers(int64_t lanes);
  /// A mask of lanes `0 .. count - 1`, the only kind that loads and stores
  /// accept.
  virtual Flag mask(Index count, int64_t lanes);
  /// Sum, maximum or minimum of the lanes as a scalar, in a fixed order. `kind`
  /// is ADD, MAXNUMF, MAXSI or MINSI.
  virtual mlir::Value reduce(mlir::vector::CombiningKind kind,
                             mlir::Value vector);
  F32 sum(F32 vector);
  F32 maximum(F32 vector);
  I32 maximum(I32 vector);
  I32 minimum(I32 vector);

  /// Element `i` of a vector of `T`, and all elements.
  template <typename T>
  T element(mlir::Value vector, int64_t i) {
    mlir::Value value = mlir::vector::ExtractOp::create(b, vector, i);
    if constexpr (std::is_same_v<T, mlir::Value>)
      return value;
    else
      return {b, value};
  }
  template <typename T>
  llvm::SmallVector<T> elements(mlir::Value vector) {
    llvm::SmallVector<T> all;
    auto type = mlir::cast<mlir::VectorType>(vector.getType());
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      all.push_back(element<T>(vector, i));
    return all;
  }
  /// The MLIR vector of some values of one type.
  template <typename T>
  T makeVector(llvm::ArrayRef<T> elements) {
    return moec::makeVector(b, elements);
  }

  //===--- Memory ---===//

  /// A float element as f32.
  F32 loadF32(mlir::Value memref, mlir::ValueRange indices);
  /// An integer element of at most 32 bits, as i32 and sign-extended to index.
  /// Bytes have no sign.
  I32 loadI32(mlir::Value memref, mlir::ValueRange indices);
  Index loadIndex(mlir::Value memref, mlir::ValueRange indices);
  /// Whether a byte is not 0.
  Flag loadFlag(mlir::Value memref, mlir::ValueRange indices);
  /// Rounds an f32 to the memref's element type.
  virtual void storeF32(mlir::Value value, mlir::Value memref,
                        mlir::ValueRange indices);
  /// Truncates an i32 to the memref's element type.
  virtual void storeI32(mlir::Value value, mlir::Value memref,
                        mlir::ValueRange indices);
  /// `lanes` adjacent elements of the last dimension as f32. Masked-off lanes
  /// are not read and give 0.
  virtual F32 loadVector(mlir::Value memref, mlir::ValueRange indices,
                         int64_t lanes, Flag mask = {});
  /// `lanes` adjacent elements in the memref's own type.
  mlir::Value loadElements(mlir::Value memref, mlir::ValueRange indices,
                           int64_t lanes);
  /// Rounds a vector of f32 to the memref's element type and stores it.
  /// Masked-off lanes are not written.
  virtual void storeVector(mlir::Value vector, mlir::Value memref,
                           mlir::ValueRange indices, Flag mask = {});
  /// `lanes` adjacent elements of a memref of i32.
  virtual I32 loadI32Vector(mlir::Value memref, Index index, int64_t lanes);
  virtual void storeI32Vector(I32 vector, mlir::Value memref, Index index);
  /// Writes zeros to a block of a memref of rank 2. `multiple` is a known
  /// divisor of the number of columns.
  void storeZeros(mlir::Value memref, RowRange rows, RowRange columns,
                  int64_t lanes, int64_t multiple);
  /// Memory private to this CTA, aligned to a cache line. Call it outside of
  /// loops.
  virtual mlir::Value scratch(llvm::ArrayRef<int64_t> shape,
                              mlir::Type elementType);

  //===--- Structure ---===//

  /// `for (iv = lower; iv < upper; iv += step) body(iv)`.
  void forLoop(mlir::Value lower, mlir::Value upper, int64_t step,
               llvm::function_ref<void(mlir::Value)> body);
  /// A loop with loop-carried values; returns the last ones.
  using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forLoop(mlir::Value lower, mlir::Value upper,
                                         int64_t step, mlir::ValueRange init,
                                         LoopBody body);
  llvm::SmallVector<mlir::Value> forLoop(mlir::Value lower, mlir::Value upper,
                                         mlir::Value step,
                                         mlir::ValueRange init, LoopBody body);
  void ifThen(mlir::Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = nullptr);
  /// `body(i)` for each `i` from `lower` below `upper`.
  template <typename Counter, typename Body>
  void loop(Counter lower, Counter upper, int64_t step, Body body) {
    forLoop(lower, upper, step, [&](mlir::Value i) { body(Counter(b, i)); });
  }
  template <typename Counter, typename Body>
  void loop(Counter lower, Counter upper, Counter step, Body body) {
    forLoop(lower, upper, step, {}, [&](mlir::Value i, mlir::ValueRange) {
      body(Counter(b, i));
      return llvm::SmallVector<mlir::Value>();
    });
  }
  /// A loop that carries a state (Values.h): `body(i, state)` returns the next
  /// one. Returns the last one. `step` is a number or a Counter.
  template <typename Counter, typename Step, typename State, typename Body>
  State loop(Counter lower, Counter upper, Step step, State state, Body body) {
    llvm::SmallVector<mlir::Value> init;
    carried::pack(state, init);
    llvm::SmallVector<mlir::Value> last = forLoop(
        lower, upper, step, init, [&](mlir::Value i, mlir::ValueRange values) {
          State inside = state;
          carried::unpack(inside, b, values);
          State next = body(Counter(b, i), inside);
          llvm::SmallVector<mlir::Value> result;
          carried::pack(next, result);
          return result;
        });
    mlir::ValueRange values(last);
    carried::unpack(state, b, values);
    return state;
  }
  /// `while (condition(state)) state = body(state);`. Returns the last state.
  /// `condition` may take a reference and change the state.
  template <typename State, typename Condition, typename Body>
  State whileLoop(State state, Condition condition, Body body) {
    llvm::SmallVector<mlir::Value> init;
    carried::pack(state, init);
    llvm::SmallVector<mlir::Type> types(mlir::ValueRange(init).getTypes());
    llvm::SmallVector<mlir::Location> locations(types.size(), b.getLoc());
    auto loop = mlir::scf::WhileOp::create(b, types, init);
    mlir::OpBuilder::InsertionGuard guard(b);
    auto enter = [&](mlir::Region &region) {
      mlir::Block *block = b.createBlock(&region, {}, types, locations);
      mlir::ValueRange values = block->getArguments();
      carried::unpack(state, b, values);
    };
    enter(loop.getBefore());
    Flag goesOn = condition(state);
    llvm::SmallVector<mlir::Value> passed, next;
    carried::pack(state, passed);
    mlir::scf::ConditionOp::create(b, goesOn, passed);
    enter(loop.getAfter());
    state = body(state);
    carried::pack(state, next);
    mlir::scf::YieldOp::create(b, next);
    mlir::ValueRange results = loop.getResults();
    carried::unpack(state, b, results);
    return state;
  }
  /// `condition ? then() : otherwise()`, states (Values.h) of one shape.
  template <typename Then, typename Otherwise>
  auto choose(Flag condition, Then then, Otherwise otherwise) {
    using State = decltype(then());
    // The types of the results are known once a branch has been emitted.
    auto untyped = mlir::scf::IfOp::create(b, mlir::TypeRange(), condition,
                                           /*withElseRegion=*/true);
    llvm::SmallVector<mlir::Value> values[2];
    State state = emitBranch(untyped.thenBlock(), then, values[0]);
    emitBranch(untyped.elseBlock(), otherwise, values[1]);
    auto branch = mlir::scf::IfOp::create(
        b, mlir::TypeRange(mlir::ValueRange(values[0])), condition,
        /*withElseRegion=*/true);
    branch.getThenRegion().takeBody(untyped.getThenRegion());
    branch.getElseRegion().takeBody(untyped.getElseRegion());
    untyped.erase();
    for (auto [region, yielded] : llvm::zip(branch->getRegions(), values))
      mlir::cast<mlir::scf::YieldOp>(region.front().getTerminator())
          .getResultsMutable()
          .assign(yielded);
    mlir::ValueRange results = branch.getResults();
    carried::unpack(state, b, results);
    return state;
  }
  /// Iterates over columns `begin .. end - 1` in steps of `lanes`:
  /// `body(column, mask)`, with a null mask except for a partial last step.
  /// `multiple` is a known divisor of every range's length: steps that cannot
  /// occur are not emitted.
  void forColumns(Index begin, Index end, int64_t lanes, int64_t multiple,
                  llvm::function_ref<void(Index, Flag)> body);

  /// Re-emits a one-block scalar region on `args` and returns the yielded
  /// value. With vector arguments of equal lane counts, every op becomes its
  /// vector form; values from outside the region must be constants. An empty
  /// region yields `args[0]`. Fails with a diagnostic on an op that has no
  /// vector form.
  mlir::FailureOr<mlir::Value> inlineRegion(mlir::Region &region,
                                            mlir::ValueRange args);

protected:
  /// Known alignment of a vector that is contiguous in memory.
  virtual llvm::MaybeAlign alignmentOf(mlir::VectorType /*type*/) const {
    return {};
  }
  mlir::func::FuncOp getFunction() const { return func; }
  Index ctaIndex;

private:
  /// Emits `body` to a block of an scf.if; `values` gets the values of the
  /// state that it returns.
  template <typename Body>
  auto emitBranch(mlir::Block *block, Body body,
                  llvm::SmallVectorImpl<mlir::Value> &values) {
    mlir::OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(block->getTerminator());
    auto state = body();
    carried::pack(state, values);
    return state;
  }
  /// The number of enabled lanes of a mask made by `mask`.
  Index getCount(Flag mask) const;
  /// f32 elements on the stack, for vectors that are processed per element.
  mlir::Value getTailScratch();

  mlir::IRMapping mapping;
  llvm::DenseMap<mlir::Value, Index> maskCounts;
  mlir::Value tailScratch;
  Index tokenCount;
  mlir::func::FuncOp func;
};

/// The type of a memref's elements.
mlir::Type getElementType(mlir::Value memref);
/// Columns of a memref of rank 2.
int64_t getColumns(mlir::Value memref);
/// Converts a float or a vector of floats to another element type, rounding to
/// nearest even.
mlir::Value castFloat(mlir::ImplicitLocOpBuilder &b, mlir::Value value,
                      mlir::Type element);

/// The least power of two not below a scale, which is a normal f32; infinity
/// and NaN are unchanged.
F32 roundUpToPowerOfTwo(mlir::ImplicitLocOpBuilder &b, mlir::Value scale);

/// Expands exp, tanh, erf, log and log1p on f32 scalars and vectors to
/// arithmetic, so that no calls of a run-time library remain. Fails on other
/// transcendental ops. With `onGpu`, ops with fastmath<afn> use the GPU's
/// approximations for exp, tanh, erf and division.
mlir::LogicalResult expandMath(mlir::func::FuncOp func, bool onGpu = false);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_KERNELEMITTER_H
