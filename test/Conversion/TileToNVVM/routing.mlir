// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_80 --convert-tile-to-nvvm --cse | FileCheck %s
// RUN: moe-opt %s --split-input-file --tile-assign-config=target=sm_90a --convert-tile-to-nvvm=target=sm_90a --cse | FileCheck %s --check-prefix=SM90

// A warp routes a token. Keys of the row are in registers; scores are loaded together. Scores have the order of the
// softmax, so only its sum is needed of the whole row.
// CHECK: memref.global "private" @top_k_0 : memref<512xi8, 3 : i32> = uninitialized {alignment = 16 : i64}
// CHECK: memref.global "private" @top_k_1 : memref<512xi8, 3 : i32> = uninitialized {alignment = 16 : i64}
// CHECK-LABEL: func.func @top_k
// CHECK-SAME: moec.block = 128
// CHECK: %[[KEYS:.*]] = memref.view {{.*}} : memref<512xi8, 3 : i32> to memref<32xi32, 3 : i32>
// CHECK: %[[PLACES:.*]] = memref.view {{.*}} : memref<512xi8, 3 : i32> to memref<32xi32, 3 : i32>
// CHECK-COUNT-4: memref.load %arg0{{.*}} : memref<?x128xf32>
// CHECK-NOT: memref.load
// CHECK: nvvm.redux.sync max
// CHECK-NOT: arith.divf
// CHECK-COUNT-5: nvvm.shfl.sync bfly
// A key such that eight keys are not below it.
// CHECK: scf.for {{.*}} -> (i32, i32)
// CHECK: nvvm.redux.sync max
// Keys not below it go to the table, in order.
// CHECK: nvvm.bar.warp.sync
// CHECK-COUNT-4: nvvm.vote.sync ballot
// CHECK: nvvm.bar.warp.sync
// Each lane counts the entries before its own.
// CHECK: scf.if {{.*}} -> (i32, i32)
// CHECK: memref.load %[[KEYS]]
// CHECK: memref.load %[[PLACES]]
// CHECK: scf.for
// CHECK: vector.load %[[KEYS]]{{.*}} vector<4xi32>
// If too many are equal, slot by slot: the largest key, and the first expert with it.
// CHECK: scf.for {{.*}} -> (i32, i32, i32, i32, i32)
// CHECK: nvvm.redux.sync max
// CHECK: nvvm.redux.sync min
// Only the probabilities of selected experts are computed.
// CHECK: memref.store %{{.*}} : memref<?x8xi32>
// CHECK: memref.load %arg0
// CHECK: arith.divf
// CHECK: memref.store %{{.*}} : memref<?x8xf32>
tile.kernel @top_k(%l: memref<?x128xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) <top_k = 8, softmax = all>
  tile.return
}

// -----

// Two slots, or 32 experts, one by one.
// CHECK-NOT: memref.global
// CHECK-LABEL: func.func @few
// CHECK: scf.for {{.*}} -> (i32, i32, i32, i32, i32)
// CHECK: nvvm.redux.sync max
// CHECK: nvvm.redux.sync min
// CHECK-NOT: nvvm.vote.sync
tile.kernel @few(%l: memref<?x128xf32>, %i: memref<?x2xi32>, %w: memref<?x2xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>)
      outs(%i, %w : memref<?x2xi32>, memref<?x2xf32>) <top_k = 2, softmax = all>
  tile.return
}

// -----

// Loads of a bias do not wait for the previous launch; lanes without an expert read the last one. Lane g counts the
// groups before group g, and a vote tells which are kept.
// SM90-LABEL: func.func @groups
// SM90: arith.minsi
// SM90-COUNT-4: llvm.load {{.*}} {alignment = 4 : i64, moec.weights}
// SM90: nvvm.griddepcontrol wait
// SM90: memref.load %arg0
// SM90: nvvm.redux.sync max
// SM90: nvvm.vote.sync ballot
// CHECK-LABEL: func.func @groups
// CHECK-NOT: griddepcontrol
tile.kernel @groups(%l: memref<?x80xf32>, %s: memref<80xf32>, %i: memref<?x3xi32>, %w: memref<?x3xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x80xf32>) selection_bias(%s : memref<80xf32>)
      outs(%i, %w : memref<?x3xi32>, memref<?x3xf32>)
      <top_k = 3, num_groups = 4, topk_groups = 2, group_score = top2_sum>
  tile.return
}

// -----

// More than 32 slots: a lane holds neighbours.
// CHECK-LABEL: func.func @many
// CHECK: vector<2xf32>
tile.kernel @many(%l: memref<?x128xf32>, %i: memref<?x40xi32>, %w: memref<?x40xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x128xf32>)
      outs(%i, %w : memref<?x40xi32>, memref<?x40xf32>) <top_k = 40, softmax = selected>
  tile.return
}

// -----

// Local experts come from a table in global memory.
// CHECK-DAG: memref.global "private" constant @rank_0 : memref<8xi32, 1 : i32> = dense<[2, 2, 2, 1, 2, 0, 2, 2]>
// Counters of 32 runs and of other chunks, 32 groups, and slots of no expert.
// CHECK-DAG: memref.global "private" @rank_1 : memref<1089xi32, 3 : i32> = uninitialized
// CHECK-LABEL: func.func @rank
// CHECK-SAME: moec.block = 1024
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK: arith.constant 512 : index
// Few slots: the key of each, then the number of those below it.
// CHECK: %[[FEW:.*]] = arith.constant 256 : index
// CHECK: arith.cmpi sle, %{{.*}}, %[[FEW]]
// CHECK: scf.if
// CHECK: nvvm.barrier0
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<{{.*}}xi32, 3 : i32>, vector<4xi32>
// CHECK-COUNT-4: arith.cmpi slt
// CHECK-NOT: nvvm.barrier0
// A CTA's own chunk, which may be empty.
// CHECK: } else {
// CHECK: arith.ori
// CHECK: scf.if
// Each warp counts the slots of its run, all of them those of other chunks.
// CHECK: nvvm.barrier0
// CHECK-COUNT-12: llvm.atomicrmw add {{.*}} syncscope("block") monotonic : !llvm.ptr<3>, i32
// Sums over runs and the experts of a group, then over groups.
// CHECK: nvvm.barrier0
// CHECK: nvvm.shfl.sync up
// CHECK: nvvm.barrier0
// CHECK: nvvm.shfl.sync up
// CHECK: nvvm.barrier0
// Positions.
// CHECK-NOT: atomicrmw
// CHECK: nvvm.match.sync any
// CHECK: math.ctpop
// CHECK: memref.store
// CHECK: nvvm.bar.warp.sync
tile.kernel @rank(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<3xi32>, %p: memref<?x2xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<3xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 8 : i64, local_experts = array<i64: 5, 3>}
  tile.return
}

// -----

// A row that does not fit into shared memory: no scratch memory. Keys are computed from the logits in each round, and
// only those after the last selected one in order qualify.
// CHECK-NOT: memref.global
// CHECK-LABEL: func.func @streamed
// CHECK: scf.for {{.*}} iter_args(%[[KEY:.*]] = %{{.*}}, %[[ID:.*]] = %{{.*}}) -> (i32, i32)
// CHECK: scf.for {{.*}} -> (i32, i32)
// CHECK: memref.load %arg0
// CHECK: arith.cmpi eq, %{{.*}}, %[[KEY]]
// CHECK: arith.cmpi sgt, %{{.*}}, %[[ID]]
// CHECK: arith.cmpi slt, %{{.*}}, %[[KEY]]
// CHECK: nvvm.redux.sync max
// CHECK: nvvm.redux.sync min
// The lane of a slot writes its id and, below, reads it.
// CHECK: arith.remui
// CHECK: memref.store %{{.*}} : memref<?x8xi32>
// CHECK: memref.store %{{.*}} : memref<?x8xf32>
// CHECK: scf.for
// CHECK: memref.load %arg2
// CHECK: memref.store %{{.*}} : memref<?x8xf32>
tile.kernel @streamed(%l: memref<?x8192xf32>, %i: memref<?x8xi32>, %w: memref<?x8xf32>, %t: i64) {
  tile.top_k tokens(%t) logits(%l : memref<?x8192xf32>)
      outs(%i, %w : memref<?x8xi32>, memref<?x8xf32>) <top_k = 8>
  tile.return
}

// -----

// Counters for 1024 of 20000 experts, 32 groups, and the slots of earlier ones.
// CHECK: memref.global "private" @rounds_0 : memref<11298xi32, 3 : i32>
// CHECK-LABEL: func.func @rounds
// CHECK: %[[STEP:.*]] = arith.constant 1024 : index
// CHECK: scf.for %{{.*}} step %[[STEP]]
// CHECK: nvvm.match.sync any
tile.kernel @rounds(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %o: memref<20001xi32>, %p: memref<?x2xi32>,
    %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>)
      outs(%o, %p, %s, %r : memref<20001xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 20000 : i64}
  tile.return
}

// -----

// A CTA of 512 threads counts the slots of a chunk, and stores a row of counts.
// CHECK: memref.global "private" @count_0 : memref<9xi32, 3 : i32>
// CHECK-LABEL: func.func @count
// CHECK-SAME: moec.block = 512
// CHECK-COUNT-4: memref.load {{.*}} : memref<?xi32>
// CHECK: nvvm.barrier0
// CHECK-COUNT-4: llvm.atomicrmw add {{.*}} syncscope("block") monotonic : !llvm.ptr<3>, i32
// CHECK: scf.for
// CHECK-COUNT-4: memref.load {{.*}} : memref<?xi32>
// CHECK-COUNT-4: llvm.atomicrmw add
// CHECK: nvvm.barrier0
// CHECK: memref.store {{.*}} : memref<128x8xi32>
tile.kernel @count(%i: memref<?x2xi32>, %c: memref<128x8xi32>, %t: i64) {
  tile.count_slots tokens(%t) ids(%i : memref<?x2xi32>) outs(%c : memref<128x8xi32>)
      {num_experts = 8 : i64, chunk_tokens = 512 : i64}
  tile.return
}

// -----

// A sort with counts reads no ids of other chunks: for 16 chunks all before its own, or all after it, one sum; for
// others two sums. Slots are not compared with each other, however few there are.
// CHECK-LABEL: func.func @counted
// CHECK-NOT: scf.if {{.*}} -> (i32, i32, i32, i32,
// CHECK: arith.divui {{.*}} : i32
// CHECK: nvvm.barrier0
// CHECK-COUNT-16: memref.load %arg2{{.*}} : memref<128x8xi32>
// CHECK: llvm.atomicrmw add
// CHECK-NOT: atomicrmw
// CHECK: } else {
// CHECK-COUNT-16: memref.load %arg2{{.*}} : memref<128x8xi32>
// CHECK-COUNT-2: llvm.atomicrmw add
// Then the CTA's own counts: the lane's first, then others.
// CHECK: llvm.atomicrmw add
// CHECK: scf.for
// CHECK-COUNT-4: llvm.atomicrmw add
// CHECK: nvvm.barrier0
// CHECK: nvvm.match.sync any
tile.kernel @counted(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %c: memref<128x8xi32>, %o: memref<9xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>) counts(%c : memref<128x8xi32>)
      outs(%o, %p, %s, %r : memref<9xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 8 : i64, chunk_tokens = 512 : i64}
  tile.return
}

// -----

// With at least as many experts as threads, four at once.
// CHECK-LABEL: func.func @counted_of_many
// CHECK-SAME: moec.block = 512
// CHECK-COUNT-12: vector.load %arg2{{.*}} {alignment = 16 : i64} : memref<128x512xi32>, vector<4xi32>
// CHECK-COUNT-4: llvm.atomicrmw add
// CHECK-NOT: atomicrmw
// CHECK: } else {
// CHECK-COUNT-12: vector.load %arg2{{.*}} : memref<128x512xi32>, vector<4xi32>
// CHECK-COUNT-8: llvm.atomicrmw add
tile.kernel @counted_of_many(%i: memref<?x2xi32>, %w: memref<?x2xf32>, %c: memref<128x512xi32>, %o: memref<513xi32>,
    %p: memref<?x2xi32>, %s: memref<?xi32>, %r: memref<?x1xf32>, %t: i64) {
  tile.sort_by_expert tokens(%t) ids(%i, %w : memref<?x2xi32>, memref<?x2xf32>) counts(%c : memref<128x512xi32>)
      outs(%o, %p, %s, %r : memref<513xi32>, memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>)
      {num_experts = 512 : i64, chunk_tokens = 16 : i64}
  tile.return
}
