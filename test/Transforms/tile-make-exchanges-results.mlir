// Gathers write directly into other ranks' results if these are known to be done with them: no step uses a buffer
// before, and a later collective of the axis follows all its uses.
// RUN: moe-opt %s --split-input-file --tile-make-exchanges=target=sm_90a | FileCheck %s

// The kernel of the summing collective reads the ids of all rows, after those of its own rows, before it signals its
// arrival.
// CHECK-LABEL: plan.program @released
//       CHECK: plan.collective all_gather dp to_results ins
//       CHECK: tile.kernel @all_gather
//       CHECK: tile.exchange all_gather to_results tokens
plan.program @released max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<8xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%x, %i : memref<?x8xbf16>, memref<?x2xi32>)
        outs(%a, %b : memref<?x8xbf16>, memref<?x2xi32>)
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
        destinations(%o : memref<8xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// -----

// A launch reads the gathered rows concurrently with the next collective, and the last collective moves the buffer
// itself.
// CHECK-LABEL: plan.program @read_beside
//       CHECK: plan.collective all_gather dp ins
// CHECK-LABEL: plan.program @moved_again
//       CHECK: plan.collective all_gather dp ins
plan.program @read_beside max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %c = plan.buffer "c" slot 1 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%x : memref<?x8xbf16>) outs(%a : memref<?x8xbf16>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @k stream 1 ins(%a : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
    plan.record event 1 stream 1
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
    plan.wait event 1 stream 0
  }
}
plan.program @moved_again max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%x : memref<?x8xbf16>) outs(%a : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// -----

// Other ranks would write the buffer while the launch before the gather uses it.
// CHECK-LABEL: plan.program @used_before
//       CHECK: plan.collective all_gather dp ins
plan.program @used_before max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %w = plan.tensor input "w" rows <"tokens"> : memref<?x8xbf16>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %c = plan.buffer "c" slot 1 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.launch @k ins(%w : memref<?x8xbf16>) outs(%a : memref<?x8xbf16>)
    plan.collective all_gather dp ins(%x : memref<?x8xbf16>) outs(%a : memref<?x8xbf16>)
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// -----

// In a run without tokens the number is gathered, but nothing is summed: a launch that reads it must have no CTAs
// then.
// CHECK-LABEL: plan.program @read_without_tokens
//       CHECK: plan.variant tokens 0 to 8
//       CHECK: plan.collective all_gather dp ins
//       CHECK: plan.variant tokens 9 to 16
//       CHECK: plan.collective all_gather dp to_results ins
// CHECK-LABEL: plan.program @read_with_tokens
//       CHECK: plan.collective all_gather dp to_results ins
plan.program @read_without_tokens max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %n = plan.tensor input "n" : memref<1xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 : memref<2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 8 {
    plan.collective all_gather dp ins(%x, %n : memref<?x8xbf16>, memref<1xi32>)
        outs(%a, %b : memref<?x8xbf16>, memref<2xi32>)
    plan.launch @one ins(%a, %b : memref<?x8xbf16>, memref<2xi32>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.collective all_gather dp ins(%x, %n : memref<?x8xbf16>, memref<1xi32>)
        outs(%a, %b : memref<?x8xbf16>, memref<2xi32>)
    plan.launch @one ins(%a, %b : memref<?x8xbf16>, memref<2xi32>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
}
plan.program @read_with_tokens max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %n = plan.tensor input "n" : memref<1xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 : memref<2xi32>
  %c = plan.buffer "c" slot 2 rows <"tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%x, %n : memref<?x8xbf16>, memref<1xi32>)
        outs(%a, %b : memref<?x8xbf16>, memref<2xi32>)
    plan.launch @each ins(%a, %b : memref<?x8xbf16>, memref<2xi32>) outs(%c : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%c : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
  }
}
tile.kernel @one(%x: memref<?x8xbf16>, %n: memref<2xi32>, %y: memref<?x8xbf16>, %t: i64)
    attributes {grid = #plan.expr<"1">} {
  tile.return
}
tile.kernel @each(%x: memref<?x8xbf16>, %n: memref<2xi32>, %y: memref<?x8xbf16>, %t: i64)
    attributes {grid = #plan.expr<"tokens">} {
  tile.return
}
