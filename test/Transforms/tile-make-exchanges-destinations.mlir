// Kernels that push rows only to destination ranks take ids and the table of destinations after the moved pairs.
// RUN: moe-opt %s --tile-make-exchanges=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --tile-make-exchanges="target=sm_90a configs=all_gather:least_rows=7" \
// RUN:   | FileCheck %s --check-prefix=FORCED
// RUN: not moe-opt %s --tile-make-exchanges="target=sm_90a configs=all_gather_0:least_rows=7" 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ALL

// FORCED: least_rows = 7
// FORCED: least_rows = 256
// ALL: cannot run as #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4, least_rows = 7>: least_rows = 7, but all rows go to all ranks; remove it

// CHECK-LABEL: plan.program @layer
// CHECK: plan.collective all_gather dp {{.*}} routed [0] {plan.exchange_kernel = @all_gather,
// CHECK: plan.collective reduce_scatter dp {{.*}} routed [0] {plan.exchange_kernel = @reduce_scatter,
// CHECK: plan.collective all_gather dp {{.*}} {plan.exchange_kernel = @all_gather_0}
plan.program @layer max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %o = plan.tensor weight "o" : memref<4xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x256xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x256xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  plan.variant tokens 0 to 16 {
    plan.collective all_gather dp ins(%x, %i : memref<?x256xbf16>, memref<?x2xi32>)
        outs(%a, %b : memref<?x256xbf16>, memref<?x2xi32>) destinations(%o : memref<4xi32>) ids(%i : memref<?x2xi32>) routed [0]
    plan.collective reduce_scatter dp ins(%a : memref<?x256xbf16>) outs(%y : memref<?x256xbf16>)
        destinations(%o : memref<4xi32>) ids(%i, %b : memref<?x2xi32>, memref<?x2xi32>) routed [0]
    plan.collective all_gather dp ins(%x, %i : memref<?x256xbf16>, memref<?x2xi32>)
        outs(%a, %b : memref<?x256xbf16>, memref<?x2xi32>)
  }
}

// CHECK-LABEL: tile.kernel @all_gather(
//  CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x256xbf16>, %[[I:[a-z0-9]+]]: memref<?x2xi32>, %{{[a-z0-9]+}}: memref<?x256xbf16>, %{{[a-z0-9]+}}: memref<?x2xi32>,
//  CHECK-SAME: %[[IDS:[a-z0-9]+]]: memref<?x2xi32>, %[[DESTINATIONS:[a-z0-9]+]]: memref<4xi32>, %{{[a-z0-9]+}}: memref<?xi64>, %{{[a-z0-9]+}}: memref<?xi64>, %tokens: i64
//       CHECK: tile.exchange all_gather
//  CHECK-SAME: destinations(%[[DESTINATIONS]] : memref<4xi32>) ids(%[[IDS]] : memref<?x2xi32>) routed [0]
//  CHECK-SAME: least_rows = 256
// CHECK-LABEL: tile.kernel @reduce_scatter(
//       CHECK: tile.exchange reduce_scatter
//  CHECK-SAME: ids(%{{[a-z0-9]+}}, %{{[a-z0-9]+}} : memref<?x2xi32>, memref<?x2xi32>) routed [0]
// CHECK-LABEL: tile.kernel @all_gather_0(
//   CHECK-NOT: destinations
//   CHECK-NOT: least_rows
//       CHECK: tile.kernel @route_rows(
