//===- NestedScales.cpp - quantized scales of bitsandbytes ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NestedScales.h"

#include "CheckParts.h"
#include "moec/Dialect/Moe/CodeBook.h"

#include "../../../runtime/src/support/Text.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"

#include <cstring>

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;

namespace {

Result<std::vector<float>> readFloats(moert::Checkpoint &checkpoint,
                                      const std::string &name) {
  Result<const SafetensorsEntry *> entry = checkpoint.find(name);
  if (!entry)
    return entry.status();
  if ((*entry)->dtype != moert::DType::F32)
    return moert::invalidArgument(
        checkpoint.fileOf(name) + ": tensor '" + moert::printable(name) +
        "': dtype is " + moert::dtypeName((*entry)->dtype) + ", expected f32");
  std::vector<float> values((*entry)->bytes / sizeof(float));
  std::memcpy(values.data(), (*entry)->data, (*entry)->bytes);
  return values;
}

/// Parses the JSON object in a tensor of bytes; nothing if it is none.
std::optional<llvm::json::Object> readState(const SafetensorsEntry &entry) {
  llvm::StringRef text(reinterpret_cast<const char *>(entry.data), entry.bytes);
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  llvm::json::Object *object = value->getAsObject();
  return object ? std::optional(std::move(*object)) : std::nullopt;
}

constexpr llvm::StringLiteral kNoState =
    "is not a JSON object, the form in which bitsandbytes describes a matrix";

} // namespace

std::string moec::checkNF4State(const CheckpointPart &part,
                                const SafetensorsEntry &entry, int64_t rows,
                                int64_t columns) {
  std::optional<llvm::json::Object> state = readState(entry);
  if (!state)
    return kNoState.str();
  auto wrong = [&](llvm::StringRef field, const std::string &expected) {
    const llvm::json::Value *value = state->get(field);
    std::string text = "nothing";
    if (value) {
      text.clear();
      llvm::raw_string_ostream(text) << *value;
    }
    return "has " + text + " as \"" + field.str() + "\", expected " + expected;
  };
  if (state->getString("quant_type") != llvm::StringRef("nf4"))
    return wrong("quant_type", "\"nf4\"");
  if (state->getInteger("blocksize") != part.groupColumns)
    return wrong("blocksize", std::to_string(part.groupColumns));
  llvm::json::Array expected{rows, columns};
  const llvm::json::Array *shape = state->getArray("shape");
  if (!shape || *shape != expected)
    return wrong("shape", printShape({rows, columns}));
  return "";
}

std::string moec::checkNF4Numbers(const SafetensorsEntry &entry) {
  if (entry.dtype != moert::DType::F32 ||
      entry.bytes != moe::kNF4.size() * sizeof(float))
    return "is " + std::string(moert::dtypeName(entry.dtype)) + " of shape " +
           printShape(entry.shape) + ", expected the 16 f32 values of nf4";
  for (size_t i = 0; i < moe::kNF4.size(); ++i) {
    float value;
    std::memcpy(&value, entry.data + i * sizeof(float), sizeof(float));
    if (value != moe::kNF4[i])
      return "has " + std::to_string(value) + " for index " +
             std::to_string(i) + ", expected " + std::to_string(moe::kNF4[i]) +
             ", the value of nf4";
  }
  return "";
}

Result<std::vector<float>> moec::readNestedScales(moert::Checkpoint &checkpoint,
                                                  const std::string &absmax) {
  auto fail = [&](const std::string &name, const std::string &what) {
    return moert::invalidArgument(checkpoint.fileOf(name) + ": tensor '" +
                                  moert::printable(name) + "': " + what);
  };
  std::string matrix = llvm::StringRef(absmax)
                           .drop_back(llvm::StringRef(".absmax").size())
                           .str();
  Result<const SafetensorsEntry *> values = checkpoint.find(absmax);
  if (!values)
    return values.status();
  if ((*values)->dtype != moert::DType::U8)
    return fail(absmax, std::string("dtype is ") +
                            moert::dtypeName((*values)->dtype) +
                            ", expected u8, since bnb_4bit_use_double_quant "
                            "quantizes the scales");
  std::string stateName = matrix + ".quant_state.bitsandbytes__nf4";
  if (!checkpoint.contains(stateName))
    stateName = matrix + ".quant_state.bitsandbytes__fp4";
  Result<const SafetensorsEntry *> stateEntry = checkpoint.find(stateName);
  if (!stateEntry)
    return stateEntry.status();
  std::optional<llvm::json::Object> state = readState(**stateEntry);
  if (!state)
    return fail(stateName, kNoState.str());
  std::optional<int64_t> block = state->getInteger("nested_blocksize");
  std::optional<double> offset = state->getNumber("nested_offset");
  if (!block || *block <= 0 || !offset)
    return fail(stateName, "needs \"nested_blocksize\" above 0 and "
                           "\"nested_offset\" to dequantize its scales");
  std::string numbersName = matrix + ".nested_quant_map";
  Result<std::vector<float>> numbers = readFloats(checkpoint, numbersName);
  if (!numbers)
    return numbers.status();
  constexpr size_t numValues = 256;
  if (numbers->size() != numValues)
    return fail(numbersName, "has " + std::to_string(numbers->size()) +
                                 " entries, expected 256");
  std::string factorsName = matrix + ".nested_absmax";
  Result<std::vector<float>> factors = readFloats(checkpoint, factorsName);
  if (!factors)
    return factors.status();
  size_t count = (*values)->bytes;
  size_t blocks = (count + size_t(*block) - 1) / size_t(*block);
  if (factors->size() != blocks)
    return fail(factorsName,
                "has " + std::to_string(factors->size()) +
                    " factors, expected " + std::to_string(blocks) + " of " +
                    std::to_string(count) + " scales in blocks of " +
                    std::to_string(*block));
  std::vector<float> scales(count);
  for (size_t i = 0; i < count; ++i)
    scales[i] =
        (*numbers)[(*values)->data[i]] * (*factors)[i / size_t(*block)] +
        float(*offset);
  return scales;
}
