// Compiles a layer of f32 for this machine's CPU, fills its tensors and runs
// it, as examples/c does:
//
//   run_layer_cpp config.json [tokens]
//
// c++ -std=c++17 run_layer.cpp $(pkg-config --cflags --libs moec)

#include "moejit/moejit.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

using moert::capi::Error;

static void check(Error error) {
  if (!error)
    return;
  std::fprintf(stderr, "run_layer_cpp: %s\n", error.message());
  std::exit(1);
}

/// Numbers between -0.5 and 0.5 that are the same everywhere; ids are slots.
static void fill(const moert_tensor_info &info, void *data, int64_t count) {
  auto state = uint32_t(std::strlen(info.name));
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    if (!std::strcmp(info.dtype, "i32"))
      static_cast<int32_t *>(data)[i] = int32_t(i % info.shape[1]);
    else
      static_cast<float *>(data)[i] = float(state >> 16) / 65536.0f - 0.5f;
  }
}

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_layer_cpp config.json [tokens]\n");
    return 2;
  }
  int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 3;
  moejit::capi::Compiler compiler;
  moert::capi::Device device;
  moert::capi::Layer layer;
  check(compiler.create());
  check(moejit::capi::createHost(device));
  check(compiler.load(argv[1], device, layer));

  const float *output = nullptr;
  int64_t width = 0;
  for (int i = 0; i < layer.numTensors(); ++i) {
    const moert_tensor_info &info = *layer.tensor(i);
    std::vector<int64_t> shape(info.shape, info.shape + info.rank);
    if (info.depends_on_tokens)
      shape[0] = tokens;
    int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t(1),
                                    std::multiplies<>());
    void *data; // of the device's, which frees it
    check(device.allocate(size_t(count) * sizeof(float), &data));
    if (info.role == MOERT_OUTPUT) {
      output = static_cast<const float *>(data);
      width = shape[1];
    } else {
      fill(info, data, count);
    }
    // Were it neither f32 nor i32, the layer would refuse it.
    const char *dtype = std::strcmp(info.dtype, "i32") ? "f32" : "i32";
    check(layer.bind(info.name, dtype, data, shape));
  }
  check(layer.prepareWeights());
  check(layer.run(tokens));

  for (int64_t i = 0; i < tokens * width; ++i)
    std::printf("%.6g%c", output[i], (i + 1) % width ? ' ' : '\n');
  return 0;
}
