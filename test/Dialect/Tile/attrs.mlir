// Every attribute with every parameter, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: module @config
// CHECK-SAME: all = #tile.cpu_gemm<register_rows = 4, register_columns = 6, block_k = 8, columns_per_cta = 32, lanes = 16, rows_per_cta = 128>
// CHECK-SAME: none = #tile.cpu_sort_by_expert
// CHECK-SAME: ring = #tile.sm90_gemm<block_m = [8, 64, 128], block_n = 128, block_k = 64, stages = 4, map_rows>
// CHECK-SAME: turned = #tile.sm90_gemm<block_m = [64, 128], block_n = 128, block_k = 64, stages = 4, no_swap_ab, dynamic_scheduler>
// CHECK-SAME: zeros = #tile.sm90_gemm
module @config attributes {test.values = {
  all = #tile.cpu_gemm<register_rows = 4, register_columns = 6, block_k = 8, columns_per_cta = 32, lanes = 16, rows_per_cta = 128>,
  ring = #tile.sm90_gemm<block_m = [8, 64, 128], block_n = 128, block_k = 64, stages = 4, map_rows>,
  turned = #tile.sm90_gemm<block_m = [64, 128], block_n = 128, block_k = 64, stages = 4, no_swap_ab, dynamic_scheduler>,
  none = #tile.cpu_sort_by_expert,
  // Defaults are not printed; fields may come in any order.
  zeros = #tile.sm90_gemm<l2_rows = 0, stages = 0, block_k = 0, block_n = 0, block_m = []>
}} {}

// CHECK-LABEL: module @tensor_map
// CHECK-SAME: plain = #tile.tensor_map<argument = 0, sizes = [64], along = [0], steps = [1], box = [64]>
// CHECK-SAME: rows = #tile.tensor_map<argument = 0, sizes = [?, 64], along = [0, 1], steps = [1, 1], box = [8, 64], swizzle = 128>
// CHECK-SAME: weights = #tile.tensor_map<argument = 1, sizes = [128, 2, 768, 2048], along = [0, 1, 1, 2], steps = [1, 768, 1, 1], box = [1, 2, 64, 64], swizzle = 128>
module @tensor_map attributes {test.values = {
  plain = #tile.tensor_map<argument = 0, sizes = [64], along = [0], steps = [1], box = [64], swizzle = 0>,
  rows = #tile.tensor_map<argument = 0, sizes = [?, 64], along = [0, 1], steps = [1, 1], box = [8, 64], swizzle = 128>,
  weights = #tile.tensor_map<argument = 1, sizes = [128, 2, 768, 2048], along = [0, 1, 1, 2], steps = [1, 768, 1, 1], box = [1, 2, 64, 64], swizzle = 128>
}} {}

// A map of gate and up of interleaved weights, and one of rows.
// CHECK-LABEL: tile.kernel @maps
// CHECK-SAME: tensor_maps = [#tile.tensor_map<argument = 0, sizes = [4, 2, 24, 40], along = [0, 1, 1, 2], steps = [1, 1, 2, 1], box = [1, 2, 24, 16], swizzle = 32>, #tile.tensor_map<argument = 1, sizes = [?, 40]
tile.kernel @maps(%w: memref<4x48x40xbf16>, %x: memref<?x40xbf16>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 2, 24, 40], along = [0, 1, 1, 2], steps = [1, 1, 2, 1], box = [1, 2, 24, 16], swizzle = 32>,
    #tile.tensor_map<argument = 1, sizes = [?, 40], along = [0, 1], steps = [1, 1], box = [8, 64]>]} {
  tile.return
}

// Along the last dimension a view may cross the ends of rows: here a run of 32 rows, in chunks of
// 256 bytes.
// CHECK-LABEL: tile.kernel @runs
// CHECK-SAME: sizes = [4, 2, 2, 8, 256], along = [0, 1, 1, 2, 2]
tile.kernel @runs(%w: memref<4x128x64xi8>, %tokens: i64) attributes {tensor_maps = [
    #tile.tensor_map<argument = 0, sizes = [4, 2, 2, 8, 256], along = [0, 1, 1, 2, 2], steps = [1, 64, 32, 256, 1], box = [1, 2, 2, 4, 256]>]} {
  tile.return
}

// Groups with several picks per token, and the default: one row per token.
// CHECK-LABEL: module @load
// CHECK-SAME: grouped = #tile.load<min_tokens = 9, max_tokens = 64, top_k = 8, experts = 128>
// CHECK-SAME: plain = #tile.load<min_tokens = 0, max_tokens = 8>
module @load attributes {test.values = {
  grouped = #tile.load<min_tokens = 9, max_tokens = 64, top_k = 8, experts = 128>,
  plain = #tile.load<min_tokens = 0, max_tokens = 8, top_k = 1, experts = 1>
}} {}

// Kernel forms, and bounds on the rows of a gemm's groups; defaults are not printed.
// CHECK-LABEL: module @forms
// CHECK-SAME: all = #tile.kernel_form<independent = true, ahead = true, resident = true, registers = 80>
// CHECK-SAME: between = #tile.group_rows<min = 2, max = 9>
// CHECK-SAME: few = #tile.group_rows<max = 64>
// CHECK-SAME: many = #tile.group_rows<min = 65>
// CHECK-SAME: resident = #tile.kernel_form<resident = true>
module @forms attributes {test.values = {
  all = #tile.kernel_form<independent = true, ahead = true, resident = true, registers = 80>,
  resident = #tile.kernel_form<ahead = false, resident = true, registers = 0>,
  few = #tile.group_rows<min = 1, max = 64>,
  many = #tile.group_rows<min = 65>,
  between = #tile.group_rows<min = 2, max = 9>
}} {}

// CHECK-LABEL: module @sum_order
// CHECK-SAME: all = #tile.sum_order<unit = tensor_core, k = 16, shuffled = 64, splits = 2, adjacent = 32, promoted = 128, joined = true>
// CHECK-SAME: plain = #tile.sum_order<unit = fma, k = 1>
module @sum_order attributes {test.values = {
  all = #tile.sum_order<unit = tensor_core, k = 16, shuffled = 64, splits = 2, adjacent = 32, promoted = 128, joined = true>,
  plain = #tile.sum_order<unit = fma, k = 1, shuffled = 0, splits = 1, adjacent = 0, promoted = 0>
}} {}
