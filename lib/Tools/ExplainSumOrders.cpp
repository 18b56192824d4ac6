//===- ExplainSumOrders.cpp - what the bits of a row depend on --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExplainSumOrders.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace moec;

/// The first 16 digits of the SHA-256 of lines "gemm: order".
static std::string getDigest(const moert::Plan &plan) {
  llvm::SHA256 hash;
  for (const moert::SumOrder &order : plan.sumOrders)
    hash.update(order.gemm + ": " + order.order + "\n");
  constexpr size_t bytes = 8;
  return llvm::toHex(ArrayRef(hash.final()).take_front(bytes),
                     /*LowerCase=*/true);
}

size_t moec::explainSumOrders(const moert::Plan &plan, raw_ostream &os) {
  if (plan.sumOrders.empty()) {
    if (plan.mesh.numRanks() > 1)
      return 0;
    os << "not batch-invariant: a gemm adds in several orders, by the number "
          "of "
          "tokens, or a\nscale is that of all rows "
          "(--remarks-filter=tile-certify-sum-orders, --batch-invariant)\n";
    return 2;
  }
  os << "batch-invariant: the bits of a row depend on this row and the weights "
        "alone; orders\nof sums, certificate "
     << getDigest(plan) << ":\n";
  llvm::MapVector<StringRef, SmallVector<StringRef>> gemms;
  for (const moert::SumOrder &order : plan.sumOrders)
    gemms[order.order].push_back(order.gemm);
  for (auto &[order, names] : gemms) {
    os << "  " << order << ": ";
    llvm::interleaveComma(names, os);
    os << "\n";
  }
  return 2 + gemms.size();
}
