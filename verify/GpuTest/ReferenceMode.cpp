//===- ReferenceMode.cpp - gpu-test --reference, --generate -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceMode.h"

#include "Inputs/Inputs.h"

using namespace moec;
using namespace moec::gputest;
using moert::Result;
using moert::Status;

static Result<reference::Call> makeCall(const LayerSpec &spec,
                                        const moert::SafetensorsFile &file,
                                        int threads) {
  reference::Call call;
  call.spec = spec;
  call.threads = threads;
  for (const TensorInfo &info : getTensorSignature(spec)) {
    if (info.role == TensorRole::Output)
      continue;
    const moert::SafetensorsEntry *entry = file.find(info.name);
    if (!entry || entry->shape.size() != info.shape.size())
      return moert::invalidArgument("tensor '" + info.name +
                                    "' is missing or has a wrong rank");
    if (info.name == "hidden_states")
      call.tokens = entry->shape[0];
    // Files may store e8m0 as bytes.
    moert::DType dtype = info.type == TensorType::F8E8M0FNU
                             ? moert::DType::F8E8M0
                             : entry->dtype;
    call.tensors[info.name] = reference::makeSource(entry->data, dtype);
  }
  return call;
}

static Status evaluateTo(const std::string &path, const reference::Call &call) {
  reference::Matrix logits;
  if (call.spec.entry != Entry::Ids)
    logits = reference::getLogits(call);
  reference::Decision decision = reference::decide(call, logits);
  std::vector<int64_t> tokens(call.tokens);
  for (int64_t t = 0; t < call.tokens; ++t)
    tokens[t] = t;
  reference::Matrix rows = reference::evaluate(call, decision, tokens);
  std::vector<double> output;
  for (int64_t t = 0; t < call.tokens; ++t)
    output.insert(output.end(), rows.row(t),
                  rows.row(t) + rows.getNumColumns());
  std::vector<int64_t> shape = {call.tokens, call.spec.topK};
  return moert::writeSafetensors(
      path, {{"output",
              moert::DType::F64,
              {call.tokens, call.spec.getOutputWidth()},
              output.data(),
              output.size() * 8},
             {"topk_ids", moert::DType::I64, shape, decision.ids.data(),
              decision.ids.size() * 8},
             {"topk_weights", moert::DType::F64, shape, decision.weights.data(),
              decision.weights.size() * 8}});
}

bool moec::gputest::runReference(const Options &options) {
  Diagnostics diagnostics(llvm::errs());
  llvm::FailureOr<LayerSpec> spec =
      importJsonFile(options.reference, SpecOverrides(), diagnostics);
  if (failed(spec))
    return false;
  Result<moert::SafetensorsFile> file =
      moert::SafetensorsFile::open(options.inputs);
  if (!file)
    return options.complain(file.status().message());
  Result<reference::Call> call = makeCall(*spec, *file, options.threads);
  if (!call)
    return options.complain(options.inputs + ": " + call.status().message());
  if (Status status = evaluateTo(options.outputs, *call); !status)
    return options.complain(status.message());
  return true;
}

bool moec::gputest::runGenerator(const Options &options) {
  auto get = [&](size_t i) { return llvm::StringRef(options.generate[i]); };
  uint64_t seed;
  int64_t first, count;
  double deviation;
  std::optional<moert::DType> dtype =
      options.generate.size() == 6 ? moert::parseDType(options.generate[2])
                                   : std::nullopt;
  if (!dtype || get(0).getAsInteger(10, seed) ||
      get(3).getAsDouble(deviation) || get(4).getAsInteger(10, first) ||
      get(5).getAsInteger(10, count) || count < 0 || options.outputs.empty())
    return options.complain(
        "--generate: expected "
        "seed,name,f32|bf16|f16|f8e4m3|f8e8m0|i8,deviation,first,count and "
        "--outputs");
  RandomTensor tensor = {RandomStream(seed, get(1)), *dtype,
                         getFactor(deviation)};
  auto bytes = static_cast<size_t>(count * moert::dtypeBits(*dtype) / 8);
  std::vector<uint8_t> values(bytes);
  tensor.write(first, count, values.data());
  // Written as bytes, because some readers do not know every type. The
  // reference must read the same values.
  std::vector<double> numbers(count);
  tensor.read(first, count, numbers.data());
  Status status =
      moert::writeSafetensors(options.outputs, {{"values",
                                                 moert::DType::U8,
                                                 {static_cast<int64_t>(bytes)},
                                                 values.data(),
                                                 bytes},
                                                {"numbers",
                                                 moert::DType::F64,
                                                 {count},
                                                 numbers.data(),
                                                 numbers.size() * 8}});
  return status.isOk() || options.complain(status.message());
}
