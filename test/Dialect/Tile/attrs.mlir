// Every attribute with every parameter, through the printer and back.
// RUN: moe-opt %s | moe-opt | FileCheck %s

// CHECK-LABEL: module @config
// CHECK-SAME: all = #tile.cpu_contract<register_rows = 4, register_columns = 6, step = 8, columns_per_cta = 32, lanes = 16, rows_per_cta = 128>
// CHECK-SAME: none = #tile.cpu_rank
// CHECK-SAME: ring = #tile.sm90_contract<tile_rows = [8, 64, 128], tile_columns = 128, step = 64, stages = 4, map_rows>
// CHECK-SAME: turned = #tile.sm90_contract<tile_rows = [64, 128], tile_columns = 128, step = 64, stages = 4, rows_on_m, queue>
// CHECK-SAME: zeros = #tile.sm90_contract
module @config attributes {test.values = {
  all = #tile.cpu_contract<register_rows = 4, register_columns = 6, step = 8, columns_per_cta = 32, lanes = 16, rows_per_cta = 128>,
  ring = #tile.sm90_contract<tile_rows = [8, 64, 128], tile_columns = 128, step = 64, stages = 4, map_rows>,
  turned = #tile.sm90_contract<tile_rows = [64, 128], tile_columns = 128, step = 64, stages = 4, rows_on_m, queue>,
  none = #tile.cpu_rank,
  // Defaults are not printed; fields may come in any order.
  zeros = #tile.sm90_contract<l2_rows = 0, stages = 0, step = 0, tile_columns = 0, tile_rows = []>
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
