//===- Tool.cpp - the command ptx-sim ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/Tool.h"

#include "Engine/Random.h"
#include "Numbers/Floats.h"
#include "moec/PtxCommandLine/CommandLine.h"
#include "moec/PtxSim/Simulator.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

using namespace moec::ptx;
using moert::Result;
using moert::Status;

static const char kHelp[] =
    R"(ptx-sim: run a kernel of a PTX file without a GPU, and check it for races

  ptx-sim FILE.ptx --list                       list kernels and their parameters
  ptx-sim FILE.ptx --kernel=NAME --grid=G [--block=B] [--shared=BYTES]
          [--arg=ARG ...] [--map=MAP ...] [--seed=S | --seeds=N]

Every thread of every CTA runs. Races, missing fences, endless waits, reads of
unwritten memory and accesses out of bounds are errors, which name the line and the
thread; docs/design/ptx-simulator.md explains each.

Parameters, in order; the tensor maps come last:
  --arg=NUMBER            a value of 64 bits (or 32, as the parameter requires)
  --arg=f32:1024          a buffer of 1024 random numbers; f32, bf16, f16, i32,
                          i64 or u8. Floats lie between -1 and 1, integers are
                          0 unless a bound follows: i32:64:8 is below 8
  --arg=empty:BYTES       a buffer of unwritten memory
  --map=ARG,DTYPE,SHAPE,BOX,SWIZZLE
                          a tensor map of buffer number ARG, as in
                          --map=0,bf16,64x128,16x64,128; rows are dense

Schedules:
  --seed=S                one schedule (default: 0, in plain order)
  --seeds=N               the seeds from 0 to N - 1; all buffers must have equal
                          bits after each
  --resident              all CTAs run at once, since they wait for each other
  --block=B               threads of a CTA (default: what the kernel requires)
  --no-races              disable race checks (about twice as fast)

The exit code is 0 only if there is no error.
)";

namespace {

struct BufferArgument {
  moert::DType dtype = moert::DType::U8;
  size_t count = 0;
  uint64_t bound = 0;
  bool isEmpty = false;

  size_t bytes() const { return count * size_t(moert::dtypeBits(dtype)) / 8; }
};

struct Argument {
  std::optional<BufferArgument> buffer;
  uint64_t number = 0;
};

/// A tensor map, but for the address of its buffer.
struct MapArgument {
  uint64_t argument = 0;
  moert::TensorMapRecipe recipe;
};

struct Options {
  std::string file, kernel;
  bool lists = false, skipsRaces = false, isResident = false;
  int64_t grid = 1, block = 0, shared = 0;
  uint64_t firstSeed = 0, numSeeds = 1;
  std::vector<Argument> arguments;
  std::vector<MapArgument> maps;
};

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    parts.push_back(part);
  return parts;
}

std::string parseArgument(const std::string &text, Argument &made) {
  bool isNegative = text.compare(0, 1, "-") == 0;
  if (parseNumber(text.substr(isNegative), made.number)) {
    made.number = isNegative ? -made.number : made.number;
    return {};
  }
  std::vector<std::string> parts = split(text, ':');
  BufferArgument buffer;
  uint64_t count = 0;
  if (parts.size() < 2 || parts.size() > 3 || !parseNumber(parts[1], count) ||
      (parts.size() == 3 && !parseNumber(parts[2], buffer.bound)))
    return "a number, TYPE:COUNT, TYPE:COUNT:BOUND or empty:BYTES";
  buffer.count = size_t(count);
  buffer.isEmpty = parts[0] == "empty";
  if (!buffer.isEmpty) {
    std::optional<moert::DType> dtype = moert::parseDType(parts[0]);
    if (!dtype)
      return "type f32, bf16, f16, i32, i64 or u8";
    buffer.dtype = *dtype;
  }
  made.buffer = buffer;
  return {};
}

bool parseSizes(const std::string &text, std::vector<int64_t> &sizes) {
  for (const std::string &part : split(text, 'x')) {
    uint64_t size = 0;
    if (!parseNumber(part, size) || size == 0)
      return false;
    sizes.push_back(int64_t(size));
  }
  return true;
}

std::string parseMap(const std::string &text, MapArgument &made) {
  std::vector<std::string> parts = split(text, ',');
  moert::TensorMapRecipe &recipe = made.recipe;
  uint64_t swizzle = 0;
  std::optional<moert::DType> dtype =
      parts.size() == 5 ? moert::parseDType(parts[1]) : std::nullopt;
  if (!dtype || !parseNumber(parts[0], made.argument) ||
      !parseSizes(parts[2], recipe.shape) ||
      !parseSizes(parts[3], recipe.box) || !parseNumber(parts[4], swizzle))
    return "ARG,DTYPE,SHAPE,BOX,SWIZZLE (0,bf16,64x128,16x64,128)";
  recipe.dtype = *dtype;
  recipe.swizzleBytes = int64_t(swizzle);
  int64_t bytes = moert::dtypeBits(*dtype) / 8;
  for (size_t i = recipe.shape.size(); i-- > 1;) {
    bytes *= recipe.shape[i];
    recipe.strideBytes.insert(recipe.strideBytes.begin(), bytes);
  }
  return {};
}

/// Declares the options; they are set when the line is run.
CommandLine makeCommandLine(Options &options) {
  constexpr uint64_t maxGrid = INT32_MAX, maxThreads = 1024;
  CommandLine line("ptx-sim", kHelp, /*failure=*/1);
  line.addFile(options.file);
  line.addFlag("list", options.lists);
  line.addFlag("no-races", options.skipsRaces);
  line.addFlag("resident", options.isResident);
  line.addText("kernel", options.kernel);
  line.addValue("arg", [&options](const std::string &value) {
    return parseArgument(value, options.arguments.emplace_back());
  });
  line.addValue("map", [&options](const std::string &value) {
    return parseMap(value, options.maps.emplace_back());
  });
  line.addNumber("grid", options.grid, 1, maxGrid);
  line.addNumber("block", options.block, 1, maxThreads);
  line.addNumber("shared", options.shared);
  line.addNumber("seed", options.firstSeed);
  line.addNumber("seeds", options.numSeeds, 1);
  return line;
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

std::vector<uint8_t> makeData(const BufferArgument &buffer, Random &random) {
  std::vector<uint8_t> bytes(buffer.bytes());
  size_t size = bytes.size() / std::max<size_t>(buffer.count, 1);
  for (size_t i = 0; i < buffer.count; ++i) {
    // Multiples of 1/8 keep small sums exact.
    float value = float(int(random.below(17)) - 8) / 8;
    uint64_t bits = 0;
    switch (buffer.dtype) {
    case moert::DType::F32:
      bits = bitCast<uint32_t>(value);
      break;
    case moert::DType::BF16:
      bits = floatToBfloat(value);
      break;
    case moert::DType::F16:
      bits = floatToHalf(value);
      break;
    default:
      bits = random.below(buffer.bound);
      break;
    }
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

/// FNV-1a hash, to compare buffers.
uint64_t digest(const std::vector<uint8_t> &bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (uint8_t byte : bytes)
    hash = (hash ^ byte) * 0x100000001B3u;
  return hash;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

void list(const LoadedModule &module) {
  for (const KernelInfo &kernel : module.kernels()) {
    std::printf("%s: %zu instructions, %u threads, %zu bytes of static shared "
                "memory\n",
                kernel.name.c_str(), kernel.numInstructions,
                kernel.requiredThreads, kernel.staticShared);
    for (size_t i = 0; i < kernel.params.size(); ++i)
      std::printf("  parameter %zu: %zu bytes%s\n", i, kernel.params[i].size,
                  kernel.params[i].size == sizeof(moert::TensorMap)
                      ? " (a tensor map)"
                      : "");
  }
}

/// Runs one schedule and returns the digests of the buffers afterwards.
Result<std::vector<uint64_t>> runOnce(const Options &options,
                                      const std::string &text, uint64_t seed) {
  SimulatorOptions simulatorOptions;
  simulatorOptions.seed = seed;
  simulatorOptions.checkRaces = !options.skipsRaces;
  Simulator simulator(simulatorOptions);
  Result<LoadedModule *> module = simulator.load(text, options.file);
  if (!module)
    return module.status();
  if (options.lists) {
    list(**module);
    return std::vector<uint64_t>();
  }
  const KernelInfo *kernel = (*module)->find(options.kernel);
  if (!kernel)
    return moert::notFound("kernel '" + options.kernel + "' is not in " +
                           options.file + "; --list shows what is");
  Random random(0);
  std::vector<uint64_t> slots;
  for (size_t i = 0; i < options.arguments.size(); ++i) {
    const Argument &argument = options.arguments[i];
    if (!argument.buffer) {
      slots.push_back(argument.number);
      continue;
    }
    Result<uint64_t> address = simulator.allocate(
        argument.buffer->bytes(), 256, "argument " + std::to_string(i));
    if (!address)
      return address.status();
    slots.push_back(*address);
    if (argument.buffer->isEmpty)
      continue;
    std::vector<uint8_t> data = makeData(*argument.buffer, random);
    if (Status status = simulator.write(*address, data.data(), data.size());
        !status)
      return status;
  }
  std::vector<moert::TensorMap> maps;
  for (const MapArgument &map : options.maps) {
    if (map.argument >= slots.size())
      return moert::invalidArgument(
          "--map=" + std::to_string(map.argument) +
          ",...: no --arg has this number, counted from 0");
    moert::TensorMapRecipe recipe = map.recipe;
    recipe.data = reinterpret_cast<void *>(slots[map.argument]);
    Result<moert::TensorMap> encoded = encodeTensorMap(recipe);
    if (!encoded)
      return encoded.status();
    maps.push_back(*encoded);
  }
  Result<std::vector<uint8_t>> params = packParams(*kernel, slots, maps);
  if (!params)
    return params.status();
  moert::LaunchDims dims;
  dims.grid = options.grid;
  dims.block = options.block ? options.block : kernel->requiredThreads;
  dims.shared = options.shared;
  dims.resident = options.isResident;
  if (Status status = simulator.launch(**module, options.kernel, dims, *params);
      !status)
    return status;
  std::vector<uint64_t> digests;
  for (size_t i = 0; i < slots.size(); ++i)
    if (options.arguments[i].buffer) {
      std::vector<uint8_t> bytes(options.arguments[i].buffer->bytes());
      if (Status status = simulator.read(bytes.data(), slots[i], bytes.size());
          !status)
        return status;
      digests.push_back(digest(bytes));
    }
  const Statistics &statistics = simulator.statistics();
  std::printf(
      "seed %llu: %llu CTAs, %llu thread-instructions in %.3f s, "
      "%.1f million per second; %llu asynchronous copies of %llu bytes, "
      "%llu multiplications of mma and wgmma; buffers",
      (unsigned long long)seed, (unsigned long long)statistics.ctas,
      (unsigned long long)statistics.threadInstructions, statistics.seconds,
      double(statistics.threadInstructions) / statistics.seconds / 1e6,
      (unsigned long long)statistics.work.copies,
      (unsigned long long)statistics.work.copiedBytes,
      (unsigned long long)statistics.work.products);
  for (uint64_t value : digests)
    std::printf(" %016llx", (unsigned long long)value);
  std::printf("\n");
  return digests;
}

Status runAll(const Options &options) {
  std::ifstream file(options.file, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    return moert::notFound(options.file + " cannot be read");
  std::optional<std::vector<uint64_t>> first;
  for (uint64_t i = 0; i < options.numSeeds; ++i) {
    uint64_t seed = options.firstSeed + i;
    Result<std::vector<uint64_t>> digests = runOnce(options, text.str(), seed);
    if (!digests)
      return digests.status().withContext("seed " + std::to_string(seed));
    if (first && *first != *digests)
      return moert::internalError("seed " + std::to_string(seed) +
                                  " gives different bits from seed " +
                                  std::to_string(options.firstSeed));
    first = *digests;
    if (options.lists)
      break;
  }
  return Status::ok();
}

} // namespace

int moec::ptx::ptxSimMain(int argc, char **argv) {
  Options options;
  CommandLine line = makeCommandLine(options);
  if (std::optional<int> code = line.run(argc, argv))
    return *code;
  if (options.file.empty())
    return line.fail(line.complain("a PTX file is missing"));
  if (!options.lists && options.kernel.empty())
    return line.fail(line.complain("--kernel=NAME or --list is missing"));
  Status status = runAll(options);
  return status ? 0 : line.fail(status);
}
