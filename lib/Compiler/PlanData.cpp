//===- PlanData.cpp - translates plan.program to runtime data -------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/PlanData.h"

#include "mlir/IR/SymbolTable.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moec/Schedules/Exchange.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>
#include <optional>

using namespace mlir;
using namespace moec;

static std::optional<moert::DType> convertType(Type type) {
  return llvm::TypeSwitch<Type, std::optional<moert::DType>>(type)
      .Case([](Float64Type) { return moert::DType::F64; })
      .Case([](Float32Type) { return moert::DType::F32; })
      .Case([](BFloat16Type) { return moert::DType::BF16; })
      .Case([](Float16Type) { return moert::DType::F16; })
      .Case([](Float8E4M3FNType) { return moert::DType::F8E4M3; })
      .Case([](Float8E5M2Type) { return moert::DType::F8E5M2; })
      .Case([](Float8E8M0FNUType) { return moert::DType::F8E8M0; })
      .Case([](IntegerType integer) -> std::optional<moert::DType> {
        bool isUnsigned = integer.isUnsigned();
        switch (integer.getWidth()) {
        case 64:
          return isUnsigned ? moert::DType::U64 : moert::DType::I64;
        case 32:
          return isUnsigned ? moert::DType::U32 : moert::DType::I32;
        case 16:
          return isUnsigned ? moert::DType::U16 : moert::DType::I16;
        case 8:
          return isUnsigned ? moert::DType::U8 : moert::DType::I8;
        case 1:
          return moert::DType::Bool;
        default:
          return std::nullopt;
        }
      })
      .Default([](Type) { return std::nullopt; });
}

static moert::TensorRole convertRole(plan::Role role) {
  switch (role) {
  case plan::Role::Input:
    return moert::TensorRole::Input;
  case plan::Role::Weight:
    return moert::TensorRole::Weight;
  case plan::Role::Output:
    return moert::TensorRole::Output;
  case plan::Role::Prepared:
    return moert::TensorRole::Prepared;
  }
  llvm_unreachable("all roles are above");
}

static moert::TensorMapDecl convertMap(tile::TensorMapAttr map) {
  moert::TensorMapDecl decl;
  decl.argument = map.getArgument();
  for (int64_t size : map.getSizes())
    decl.sizes.push_back(
        ShapedType::isDynamic(size) ? moert::TensorMapDecl::kOwnRows : size);
  decl.along.assign(map.getAlong().begin(), map.getAlong().end());
  decl.steps.assign(map.getSteps().begin(), map.getSteps().end());
  decl.box.assign(map.getBox().begin(), map.getBox().end());
  decl.swizzleBytes = map.getSwizzle();
  return decl;
}

/// Grows a count to include an index. The plan's verifier refuses counts that
/// are too large.
static void includeIndex(int64_t &count, int64_t index) {
  constexpr int64_t largest = std::numeric_limits<int64_t>::max();
  count = std::max(count, index < largest ? index + 1 : largest);
}

/// The fields of an attribute as they are printed, without its name.
static std::string showFields(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  StringRef fields = StringRef(text).split('<').second;
  return fields.drop_back(fields.ends_with(">")).str();
}

namespace {

class PlanTranslator {
public:
  PlanTranslator(plan::ProgramOp program, StringRef target)
      : program(program), module(program->getParentOfType<ModuleOp>()) {
    plan.target = target.str();
    plan.maxTokens = program.getMaxTokens();
    if (plan::MeshAttr mesh = program.getMeshAttr())
      plan.mesh = {mesh.getDp(), mesh.getTp(), mesh.getSp()};
    if (DictionaryAttr orders = program.getSumOrdersAttr())
      for (NamedAttribute named : orders)
        plan.sumOrders.push_back(
            {named.getName().str(), showFields(named.getValue())});
  }

  FailureOr<moert::Plan> run() {
    for (Operation &op : program.getBody().front())
      if (failed(translate(op)))
        return failure();
    if (moert::Status status = moert::verifyPlan(plan); !status)
      return program.emitOpError("is not a plan that can run: ")
             << status.message();
    return std::move(plan);
  }

private:
  LogicalResult translate(Operation &op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case([&](plan::TensorOp tensor) -> LogicalResult {
          if (failed(addTensor(tensor.getTensor(), tensor.getName(),
                               tensor.getRowsAttr(),
                               convertRole(tensor.getRole()), -1)))
            return failure();
          if (tensor.getInPlace())
            plan.tensors.back().inPlaceOf =
                plan.findTensor(tensor.getInPlace()->str());
          return success();
        })
        .Case([&](plan::BufferOp buffer) -> LogicalResult {
          if (!buffer.getSlot())
            return buffer.emitOpError("has no slot; run plan-assign-slots");
          int64_t slot = *buffer.getSlot();
          includeIndex(plan.numSlots, slot);
          return addTensor(buffer.getBuffer(), buffer.getName(),
                           buffer.getRowsAttr(), moert::TensorRole::Workspace,
                           slot);
        })
        .Case([&](plan::PrepareOp prepare) {
          // Weights do not depend on the token count of a call.
          return addSteps(prepare.getBody().front(), moert::Expr(0),
                          plan.prepare);
        })
        .Case([&](plan::VariantOp variant) {
          moert::Variant &steps = plan.variants.emplace_back();
          steps.minTokens = variant.getMinTokens();
          steps.maxTokens = variant.getMaxTokens();
          return addSteps(variant.getBody().front(), moert::Expr::tokens(),
                          steps.steps);
        })
        .Default([](Operation *other) {
          return other->emitOpError("is not allowed in a plan.program");
        });
  }

  LogicalResult addTensor(Value value, StringRef name, plan::ExprAttr rows,
                          moert::TensorRole role, int64_t slot) {
    auto type = cast<MemRefType>(value.getType());
    Operation *op = value.getDefiningOp();
    moert::TensorDecl tensor;
    tensor.name = name.str();
    tensor.role = role;
    tensor.slot = slot;
    std::optional<moert::DType> dtype = convertType(type.getElementType());
    if (!dtype)
      return op->emitOpError("has elements of type ")
             << type.getElementType()
             << ", which the runtime does not support; give a float or integer "
                "type of 8 to 64 bits";
    tensor.dtype = *dtype;
    // GPU kernels copy floats, and quantized values of 4 or 8 bits, in chunks
    // of 16 bytes.
    if (plan.target != "cpu" && (isa<FloatType>(type.getElementType()) ||
                                 type.getElementTypeBitWidth() == 8))
      tensor.alignment = 16;
    tensor.strided = plan::isStridedMemRef(type);
    for (int64_t size : type.getShape()) {
      if (!ShapedType::isDynamic(size)) {
        tensor.shape.emplace_back(size);
        continue;
      }
      if (!rows)
        return op->emitOpError("has a dynamic dimension but no 'rows'; add "
                               "rows <\"tokens\"> or another expression");
      tensor.shape.push_back(rows.getExpr());
    }
    tensors[value] = plan.tensors.size();
    plan.tensors.push_back(std::move(tensor));
    return success();
  }

  LogicalResult addSteps(Block &block, const moert::Expr &tokens,
                         std::vector<moert::Step> &steps) {
    for (Operation &op : block) {
      moert::Step step;
      if (auto launch = dyn_cast<plan::LaunchOp>(op)) {
        FailureOr<int64_t> kernel =
            getKernel(launch, launch.getKernelAttr(), launch.getTokensAttr());
        if (failed(kernel) || failed(checkLoad(launch)) ||
            failed(checkColumns(launch)))
          return failure();
        std::vector<moert::Argument> args;
        for (OperandRange values : {launch.getIns(), launch.getOuts()})
          for (Value value : values)
            args.push_back(moert::Argument::ofTensor(tensors.lookup(value)));
        if (launch.getColumns())
          args.push_back(
              moert::Argument::ofScalar(launch.getColumns()->front()));
        args.push_back(moert::Argument::ofScalar(getTokens(launch, tokens)));
        step =
            moert::Step::launch(*kernel, std::move(args), launch.getStream());
        step.dependent = launch.getDependent();
      } else if (auto collective = dyn_cast<plan::CollectiveOp>(op)) {
        FailureOr<moert::Step> converted = convertCollective(collective);
        if (failed(converted))
          return failure();
        step = std::move(*converted);
      } else if (auto record = dyn_cast<plan::RecordOp>(op)) {
        step = moert::Step::record(record.getEvent(), record.getStream());
        includeIndex(plan.numEvents, step.event);
      } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
        step = moert::Step::wait(wait.getEvent(), wait.getStream());
        includeIndex(plan.numEvents, step.event);
      } else {
        return op.emitOpError("is not a step; steps are plan.launch, "
                              "plan.collective, plan.record and plan.wait");
      }
      includeIndex(plan.numStreams, step.stream);
      steps.push_back(std::move(step));
    }
    return success();
  }

  static moert::Expr getTokens(plan::LaunchOp launch,
                               const moert::Expr &tokens) {
    plan::ExprAttr own = launch.getTokensAttr();
    return own ? own.getExpr() : tokens;
  }

  FailureOr<moert::Step> convertCollective(plan::CollectiveOp op) {
    std::vector<moert::Argument> args;
    for (auto [in, out] : llvm::zip(op.getIns(), op.getOuts()))
      for (Value value : {in, out})
        args.push_back(moert::Argument::ofTensor(tensors.lookup(value)));
    // Both enums have the same values (PlanDataTest).
    moert::Step step = moert::Step::collective(
        static_cast<moert::CollectiveKind>(op.getKind()),
        static_cast<moert::MeshAxis>(op.getAxis()), std::move(args),
        op.getStream());
    for (auto [name, number] : {std::pair(kExchangeKernelAttr, &step.kernel),
                                std::pair(kRouteKernelAttr, &step.routeKernel),
                                std::pair(kPackKernelAttr, &step.packKernel)}) {
      auto symbol = op->getAttrOfType<FlatSymbolRefAttr>(name);
      if (!symbol)
        continue;
      std::optional<moert::Expr> rows = getExchangedRows(op);
      if (!rows)
        return op.emitOpError("has '")
               << name
               << "', but its tensors compute their rows from different sizes";
      FailureOr<int64_t> kernel = getKernel(
          op, symbol, plan::ExprAttr::get(op.getContext(), rows->str()));
      if (failed(kernel))
        return failure();
      *number = *kernel;
    }
    if (step.kernel < 0 && !step.isPacked())
      return step;
    if (step.isPacked() &&
        step.collectiveKind == moert::CollectiveKind::AllGather)
      step.routedPairs.assign(op.getRouted()->begin(), op.getRouted()->end());
    step.toResults = op.getToResults();
    SmallVector<Value> read = op.getRead();
    for (Value value : ArrayRef(read).drop_front(op.getIns().size()))
      step.args.push_back(moert::Argument::ofTensor(tensors.lookup(value)));
    step.numKernelArgs = int64_t(read.size() - op.getIns().size());
    if (op.getColumns()) {
      step.firstColumn = op.getColumns()->front();
      step.numColumns = op.getColumns()->back();
    }
    // A step's index is the index of its op in the variant.
    if (plan::LaunchOp replaced = op.getReplacedLaunch())
      step.replacedStep = std::distance(replaced->getBlock()->begin(),
                                        Block::iterator(replaced));
    return step;
  }

  /// Checks that no launch exceeds the token count of its kernel's `load`, on
  /// which the kernel's code may rely.
  LogicalResult checkLoad(plan::LaunchOp launch) {
    auto kernel = dyn_cast<tile::KernelOp>(symbols.lookupNearestSymbolFrom(
        module, launch.getKernelAttr().getAttr()));
    auto variant = dyn_cast<plan::VariantOp>(launch->getParentOp());
    tile::LoadAttr load = kernel ? kernel.getLoadAttr() : nullptr;
    if (!load || !variant)
      return success();
    moert::Result<int64_t> most =
        getTokens(launch, moert::Expr::tokens())
            .maxOver(variant.getMinTokens(), variant.getMaxTokens());
    if (!most)
      return launch.emitOpError("has 'tokens' without a largest value: ")
             << most.status().message();
    if (*most <= static_cast<int64_t>(load.getMaxTokens()))
      return success();
    return launch.emitOpError("launches @")
           << launch.getKernel() << " for up to " << *most
           << " tokens, but the kernel's 'load' has at most "
           << load.getMaxTokens()
           << "; launch another kernel, or increase the 'load' of this one";
  }

  /// Checks that a launch of some columns has as many as its kernel computes.
  LogicalResult checkColumns(plan::LaunchOp launch) {
    auto kernel = dyn_cast<tile::KernelOp>(symbols.lookupNearestSymbolFrom(
        module, launch.getKernelAttr().getAttr()));
    if (!kernel || !launch.getColumns())
      return success();
    for (auto product : kernel.getBody().getOps<tile::GemmOp>())
      if (product.getNumColumns() != launch.getColumns()->back())
        return launch.emitOpError("has ")
               << launch.getColumns()->back() << " columns, but @"
               << launch.getKernel() << " computes "
               << product.getNumColumns().value_or(0) << "; give equal numbers";
    return success();
  }

  /// The kernel of a step and the token count passed to it (null: that of the
  /// run).
  FailureOr<int64_t> getKernel(Operation *step, FlatSymbolRefAttr name,
                               plan::ExprAttr tokens) {
    auto [it, isNew] =
        kernels.try_emplace(name.getValue(), plan.kernels.size());
    if (!isNew) {
      if (kernelTokens[it->second] == tokens)
        return it->second;
      return step->emitOpError("launches ")
             << name
             << ", which another launch uses with other 'tokens'; give each "
                "launch its own kernel";
    }
    kernelTokens.push_back(tokens);
    moert::KernelDecl decl;
    decl.name = name.getValue().str();
    decl.grid = 1;
    Operation *callee = symbols.lookupNearestSymbolFrom(module, name.getAttr());
    if (auto kernel = dyn_cast_or_null<tile::KernelOp>(callee)) {
      if (plan::ExprAttr grid = kernel.getGridAttr()) {
        decl.grid = grid.getExpr();
        if (tokens)
          decl.grid = decl.grid.withTokens(tokens.getExpr());
        decl.block = kernel.getBlock().value_or(0);
        decl.shared = kernel.getShared().value_or(0);
        decl.resident = kernel.getResident();
        // Not needed for plans on the host, as in the interpreter.
        if (ArrayAttr maps = kernel.getTensorMapsAttr();
            maps && plan.target != "cpu")
          for (auto map : maps.getAsRange<tile::TensorMapAttr>())
            decl.tensorMaps.push_back(convertMap(map));
      } else if (llvm::any_of(kernel.getBody().front(), [](Operation &op) {
                   return op.hasAttr("config");
                 })) {
        return kernel.emitOpError("has phases with a 'config' but no 'grid'; "
                                  "run tile-assign-config");
      }
    } else if (!isa_and_nonnull<plan::KernelOp>(callee)) {
      return step->emitOpError("launches ")
             << name
             << ", which is not a plan.kernel or tile.kernel of the module; "
                "translate the plan before kernels are converted to functions";
    }
    plan.kernels.push_back(std::move(decl));
    return it->second;
  }

  plan::ProgramOp program;
  ModuleOp module;
  SymbolTableCollection symbols;
  moert::Plan plan;
  DenseMap<Value, int64_t> tensors;
  llvm::StringMap<int64_t> kernels;
  /// Token count of the launches of each kernel of the plan.
  SmallVector<plan::ExprAttr> kernelTokens;
};

} // namespace

FailureOr<moert::Plan> moec::translatePlan(ModuleOp module, StringRef target) {
  auto programs = llvm::to_vector(module.getOps<plan::ProgramOp>());
  if (programs.empty())
    return module.emitError(
        "has no plan.program; lower a layer to level plan first");
  if (programs.size() > 1)
    return programs[1].emitOpError(
        "is the second program of the module; give each layer its own module");
  return PlanTranslator(programs.front(), target).run();
}
