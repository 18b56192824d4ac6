//===- CheckLayerSpec.cpp - consistency of a layer spec -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks relations between fields, for specs, models and overrides alike. Types
// and ranges of single fields are checked when they are read.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "moec/Import/TensorSignature.h"
#include "moec/Support/IdTypes.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace moec {

namespace {

class Checker {
public:
  Checker(const LayerSpec &spec, ImportContext &context)
      : spec(spec), routing(spec.routing), context(context) {}

  void run() {
    checkSizes();
    if (spec.entry != Entry::Ids) {
      checkGroups();
      checkSelection();
      checkWeight();
    }
    checkWeightOnInput();
    checkOutput();
    checkOutputBias();
    checkSharedGate();
    checkQuantizedInput();
    checkNorms();
    checkActivation();
    checkQuantization();
    checkPlacement();
    if (spec.parallel)
      checkParallel();
    checkRecord();
    if (spec.replicas)
      checkReplicas();
  }

private:
  /// Reports `message` about a field if `condition` is false.
  void require(bool condition, StringRef field, const Twine &message) {
    if (!condition)
      context.error(field, message);
  }
  std::string show(StringRef field) const { return context.show(field); }

  /// `'n_group' is 3`
  std::string showValue(StringRef field, int64_t value) const {
    return (show(field) + " is " + Twine(value)).str();
  }

  /// The experts that routing selects from, in words.
  std::string showExperts() const {
    std::string text =
        (Twine(spec.getNumRouted()) + " experts (" + show("num_experts")).str();
    if (spec.numZeroExperts)
      text += " and " + show("num_zero_experts");
    return text + ")";
  }

  void checkSizes();
  void checkGroups();
  void checkSelection();
  void checkWeight();
  void checkWeightOnInput();
  void checkOutput();
  void checkOutputBias();
  void checkSharedGate();
  void checkQuantizedInput();
  void checkNorms();
  void checkActivation();
  /// Checks the activation at `path`.
  void checkParameters(const ActivationSpec &activation,
                       const std::string &path);
  void checkQuantization();
  /// Checks a quantized weight with rows of `size` elements, from `field`.
  void checkRow(StringRef weight, StringRef field, int64_t size);
  void checkPlacement();
  /// Adds ids to the ones seen before; returns false if one is invalid. `where`
  /// describes the field or a part of it.
  bool checkExpertIds(StringRef field, const Twine &where,
                      ArrayRef<int64_t> ids, SmallBitVector &seen);
  void checkParallel();
  void checkRecord();
  /// Whether ids of the type can name all experts; with `hasNone`, also none.
  void checkIdType(StringRef field, std::optional<IdType> type, bool hasNone);
  void checkReplicas();
  void checkExpertLists();
  void checkReplicaLists();
  void checkExpertsDivide();
  /// Checks that a size can be split over ranks, at scale boundaries.
  void checkShare(StringRef field, int64_t size, int64_t ranks,
                  StringRef experts);

  const LayerSpec &spec;
  const RoutingSpec &routing;
  ImportContext &context;
};

void Checker::checkSizes() {
  require(spec.topK <= spec.getNumRouted(), "top_k",
          showValue("top_k", spec.topK) + ", but there are only " +
              showExperts());
  // No token is left out if a call has no more tokens than an expert may have,
  // whatever the router chooses.
  if (spec.expertCapacity)
    require(spec.maxTokens <= *spec.expertCapacity, "expert_capacity",
            show("expert_capacity") + " is " + Twine(*spec.expertCapacity) +
                ", and a call may have " + Twine(spec.maxTokens) +
                " tokens (max_tokens): the model leaves out what an expert has "
                "beyond; compile with max_tokens of " +
                Twine(*spec.expertCapacity) + " or less");
  if (!spec.isGated())
    require(spec.gateUpOrder == GateUpOrder::GateUp, "gate_up_order",
            "'gate_up_order' has no meaning for activation \"" +
                stringify(spec.activation.kind) +
                "\", which has no gate; remove it");
}

void Checker::checkNorms() {
  auto check = [&](StringRef name, const std::optional<NormSpec> &norm) {
    if (!norm)
      return;
    std::string epsilon = ("norms." + name + ".epsilon").str();
    require(norm->epsilon > 0, epsilon,
            show(epsilon) + " must be greater than 0, so that rows of zeros "
                            "stay zeros");
    require(spec.latentSize || name == "expert", "norms",
            "'norms." + name + "' needs 'latent_size', whose rows it takes");
  };
  check("latent_in", spec.norms.latentIn);
  check("expert", spec.norms.expert);
  check("latent_out", spec.norms.latentOut);
  require(!spec.norms.expert || !spec.parallel ||
              spec.parallel->hasWholeExperts() ||
              spec.parallel->getNumRanks() == 1,
          "norms",
          "'norms.expert' needs whole rows of an expert, and with 'parallel' "
          "each rank has a slice of every expert; give it \"experts\": "
          "\"linear\"");
}

void Checker::checkGroups() {
  int64_t numRouted = spec.getNumRouted(), numGroups = routing.numGroups;
  require(routing.topkGroups <= numGroups, "routing.topk_groups",
          showValue("routing.topk_groups", routing.topkGroups) +
              ", but there are " + Twine(numGroups) + " groups (" +
              show("routing.num_groups") + ")");
  if (numGroups == 1)
    return;
  if (numRouted % numGroups != 0)
    return require(false, "routing.num_groups",
                   showExperts() + " cannot be divided into " +
                       Twine(numGroups) + " equal groups (" +
                       show("routing.num_groups") + ")");
  int64_t groupSize = numRouted / numGroups;
  switch (routing.select) {
  case Select::TopK:
    require(spec.topK <= routing.topkGroups * groupSize, "top_k",
            showValue("top_k", spec.topK) + ", but the " +
                Twine(routing.topkGroups) + " groups that stay (" +
                show("routing.topk_groups") + ") have only " +
                Twine(routing.topkGroups * groupSize) + " experts");
    require(routing.groupScore == GroupScore::Max || groupSize >= 2,
            "routing.group_score",
            "group score \"top2_sum\" needs groups of at least 2 experts; "
            "with " +
                Twine(numGroups) + " groups each has " + Twine(groupSize));
    break;
  case Select::PerGroup:
    require(spec.topK % numGroups == 0, "top_k",
            showValue("top_k", spec.topK) + ", not a multiple of the " +
                Twine(numGroups) + " groups (" + show("routing.num_groups") +
                "), each of which contributes the same number of experts");
    require(routing.topkGroups == 1, "routing.topk_groups",
            "'routing.topk_groups' has no meaning with select \"per_group\", "
            "where every group contributes; remove it");
    break;
  case Select::Hash:
  case Select::SparseMixer:
    require(false, "routing.num_groups",
            "'routing.num_groups' has no meaning with select \"" +
                stringify(routing.select) + "\"; remove it");
    break;
  }
}

void Checker::checkSelection() {
  require(!routing.gateBias || spec.entry == Entry::Gate, "routing.gate_bias",
          "'routing.gate_bias' needs entry \"gate\"; router logits include "
          "the bias already");
  require(!routing.splitGate ||
              (spec.entry == Entry::Gate && spec.dtype != DType::F32),
          "routing.split_gate",
          "'routing.split_gate' needs entry \"gate\" and dtype \"bf16\" or "
          "\"f16\": it adds what these lack of a router in f32");
  require(!routing.splitGate || !routing.gateBias, "routing.split_gate",
          "'routing.split_gate' does not go with 'routing.gate_bias'; leave it "
          "out, and round the router's weight to the layer's dtype");
  require(!routing.gateHiddenSize || spec.entry == Entry::Gate,
          "routing.gate_hidden_size",
          "'routing.gate_hidden_size' needs entry \"gate\"; router logits are "
          "behind both gemms of the router");
  require(!routing.gateHiddenSize || !routing.splitGate, "routing.split_gate",
          "'routing.split_gate' does not go with 'routing.gate_hidden_size'; "
          "leave it out, and round the router's weights to the layer's dtype");
  require(routing.logitsDtype == DType::F32 || spec.entry == Entry::Logits,
          "routing.logits_dtype",
          "'routing.logits_dtype' needs entry \"logits\"; logits that a layer "
          "computes are f32");
  bool hash = routing.select == Select::Hash;
  require(!hash || routing.hashVocabSize, "routing.select",
          "select \"hash\" needs 'routing.hash_vocab_size', the number of "
          "rows of the table");
  require(hash || !routing.hashVocabSize, "routing.hash_vocab_size",
          "'routing.hash_vocab_size' needs select \"hash\"");
  require(!hash || !routing.selectionBias, "routing.selection_bias",
          "'routing.selection_bias' has no meaning with select \"hash\", "
          "which reads the ids from a table; remove it");
  if (routing.select != Select::SparseMixer)
    return;
  require(spec.topK == 2, "top_k",
          showValue("top_k", spec.topK) +
              ", but select \"sparsemixer\" chooses 2 experts");
  require(routing.score == Score::Identity, "routing.select",
          "select \"sparsemixer\" works on logits; set 'routing.score' to "
          "\"identity\"");
  require(routing.weight == RouteWeight::Score, "routing.weight",
          "'routing.weight' has no meaning with select \"sparsemixer\", which "
          "defines the weights itself; remove it");
  require(!routing.selectionBias, "routing.selection_bias",
          "'routing.selection_bias' has no meaning with select "
          "\"sparsemixer\"; remove it");
  require(routing.nonfinite == NonFinite::NegInf, "routing.nonfinite",
          "'routing.nonfinite' must be \"neg_inf\" with select "
          "\"sparsemixer\"");
}

void Checker::checkWeight() {
  require(!routing.logitSoftcap || *routing.logitSoftcap > 0,
          "routing.logit_softcap",
          show("routing.logit_softcap") + " must be greater than 0");
  require(!routing.logitSoftcap || routing.select != Select::SparseMixer,
          "routing.logit_softcap",
          "'routing.logit_softcap' has no meaning with select "
          "\"sparsemixer\"; remove it");
  require(routing.logitScale > 0, "routing.logit_scale",
          show("routing.logit_scale") + " must be greater than 0");
  require(routing.logitScale == 1 || routing.select != Select::SparseMixer,
          "routing.logit_scale",
          "'routing.logit_scale' has no meaning with select "
          "\"sparsemixer\"; remove it");
  require(routing.weight != RouteWeight::Softmax ||
              routing.score != Score::Softmax,
          "routing.weight",
          "'routing.weight' \"softmax\" needs a score that is not a softmax "
          "itself; set 'routing.score' to \"identity\"");
  require(routing.renormalizeEpsilon >= 0, "routing.renormalize_epsilon",
          "'routing.renormalize_epsilon' must not be negative");
  require(routing.renormalize || routing.renormalizeEpsilon == 0,
          "routing.renormalize_epsilon",
          "'routing.renormalize_epsilon' has no meaning without "
          "'routing.renormalize'");
}

/// The rows of slots are those that formula 9 adds, before their weights.
void Checker::checkOutput() {
  if (spec.output == OutputRows::Sum)
    return;
  auto refuse = [&](bool has, StringRef field) {
    require(!has, "output",
            show("output") + " \"slots\" returns the rows of slots, to which " +
                show(field) + " adds nothing; remove " + show(field) +
                ", or write \"sum\"");
  };
  refuse(spec.sharedExperts.has_value(), "shared_experts");
  refuse(spec.latentSize.has_value(), "latent_size");
  refuse(spec.numZeroExperts > 0, "num_zero_experts");
  require(!routing.weightOnInput, "output",
          show("output") + " \"slots\" leaves the weights to the caller, but " +
              show("routing.weight_on_input") +
              " applies them; remove one of them");
}

/// The bias is added together with the experts' rows.
void Checker::checkOutputBias() {
  if (!spec.outputBias)
    return;
  auto refuse = [&](bool has, StringRef field, StringRef remedy) {
    require(!has, "output_bias",
            show("output_bias") + " does not go with " + show(field) + "; " +
                remedy);
  };
  StringRef addLater = "add the bias to the output yourself";
  refuse(spec.sharedExperts.has_value(), "shared_experts", addLater);
  refuse(spec.latentSize.has_value(), "latent_size", addLater);
  refuse(spec.output == OutputRows::Slots, "output", addLater);
  refuse(spec.paddingMask, "padding_mask",
         "give 'num_valid_tokens', or add the bias to the output yourself");
  refuse(spec.parallel && spec.parallel->getNumRanks() > 1, "parallel",
         addLater);
}

void Checker::checkSharedGate() {
  if (!spec.sharedExperts)
    return;
  SharedGate gate = spec.sharedExperts->gate;
  require(!spec.sharedExperts->gateBias || gate != SharedGate::None,
          "shared_experts.gate_bias",
          "'shared_experts.gate_bias' needs a 'shared_experts.gate'");
  require(gate != SharedGate::Softmax || !routing.weightOnInput,
          "shared_experts.gate",
          "'shared_experts.gate' \"softmax\" weighs the experts' sum and does "
          "not go with " +
              show("routing.weight_on_input"));
}

/// Only the experts' first gemm can read rows that are quantized.
void Checker::checkQuantizedInput() {
  if (!spec.quantizedInput)
    return;
  require(spec.entry == Entry::Ids, "quantized_input",
          show("quantized_input") +
              " needs entry \"ids\": a router reads rows that are not "
              "quantized");
  const auto &first = spec.getQuantization("experts.w13");
  require(first && first->activation, "quantized_input",
          show("quantized_input") +
              " needs a 'quantization' of w13 with 'activation', which says "
              "how the rows are quantized");
  auto refuse = [&](bool has, StringRef field) {
    require(!has, "quantized_input",
            show("quantized_input") + " does not go with " + show(field) +
                ", which reads or changes rows that are not quantized; remove "
                "one of them");
  };
  refuse(spec.sharedExperts.has_value(), "shared_experts");
  refuse(spec.latentSize.has_value(), "latent_size");
  refuse(spec.numZeroExperts > 0, "num_zero_experts");
  refuse(spec.expertColumns, "expert_columns");
  refuse(routing.weightOnInput, "routing.weight_on_input");
  refuse(spec.lora.has_value(), "lora");
}

void Checker::checkWeightOnInput() {
  require(!routing.weightOnInput || spec.topK == 1,
          context.origins.count("routing.weight_on_input")
              ? "routing.weight_on_input"
              : "top_k",
          "the weight can be applied to the input of the expert for one "
          "expert per token only, but " +
              showValue("top_k", spec.topK));
}

void Checker::checkActivation() {
  checkParameters(spec.activation, "activation");
  if (!spec.sharedExperts || !spec.sharedExperts->activation)
    return;
  const ActivationSpec &shared = *spec.sharedExperts->activation;
  checkParameters(shared, "shared_experts.activation");
  require(isGated(shared.kind) == spec.isGated(), "shared_experts.activation",
          "'shared_experts.activation' is \"" + stringify(shared.kind) +
              "\" and 'activation' \"" + stringify(spec.activation.kind) +
              "\"; either both have a gate or none");
}

void Checker::checkParameters(const ActivationSpec &activation,
                              const std::string &path) {
  std::string limit = path + ".limit", beta = path + ".beta";
  require(!activation.limit || *activation.limit > 0, limit,
          show(limit) + " must be greater than 0");
  if (activation.kind == Activation::Situ)
    require(*activation.beta != 0, beta,
            quote(beta) + " must not be 0: \"situ\" divides by it");
}

void Checker::checkQuantization() {
  StringRef width = spec.latentSize ? "latent_size" : "hidden_size";
  for (StringRef weight : spec.getExpertWeights()) {
    if (!spec.getQuantization(weight))
      continue;
    if (weight == "experts.w13")
      checkRow(weight, width, spec.getExpertWidth());
    else if (weight == "experts.w2")
      checkRow(weight, "intermediate_size", spec.intermediateSize);
    else if (weight == "shared_experts.w13")
      checkRow(weight, "hidden_size", spec.hiddenSize);
    else
      checkRow(weight, "shared_experts.intermediate_size",
               spec.sharedExperts->intermediateSize);
  }
}

void Checker::checkRow(StringRef weight, StringRef field, int64_t size) {
  const QuantizationSpec &quantization = *spec.getQuantization(weight);
  int64_t unit = 1;
  std::string why;
  if (quantization.weight.granularity == Granularity::Group) {
    unit = quantization.weight.blockColumns;
    why = ", whose scales belong to " + std::to_string(unit) +
          " weights of a row";
  }
  if (unit % 2 && getElementBits(quantization.weight.storage) < 8) {
    unit *= 2;
    why = ", of which two lie in a byte";
  }
  require(size % unit == 0, field,
          show(field) + " must be a multiple of " + std::to_string(unit) +
              " with " + describe(quantization) + why);
}

void Checker::checkPlacement() {
  if (!spec.placement || !spec.placement->localExperts)
    return;
  StringRef field = "placement.local_experts";
  require(!spec.placement->localExperts->empty(), field,
          "'placement.local_experts' must name at least one expert");
  SmallBitVector seen(spec.numExperts);
  checkExpertIds(field, "'" + field + "'", *spec.placement->localExperts, seen);
}

bool Checker::checkExpertIds(StringRef field, const Twine &where,
                             ArrayRef<int64_t> ids, SmallBitVector &seen) {
  auto fail = [&](const Twine &what) {
    require(false, field, where + " names expert " + what);
    return false;
  };
  for (int64_t id : ids) {
    if (id >= spec.numExperts)
      return fail(Twine(id) + ", but there are only " + Twine(spec.numExperts) +
                  " experts (" + show("num_experts") + ")");
    if (seen.test(id))
      return fail(Twine(id) + " twice");
    seen.set(id);
  }
  return true;
}

void Checker::checkShare(StringRef field, int64_t size, int64_t ranks,
                         StringRef experts) {
  int64_t unit = spec.getSharedUnit(experts, ranks);
  if (unit == 1)
    return require(size % ranks == 0, field,
                   show(field) + " is split over " + Twine(ranks) +
                       " ranks and must be a multiple of " + Twine(ranks));
  require(ranks == 1 || size > unit, field,
          showValue(field, size) + ", and a rank has whole blocks of " +
              Twine(unit) + ", so that only one of the " + Twine(ranks) +
              " ranks would have any; " +
              (experts == "experts" ? "give 'parallel.experts': \"linear\""
                                    : "decrease 'parallel.tp'"));
}

void Checker::checkExpertLists() {
  const ParallelSpec &parallel = *spec.parallel;
  StringRef field = "parallel.experts";
  if (int64_t(parallel.lists.size()) != parallel.getNumRanks())
    return require(false, field,
                   "'parallel.experts' has " + Twine(parallel.lists.size()) +
                       " lists, but there are dp * pcp * tp = " +
                       Twine(parallel.getNumRanks()) + " ranks");
  SmallBitVector seen(spec.numExperts);
  for (auto [rank, list] : enumerate(parallel.lists)) {
    if (spec.replicas && list.size() != parallel.lists.front().size())
      return require(false, field,
                     "'parallel.experts' gives rank 0 " +
                         Twine(parallel.lists.front().size()) +
                         " experts and rank " + Twine(rank) + " " +
                         Twine(list.size()) +
                         "; with 'replicas', give all as many");
    SmallBitVector own(spec.numExperts);
    std::string where = "'parallel.experts'";
    if (spec.replicas)
      where += " of rank " + std::to_string(rank);
    if (!checkExpertIds(field, where, list, spec.replicas ? own : seen))
      return;
    seen |= own;
  }
  require(seen.all(), field,
          "'parallel.experts' has expert " + Twine(seen.find_first_unset()) +
              " on no rank");
  if (spec.replicas)
    checkReplicaLists();
}

/// Number of lists that contain each expert.
void Checker::checkReplicaLists() {
  const ParallelSpec &parallel = *spec.parallel;
  std::vector<int64_t> ids = spec.getLogicalIds();
  StringRef field = "parallel.experts";
  require(int64_t(ids.size()) == spec.replicas->numPhysicalExperts, field,
          "'parallel.experts' gives " + Twine(parallel.getNumRanks()) +
              " ranks " + Twine(ids.size()) + " experts in all, but " +
              showValue("replicas.num_physical_experts",
                        spec.replicas->numPhysicalExperts));
  std::vector<int64_t> counts(spec.numExperts, 0);
  for (int64_t id : ids)
    if (++counts[id] > spec.replicas->maxReplicas)
      return require(
          false, field,
          "'parallel.experts' has expert " + Twine(id) +
              " on more ranks than " +
              showValue("replicas.max_replicas", spec.replicas->maxReplicas));
}

void Checker::checkExpertsDivide() {
  int64_t ranks = spec.parallel->getNumRanks();
  int64_t experts = spec.getNumPhysicalExperts();
  StringRef field =
      spec.replicas ? "replicas.num_physical_experts" : "num_experts";
  if (spec.replicas)
    return require(experts % ranks == 0, field,
                   showValue(field, experts) +
                       ", and must be a multiple of the " + Twine(ranks) +
                       " ranks (dp * pcp * tp), or 'parallel.experts' a list "
                       "for each");
  require(experts >= ranks, field,
          showValue(field, experts) + ", but each of the " + Twine(ranks) +
              " ranks (dp * pcp * tp) has one at least; decrease 'parallel.dp' "
              "or 'parallel.tp'");
}

void Checker::checkParallel() {
  const ParallelSpec &parallel = *spec.parallel;
  int64_t ranks = parallel.getNumRanks();
  require(!spec.placement, "placement",
          "'placement' is of one rank by itself, and 'parallel' places the "
          "experts; give one of them");
  require(parallel.getNumGroups() <= limits::kMaxRanks, "parallel",
          "'parallel.dp' * 'parallel.pcp' is " +
              Twine(parallel.getNumGroups()) + " groups of ranks; " +
              Twine(limits::kMaxRanks) + " are accepted");
  require(!parallel.sp || parallel.tp > 1, "parallel",
          "'parallel.sp' shares the tokens of a group among its ranks, of "
          "which there is one; give 'parallel.tp' more, or drop it");
  // Steps behind the sum over ranks need all summands.
  auto needsSum = [&](bool has, StringRef field) {
    require(parallel.reduce || !has, "parallel",
            "'parallel.reduce': false leaves the sum over the ranks of a group "
            "to the caller, but '" +
                field + "' needs it; remove one of them");
  };
  needsSum(parallel.sp, "parallel.sp");
  needsSum(spec.latentSize.has_value(), "latent_size");
  needsSum(spec.numZeroExperts > 0, "num_zero_experts");
  if (parallel.placement == ExpertPlacement::Listed)
    checkExpertLists();
  else if (parallel.hasWholeExperts())
    checkExpertsDivide();
  else
    checkShare("intermediate_size", spec.intermediateSize, ranks, "experts");
  if (spec.sharedExperts)
    checkShare("shared_experts.intermediate_size",
               spec.sharedExperts->intermediateSize, parallel.tp,
               "shared_experts");
}

void Checker::checkIdType(StringRef field, std::optional<IdType> type,
                          bool hasNone) {
  if (!type)
    return;
  int64_t most = getMostRouted(getIdBits(*type), hasNone);
  int64_t routed = spec.getNumRouted();
  StringRef wider = routed > getMostRouted(getIdBits(IdType::Int16), hasNone)
                        ? "\"int32\""
                        : "\"int16\" or \"int32\"";
  require(routed <= most, field,
          show(field) + " is \"" + stringify(*type) + "\", which can name " +
              Twine(most) + " experts" +
              (hasNone ? " beside the id of slots without one" : "") +
              ", and the router has " + Twine(routed) + "; give " + wider);
}

void Checker::checkRecord() {
  require(!spec.recordIds || spec.entry != Entry::Ids, "record_ids",
          "'record_ids' has no meaning with entry \"ids\", whose caller has "
          "the ids and weights; remove it");
  require(!spec.replayIds || spec.entry != Entry::Ids, "replay_ids",
          "'replay_ids' lets the router weigh given ids, and entry \"ids\" "
          "takes weights too; remove it, or give another entry");
  require(!spec.recordIds || !spec.replayIds, "record_ids",
          "'record_ids' has no meaning beside 'replay_ids', whose caller has "
          "the ids; remove one of them");
  Select select = spec.routing.select;
  require(!spec.replayIds ||
              (select != Select::Hash && select != Select::SparseMixer),
          "replay_ids",
          "'replay_ids' does not go with " + show("routing.select") + " \"" +
              stringify(select) + "\"" +
              (select == Select::Hash
                   ? ", whose table gives the same ids again; remove it"
                   : ", whose weights follow from its own selection; remove "
                     "it"));
  // Rows of padding are not replayed.
  bool hasNone =
      spec.numValidTokens || spec.paddingMask || select == Select::Hash;
  checkIdType("record_ids", spec.recordIds, hasNone);
  checkIdType("replay_ids", spec.replayIds, /*hasNone=*/false);
}

void Checker::checkReplicas() {
  int64_t physical = spec.replicas->numPhysicalExperts;
  StringRef field = "replicas.num_physical_experts";
  require(physical >= spec.numExperts, field,
          showValue(field, physical) + ", but each of the " +
              Twine(spec.numExperts) + " experts (" + show("num_experts") +
              ") is there once at least");
  field = "replicas.max_replicas";
  int64_t most = physical - spec.numExperts + 1;
  require(physical < spec.numExperts || spec.replicas->maxReplicas <= most,
          field,
          showValue(field, spec.replicas->maxReplicas) +
              ", but with one of each other expert there is room for " +
              Twine(most));
  require(!spec.placement || !spec.placement->localExperts,
          "placement.local_experts",
          "'placement.local_experts' are of one rank by itself, which has all "
          "replicas; drop it, or 'replicas'");
  if (!spec.parallel)
    return;
  require(
      spec.parallel->hasWholeExperts(), "parallel",
      "'replicas' are whole experts, and 'parallel' without 'experts' gives "
      "each rank a part of every one; add \"experts\": \"linear\", or drop "
      "'replicas'");
  require(spec.parallel->placement != ExpertPlacement::RoundRobin,
          "parallel.experts",
          "'parallel.experts' is \"round_robin\", but physical experts "
          "('replicas') are numbered rank by rank; give \"linear\", or a list "
          "for each rank");
}

} // namespace

void checkLayerSpec(const LayerSpec &spec, ImportContext &context) {
  Checker(spec, context).run();
}

void checkCompiles(const LayerSpec &spec, ImportContext &context) {
  for (StringRef weight : spec.getExpertWeights()) {
    const std::optional<QuantizationSpec> &quantization =
        spec.getQuantization(weight);
    if (!quantization || isCompiled(*quantization))
      continue;
    bool isWeight = !isCompiled(quantization->weight);
    std::string field = getQuantizationField(context, weight) +
                        (isWeight ? ".weight" : ".activation");
    context.error(
        field,
        context.show(field) + " = \"" +
            describe(QuantizationSpec{isWeight ? quantization->weight
                                               : *quantization->activation,
                                      std::nullopt}) +
            "\" is described, but not compiled; "
            "compiled are " +
            (isWeight ? "fp8_e4m3, fp4_e2m1, nf4, int8 and int4, groups and "
                        "blocks of multiples of 16 neighbours, and weights of "
                        "16 or 32 bits"
                      : "activations of fp8_e4m3 and int8, and groups of "
                        "multiples of 16 neighbours"));
    break;
  }
  // Several times the memory of the largest device.
  constexpr double limit = double(int64_t(1) << 40);
  double bytes = 0;
  for (const TensorInfo &tensor : getTensorSignature(spec)) {
    if (tensor.role != TensorRole::Weight)
      continue;
    double elements = 1;
    for (int64_t size : tensor.shape)
      elements *= double(size);
    bytes += elements * getStorageBits(tensor.type) / 8;
  }
  if (bytes > limit)
    context.error("num_experts",
                  "the weights of the experts (" + context.show("num_experts") +
                      ") take " + formatv("{0:f1}", bytes / limit).str() +
                      " TiB, and no device holds more than 1 TiB; keep some "
                      "of them with --num-experts or "
                      "'placement.local_experts', or correct the sizes");
}

} // namespace moec
