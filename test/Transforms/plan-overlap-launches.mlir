// RUN: moe-opt %s --pass-pipeline='builtin.module(plan.program(plan-overlap-launches{target=sm_90a}))' | FileCheck %s
// RUN: moe-opt %s --pass-pipeline='builtin.module(plan.program(plan-overlap-launches{target=sm_80}))' | FileCheck %s --check-prefix=NONE
// RUN: moe-opt %s --pass-pipeline='builtin.module(plan.program(plan-overlap-launches))' | FileCheck %s --check-prefix=NONE
// RUN: moe-opt %s --pass-pipeline='builtin.module(plan.program(plan-overlap-launches{target=sm_100a}))' | FileCheck %s

// NONE-NOT: dependent
// CHECK: plan.prepare
// CHECK: plan.launch @k ins
// CHECK: plan.launch @k ins
plan.program @layer max_tokens 8 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x8xf32>
  %w = plan.tensor weight "w" : memref<8xf32>
  %p = plan.tensor prepared "p" : memref<8xf32>
  %q = plan.tensor prepared "q" : memref<8xf32>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x8xf32>
  %a = plan.buffer "a" rows <"tokens"> : memref<?x8xf32>
  %b = plan.buffer "b" rows <"tokens"> : memref<?x8xf32>
  plan.prepare {
    plan.launch @k ins(%w : memref<8xf32>) outs(%p : memref<8xf32>)
    plan.launch @k ins(%p : memref<8xf32>) outs(%q : memref<8xf32>)
  }
  // Each variant is a run: steps before its first launch belong to another run.
  // CHECK: plan.variant tokens 0 to 3
  // CHECK-NEXT: plan.launch @k ins
  // CHECK-NEXT: plan.launch @k dependent ins
  // CHECK-NEXT: plan.launch @k dependent ins
  plan.variant tokens 0 to 3 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @k ins(%b : memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
  // Streams run concurrently; events end a chain.
  // CHECK: plan.variant tokens 4 to 8
  // CHECK-NEXT: plan.launch @k ins
  // CHECK-NEXT: plan.record event 0 stream 0
  // CHECK-NEXT: plan.wait event 0 stream 1
  // CHECK-NEXT: plan.launch @k stream 1 ins
  // CHECK-NEXT: plan.launch @k ins
  // CHECK-NEXT: plan.launch @k stream 1 dependent ins
  // CHECK-NEXT: plan.launch @k dependent ins
  // CHECK-NEXT: plan.record event 1 stream 1
  // CHECK-NEXT: plan.wait event 1 stream 0
  // CHECK-NEXT: plan.launch @k ins
  // CHECK-NEXT: plan.launch @k dependent ins
  plan.variant tokens 4 to 8 {
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.record event 0 stream 0
    plan.wait event 0 stream 1
    plan.launch @k stream 1 ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.launch @k stream 1 ins(%x : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
    plan.launch @k ins(%x : memref<?x8xf32>) outs(%a : memref<?x8xf32>)
    plan.record event 1 stream 1
    plan.wait event 1 stream 0
    plan.launch @k ins(%a, %b : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
    plan.launch @k ins(%a, %b : memref<?x8xf32>, memref<?x8xf32>) outs(%y : memref<?x8xf32>)
  }
}
func.func private @k()
