//===- Plan.h - a compiled layer as data ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PLAN_H
#define MOERT_PLAN_H

#include "moert/DType.h"
#include "moert/Expr.h"
#include "moert/Mesh.h"
#include "moert/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moert {

enum class TensorRole : uint8_t {
  /// Bound by the caller before a run; read.
  Input,
  /// Bound by the caller once; read. Has a constant shape.
  Weight,
  /// Bound by the caller before a run; written.
  Output,
  /// In slot `slot` of the workspace, for the duration of one run.
  Workspace,
  /// Made from weights by the prepare steps. Has a constant shape.
  Prepared,
};

const char *tensorRoleName(TensorRole role);

struct TensorDecl {
  std::string name;
  DType dtype = DType::F32;
  /// Row-major. Only dimension 0 may depend on the tokens.
  std::vector<Expr> shape;
  TensorRole role = TensorRole::Workspace;
  /// The workspace slot; -1 for every other role.
  int64_t slot = -1;
  /// Alignment of the address in bytes, a power of two up to 256. The alignment
  /// of the element type holds in any case.
  int64_t alignment = 1;
  /// A weight that may be bound with gaps between its rows. After its address a
  /// kernel gets its strides in elements, except the last one, which is 1.
  bool strided = false;
  /// The weight whose memory a prepared tensor is made in, overwritten by the
  /// prepare steps; -1 for separate memory.
  int64_t inPlaceOf = -1;

  /// Number of 64-bit slots that a launch passes for the tensor.
  size_t numSlots() const { return strided ? shape.size() : 1; }
};

/// A tensor map of a kernel: a recipe over one of its arguments.
struct TensorMapDecl {
  /// In `sizes`: the number of rows of the tensor at the run's token count.
  static constexpr int64_t kOwnRows = -1;

  /// Index into the arguments of a launch.
  int64_t argument = -1;
  /// The view, innermost dimension last: dimension i has sizes[i] indices with
  /// a stride of steps[i] times that of the tensor's dimension along[i].
  std::vector<int64_t> sizes;
  std::vector<int64_t> along;
  std::vector<int64_t> steps;
  /// Elements that one copy moves, per dimension.
  std::vector<int64_t> box;
  /// 0, 32, 64 or 128.
  int64_t swizzleBytes = 0;
};

struct KernelDecl {
  /// The symbol in the module.
  std::string name;
  /// Number of CTAs; a launch of 0 CTAs is skipped.
  Expr grid;
  /// Threads per CTA; 0 on targets without threads, such as the host.
  int64_t block = 0;
  /// Bytes of dynamic shared memory.
  int64_t shared = 0;
  /// Passed to the kernel after the slots of its arguments.
  std::vector<TensorMapDecl> tensorMaps = {};
  /// CTAs wait for each other, so all CTAs of a launch must be resident at
  /// once.
  bool resident = false;
};

/// Upper limits over all targets: threads of a CTA, bytes of shared memory of a
/// CTA, bytes of a kernel's parameters.
inline constexpr int64_t kMaxBlock = 1024;
inline constexpr int64_t kMaxShared = 227 * 1024;
inline constexpr int64_t kMaxParameterBytes = 4096;

/// An argument of a launch: a tensor's address, with strides if it is strided,
/// or a scalar.
struct Argument {
  enum class Kind : uint8_t { Tensor, Scalar };

  static Argument ofTensor(int64_t index) {
    Argument arg;
    arg.kind = Kind::Tensor;
    arg.tensor = index;
    return arg;
  }
  static Argument ofScalar(Expr value) {
    Argument arg;
    arg.kind = Kind::Scalar;
    arg.scalar = std::move(value);
    return arg;
  }
  static Argument ofTokens() { return ofScalar(Expr::tokens()); }

  Kind kind = Kind::Scalar;
  /// Index into Plan::tensors.
  int64_t tensor = -1;
  /// An int64 value, usually Expr::tokens().
  Expr scalar;
};

struct Step {
  enum class Kind : uint8_t { Launch, RecordEvent, WaitEvent, Collective };

  static Step launch(int64_t kernel, std::vector<Argument> args,
                     int64_t stream = 0);
  /// `args` are pairs of an input and an output.
  static Step collective(CollectiveKind kind, MeshAxis axis,
                         std::vector<Argument> args, int64_t stream = 0);
  static Step record(int64_t event, int64_t stream);
  static Step wait(int64_t event, int64_t stream);

  Kind kind = Kind::Launch;
  int64_t stream = 0;
  /// Index into Plan::kernels. For a collective, the kernel that does it
  /// through the memory of other ranks, or -1. Arguments of that kernel: all
  /// inputs, all outputs, the kernel-only arguments, the heaps of the axis'
  /// ranks (PeerHeap.h) beginning with this rank's own, the first column if the
  /// step is a chunk, and the rows of one rank.
  int64_t kernel = -1;
  std::vector<Argument> args;
  /// Collective: number of `args`, after the pairs, that only kernels get;
  /// kernels read from them which ranks need a row.
  int64_t numKernelArgs = 0;

  /// Collective: number of pairs of an input and an output.
  size_t numPairs() const {
    return (args.size() - static_cast<size_t>(numKernelArgs)) / 2;
  }
  /// Collective: the smaller tensor of a pair, with one rank's share: the
  /// input, or the output of a reduce-scatter.
  int64_t ownPart(size_t pair) const {
    bool scatters = collectiveKind == CollectiveKind::ReduceScatter;
    return args[2 * pair + (scatters ? 1 : 0)].tensor;
  }
  /// Launch: may begin before the previous step of its stream, a launch of the
  /// same run, has ended (LaunchDims::dependent).
  bool dependent = false;
  /// RecordEvent, WaitEvent: 0 .. numEvents-1.
  int64_t event = -1;
  /// Collective: its kind, applied to each pair of `args` over the ranks of
  /// `axis`.
  CollectiveKind collectiveKind = CollectiveKind::AllGather;
  MeshAxis axis = MeshAxis::Data;
  /// Collective, an all-gather with a kernel: if the communicator runs kernels,
  /// its outputs are in Communicator::results, where other ranks write them,
  /// possibly before the step begins.
  bool toResults = false;
  /// Collective: the step of its variant, a launch, whose results the kernel
  /// computes itself from the launch's inputs, which are kernel-only arguments.
  /// The results are the collective's one input (for an all-gather, some of its
  /// inputs). The launch is skipped if the communicator runs the kernel. -1 for
  /// none; also -1 for each chunk but the last, although kernels of all chunks
  /// compute the results.
  int64_t replacedStep = -1;
  /// Collective: for a chunk, the columns of each row that its kernel moves;
  /// `numColumns` of 0 means all. The chunks of one collective are consecutive
  /// among the collectives of their variant. If the communicator runs no
  /// kernels the last chunk moves whole rows and the others do nothing.
  int64_t firstColumn = 0, numColumns = 0;
  /// Collective: the kernels of an all-to-all, which sends a row to its
  /// destination ranks only; -1 for none. `routeKernel` is tile.route_rows;
  /// `packKernel` is tile.pack_rows for an all-gather and tile.sum_packed_rows
  /// for a reduce-scatter. Such an all-gather outputs all of its tensors with a
  /// row per token in another order, including the ids of the rows
  /// (PackedRows.h).
  int64_t routeKernel = -1, packKernel = -1;
  /// All-gather as an all-to-all: the pairs, ascending, of which no rank reads
  /// a row unless it is a destination rank of that row.
  std::vector<int64_t> routedPairs = {};
  bool isPacked() const { return packKernel >= 0; }
  /// All-to-all: the ids of the rank's own rows, and the table of destination
  /// ranks.
  int64_t packedIds() const { return args[2 * numPairs()].tensor; }
  int64_t packedDestinations() const {
    bool gathers = collectiveKind == CollectiveKind::AllGather;
    return args[2 * numPairs() + (gathers ? 1 : 2)].tensor;
  }
};

/// The steps for minTokens <= tokens <= maxTokens. A step runs after the
/// earlier steps of its stream and, after a wait, after everything that
/// precedes the latest record of that event in the list. Stream 0 is the
/// caller's: other streams start with a wait and are joined to it before the
/// end, so that a variant can be captured.
struct Variant {
  int64_t minTokens = 0;
  int64_t maxTokens = 0;
  std::vector<Step> steps;
};

/// The order in which all kernels of a gemm add along K.
struct SumOrder {
  /// The name of the gemm's result, such as "experts_hidden".
  std::string gemm;
  /// The fields of the order, such as "unit = tensor_core, k = 16".
  std::string order;
};

struct Plan {
  /// The target of the kernels: "cpu", "sm_90a", ...
  std::string target;
  /// A multiple of `mesh.tokenRanks()`: the total over all ranks with tokens of
  /// their own, each of which has the same number.
  int64_t maxTokens = 0;
  Mesh mesh;
  int64_t numSlots = 0;
  int64_t numStreams = 1;
  int64_t numEvents = 0;
  std::vector<TensorDecl> tensors;
  std::vector<KernelDecl> kernels;
  /// Ascending, without gaps or overlap from 0 to maxTokens.
  std::vector<Variant> variants;
  /// Launches on stream 0 that make the prepared tensors from the weights, run
  /// once; empty if the kernels read the weights unchanged.
  std::vector<Step> prepare;
  /// The certificate of batch invariance: with it the bits of a row depend on
  /// this row and the weights alone. Empty if kernels of different token counts
  /// add in different orders, and for several ranks.
  std::vector<SumOrder> sumOrders;

  /// Index of the tensor called `name`, or -1.
  int64_t findTensor(const std::string &name) const;
  /// Index of the variant that serves `tokens`, or -1.
  int64_t findVariant(int64_t tokens) const;
};

/// Whether a step is a chunk of a collective and later chunks follow.
bool isFollowed(const Step &step, const Plan &plan);

/// Whether the kernel of a collective of the variant computes the input of a
/// pair itself (Step::replacedStep).
bool isMadeByKernel(const Step &step, const Variant &variant, size_t pair);

/// Maximum number of other ranks that a row of an all-to-all goes to.
int64_t countDestinationsOfRow(const Plan &plan, const Step &step);

/// Checks everything about a plan that the executor relies on. A failure names
/// the index and field, such as "variants[1].steps[3].args[0].tensor", the
/// value found and the accepted ones.
Status verifyPlan(const Plan &plan);

} // namespace moert

#endif // MOERT_PLAN_H
