// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'#tile.config' is not an attribute of the dialect; each schedule has its own, such as '#tile.gpu_gemv<block_m = 8, threads = 128>' in place of 'schedule = "gpu.gemv"'}}
module attributes {test.a = #tile.config<schedule = "cpu.gemm", m = 4>} {}

// -----

// expected-error@+1 {{'#tile.sm91_gemm' is not an attribute of the dialect}}
module attributes {test.a = #tile.sm91_gemm<block_k = 4>} {}

// -----

// expected-error@+1 {{'panel' is not a field of cpu.gemm; it has register_rows, register_columns, block_k, columns_per_cta, lanes, rows_per_cta}}
module attributes {test.a = #tile.cpu_gemm<panel = 8>} {}

// -----

// expected-error@+1 {{'lanes' is not a field of cpu.sort_by_expert; it has none}}
module attributes {test.a = #tile.cpu_sort_by_expert<lanes = 8>} {}

// -----

// expected-error@+1 {{'lanes' is given twice}}
module attributes {test.a = #tile.cpu_top_k<lanes = 8, lanes = 8>} {}

// -----

// expected-error@+1 {{expected '='}}
module attributes {test.a = #tile.cpu_top_k<lanes>} {}

// -----

// expected-error@+1 {{expected '>'}}
module attributes {test.a = #tile.sm90_gemm<dynamic_scheduler = true>} {}

// -----

// expected-error@+1 {{'register_rows' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.cpu_gemm<register_rows = -1>} {}

// -----

// expected-error@+1 {{'rows_per_cta' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.cpu_gather_rows<rows_per_cta = -1>} {}

// -----

// expected-error@+1 {{'vector_width' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.sm80_gemm<vector_width = -1>} {}

// -----

// expected-error@+1 {{'max_ctas' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.gpu_top_k<max_ctas = -1>} {}

// -----

// expected-error@+1 {{'stages' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.sm90_gemm<stages = -1>} {}

// -----

// expected-error@+1 {{'l2_rows' is -1; 0 or more is accepted}}
module attributes {test.a = #tile.sm90_gemm<l2_rows = -1>} {}

// -----

// expected-error@+1 {{'columns_per_cta' is 1048577; at most 1048576 is accepted}}
module attributes {test.a = #tile.gpu_row_map<columns_per_cta = 1048577>} {}

// -----

// expected-error@+1 {{'block_m' has 8 at index 1; values from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.sm90_gemm<block_m = [8, 8]>} {}

// -----

// expected-error@+1 {{'block_m' has 0 at index 0; values from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.sm90_gemm<block_m = [0]>} {}

// -----

// expected-error@+1 {{'block_m' has 1025 at index 0; values from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.sm90_gemm<block_m = [1025]>} {}

// -----

// expected-error@+1 {{'argument' is -1; the number of a kernel's argument is accepted}}
module attributes {test.a = #tile.tensor_map<argument = -1, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has 0 dimensions; 1 to 5 are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [], along = [], steps = [], box = [], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has 6 dimensions; 1 to 5 are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [1, 1, 1, 1, 1, 1], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'along' has 1 entries; one per dimension of 'sizes', 2, is accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'steps' has 3 entries; one per dimension of 'sizes', 2, is accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'box' has 0 entries; one per dimension of 'sizes', 2, is accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has 0 at index 1; 1 to 2^32, or '?' for the argument's rows, is accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 0], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has 4294967297 at index 0; 1 to 2^32, or '?' for the argument's rows, is accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4294967297, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has '?' at index 1; it stands for all rows: 'along' must be 0 there and 'steps' 1}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, ?], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'sizes' has '?' at index 0; it stands for all rows: 'along' must be 0 there and 'steps' 1}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [?, 8], along = [0, 1], steps = [2, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{dimension 0 goes 0 steps along dimension 0; 1 to 2^32 steps along a dimension of the argument are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [0, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{dimension 1 goes 1 steps along dimension -1; 1 to 2^32 steps along a dimension of the argument are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, -1], steps = [1, 1], box = [4, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'box' has 257 at index 0; 1 to 256 elements are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [257, 8], swizzle = 0>} {}

// -----

// expected-error@+1 {{'swizzle' is 48; 0, 32, 64 or 128 bytes are accepted}}
module attributes {test.a = #tile.tensor_map<argument = 0, sizes = [4, 8], along = [0, 1], steps = [1, 1], box = [4, 8], swizzle = 48>} {}

// -----

// expected-error@+1 {{goes from 'min_tokens' 9 to 'max_tokens' 8; a range that ends between 1 and 2^31 - 1 is accepted}}
module attributes {test.a = #tile.load<min_tokens = 9, max_tokens = 8>} {}

// -----

// expected-error@+1 {{has 'top_k' 3 of 'experts' 2; at least 1 of at most 2^31 - 1 is accepted}}
module attributes {test.a = #tile.load<min_tokens = 0, max_tokens = 8, top_k = 3, experts = 2>} {}

// -----

// expected-error@+1 {{'registers' is -1; 0 to 255 are accepted}}
module attributes {test.a = #tile.kernel_form<registers = -1>} {}

// -----

// expected-error@+1 {{'registers' is 256; 0 to 255 are accepted}}
module attributes {test.a = #tile.kernel_form<registers = 256>} {}

// -----

// expected-error@+1 {{'k' is 0; it must be at least 1}}
module attributes {test.a = #tile.sum_order<unit = tensor_core, k = 0>} {}

// -----

// expected-error@+1 {{'promoted' is -128; it must be at least 0}}
module attributes {test.a = #tile.sum_order<unit = tensor_core, k = 32, promoted = -128>} {}

// -----

// expected-error@+1 {{'k' is 2, but an FMA adds one product; give 1}}
module attributes {test.a = #tile.sum_order<unit = fma, k = 2>} {}

// -----

// expected-error@+1 {{has 'joined', but nothing is promoted; give 'promoted', or leave 'joined' out}}
module attributes {test.a = #tile.sum_order<unit = fma, k = 1, splits = 16, joined = true>} {}
