// Collectives through the printer and back, and refused ones.
// RUN: moe-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK: plan.program @layer max_tokens 64 mesh <dp = 2, tp = 2> {
plan.program @layer max_tokens 64 mesh <dp = 2, tp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %all = plan.buffer "all" rows <"tokens"> : memref<?x8xf32>
  %part = plan.buffer "part" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // CHECK: plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    // CHECK: plan.collective reduce_scatter dp ins(%all : memref<?x8xf32>) outs(%part : memref<?x8xf32>)
    plan.collective reduce_scatter dp ins(%all : memref<?x8xf32>) outs(%part : memref<?x8xf32>)
    // CHECK: plan.record event 0 stream 0
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    // CHECK: plan.collective all_reduce tp stream 1 ins(%part : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.collective all_reduce tp stream 1 ins(%part : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    // CHECK: plan.launch @k tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.launch @k tokens <"ceildiv(tokens, 2)"> ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is over axis 'tp', which has one rank; give the program a 'mesh' with more ranks, or remove the collective}}
    plan.collective all_reduce tp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 4> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{ins[0] has ceildiv(tokens, 2) rows and outs[0] tokens; 4 ranks turn that into 4 times as many}}
    plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf16>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{they may differ only in the first dimension}}
    plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf16>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  // expected-note@+1 {{the memory is here}}
  %a = plan.buffer "a" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads memory that no step has written yet}}
    plan.collective all_gather dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// -----

// CHECK: module attributes {test.mesh = #plan.mesh<tp = 2>}
module attributes {test.mesh = #plan.mesh<dp = 1, tp = 2>} {}

// -----

// Rows that go only to their destination ranks.
// CHECK: plan.collective all_gather dp ins(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<?x2xi32>) outs(%{{.*}}, %{{.*}} : memref<?x8xf32>, memref<?x2xi32>) destinations(%{{.*}} : memref<4xi32>) ids(%{{.*}} : memref<?x2xi32>) routed [0]
// CHECK: plan.collective reduce_scatter dp ins(%{{.*}} : memref<?x8xf32>) outs(%{{.*}} : memref<?x8xf32>) destinations(%{{.*}} : memref<4xi32>) ids(%{{.*}}, %{{.*}} : memref<?x2xi32>, memref<?x2xi32>) routed [0]
plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %all = plan.buffer "all" rows <"tokens"> : memref<?x8xf32>
  %is = plan.buffer "is" rows <"tokens"> : memref<?x2xi32>
  plan.variant tokens 0 to 64 {
    plan.collective all_gather dp ins(%x, %i : memref<?x8xf32>, memref<?x2xi32>)
        outs(%all, %is : memref<?x8xf32>, memref<?x2xi32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
    plan.collective reduce_scatter dp ins(%all : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        destinations(%o : memref<4xi32>) ids(%i, %is : memref<?x2xi32>, memref<?x2xi32>) routed [0]
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %i = plan.tensor input "i" rows <"tokens"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has 'ids' of tokens rows for ceildiv(tokens, 2) moved rows; give the ids of the moved rows}}
    plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  // expected-note@+1 {{the memory is here}}
  %i = plan.buffer "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{reads memory that no step has written yet}}
    plan.collective all_gather dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has 'destinations', 1 'ids' and 1 'routed'; give 'destinations', 2 'ids' and one or more indices in 'routed', or none of these}}
    plan.collective reduce_scatter dp ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
  }
}

// -----

// Sums that a kernel makes itself.
// CHECK: plan.collective reduce_scatter dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>) sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) addend(%s : memref<?x8xf32>)
plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %s = plan.tensor input "s" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    plan.launch @k ins(%r, %p : memref<?x8xf32>, memref<?x2xi32>) outs(%a : memref<?x8xf32>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>) addend(%s : memref<?x8xf32>)
  }
}
func.func private @k()

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"tokens"> : memref<?x2xi32>
  %a = plan.tensor input "a" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has 'sums_of', but no earlier launch makes the sums; remove 'sums_of'}}
    plan.collective reduce_scatter dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %r = plan.tensor input "r" rows <"tokens * 2"> : memref<?x8xf32>
  %p = plan.tensor input "p" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %a = plan.tensor input "a" rows <"tokens"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{has a 'position' or 'addend' of ceildiv(tokens, 2) rows for sums of tokens; give one row for each}}
    plan.collective reduce_scatter dp ins(%a : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
        sums_of(%r, %p : memref<?x8xf32>, memref<?x2xi32>)
  }
}

// -----

// CHECK-LABEL: plan.program @results
plan.program @results max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %all = plan.buffer "all" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // CHECK: plan.collective all_gather dp to_results ins(%x : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    plan.collective all_gather dp to_results ins(%x : memref<?x8xf32>) outs(%all : memref<?x8xf32>)
    plan.collective reduce_scatter dp ins(%all : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is 'to_results', which only an all_gather of buffers may be; remove it}}
    plan.collective all_gather dp to_results ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}

// -----

plan.program @layer max_tokens 64 mesh <dp = 2> {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %y = plan.buffer "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xf32>
  plan.variant tokens 0 to 64 {
    // expected-error@+1 {{is 'to_results', which only an all_gather of buffers may be; remove it}}
    plan.collective reduce_scatter dp to_results ins(%x : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
