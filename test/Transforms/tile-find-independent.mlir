// Kernels that may overlap all launches that may still run when they begin.
// RUN: moe-opt %s --split-input-file --tile-find-independent | FileCheck %s

// @b and @c read what no launch writes, and write what no other touches; @d
// reads what @b writes. @c may overlap @a too.
// CHECK-LABEL: tile.kernel @a(
//   CHECK-NOT: independent
// CHECK-LABEL: tile.kernel @b(
//  CHECK-SAME: attributes {form = #tile.kernel_form<independent = true>}
// CHECK-LABEL: tile.kernel @c(
//  CHECK-SAME: attributes {form = #tile.kernel_form<independent = true>}
// CHECK-LABEL: tile.kernel @d(
//   CHECK-NOT: independent
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x8xf32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @a ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @b dependent ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @c dependent ins(%x : memref<?x8xf32>) outs(%c : memref<?x8xf32>)
    plan.launch @d dependent ins(%b : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @a(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @b(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @c(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @d(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}

// -----

// Conflicts: a slot that the first launch reads; its result, two launches back; the caller's tensors, which may
// overlap; and one of several launches of a kernel.
// CHECK-LABEL: plan.program @conflicts
//   CHECK-NOT: independent
plan.program @conflicts max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x8xf32>
  %c = plan.buffer "c" slot 0 rows <"tokens"> : memref<?x8xf32>
  %d = plan.buffer "d" slot 2 rows <"tokens"> : memref<?x8xf32>
  %e = plan.buffer "e" slot 3 rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 4 {
    plan.launch @first ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.record event 0 stream 0
    plan.launch @next ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @slot dependent ins(%x : memref<?x8xf32>) outs(%c : memref<?x8xf32>)
    plan.launch @back dependent ins(%b : memref<?x8xf32>) outs(%d : memref<?x8xf32>)
    plan.launch @caller dependent ins(%d : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.launch @caller dependent ins(%c : memref<?x8xf32>) outs(%z : memref<?x8xf32>)
  }
  plan.variant tokens 5 to 8 {
    plan.launch @first ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @next dependent ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @back dependent ins(%x : memref<?x8xf32>) outs(%e : memref<?x8xf32>)
    plan.launch @caller dependent ins(%e : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.launch @caller dependent ins(%b : memref<?x8xf32>) outs(%z : memref<?x8xf32>)
  }
}
tile.kernel @first(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @next(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @slot(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @back(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @caller(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}

// -----

// Data from other ranks is read after a wait, even if the exchange had ended before the previous launch began.
// CHECK-LABEL: tile.kernel @gate(
//   CHECK-NOT: independent
// CHECK-LABEL: tile.kernel @hidden(
//   CHECK-NOT: independent
plan.program @ranks max_tokens 8 mesh <tp = 2, sp = true> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %all = plan.buffer "all" slot 0 rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 1 rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.collective all_gather tp ins(%x : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    plan.launch @gate ins(%all : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @hidden dependent ins(%all : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @gate(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @hidden(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}

// -----

// Results of a launch are read after a wait, even if it had ended before the previous launch began. @other reads
// memory without writes.
// CHECK-LABEL: tile.kernel @other(
//  CHECK-SAME: attributes {form = #tile.kernel_form<independent = true>}
// CHECK-LABEL: tile.kernel @placed(
//   CHECK-NOT: independent
plan.program @over max_tokens 8 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %own = plan.buffer "own" slot 0 rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %all = plan.buffer "all" slot 1 rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" slot 2 rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" slot 3 rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %c = plan.buffer "c" slot 4 rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 8 {
    plan.launch @made tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x8xf32>) outs(%own : memref<?x8xf32>)
    plan.collective all_gather dp ins(%own : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    plan.launch @first ins(%all : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @other tokens <"ceildiv(tokens, 2)"> dependent ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @placed tokens <"ceildiv(tokens, 2)"> dependent ins(%own : memref<?x8xf32>) outs(%c : memref<?x8xf32>)
    plan.launch @last dependent ins(%a, %b, %c : memref<?x8xf32>, memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @made(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @first(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @other(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @placed(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
tile.kernel @last(%x: memref<?x8xf32>, %b: memref<?x8xf32>, %c: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
