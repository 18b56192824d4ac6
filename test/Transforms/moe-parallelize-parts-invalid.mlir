// What parts of a layer over ranks say wrong about their inputs and results.
// RUN: moe-opt %s -split-input-file -verify-diagnostics --moe-parallelize --moe-verify-partials --convert-moe-to-plan

func.func @reduced(%p: tensor<?x64xbf16> {moe.name = "partial", moe.role = "input", moe.rows = "all"})
    -> (tensor<?x64xbf16> {moe.name = "output"}) attributes {moe.mesh = #moe.mesh<dp = 2>} {
  // expected-error@+1 {{sums 'partial' over dp, over which it is reduced already, so that it would count once per rank; remove one of the sums}}
  %0 = moe.combine <dp> %p : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// expected-error@+1 {{argument 'partial' has moe.partial = ["tp"]; give an array of axes of the mesh with several ranks, such as ["dp"]}}
func.func @axis(%p: tensor<?x64xbf16> {moe.name = "partial", moe.role = "input", moe.partial = ["tp"]})
    -> (tensor<?x64xbf16> {moe.name = "output"}) attributes {moe.mesh = #moe.mesh<dp = 2>} {
  %0 = moe.combine <dp> %p : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// expected-error@+1 {{result 0 has moe.partial, but it is reduced; declare the axes that a moe.combine is still needed for}}
func.func @result(%p: tensor<?x64xbf16> {moe.name = "partial", moe.role = "input", moe.rows = "all", moe.partial = ["dp"]})
    -> (tensor<?x64xbf16> {moe.name = "output", moe.partial = ["dp"]}) attributes {moe.mesh = #moe.mesh<dp = 2>} {
  %0 = moe.combine <dp> %p : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// expected-error@+1 {{argument 0 has moe.rows = "both"; give "all" or "group", or remove it for the rows of a rank}}
func.func @rows(%p: tensor<?x64xbf16> {moe.name = "partial", moe.role = "input", moe.rows = "both", moe.partial = ["dp"]})
    -> (tensor<?x64xbf16> {moe.name = "output"}) attributes {moe.mesh = #moe.mesh<dp = 2>} {
  %0 = moe.combine <dp> %p : tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// -----

// expected-error@+1 {{argument 0 has moe.rows = "all", but the function has no moe.mesh; remove it}}
func.func @one_rank(%l: tensor<?x8xf32> {moe.name = "router_logits", moe.role = "input", moe.rows = "all"})
    -> (tensor<?x2xi32> {moe.name = "topk_ids"}) {
  %i, %w = moe.route %l : tensor<?x8xf32> <top_k = 2, softmax = all> -> tensor<?x2xi32>, tensor<?x2xf32>
  return %i : tensor<?x2xi32>
}

// -----

// The caller could not tell which rows have come.
func.func @no_ids(%x: tensor<?x64xbf16> {moe.name = "hidden_states", moe.role = "input"},
                  %i: tensor<?x2xi32> {moe.name = "topk_ids", moe.role = "input"},
                  %d: tensor<8xi32> {moe.name = "placement.destinations", moe.role = "weight"})
    -> (tensor<?x64xbf16> {moe.name = "all_rows"})
    attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  // expected-note@+1 {{here}}
  %0:2 = moe.dispatch <dp> %x, %i destinations(%d : tensor<8xi32>) ids(%i : tensor<?x2xi32>) routed [0]
      {moe.name = ["all_rows", "all_ids"]} : tensor<?x64xbf16>, tensor<?x2xi32> -> tensor<?x64xbf16>, tensor<?x2xi32>
  // expected-error@+1 {{reads 'all_rows' also on ranks that do not receive a row; read it as the input of a gemm with a source, or remove 0 from 'routed'}}
  return %0#0 : tensor<?x64xbf16>
}
