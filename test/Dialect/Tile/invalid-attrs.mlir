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
