//===- Barrier.cpp - barriers of a CTA and mbarriers ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

/// Writes, runs `meet`, and reads what thread `thread ^ partner` wrote.
std::string exchange(const std::string &meet, unsigned partner) {
  return "\tst.shared.b32 [%sh], %a0;\n" + meet + "\txor.b32 %t0, %thread, " +
         std::to_string(partner) +
         ";\n\tmad.lo.s32 %t0, %t0, 4, %smem;\n"
         "\tld.shared.b32 %d0, [%t0];\n";
}

void addCtaBarriers(Family &family) {
  family.shared(4);
  for (const char *name : {"bar.sync 0", "barrier.sync 0", "bar.sync 5, 128",
                           "barrier.sync.aligned 3, 128", "bar.cta.sync 0"})
    family.body(name, exchange("\t" + std::string(name) + ";\n", 101), {B32},
                {B32});
  const std::string half = "\tshr.u32 %t1, %thread, 6;\n"
                           "\tadd.s32 %t1, %t1, 1;\n";
  family.body("bar.sync [register id, halves of a CTA]",
              exchange(half + "\tbar.sync %t1, 64;\n", 45), {B32}, {B32});
  family.body("barrier.sync [register id and count]",
              exchange(half + "\tmov.b32 %t2, 64;\n"
                              "\tbarrier.sync %t1, %t2;\n",
                       45),
              {B32}, {B32});
  family.body("bar.arrive, bar.sync [half a CTA waits for the other]",
              "\tst.shared.b32 [%sh], %a0;\n"
              "\tmov.b32 %d0, 0;\n"
              "\tsetp.lt.u32 %p0, %thread, 64;\n"
              "\t@%p0 bra writer;\n"
              "\tbar.sync 2, 128;\n"
              "\tld.shared.b32 %d0, [%sh+-256];\n"
              "\tbra.uni done;\n"
              "writer:\n"
              "\tbar.arrive 2, 128;\n"
              "done:\n",
              {B32}, {B32});
  family.body("bar.red.popc.u32", "\tbar.red.popc.u32 %d0, 0, %a0;\n", {B32},
              {Pred});
  for (const char *name : {"bar.red.and.pred", "bar.red.or.pred"}) {
    family.body(name, "\t" + std::string(name) + " %d0, 0, %a0;\n", {Pred},
                {Pred});
    family.body(std::string(name) + " [of equal predicates, negated]",
                "\tsetp.eq.b32 %p0, %cta, 3;\n\t" + std::string(name) +
                    " %p1, 0, !%p0;\n\tselp.b32 %d0, %a0, 5, %p1;\n",
                {B32}, {B32});
  }
  for (const char *name :
       {"barrier.cluster.arrive;\n\tbarrier.cluster.wait",
        "barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned",
        "barrier.cluster.arrive.release.aligned;\n"
        "\tbarrier.cluster.wait.acquire.aligned"}) {
    std::string text = name;
    family.body(text.substr(0, text.find(';')),
                exchange("\t" + text + ";\n", 101), {B32}, {B32});
  }
  family.body("barrier.cluster.arrive.relaxed.aligned [behind a fence]",
              exchange("\tfence.acq_rel.cluster;\n"
                       "\tbarrier.cluster.arrive.relaxed.aligned;\n"
                       "\tbarrier.cluster.wait.aligned;\n",
                       101),
              {B32}, {B32});
}

/// Results of the four tests of the thread's own mbarrier.
const std::vector<Operand> kFour = {Pred, Pred, Pred, Pred};

void addArrivals(Family &family) {
  family.shared(16);
  // An mbarrier must not be left within a phase.
  auto row = [&](const std::string &name, const std::string &text) {
    family.body(name, text + "\tmbarrier.inval.shared.b64 [%sh];\n", kFour, {});
  };
  row("mbarrier.arrive, test_wait [state]",
      "\tmbarrier.init.shared.b64 [%sh], 2;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.arrive.shared.b64 %u1, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d1, [%sh], %u0;\n"
      "\tmbarrier.test_wait.shared.b64 %d2, [%sh], %u1;\n"
      "\tmbarrier.arrive.shared.b64 %u2, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d3, [%sh], %u2;\n");
  row("mbarrier.test_wait.parity",
      "\tmbarrier.init.shared.b64 [%sh], 1;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d0, [%sh], 0;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d1, [%sh], 1;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d2, [%sh], 0;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 1;\n");
  row("mbarrier.try_wait, try_wait.parity",
      "\tmbarrier.init.shared.b64 [%sh], 1;\n"
      "\tmov.b32 %t0, 100;\n"
      "\tmbarrier.try_wait.parity.shared.b64 %d0, [%sh], 0, %t0;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      // try_wait may fail spuriously. All of them must differ: ptxas would
      // merge the second with the first.
      "wait1:\n"
      "\tmbarrier.try_wait.parity.shared.b64 %d1, [%sh], 0;\n"
      "\t@!%d1 bra wait1;\n"
      "wait2:\n"
      "\tmbarrier.try_wait.shared.b64 %d2, [%sh], %u0;\n"
      "\t@!%d2 bra wait2;\n"
      "wait3:\n"
      "\tmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %d3, [%sh], 0, "
      "200;\n"
      "\t@!%d3 bra wait3;\n"
      // Without a constant result here, ptxas stores the first result for the
      // last.
      "\tsetp.ne.u32 %d3, 0, 0;\n");
  row("mbarrier.arrive [count]",
      "\tmbarrier.init.shared.b64 [%sh], 5;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh], 4;\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.arrive.release.cta.shared::cta.b64 %u1, [%sh], 1;\n"
      "\tmbarrier.test_wait.shared.b64 %d1, [%sh], %u0;\n"
      "\tmbarrier.arrive.shared.b64 _, [%sh], 5;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d2, [%sh], 1;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 0;\n");
  row("mbarrier.arrive.noComplete",
      "\tmbarrier.init.shared.b64 [%sh], 3;\n"
      "\tmbarrier.arrive.noComplete.shared.b64 %u0, [%sh], 2;\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.arrive.shared.b64 %u1, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d1, [%sh], %u0;\n"
      "\tmov.pred %d2, %d1;\n\tmov.pred %d3, %d0;\n");
  row("mbarrier.arrive_drop",
      "\tmbarrier.init.shared.b64 [%sh], 2;\n"
      "\tmbarrier.arrive_drop.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d1, [%sh], 0;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d2, [%sh], 1;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 0;\n");
  row("mbarrier.inval, init [again]",
      "\tmbarrier.init.shared.b64 [%sh], 1;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d0, [%sh], 0;\n"
      "\tmbarrier.inval.shared.b64 [%sh];\n"
      "\tmbarrier.init.shared.b64 [%sh], 2;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d1, [%sh], 0;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d2, [%sh], 0;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 0;\n");
  family.body("mbarrier.pending_count",
              "\tmbarrier.init.shared.b64 [%sh], 9;\n"
              "\tmbarrier.arrive.shared.b64 %u0, [%sh], 3;\n"
              "\tmbarrier.pending_count.b64 %d0, %u0;\n"
              "\tmbarrier.arrive.shared.b64 %u0, [%sh], 5;\n"
              "\tmbarrier.pending_count.b64 %d1, %u0;\n"
              "\tmbarrier.inval.shared.b64 [%sh];\n",
              {B32, B32}, {});
}

void addTransactions(Family &family) {
  // An mbarrier must not be left within a phase.
  auto row = [&](const std::string &name, const std::string &text) {
    family.body(name, text + "\tmbarrier.inval.shared.b64 [%sh];\n", kFour, {});
  };
  row("mbarrier.arrive.expect_tx, complete_tx",
      "\tmbarrier.init.shared.b64 [%sh], 1;\n"
      "\tmbarrier.arrive.expect_tx.shared.b64 %u0, [%sh], 64;\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.complete_tx.relaxed.cta.shared.b64 [%sh], 48;\n"
      "\tmbarrier.test_wait.shared.b64 %d1, [%sh], %u0;\n"
      "\tmbarrier.complete_tx.relaxed.cta.shared.b64 [%sh], 16;\n"
      "\tmbarrier.test_wait.shared.b64 %d2, [%sh], %u0;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 1;\n");
  row("mbarrier.expect_tx",
      "\tmbarrier.init.shared.b64 [%sh], 1;\n"
      "\tmbarrier.expect_tx.relaxed.cta.shared.b64 [%sh], 32;\n"
      "\tmbarrier.arrive.shared.b64 %u0, [%sh];\n"
      "\tmbarrier.test_wait.shared.b64 %d0, [%sh], %u0;\n"
      "\tmbarrier.complete_tx.relaxed.cta.shared.b64 [%sh], 32;\n"
      "\tmbarrier.test_wait.shared.b64 %d1, [%sh], %u0;\n"
      "\tmbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%sh], 0;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d2, [%sh], 1;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 0;\n");
  row("mapa, mbarrier.arrive.release.cluster.shared::cluster",
      "\tmapa.shared::cluster.u32 %t0, %sh, 0;\n"
      "\tmbarrier.init.shared.b64 [%sh], 2;\n"
      "\tmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%t0];\n"
      "\tmbarrier.test_wait.parity.acquire.cluster.shared.b64 %d0, [%sh], 0;\n"
      "\tmbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, "
      "[%t0], 16;\n"
      "\tmbarrier.test_wait.parity.acquire.cluster.shared.b64 %d1, [%sh], 0;\n"
      "\tmbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%t0], 16;\n"
      "\tmbarrier.test_wait.parity.acquire.cluster.shared.b64 %d2, [%sh], 0;\n"
      "\tmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%t0], 2;\n"
      "\tmbarrier.test_wait.parity.shared.b64 %d3, [%sh], 1;\n");
  // All threads of a CTA at one mbarrier: writes of the others are visible
  // after the wait.
  family.shared(4, 16);
  const std::string readAnother =
      "wait:\n"
      "\tmbarrier.try_wait.parity.shared.b64 %p1, [%smem], 0;\n"
      "\t@!%p1 bra wait;\n"
      "\txor.b32 %t0, %thread, 101;\n"
      "\tmad.lo.s32 %t0, %t0, 4, %smem;\n"
      "\tld.shared.b32 %d0, [%t0+16];\n";
  family.body("mbarrier [a whole CTA meets]",
              "\tsetp.ne.b32 %p0, %thread, 0;\n"
              "\t@%p0 bra made;\n"
              "\tmbarrier.init.shared.b64 [%smem], 128;\n"
              "made:\n"
              "\tbar.sync 0;\n"
              "\tst.shared.b32 [%sh], %a0;\n"
              "\tmbarrier.arrive.shared.b64 %u0, [%smem];\n" +
                  readAnother,
              {B32}, {B32});
  family.body("st.async",
              "\tsetp.ne.b32 %p0, %thread, 0;\n"
              "\t@%p0 bra made;\n"
              "\tmbarrier.init.shared.b64 [%smem], 1;\n"
              "\tmbarrier.arrive.expect_tx.shared.b64 _, [%smem], 512;\n"
              "made:\n"
              "\tbar.sync 0;\n"
              "\tmapa.shared::cluster.u32 %t0, %sh, 0;\n"
              "\tmapa.shared::cluster.u32 %t1, %smem, 0;\n"
              "\tst.async.shared::cluster.mbarrier::complete_tx::bytes.b32 "
              "[%t0], %a0, [%t1];\n" +
                  readAnother,
              {B32}, {B32});
}

} // namespace

void addBarrier(Forms &forms) {
  Family family("barrier", forms);
  family.launch(8, 128);
  addCtaBarriers(family);
  addArrivals(family);
  addTransactions(family);
  Form &registers = family.shared(0).body(
      "setmaxnreg.dec, setmaxnreg.inc",
      "\tsetmaxnreg.dec.sync.aligned.u32 40;\n\tadd.s32 %d0, %a0, 3;\n"
      "\tsetmaxnreg.inc.sync.aligned.u32 120;\n",
      {B32}, {B32});
  registers.ptx.replace(registers.ptx.find(".reqntid 128"), 12,
                        ".reqntid 128\n.maxnreg 128");
}

} // namespace moec::conform
