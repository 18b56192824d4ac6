// A moe.dispatch or a moe.combine alone, and experts between them, stay as they are written (docs/design/parts.md).
// RUN: moe-opt %s --split-input-file --moe-parallelize --moe-verify-partials --convert-moe-to-plan | FileCheck %s

// Inputs have the rows of a rank and results those of all ranks, whatever their types; max_tokens counts these.
// CHECK-LABEL: plan.program @prepare max_tokens 64 mesh <dp = 2> {
//       CHECK: plan.tensor input "hidden_states" rows <"ceildiv(tokens, 2)"> : memref<?x64xf8E4M3FN>
//       CHECK: plan.tensor input "scales" rows <"ceildiv(tokens, 2)"> : memref<?x2xf32>
//       CHECK: plan.tensor output "all_rows" rows <"tokens"> : memref<?x64xf8E4M3FN>
//       CHECK: plan.tensor output "all_loras" rows <"tokens"> : memref<?xi32>
//       CHECK: plan.collective all_gather dp ins(%hidden_states, %scales, %topk_ids, %loras
//  CHECK-SAME: destinations(%placement.destinations : memref<8xi32>) ids(%topk_ids : memref<?x2xi32>) routed [0, 1]
//   CHECK-NOT: plan.launch
func.func @prepare(%x: tensor<?x64xf8E4M3FN> {moe.name = "hidden_states", moe.role = "input"},
                   %s: tensor<?x2xf32> {moe.name = "scales", moe.role = "input"},
                   %i: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
                   %l: tensor<?xi32> {moe.name = "loras", moe.role = "input"},
                   %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x64xf8E4M3FN> {moe.name = "all_rows"}, tensor<?x2xf32> {moe.name = "all_scales"},
        tensor<?x2xi32> {moe.name = "all_ids"}, tensor<?xi32> {moe.name = "all_loras"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>, moe.max_tokens = 64 : i64} {
  %0:4 = moe.dispatch <dp> %x, %s, %i, %l destinations(%d : tensor<8xi32>) ids(%i : tensor<?x2xi32>) routed [0, 1]
      : tensor<?x64xf8E4M3FN>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
      -> tensor<?x64xf8E4M3FN>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
  return %0#0, %0#1, %0#2, %0#3 : tensor<?x64xf8E4M3FN>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?xi32>
}

// -----

// CHECK-LABEL: plan.program @finalize max_tokens 64 mesh <dp = 2> {
//       CHECK: plan.tensor input "partial" rows <"tokens">
//       CHECK: plan.tensor input "topk_ids" rows <"ceildiv(tokens, 2)">
//       CHECK: plan.tensor input "all_ids" rows <"tokens">
//       CHECK: plan.tensor output "output" rows <"ceildiv(tokens, 2)">
//       CHECK: plan.collective reduce_scatter dp ins(%partial
//  CHECK-SAME: ids(%topk_ids, %all_ids : memref<?x2xi32>, memref<?x2xi32>) routed [0]
func.func @finalize(%p: tensor<?x64xbf16>
                      {moe.name = "partial", moe.role = "input", moe.rows = "all", moe.partial = ["dp"]},
                    %i: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
                    %a: tensor<?x2xi32> {moe.name = "all_ids", moe.role = "input", moe.rows = "all"},
                    %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "output"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>, moe.max_tokens = 64 : i64} {
  %0 = moe.combine <dp> %p destinations(%d : tensor<8xi32>) ids(%i, %a : tensor<?x2xi32>, tensor<?x2xi32>)
      : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// A group adds its partials first; the sum is still a partial over dp.
// CHECK-LABEL: plan.program @group max_tokens 64 mesh <dp = 2, tp = 2> {
//       CHECK: plan.tensor input "partial" rows <"ceildiv(tokens, 2)">
//       CHECK: plan.tensor output "sum" rows <"ceildiv(tokens, 2)">
func.func @group(%p: tensor<?x64xbf16>
                   {moe.name = "partial", moe.role = "input", moe.rows = "group", moe.partial = ["dp", "tp"]})
    -> (tensor<?x64xbf16> {moe.name = "sum", moe.partial = ["dp"]})
    attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2>, moe.max_tokens = 64 : i64} {
  %0 = moe.combine <tp> %p : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}
