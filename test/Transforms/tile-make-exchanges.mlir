// Kernels of collectives, shared by equal ones; none on a CPU, nor if pairs have different numbers of rows.
// RUN: moe-opt %s --tile-make-exchanges=target=sm_90a | FileCheck %s
// RUN: moe-opt %s --tile-make-exchanges | FileCheck %s --check-prefix=CPU

// CPU-NOT: tile.exchange

// RUN: moe-opt %s --tile-make-exchanges="target=sm_90a configs=all_gather:ctas=8,reduce_scatter:chunks=2" \
// RUN:   | FileCheck %s --check-prefix=FORCED

// FORCED: config = #tile.gpu_exchange<ctas = 8, threads = 512, chunks = 4>

// CHECK-LABEL: plan.program @layer
// CHECK: plan.collective all_gather dp ins(%{{.*}}) outs(%{{.*}}) {plan.exchange_kernel = @all_gather}
// CHECK: plan.collective reduce_scatter dp ins(%{{.*}}) outs(%{{.*}}) {plan.exchange_kernel = @reduce_scatter}
// CHECK: plan.collective all_gather dp ins(%{{.*}}) outs(%{{.*}}) {plan.exchange_kernel = @all_gather}
// CHECK: plan.collective reduce_scatter dp ins(%{{[^)]*}}) outs(%{{[^)]*}}){{$}}
plan.program @layer max_tokens 16 mesh <dp = 2, tp = 1> {
  %x = plan.tensor input "x" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %i = plan.tensor input "i" rows <"ceildiv(tokens, 2)"> : memref<?x2xi32>
  %n = plan.tensor input "n" : memref<1xi32>
  %y = plan.tensor output "y" rows <"ceildiv(tokens, 2)"> : memref<?x8xbf16>
  %z = plan.tensor output "z" rows <"tokens"> : memref<?x8xbf16>
  %a = plan.buffer "a" slot 0 rows <"tokens"> : memref<?x8xbf16>
  %b = plan.buffer "b" slot 1 rows <"tokens"> : memref<?x2xi32>
  %c = plan.buffer "c" slot 2 : memref<2xi32>
  %d = plan.buffer "d" slot 3 rows <"2 * tokens"> : memref<?x8xbf16>
  plan.variant tokens 0 to 8 {
    plan.collective all_gather dp ins(%x, %i, %n : memref<?x8xbf16>, memref<?x2xi32>, memref<1xi32>)
        outs(%a, %b, %c : memref<?x8xbf16>, memref<?x2xi32>, memref<2xi32>)
    plan.collective reduce_scatter dp ins(%a : memref<?x8xbf16>) outs(%y : memref<?x8xbf16>)
    plan.launch @k ins(%a : memref<?x8xbf16>) outs(%z : memref<?x8xbf16>)
  }
  plan.variant tokens 9 to 16 {
    plan.collective all_gather dp ins(%x, %i, %n : memref<?x8xbf16>, memref<?x2xi32>, memref<1xi32>)
        outs(%a, %b, %c : memref<?x8xbf16>, memref<?x2xi32>, memref<2xi32>)
    plan.launch @k2 ins(%a : memref<?x8xbf16>) outs(%d : memref<?x8xbf16>)
    plan.collective reduce_scatter dp ins(%a, %d : memref<?x8xbf16>, memref<?x8xbf16>)
        outs(%y, %z : memref<?x8xbf16>, memref<?x8xbf16>)
  }
}
tile.kernel @k(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}
tile.kernel @k2(%x: memref<?x8xbf16>, %y: memref<?x8xbf16>, %t: i64) {
  tile.return
}

// 16 bytes of rows at a time, as many CTAs as take a round of them.
// CHECK-LABEL: tile.kernel @all_gather(
//  CHECK-SAME: %{{.*}}: memref<?x8xbf16>, %{{.*}}: memref<?x2xi32>, %{{.*}}: memref<1xi32>
//  CHECK-SAME: %{{.*}}: memref<?x8xbf16>, %{{.*}}: memref<?x2xi32>, %{{.*}}: memref<2xi32>
//  CHECK-SAME: %{{.*}}: memref<?xi64>, %{{.*}}: memref<?xi64>, %tokens: i64
//  CHECK-SAME: block = 512
//  CHECK-SAME: form = #tile.kernel_form<resident = true>
//  CHECK-SAME: grid = #plan.expr<"min(
//       CHECK: tile.exchange all_gather tokens(%tokens)
//  CHECK-SAME: config = #tile.gpu_exchange<ctas = 64, threads = 512, chunks = 4>
// CHECK-LABEL: tile.kernel @reduce_scatter(
//       CHECK: tile.exchange reduce_scatter
//   CHECK-NOT: tile.exchange
