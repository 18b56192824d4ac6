// Rows that go only to their destination ranks: the ids that determine these, the ops that read the rows, and their
// sums.
// RUN: moe-opt %s -split-input-file -verify-diagnostics --moe-verify-partials

// Legal: only slots read the rows, and any op reads the ids.

func.func @right(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %weights: tensor<?x2xf32>, %x: tensor<?x8xf32>,
                 %t: tensor<8xi32>, %o: tensor<8xi32>, %w2: tensor<4x8x8xf32> {moe.name = "experts.w2"})
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %all_ids, %all_weights, %all_x = moe.dispatch <dp> %ids, %weights, %x destinations(%o : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [2]
      : tensor<?x2xi32>, tensor<?x2xf32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x2xf32>, tensor<?x8xf32>
  %local = moe.place_ids %all_ids : tensor<?x2xi32> table(%t : tensor<8xi32>) -> tensor<?x2xi32>
  %offsets, %position, %source, %row_weight = moe.permute %local, %all_weights {num_experts = 4 : i64}
      : tensor<?x2xi32>, tensor<?x2xf32> -> tensor<5xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<?x1xf32>
  %e = moe.grouped_matmul %all_x, %w2 : tensor<?x8xf32>, tensor<4x8x8xf32> offsets(%offsets : tensor<5xi32>)
      source(%source : tensor<?xi32>) -> tensor<?x8xf32>
  %r = moe.unpermute %e, %position : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  %y = moe.combine <dp> %r destinations(%o : tensor<8xi32>) ids(%ids, %all_ids : tensor<?x2xi32>, tensor<?x2xi32>) : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @read_by_all(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %o: tensor<8xi32>)
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  // expected-note@+1 {{here}}
  %all_ids, %all_x = moe.dispatch <dp> %ids, %x destinations(%o : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [1]
      {moe.name = ["all_ids", "all_x"]} : tensor<?x2xi32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x8xf32>
  // expected-error@+1 {{reads 'all_x' also on ranks that do not receive a row; read it as the input of a gemm with a source, or remove 1 from 'routed'}}
  %y = moe.grouped_matmul %all_x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @ids_for_destinations(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %t: tensor<8xi32>, %o: tensor<8xi32>)
    -> tensor<?x2xi32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  // expected-note@+1 {{here}}
  %all_ids = moe.dispatch <dp> %ids destinations(%o : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [0]
      {moe.name = ["all_ids"]} : tensor<?x2xi32> -> tensor<?x2xi32>
  // expected-error@+1 {{reads 'all_ids' also on ranks that do not receive a row}}
  %local = moe.place_ids %all_ids : tensor<?x2xi32> table(%t : tensor<8xi32>) -> tensor<?x2xi32>
  return %ids : tensor<?x2xi32>
}

// -----

func.func @split_experts(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %x: tensor<?x8xf32>, %o: tensor<8xi32>)
    -> tensor<?x2xi32> attributes {moe.mesh = #moe.mesh<dp = 2>} {
  // expected-error@+1 {{has 'destinations', but each rank has a slice of every expert; remove 'destinations' and 'ids'}}
  %all_ids, %all_x = moe.dispatch <dp> %ids, %x destinations(%o : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [1]
      : tensor<?x2xi32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x8xf32>
  return %all_ids : tensor<?x2xi32>
}

// -----

// `destinations` refers to experts of the layer, not to replicas.
func.func @replicas(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %x: tensor<?x8xf32>, %o: tensor<8xi32>, %places: tensor<8x3xi32>,
                    %counts: tensor<8xi32>) -> tensor<?x2xi32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %physical = moe.place_ids %ids : tensor<?x2xi32> table(%places : tensor<8x3xi32>) replica_counts(%counts : tensor<8xi32>)
      {moe.name = ["physical_ids"]} -> tensor<?x2xi32>
  // expected-error@+1 {{takes 'physical_ids', ids of replicas, where ids of the layer's experts are needed; give the ids that the router chose}}
  %all_ids, %all_x = moe.dispatch <dp> %physical, %x destinations(%o : tensor<8xi32>) ids(%physical : tensor<?x2xi32>) routed [1]
      : tensor<?x2xi32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x8xf32>
  return %ids : tensor<?x2xi32>
}

// -----

// Rows of the group go over dp; the ids of the rank's own rows are those of other rows.
func.func @own_ids_for_rows_of_a_group(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %x: tensor<?x8xf32>, %o: tensor<8xi32>)
    -> tensor<?x2xi32> attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2, num_experts = 8, sp = true>} {
  %group_ids, %group_x = moe.dispatch <tp> %ids, %x : tensor<?x2xi32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x8xf32>
  // expected-error@+1 {{has 'destinations' with the ids 'topk_ids', which no moe.dispatch over dp takes; give the ids of the rows that it moves}}
  %all_ids, %all_x = moe.dispatch <dp> %group_ids, %group_x destinations(%o : tensor<8xi32>) ids(%ids : tensor<?x2xi32>) routed [1]
      : tensor<?x2xi32>, tensor<?x8xf32> -> tensor<?x2xi32>, tensor<?x8xf32>
  return %ids : tensor<?x2xi32>
}

// -----

func.func @ids_of_other_rows(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %position: tensor<?x2xi32>, %y: tensor<?x8xf32>,
                             %offsets: tensor<5xi32>, %o: tensor<8xi32>, %w2: tensor<4x8x8xf32> {moe.name = "experts.w2"})
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, tp = 2, num_experts = 8, sp = true>} {
  %group_ids = moe.dispatch <tp> %ids {moe.name = ["group_ids"]} : tensor<?x2xi32> -> tensor<?x2xi32>
  %all_ids = moe.dispatch <dp> %group_ids : tensor<?x2xi32> -> tensor<?x2xi32>
  %e = moe.grouped_matmul %y, %w2 : tensor<?x8xf32>, tensor<4x8x8xf32> offsets(%offsets : tensor<5xi32>) -> tensor<?x8xf32>
  %r = moe.unpermute %e, %position : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x8xf32>
  // expected-error@+1 {{has 'destinations' with the ids 'group_ids', which no moe.dispatch over dp takes to 'topk_ids'; give the ids of the rows that it moves}}
  %sum = moe.combine <dp> %r destinations(%o : tensor<8xi32>) ids(%group_ids, %ids : tensor<?x2xi32>, tensor<?x2xi32>) : tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

// The addend of a rank for rows of other ranks would be lost.
func.func @addend(%ids: tensor<?x2xi32> {moe.name = "topk_ids"}, %position: tensor<?x2xi32>, %y: tensor<?x8xf32>,
                  %offsets: tensor<5xi32>, %o: tensor<8xi32>, %w2: tensor<4x8x8xf32> {moe.name = "experts.w2"})
    -> tensor<?x8xf32> attributes {moe.mesh = #moe.mesh<dp = 2, num_experts = 8>} {
  %all_ids = moe.dispatch <dp> %ids : tensor<?x2xi32> -> tensor<?x2xi32>
  %e = moe.grouped_matmul %y, %w2 : tensor<?x8xf32>, tensor<4x8x8xf32> offsets(%offsets : tensor<5xi32>) -> tensor<?x8xf32>
  %r = moe.unpermute %e, %position : tensor<?x8xf32>, tensor<?x2xi32> addend(%e : tensor<?x8xf32>) {moe.name = ["partial"]}
      -> tensor<?x8xf32>
  // expected-error@+1 {{takes 'partial', which is more than the sum of a row's experts, but ranks that do not receive a row count as zero; add the rest after it, or remove 'destinations' and 'ids'}}
  %sum = moe.combine <dp> %r destinations(%o : tensor<8xi32>) ids(%ids, %all_ids : tensor<?x2xi32>, tensor<?x2xi32>) : tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}
