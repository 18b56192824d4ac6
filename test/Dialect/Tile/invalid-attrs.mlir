// RUN: moe-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'schedule' is ""; write the target and the schedule's name, as in "cpu.contract"}}
module attributes {test.a = #tile.config<schedule = "">} {}

// -----

// expected-error@+1 {{'schedule' is "cpu"; write the target and the schedule's name, as in "cpu.contract"}}
module attributes {test.a = #tile.config<schedule = "cpu">} {}

// -----

// expected-error@+1 {{'schedule' is "cpu."; write the target and the schedule's name, as in "cpu.contract"}}
module attributes {test.a = #tile.config<schedule = "cpu.">} {}

// -----

// expected-error@+1 {{'schedule' is ".contract"; write the target and the schedule's name, as in "cpu.contract"}}
module attributes {test.a = #tile.config<schedule = ".contract">} {}

// -----

// expected-error@+1 {{'m' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", m = -1>} {}

// -----

// expected-error@+1 {{'n' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", n = -1>} {}

// -----

// expected-error@+1 {{'k' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", k = -1>} {}

// -----

// expected-error@+1 {{'panel' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", panel = -1>} {}

// -----

// expected-error@+1 {{'lanes' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", lanes = -1>} {}

// -----

// expected-error@+1 {{'rows' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "cpu.x", rows = -1>} {}

// -----

// expected-error@+1 {{'panel' is 1048577; at most 1048576 is accepted}}
module attributes {test.a = #tile.config<schedule = "cpu.x", panel = 1048577>} {}

// -----

// expected-error@+1 {{'stages' is -1; a size above 0 is accepted, or 0 where the schedule has no such parameter}}
module attributes {test.a = #tile.config<schedule = "sm90.x", stages = -1>} {}

// -----

// expected-error@+1 {{'bodies' has 8 at index 1; heights from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.config<schedule = "sm90.x", bodies = [8, 8]>} {}

// -----

// expected-error@+1 {{'bodies' has 0 at index 0; heights from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.config<schedule = "sm90.x", bodies = [0]>} {}

// -----

// expected-error@+1 {{'bodies' has 1025 at index 0; heights from 1 to 1024, ascending, are accepted}}
module attributes {test.a = #tile.config<schedule = "sm90.x", bodies = [1025]>} {}

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
