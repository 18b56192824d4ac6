// Launches and collectives of some columns.
// RUN: moe-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: plan.program @layer
//       CHECK: plan.collective reduce_scatter dp columns [0, 4] ins(
//       CHECK: plan.launch @k
//       CHECK: plan.collective reduce_scatter dp columns [4, 4] ins(
plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.collective reduce_scatter dp columns [0, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    plan.collective reduce_scatter dp columns [4, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    // expected-error@+1 {{has columns [2, 4]; give the first column, a multiple of the number of columns, and that number}}
    plan.collective reduce_scatter dp columns [2, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    // expected-error@+1 {{has 3 columns of 8; give a number that divides them}}
    plan.collective reduce_scatter dp columns [0, 3] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    // expected-error@+1 {{has 'columns' without 'sums_of'; give 'sums_of' too, or remove 'columns'}}
    plan.collective reduce_scatter dp columns [0, 8] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    // expected-error@+1 {{moves columns from 4 on, but the collective before it does not move the previous 4 columns of the same rows; move all columns, in order}}
    plan.collective reduce_scatter dp columns [4, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{moves columns up to 4, but the collective after it does not move the next 4 columns of the same rows; move all columns, in order}}
    plan.collective reduce_scatter dp columns [0, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  // expected-note@+1 {{the memory is here}}
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.collective reduce_scatter dp columns [0, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
    // expected-error@+1 {{reads memory that no step has written yet}}
    plan.collective reduce_scatter dp columns [4, 4] ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has columns [0]; give the first column, a multiple of the number of columns, and that number}}
    plan.launch @k columns [0] ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 {
  %r = plan.tensor input "r" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has no 'columns', but k takes the first column; give 'columns'}}
    plan.launch @k ins(%r : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %c: i64, %t: i64) {
  tile.return
}

// -----

plan.program @layer max_tokens 64 {
  %r = plan.tensor input "r" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has 'columns', but k computes all columns; remove 'columns'}}
    plan.launch @k columns [0, 4] ins(%r : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
tile.kernel @k(%x: memref<?x8xf32>, %y: memref<?x8xf32>, %t: i64) {
  tile.return
}
