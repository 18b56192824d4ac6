// The certificate of batch invariance, and why there is none.

// RUN: moe-opt %s --split-input-file --pass-pipeline="builtin.module(tile-certify-sum-orders{target=sm_80})" --remarks-filter=tile-certify-sum-orders --verify-diagnostics | FileCheck %s

// CHECK: plan.program @same max_tokens 64 attributes {sum_orders = {logits = #tile.sum_order<unit = fma, k = 1, splits = 32, adjacent = 8>}}
plan.program @same max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x512xbf16>
  %w = plan.tensor weight "w" : memref<16x512xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x16xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 8 {
    plan.launch @logits_t8 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
  plan.variant tokens 9 to 64 {
    plan.launch @logits_t64 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
}
tile.kernel @logits_t8(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gemv<block_m = 1, block_n = 1, threads = 32>, moe.name = ["logits"]}
  tile.return
}
tile.kernel @logits_t64(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gemv<block_m = 8, block_n = 2, threads = 32>, moe.name = ["logits"]}
  tile.return
}

// -----

// CHECK: plan.program @other max_tokens 64 {
plan.program @other max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x512xbf16>
  %w = plan.tensor weight "w" : memref<16x512xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x16xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 8 {
    plan.launch @logits_t8 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
  plan.variant tokens 9 to 64 {
    plan.launch @logits_t64 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
}
tile.kernel @logits_t8(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gemv<block_m = 1, block_n = 1, threads = 32>, moe.name = ["logits"]}
  tile.return
}
tile.kernel @logits_t64(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-remark @below {{adds in the order #tile.sum_order<unit = tensor_core, k = 16>, but kernel 'logits_t8' of the same gemm adds in #tile.sum_order<unit = fma, k = 1, splits = 32, adjacent = 8>}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.sm80_gemm<block_m = 16, block_n = 16, block_k = 64, vector_width = 8>, moe.name = ["logits"]}
  tile.return
}

// -----

plan.program @asked max_tokens 64 attributes {batch_invariant} {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x512xbf16>
  %w = plan.tensor weight "w" : memref<16x512xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x16xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 8 {
    plan.launch @logits_t8 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
  plan.variant tokens 9 to 64 {
    plan.launch @logits_t64 ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
}
tile.kernel @logits_t8(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gemv<block_m = 1, block_n = 1, threads = 32>, moe.name = ["logits"]}
  tile.return
}
tile.kernel @logits_t64(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error @below {{although the program is batch-invariant; run tile-fix-sum-orders before configs are chosen}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {config = #tile.gpu_gemv<block_m = 1, block_n = 1, threads = 64>, moe.name = ["logits"]}
  tile.return
}

// -----

// Configs are chosen by the pass ahead of this one.
plan.program @early max_tokens 64 {
  %x = plan.tensor input "x" rows <"tokens"> : memref<?x512xbf16>
  %w = plan.tensor weight "w" : memref<16x512xbf16>
  %y = plan.tensor output "y" rows <"tokens"> : memref<?x16xf32>
  plan.prepare {
  }
  plan.variant tokens 0 to 64 {
    plan.launch @logits ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
  }
}
tile.kernel @logits(%x: memref<?x512xbf16>, %w: memref<16x512xbf16>, %y: memref<?x16xf32>, %tokens: i64) {
  // expected-error@+1 {{has no config; run tile-assign-config before this pass}}
  tile.gemm tokens(%tokens) ins(%x, %w : memref<?x512xbf16>, memref<16x512xbf16>) outs(%y : memref<?x16xf32>)
      {moe.name = ["logits"]}
  tile.return
}
