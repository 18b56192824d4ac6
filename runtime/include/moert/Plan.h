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
  /// Bound by the caller before a run, read.
  Input,
  /// Bound by the caller once, read; its shape is constant.
  Weight,
  /// Bound by the caller before a run, written.
  Output,
  /// Lives in the workspace, in slot `slot`, for the length of one run.
  Workspace,
  /// Made from weights by the prepare steps; its shape is constant.
  Prepared,
};

const char *tensorRoleName(TensorRole role);

struct TensorDecl {
  std::string name;
  DType dtype = DType::F32;
  /// Row-major. Only dimension 0 may depend on the tokens.
  std::vector<Expr> shape;
  TensorRole role = TensorRole::Workspace;
  /// The workspace slot, or -1 for every other role.
  int64_t slot = -1;
  /// Bytes the address is a multiple of, a power of two up to 256. The
  /// element's own alignment holds in any case.
  int64_t alignment = 1;
  /// A weight that may be bound with gaps between its rows: a kernel gets its
  /// strides, in elements and without the last, which is 1, after its address.
  bool strided = false;
  /// The weight whose memory a prepared tensor takes, which the prepare steps
  /// overwrite; -1 for memory of its own.
  int64_t inPlaceOf = -1;

  /// 64-bit slots that a launch passes for the tensor.
  size_t numSlots() const { return strided ? shape.size() : 1; }
};

/// A tensor map of a kernel, as a recipe over one of its arguments.
struct TensorMapDecl {
  /// In `sizes`: the rows that the tensor has at the tokens of the run.
  static constexpr int64_t kOwnRows = -1;

  /// Index into the arguments of a launch.
  int64_t argument = -1;
  /// The view, innermost dimension last: dimension i has sizes[i] indices and
  /// goes steps[i] times the stride of the tensor's dimension along[i].
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
  /// Threads per CTA; 0 on a target that has none, as the host.
  int64_t block = 0;
  /// Bytes of dynamic shared memory.
  int64_t shared = 0;
  /// What the kernel gets after the slots of its arguments.
  std::vector<TensorMapDecl> tensorMaps = {};
  /// Its CTAs wait for each other, so that all of a launch have to run at once.
  bool resident = false;
};

/// The most that any target has: threads of a CTA, bytes of shared memory that
/// one CTA may use, bytes of a kernel's parameters.
inline constexpr int64_t kMaxBlock = 1024;
inline constexpr int64_t kMaxShared = 227 * 1024;
inline constexpr int64_t kMaxParameterBytes = 4096;

/// What a launch passes: a tensor's address, with its strides where it is
/// strided, or a scalar.
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
  /// An int64 value, most often Expr::tokens().
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
  /// Index into Plan::kernels: what is launched; of a collective the kernel
  /// that does it through the memory of other ranks, or -1. That one gets all
  /// inputs, all outputs, what is for it alone, the heaps of the axis' ranks
  /// (PeerHeap.h), this rank's own first, of a piece its first column, and the
  /// rows of one rank.
  int64_t kernel = -1;
  std::vector<Argument> args;
  /// Collective: how many of `args`, behind the pairs, are for kernels alone,
  /// which read by them who needs a row.
  int64_t numKernelArgs = 0;

  /// Collective: its pairs of an input and an output.
  size_t numPairs() const {
    return (args.size() - static_cast<size_t>(numKernelArgs)) / 2;
  }
  /// Collective: the tensor of a pair that is what one rank sends, or gets of
  /// all that is summed.
  int64_t ownPart(size_t pair) const {
    bool scatters = collectiveKind == CollectiveKind::ReduceScatter;
    return args[2 * pair + (scatters ? 1 : 0)].tensor;
  }
  /// Launch: may begin before the step before it on its stream, which is a
  /// launch of the same run too, has ended (LaunchDims::dependent).
  bool dependent = false;
  /// RecordEvent, WaitEvent: 0 .. numEvents-1.
  int64_t event = -1;
  /// Collective: what the ranks of `axis` do with each pair of `args`.
  CollectiveKind collectiveKind = CollectiveKind::AllGather;
  MeshAxis axis = MeshAxis::Data;
  /// Collective, an all-gather with a kernel: its outputs lie where other ranks
  /// write them (Communicator::results) where the communicator runs kernels,
  /// perhaps before the step begins.
  bool toResults = false;
  /// Collective: the step of its variant, a launch, that makes its one input
  /// (of an all-gather some of them), which the kernel makes itself, of what
  /// the launch reads, which is for the kernel alone: it is left out where the
  /// communicator runs the kernel. -1 for none. Of a piece that others follow
  /// -1, though the kernel makes them.
  int64_t replacedStep = -1;
  /// Collective: where it is a piece of a whole, the columns of each row that
  /// its kernel moves; 0 of them for all. The pieces of a whole follow one
  /// another among the collectives of their variant. Where the communicator
  /// runs no kernels the last one moves whole rows, and the others nothing.
  int64_t firstColumn = 0, numColumns = 0;
  /// Collective: the kernels of an all-to-all, which moves a row to its owners
  /// alone (tile.route_rows, and of an all-gather tile.pack_rows, of a
  /// reduce-scatter tile.sum_packed_rows); -1 for none. Such an all-gather
  /// gives all of its tensors with a row per token in another order, the ids
  /// of the rows among them (PackedRows.h).
  int64_t routeKernel = -1, packKernel = -1;
  /// Of such an all-gather, the pairs, ascending, that nobody reads a row of on
  /// ranks that are no owners of it.
  std::vector<int64_t> ownedPairs = {};
  bool isPacked() const { return packKernel >= 0; }
  /// Of an all-to-all: the ids of the rank's own rows, and the table of owners.
  int64_t packedIds() const { return args[2 * numPairs()].tensor; }
  int64_t packedOwners() const {
    bool gathers = collectiveKind == CollectiveKind::AllGather;
    return args[2 * numPairs() + (gathers ? 1 : 2)].tensor;
  }
};

/// The steps that serve minTokens <= tokens <= maxTokens. A step comes after
/// the earlier steps of its stream and, after a wait, after everything that
/// precedes the latest record of that event in the list. Stream 0 is the
/// caller's: other streams start with a wait and are joined to it before the
/// end, so that a variant can be captured.
struct Variant {
  int64_t minTokens = 0;
  int64_t maxTokens = 0;
  std::vector<Step> steps;
};

struct Plan {
  /// What the kernels were compiled for: "cpu", "sm_90a", ...
  std::string target;
  /// Tokens are those of all ranks with tokens of their own together
  /// (`mesh.tokenRanks()`), each of which has as many: a multiple of that.
  int64_t maxTokens = 0;
  /// The ranks that run the plan.
  Mesh mesh;
  int64_t numSlots = 0;
  int64_t numStreams = 1;
  int64_t numEvents = 0;
  std::vector<TensorDecl> tensors;
  std::vector<KernelDecl> kernels;
  /// Ascending, without gap or overlap from 0 to maxTokens.
  std::vector<Variant> variants;
  /// Launches on stream 0 that make the prepared tensors from the weights, run
  /// once; empty when the kernels read the weights as they are.
  std::vector<Step> prepare;

  /// Index of the tensor called `name`, or -1.
  int64_t findTensor(const std::string &name) const;
  /// Index of the variant that serves `tokens`, or -1.
  int64_t findVariant(int64_t tokens) const;
};

/// Whether a step is a piece of a collective that others do the rest of behind
/// it.
bool isFollowed(const Step &step, const Plan &plan);

/// Whether the kernel of a collective of the variant makes the input of a pair
/// itself (Step::replacedStep).
bool isMadeByKernel(const Step &step, const Variant &variant, size_t pair);

/// Other ranks than its own that a row of an all-to-all goes to at most.
int64_t countOwnersOfRow(const Plan &plan, const Step &step);

/// Checks everything about a plan that the executor relies on. A failure names
/// the index and the field, as in "variants[1].steps[3].args[0].tensor", what
/// was found and what would be accepted.
Status verifyPlan(const Plan &plan);

} // namespace moert

#endif // MOERT_PLAN_H
