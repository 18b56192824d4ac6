//===- UnusedTensors.cpp - unused tensors of a block ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UnusedTensors.h"

#include "moec/Import/AbsentTensors.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace moec;
using llvm::StringRef;

namespace {

/// The part of a decoder layer that a tensor belongs to.
enum class Owner { Other, Router, Experts };

/// Whether canonical names begin with this module.
bool isCanonicalModule(StringRef module) {
  constexpr llvm::StringLiteral modules[] = {
      "hidden_states",    "router_logits", "topk_ids", "topk_weights",
      "num_valid_tokens", "input_ids",     "gate",     "experts",
      "shared_experts",   "latent",        "norms",    "lora",
      "adapter_ids"};
  return llvm::is_contained(modules, module);
}

/// The part of a decoder layer that a GGUF tensor belongs to; unknown tensors
/// are assigned to the experts.
Owner getGgufOwner(StringRef name) {
  // Attention and its replacements, norms, hyper-connections, per-layer
  // embeddings, multi-token prediction.
  constexpr llvm::StringLiteral beginnings[] = {
      "altup_",    "attn_",     "channel_mix_", "hc_",   "indexer", "inp_gate",
      "laurel_",   "layer_out", "nextn.",       "post_", "pre_",    "proj.",
      "shortconv", "ssm_",      "time_mix_",    "vis_"};
  // Modules of a dense FFN, which may exist beside the experts.
  constexpr llvm::StringLiteral modules[] = {
      "ffn", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down", "ffn_sub_norm"};
  constexpr llvm::StringLiteral routers[] = {"ffn_gate_inp", "exp_probs_b",
                                             "ffn_gate_tid2eid"};
  auto [module, rest] = name.split('.');
  if (llvm::is_contained(routers, module))
    return Owner::Router;
  // Older files have a matrix per expert: ffn_gate.3.weight.
  bool isDense =
      llvm::is_contained(modules, module) && !llvm::isDigit(rest.front());
  bool isOther = isDense || llvm::any_of(beginnings, [&](StringRef beginning) {
                   return name.starts_with(beginning);
                 });
  return isOther ? Owner::Other : Owner::Experts;
}

class Search {
public:
  explicit Search(const BlockNames &names) : names(names) {
    for (const TensorInfo &tensor : names.request.signature)
      takesRouting |=
          tensor.name == "router_logits" || tensor.name == "topk_ids";
    if (names.request.spec)
      absent = getAbsentTensors(*names.request.spec, names.checkpoint.isGguf());
    // A dense part beside the experts is a shared expert of some models only.
    if (names.checkpoint.isGguf())
      llvm::erase_if(absent, [](const AbsentTensor &tensor) {
        return getGgufOwner(tensor.part.name) == Owner::Other;
      });
    setPrefixes();
  }

  bool isOurs(StringRef name) const {
    StringRef first = name.split('.').first;
    if (isCanonicalModule(first))
      return first != "gate" || !takesRouting;
    if (!findField(name).empty())
      return true;
    Owner owner = getOwner(name);
    // If routing is done before the layer, the router is not part of it.
    return owner == Owner::Experts || (owner == Owner::Router && !takesRouting);
  }

  StringRef findField(StringRef name) const {
    if (!names.block || !name.consume_front(names.block->prefix))
      return {};
    for (const AbsentTensor &tensor : absent)
      if (tensor.part.getName(/*expert=*/0) == name)
        return tensor.field;
    return {};
  }

private:
  /// Sets the prefixes of the layer's modules: the block, or the modules of the
  /// decoder layer in the table of names.
  void setPrefixes() {
    const std::optional<TensorPrefix> &block = names.block;
    if (!block)
      return;
    if (block->scope.empty() && names.request.spec &&
        names.request.spec->bank) {
      // A layer and a bank of experts: the modules around theirs.
      for (const auto &entry : names.used)
        prefixes.insert(getOwnModule(entry.getKey()));
      return;
    }
    if (block->scope.empty() || block->prefix != block->scope) {
      prefixes = {block->prefix};
      return;
    }
    for (const auto &entry : names.used) {
      StringRef name = entry.getKey();
      if (name.consume_front(block->scope) && name.contains('.'))
        prefixes.insert(block->scope + getModule(name) + ".");
    }
  }

  /// The first module of a name; the third if the first is a list ("layer.2").
  static std::string getModule(StringRef name) {
    auto [list, rest] = name.split('.');
    auto [number, after] = rest.split('.');
    int64_t ignored;
    if (number.getAsInteger(10, ignored) || !after.contains('.'))
      return list.str();
    return (list + "." + number + "." + after.split('.').first).str();
  }

  /// The prefix of a name up to the router, or through the experts: a layer
  /// that lends its bank has a router and shared experts of its own.
  static std::string getOwnModule(StringRef name) {
    llvm::SmallVector<StringRef> modules;
    name.split(modules, '.');
    const auto *own = llvm::find_if(modules, [](StringRef module) {
      return module == "gate" || module == "experts" ||
             module.starts_with("shared");
    });
    if (own == modules.end())
      return name.str();
    return name
        .take_front((*own == "experts" ? own->end() + 1 : own->begin()) -
                    name.begin())
        .str();
  }

  Owner getOwner(StringRef name) const {
    const std::optional<TensorPrefix> &block = names.block;
    if (!block)
      return Owner::Other;
    if (names.checkpoint.isGguf())
      return name.consume_front(block->scope) ? getGgufOwner(name)
                                              : Owner::Other;
    llvm::SmallVector<StringRef> modules;
    name.split(modules, '.');
    bool isInBlock = llvm::any_of(prefixes, [&](const std::string &prefix) {
      return name.consume_front(prefix);
    });
    bool isInLayer = !block->scope.empty() &&
                     (isInBlock || name.consume_front(block->scope));
    // Attention may have experts of its own.
    if (!isInBlock && !(isInLayer && !name.contains("attention") &&
                        (name.contains("expert") || name.contains("router"))))
      return Owner::Other;
    bool isOfExperts = llvm::any_of(modules, [](StringRef module) {
      return module == "experts" || module.starts_with("shared");
    });
    return isOfExperts ? Owner::Experts : Owner::Router;
  }

  const BlockNames &names;
  /// The inputs of a call are logits, or ids and weights.
  bool takesRouting = false;
  std::vector<AbsentTensor> absent;
  std::set<std::string> prefixes;
};

} // namespace

std::vector<std::string> moec::findUnused(const BlockNames &names,
                                          const llvm::StringSet<> &elsewhere) {
  Search search(names);
  std::vector<std::string> unused;
  for (const auto &entry : names.checkpoint.tensors())
    if (!names.used.contains(entry.first) && !elsewhere.contains(entry.first) &&
        search.isOurs(entry.first))
      unused.push_back(entry.first);
  return unused;
}

StringRef moec::findFieldFor(const BlockNames &names, StringRef tensor) {
  return Search(names).findField(tensor);
}
