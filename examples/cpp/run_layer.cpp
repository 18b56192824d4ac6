// Compiles an f32 layer for this machine's CPU, fills its tensors, runs it and
// prints its output, one row per token. Build instructions: docs/use/c-api.md.
//
//   ./a.out config.json 3

#include "moejit/moejit.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string_view>

static void check(moert::capi::Error error) {
  if (error) {
    std::fprintf(stderr, "run_layer_cpp: %s\n", error.message());
    std::exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc != 3)
    return std::fprintf(stderr, "usage: run_layer_cpp config.json tokens\n"), 2;
  int64_t tokens = std::atoll(argv[2]);
  moejit::capi::Compiler compiler;
  moert::capi::Device device;
  moert::capi::Layer layer;
  check(compiler.create());
  check(moejit::capi::createHost(device));
  check(compiler.load(argv[1], device, layer, tokens));

  const float *output = nullptr;
  int64_t width = 0;
  for (int i = 0; i < layer.numTensors(); ++i) {
    const moert_tensor_info &info = *layer.tensor(i);
    // In the largest call.
    std::vector<int64_t> shape(info.shape, info.shape + info.rank);
    int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t(1),
                                    std::multiplies<>());
    void *memory; // freed with the device
    check(device.allocate(size_t(count) * sizeof(float), &memory));
    auto *data = static_cast<float *>(memory);
    auto state = uint32_t(std::string_view(info.name).size()); // arbitrary
    for (int64_t k = 0; k < count; ++k) {
      state = state * 1664525u + 1013904223u;
      data[k] = float(state >> 16) / 65536.0f - 0.5f;
    }
    // Fails unless the tensor is f32.
    check(layer.bind(info.name, "f32", data, shape));
    if (info.role == MOERT_OUTPUT)
      output = data, width = shape[1];
  }
  check(layer.prepareWeights());
  check(layer.run(tokens));

  for (int64_t i = 0; i < tokens * width; ++i)
    std::printf("%.6g%c", output[i], (i + 1) % width ? ' ' : '\n');
}
