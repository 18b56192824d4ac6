// Runs prepare, experts and finalize as parts compiled alone, on two ranks that
// are threads of this process, and prints the output of both, one row per
// token. Build instructions: docs/use/c-api.md, with -lpthread.
//
//   ./a.out parts 5
//
// The folder has the parts: prepare.mlir, experts-0.json and experts-1.json,
// which have half of the experts each, and finalize.mlir.

#include "moejit/moejit.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

constexpr int kRanks = 2;

static void check(moert::capi::Error error) {
  if (!error)
    return;
  std::fprintf(stderr, "run_parts_cpp: %s\n", error.message());
  std::_Exit(1); // both threads may be here
}

/// A part, and the memory of its tensors, which is freed with the device.
class Part {
public:
  /// Compiles the part of a file.
  Part(moejit::capi::Compiler &compiler, moert::capi::Device &device,
       const std::string &path)
      : device(device) {
    check(compiler.load(path.c_str(), device, layer));
  }

  /// Binds new memory to the tensor of this name, and returns it.
  template <typename T>
  T *bind(std::string_view name) {
    void *data; // of f32 or i32
    check(device.allocate(size_t(count(name)) * 4, &data));
    bind(find(name), find(name), data);
    return static_cast<T *>(data);
  }

  /// Binds an output to the input of the next part, which must fit it.
  void connect(std::string_view output, Part &to, std::string_view input) {
    to.bind(to.find(input), find(output), bind<void>(output));
  }

  /// Binds new memory with numbers that depend on the seed.
  float *fill(std::string_view name, uint32_t state) {
    auto *data = bind<float>(name);
    for (int64_t k = 0, all = count(name); k < all; ++k) {
      state = state * 1664525u + 1013904223u;
      data[k] = float(state >> 16) / 65536.0f - 0.5f;
    }
    return data;
  }

  /// Elements in the largest call.
  int64_t count(std::string_view name) const {
    const moert_tensor_info &info = find(name);
    int64_t elements = 1;
    for (int d = 0; d < info.rank; ++d)
      elements *= info.shape[d];
    return elements;
  }

  const moert_tensor_info &find(std::string_view name) const {
    for (int i = 0; i < layer.numTensors(); ++i)
      if (layer.tensor(i)->name == name)
        return *layer.tensor(i);
    std::fprintf(stderr, "run_parts_cpp: a part has no tensor '%s'\n",
                 std::string(name).c_str());
    std::_Exit(1);
  }

  moert::capi::Layer layer;

private:
  /// Binds memory of the type and shape of another tensor.
  void bind(const moert_tensor_info &info, const moert_tensor_info &as,
            void *data) {
    check(
        layer.bind(info.name, as.dtype, data, {as.shape, as.shape + as.rank}));
  }

  moert::capi::Device &device;
};

int main(int argc, char **argv) {
  if (argc != 3)
    return std::fprintf(stderr, "usage: run_parts_cpp folder tokens\n"), 2;
  std::string folder = argv[1];
  int64_t tokens = std::atoll(argv[2]);
  moert::capi::Device device;
  std::vector<moert::capi::Communicator> communicators;
  check(moejit::capi::createHost(device));
  moert_communicator_options options = {sizeof(options), kRanks, 1, 20};
  check(moert::capi::Communicator::createLocal(options, device, communicators));
  const float *outputs[kRanks] = {};
  int64_t widths[kRanks] = {};

  auto runRank = [&](int rank) {
    moejit::capi::Compiler compiler;
    check(compiler.create());
    Part prepare(compiler, device, folder + "/prepare.mlir");
    Part experts(compiler, device,
                 folder + "/experts-" + std::to_string(rank) + ".json");
    Part finalize(compiler, device, folder + "/finalize.mlir");

    // The rank's tokens, and what all ranks have sent.
    prepare.fill("hidden_states", 10 + uint32_t(rank));
    prepare.fill("topk_weights", 20 + uint32_t(rank));
    auto *ids = prepare.bind<int32_t>("topk_ids");
    for (int64_t i = 0, all = prepare.count("topk_ids"); i < all; ++i)
      ids[i] = int32_t((i * 3 + rank) % 4);
    prepare.connect("all_rows", experts, "hidden_states");
    prepare.connect("all_ids", experts, "topk_ids");
    prepare.connect("all_weights", experts, "topk_weights");

    experts.fill("experts.w13", 30 + uint32_t(rank));
    experts.fill("experts.w2", 40 + uint32_t(rank));
    experts.connect("output", finalize, "partial");
    outputs[rank] = finalize.bind<float>("output");
    widths[rank] = finalize.find("output").shape[1];
    check(experts.layer.prepareWeights());

    // Both ranks call these, and wait for each other in them.
    const moert::capi::Communicator &communicator = communicators[size_t(rank)];
    check(prepare.layer.useCommunicator(communicator));
    check(finalize.layer.useCommunicator(communicator));
    check(prepare.layer.run(tokens));
    check(experts.layer.run(kRanks * tokens));
    check(finalize.layer.run(tokens));
  };
  std::thread other(runRank, 1);
  runRank(0);
  other.join();

  for (int rank = 0; rank < kRanks; ++rank)
    for (int64_t i = 0; i < tokens * widths[rank]; ++i)
      std::printf("%.6g%c", outputs[rank][i],
                  (i + 1) % widths[rank] ? ' ' : '\n');
}
